"""`tenure sync`: syncs of repositories: asked for, looked at, cancelled."""

import json
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from actors.scm.cli import sync_status, sync_task
from actors.scm.cli.follow import NOBODY, follow_sync, someone_works, summary
from actors.scm.cli.inputs import RepoName, Source, SourceType, check_repo, parse_bound, plain
from actors.scm.cli.repo import found_repo
from supervisor.cli import output, session
from supervisor.cli.inputs import encodable
from supervisor.cli.session import Json
from supervisor.errors import BadInput
from supervisor.store import Record, Store

INTERRUPTED: Final = 130

Wait = Annotated[bool, typer.Option("--wait", help="Stay until it has ended; Ctrl-C leaves it running.")]
RunId = Annotated[
    str, typer.Argument(metavar="RUN_ID", help="Such as sync-20300131-001.", show_default=False)
]

app = typer.Typer(no_args_is_help=True, help="Syncs: what is new in a repository, read into the ledger.")


@app.command()
def run(
    name: RepoName,
    source: Annotated[
        SourceType | None, typer.Option("--source", help="Only this source.", show_default="all it has")
    ] = None,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Read what is new. A sync that is open already is the one that is answered.

    With --json: the row of the sync; a list of them where a GitLab repository has several sources.

    Examples:

    - `tenure sync run code --wait`
    - `tenure sync run web --source gitlab_mr --wait --json | jq .stats_json`

    With --wait: exit 0 when it completed, 1 when not. Exits 4 when it is disabled, 5 when there is none.
    """
    check_repo(name)

    async def work(store: Store) -> tuple[list[Record], bool]:
        sources = [source] if source is not None else await _sources(store, name)
        return [await _request(store, name, one) for one in sources], await someone_works(store)

    made, works = session.run(work)
    return _answer(made, works, wait=wait, as_json=as_json)


@app.command()
def backfill(
    name: RepoName,
    *,
    source: Source,
    begin: Annotated[
        str | None,
        typer.Option("--from", help="The first revision (svn), or the instant it begins with."),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", help="The last revision, or the instant it ends with.")
    ] = None,
    update_watermark: Annotated[
        bool, typer.Option("--update-watermark", help="Move the cursor forward to its end, too.")
    ] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Read a range again; the cursor stays where it is.

    Examples:

    - `tenure sync backfill code --source svn --from 1 --to 500 --wait`
    - `tenure sync backfill app --source git --from 2024-01-01T00:00:00Z --to 2024-02-01T00:00:00Z`

    Exits 4 while another sync of that source is open.
    """
    check_repo(name)
    if begin is None and end is None:
        raise BadInput(what="a backfill has a --from, a --to or both")
    bounds: dict[str, Any] = {
        word: parse_bound(text, source) for word, text in (("from", begin), ("to", end)) if text is not None
    }
    bounds |= {"update_watermark": True} if update_watermark else {}

    async def work(store: Store) -> tuple[list[Record], bool]:
        made = await _request(store, name, source, "backfill", json.dumps(bounds))
        return [made], await someone_works(store)

    made, works = session.run(work)
    return _answer(made, works, wait=wait, as_json=as_json)


@app.command()
def cancel(run_id: RunId, as_json: Json = False) -> int:
    """Cancel a sync; what it has read so far stays. Exits 4 when it has ended, 5 when there is none.

    Example: `tenure sync cancel 7`
    """
    encodable(run_id, "the id")
    row = session.run(lambda store: store.row("cancel_sync", session.actor(), run_id))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(plain(row))
    else:
        output.say(f"{run_id} is cancelled; its worker stops with its next heartbeat")
    return 0


app.command("status")(sync_status.status)
app.command("list")(sync_status.list_)
app.command("show")(sync_status.show)
app.command("enable")(sync_task.enable)
app.command("disable")(sync_task.disable)
app.command("schedule")(sync_task.schedule)


async def _sources(store: Store, name: str) -> list[str]:
    repo = await found_repo(store, name)
    return [
        row["source_type"]
        for row in await store.rows("list_sync_tasks", repo["name"])
        if row["status"] != "disabled"
    ] or ["svn" if repo["repo_type"] == "svn" else "git"]


async def _request(
    store: Store, name: str, source: str, mode: str | None = None, bounds: str | None = None
) -> Record:
    row = await store.row("request_sync", session.actor(), name, source, mode, bounds)
    assert row is not None  # noqa: S101  it raises where there is none
    return row


def _answer(made: Sequence[Record], works: bool, *, wait: bool, as_json: bool) -> int:
    if wait:
        return _wait(made, as_json=as_json)
    if as_json:
        _print([plain(row) for row in made])
        return 0
    for row in made:
        told = "" if row["created"] else " (it was open already)"
        output.say(f"{row['run_id']} {row['status']}{told}; look: tenure sync show {row['run_id']}")
    if not works:
        output.say(NOBODY)
    return 0


def _wait(made: Sequence[Record], *, as_json: bool) -> int:
    async def work(store: Store) -> list[dict[str, Any]]:
        # one after the other for the eye; they run side by side
        return [{**await follow_sync(row["run_id"], store), "created": row["created"]} for row in made]

    try:
        ended = session.run(work)
    except KeyboardInterrupt:
        sys.stderr.write("the work goes on without you: tenure sync status, or sync cancel\n")
        return INTERRUPTED
    if as_json:
        _print(ended)
    else:
        for row in ended:
            output.say(summary(row))
    return 0 if all(row["status"] == "completed" for row in ended) else 1


def _print(rows: Sequence[dict[str, Any]]) -> None:
    output.print_json(rows[0] if len(rows) == 1 else rows)
