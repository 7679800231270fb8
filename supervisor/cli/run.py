"""`tenure run`: what ran, what runs, and why something does not."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from supervisor.cli import completion, output, run_show, session
from supervisor.cli.follow import follow, follow_log, print_log, read_whole_log
from supervisor.cli.inputs import BIGINT, RunId, encodable
from supervisor.cli.names import did_you_mean
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.jobrun import STATES
from supervisor.store import Record, Store

app = typer.Typer(no_args_is_help=True, help="Runs: what happened, and why something does not.")
app.command("show")(run_show.show)
app.command("why")(run_show.why_)


@app.command("list")
def list_(
    state: Annotated[
        str | None,
        typer.Option(help="Only in this state.", show_default=False, autocompletion=completion.states),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(help="Only of this job.", show_default=False, autocompletion=completion.job_names),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    before: Annotated[
        int | None,
        typer.Option(min=1, max=BIGINT, help="Only with a smaller id: the next page.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> int:
    """List runs, newest first.

    Examples:

    - `tenure run list --state FAILED --job backup`
    - `tenure run list --before 1200`   what comes after a page that ended with run 1200
    """
    wanted = state.upper() if state is not None else None
    if wanted is not None and wanted not in STATES:
        meant = did_you_mean(wanted, STATES)
        raise BadInput(what=f"{state!r} is no state; {meant or 'states are ' + ', '.join(STATES)}")
    name = encodable(job, "the job's name") if job is not None else None
    rows = session.run(partial(_list, wanted, name, before, limit))
    if as_json:
        output.print_json([{field: value for field, value in row.items() if field != "now"} for row in rows])
    else:
        _print_list(rows, limit)
    return 0


@app.command()
def wait(
    run_id: RunId,
    timeout: Annotated[
        float | None, typer.Option(min=0, help="Give up after so many seconds.", show_default="never")
    ] = None,
    as_json: Json = False,
) -> int:
    """Wait until a run and its further attempts have ended: exit 0 on SUCCEEDED, else 1.

    Example: `tenure run wait 7 --timeout 60 && echo done`
    """
    last, timed_out = session.run(partial(follow, run_id, timeout))
    if as_json:
        output.print_json({**last, "timed_out": timed_out})
    elif timed_out:
        output.say(f"run {last['id']} is still ", output.state(last["state"]), f" after {timeout:g} s")
    else:
        error = f": {last['error_code']} {last['error_message'] or ''}" if last["error_code"] else ""
        output.say(f"run {last['id']} ", output.state(last["state"]), f" at attempt {last['attempt']}{error}")
    return 0 if last["state"] == "SUCCEEDED" else 1


@app.command()
def cancel(run_id: RunId, as_json: Json = False) -> int:
    """Ask that a run be cancelled; its worker stops it. Exits 4 when it has ended.

    Example: `tenure run cancel 7 && tenure run wait 7`
    """
    row = session.run(lambda store: store.row("request_cancel", session.actor(), run_id))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(dict(row))
    else:
        output.say(f"run {run_id} {'will be' if row['requested'] else 'was already being'} cancelled")
    return 0


@app.command()
def retry(run_id: RunId, as_json: Json = False) -> int:
    """Ask for another attempt at what ended without success; also when its attempts are used up.

    Exits 4 when the run has not ended, has succeeded, or has a newer attempt.

    Example: `tenure run retry 7 && tenure run wait 7`
    """
    row = session.run(lambda store: store.row("request_retry", session.actor(), run_id))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(dict(row))
    else:
        output.say(
            f"another attempt at run {run_id} {'was' if row['requested'] else 'had already been'} asked for"
        )
    return 0


@app.command()
def logs(
    run_id: RunId,
    raw: Annotated[bool, typer.Option("--raw", help="On a terminal too, exactly what was written.")] = False,
    following: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on until the run and its further attempts have ended."),
    ] = False,
    as_json: Json = False,
) -> int:
    """Print what a run wrote. Its stderr goes to stderr.

    With --follow and --json each line of the log is one line of JSON.

    Examples:

    - `tenure run logs 7`
    - `tenure run logs 7 --follow`   as it comes, over further attempts, whatever happens to the connection
    """
    if following:
        tell = _tell_json if as_json else partial(_tell, raw)
        session.run(partial(follow_log, run_id, tell, output.note))
        return 0
    lines = session.run(partial(read_whole_log, run_id))
    if as_json:
        output.print_json(lines)
    else:
        print_log(lines, raw=raw)
    return 0


def _tell(raw: bool, _run_id: int, line: dict[str, Any]) -> None:
    print_log([line], raw=raw)


def _tell_json(run_id: int, line: dict[str, Any]) -> None:
    output.print_json_line({"run_id": run_id, **line})


async def _list(
    state: str | None, job: str | None, before: int | None, limit: int, store: Store
) -> Sequence[Record]:
    if job is not None and not await store.value("find_job", job):
        raise NotFound(kind="job", name=job)
    return await store.rows("list_runs", state, job, before, limit)


def _print_list(rows: Sequence[Record], limit: int) -> None:
    output.print_table(
        ["RUN", "JOB", "STATE", "ATTEMPT", "CREATED", "TOOK", "WORKER", "ERROR"],
        (
            [
                row["id"],
                row["job"],
                output.state(row["state"], row["continuation_state"]),
                row["attempt"],
                output.age(row["now"], row["created_at"]),
                _took(row),
                row["assigned_worker_id"],
                row["error_code"],
            ]
            for row in rows
        ),
        empty="no runs",
    )
    if len(rows) == limit:
        output.say(f"more: --before {rows[-1]['id']}")


def _took(row: Record) -> str:
    if row["started_at"] is None:
        return ""
    ended = row["finished_at"] or row["now"]
    return output.duration(max(0.0, (ended - row["started_at"]).total_seconds()))
