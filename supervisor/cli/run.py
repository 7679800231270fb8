"""`tenure run`: what ran, what runs, and why something does not."""

import json
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Annotated, Any

import typer

from supervisor.cli import output, session
from supervisor.cli.follow import follow, print_log, read_whole_log
from supervisor.cli.inputs import BIGINT, RunId, encodable
from supervisor.cli.session import Json
from supervisor.config import load_settings
from supervisor.errors import BadInput, NotFound
from supervisor.jobrun import STATES
from supervisor.store import Record, Store
from supervisor.why import Candidate, Facts, why

MOMENTS = frozenset({
    "created_at", "assigned_at", "started_at", "finished_at", "not_before", "retry_at", "scheduled_for",
    "cancel_requested_at", "executor_stopped_at", "continuation_check_deadline_at",
})  # fmt: skip

app = typer.Typer(no_args_is_help=True, help="Runs: what happened, and why something does not.")


@app.command("list")
def list_(
    state: Annotated[str | None, typer.Option(help="Only in this state.", show_default=False)] = None,
    job: Annotated[str | None, typer.Option(help="Only of this job.", show_default=False)] = None,
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
        raise BadInput(what=f"{state!r} is no state; states are {', '.join(STATES)}")
    name = encodable(job, "the job's name") if job is not None else None
    rows = session.run(partial(_list, wanted, name, before, limit))
    if as_json:
        output.print_json([{field: value for field, value in row.items() if field != "now"} for row in rows])
    else:
        _print_list(rows, limit)
    return 0


@app.command()
def show(run_id: RunId, as_json: Json = False) -> int:
    """Show a run: every column, what it went through, and completions that came too late."""
    row = _found(session.run(lambda store: store.row("show_run", run_id)), run_id)
    run = {
        **json.loads(row["run"]),
        "job": row["job"],
        "history": json.loads(row["history"]),
        "late_finishes": json.loads(row["late_finishes"]),
    }
    if as_json:
        output.print_json(run)
    else:
        _print_run(run, row["now"])
    return 0


@app.command("why")
def why_(run_id: RunId, as_json: Json = False) -> int:
    """Say the one reason why a run is not running, with the evidence for it."""
    settings = load_settings()
    facts = session.run(partial(_read_facts, run_id, settings.timings.stop_bound), settings)
    reason = why(facts, settings.timings.confirm_after)
    if as_json:
        output.print_json(
            {
                "id": run_id,
                "state": facts.run["state"],
                "reason": reason.code,
                "text": reason.text,
                "until": reason.until,
                "evidence": reason.evidence,
            }
        )
        return 0
    output.say(
        f"run {run_id} ",
        output.state(facts.run["state"], facts.run["continuation_state"]),
        f": {reason.text}",
    )
    output.print_facts(
        [
            ("reason", reason.code),
            ("until", _evidence(reason.until, facts.run["now"])),
            *((name, _evidence(value, facts.run["now"])) for name, value in reason.evidence.items()),
        ]
    )
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
    """Ask that a run be cancelled; its worker stops it. Exits 4 when it has ended."""
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
    as_json: Json = False,
) -> int:
    """Print what a run wrote. Its stderr goes to stderr."""
    lines = session.run(partial(read_whole_log, run_id))
    if as_json:
        output.print_json(lines)
    else:
        print_log(lines, raw=raw)
    return 0


async def _list(
    state: str | None, job: str | None, before: int | None, limit: int, store: Store
) -> Sequence[Record]:
    if job is not None and not await store.value("find_job", job):
        raise NotFound(kind="job", name=job)
    return await store.rows("list_runs", state, job, before, limit)


async def _read_facts(run_id: int, stop_bound_seconds: float, store: Store) -> Facts:
    run = _found(await store.row("read_why", run_id, stop_bound_seconds), run_id)
    return Facts(
        run=dict(run),
        occupants=[row["id"] for row in await store.rows("list_occupants", run_id, stop_bound_seconds)],
        candidates=[Candidate(**row) for row in await store.rows("list_candidates", run_id)],
        ahead=await store.value("count_ahead", run_id),
    )


def _found(row: Record | None, run_id: int) -> Record:
    if row is None:
        raise NotFound(kind="run", name=run_id)
    return row


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


def _print_run(run: dict[str, Any], now: datetime) -> None:
    output.print_facts(
        (name, f"{value} ({output.age(now, value)})" if name in MOMENTS and value else _plain(value))
        for name, value in run.items()
        if name not in {"history", "late_finishes"}
    )
    output.say("")
    output.print_table(
        ["VERSION", "MOVE", "ATTEMPT", "AT", "WORKER", "EPOCH", "REASON"],
        (
            [
                step["version"],
                f"{step['from_state'] or ''} -> {step['to_state']}"
                + (" CONFIRMING" if step["continuation_state"] == "CONFIRMING" else ""),
                step["attempt"],
                step["at"],
                step["worker_id"],
                step["leader_epoch"],
                step["reason"],
            ]
            for step in run["history"]
        ),
        empty="no history",
    )
    for late in run["late_finishes"]:
        output.say(f"late: {late['worker_id']} wanted to end it as {late['state']} at {late['at']}")


def _plain(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _evidence(value: Any, now: datetime) -> str | None:
    if isinstance(value, datetime):
        return f"{value.isoformat()} ({output.age(now, value)})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {fact}" for name, fact in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return None if value is None else str(value)
