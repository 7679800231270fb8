"""`tenure duplicates`: files of equal content, and how to be rid of them."""

import json
from typing import Annotated, Any, Final

import anyio
import typer

from actors.dedup.cli import group_output, groups
from actors.dedup.cli.asked import Wait, found_library
from actors.dedup.cli.inputs import GroupKey, check_library, parse_group
from actors.dedup.cli.work import ENDED
from supervisor.cli import output, session
from supervisor.cli.inputs import BIGINT
from supervisor.cli.session import Json
from supervisor.clock import jitter
from supervisor.errors import BadInput, Conflict, NotFound
from supervisor.store import Record, Store

POLL_SECONDS: Final = 0.3
SWITCH: Final = "dedup_allow_real_delete"

app = typer.Typer()


class RealDeletionOff(Conflict):
    """real deletion is switched off, and stays so until somebody allows it: nothing was removed"""

    hint = f"allow it with `tenure setting set {SWITCH} true`; without --execute it is a dry run"


@app.callback(invoke_without_command=True)
def list_(
    context: typer.Context,
    library: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only within this library.", show_default=False)
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a row for each file.")] = False,
    as_json: Json = False,
) -> int:
    """List the groups of files with equal content: those of most files first, then of most bytes.

    Equal means equal by a hash of the whole content. Only hashed files are compared, so first
    `tenure library scan NAME --hash --wait`.

    Examples:

    - `tenure duplicates --library photos`
    - `tenure duplicates --json | jq '[.groups[].duplicate_waste_bytes] | add'`
    - `tenure duplicates --csv > duplicates.csv`
    - `tenure duplicates remove blake3:4b22... --keep 17`   a dry run
    """
    if context.invoked_subcommand is not None:
        return 0
    if csv and as_json:
        raise BadInput(what="--csv and --json exclude each other")
    if library is not None:
        check_library(library)
    writer: group_output.Writer = (
        group_output.Json() if as_json else group_output.Csv() if csv else group_output.Lines()
    )

    async def work(store: Store) -> None:
        only = (await found_library(store, library))["id"] if library is not None else None
        writer.begin()
        async for group, files, last in groups.walk(store, only):
            writer.add(group, files, last=last)
        writer.end()

    session.run(work)
    return 0


@app.command()
def remove(
    group_key: GroupKey,
    keep: Annotated[
        int | None,
        typer.Option(min=1, max=BIGINT, metavar="FILE_ID", help="Which stays.", show_default="the oldest"),
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; else it is a dry run.")] = False,
    wait: Wait = False,
    as_json: Json = False,
) -> int:
    """Remove every file of a group but one: a dry run, unless --execute says otherwise.

    Removed files are moved to a trash directory, after the kept file and they were hashed again. It needs
    the switch dedup_allow_real_delete too; exits 4 while that is off, 5 when there is no such group.

    Examples:

    - `tenure duplicates remove blake3:4b22...`   what would go
    - `tenure duplicates remove blake3:4b22... --keep 17 --execute --wait`
    """
    algorithm, content_hash = parse_group(group_key)

    async def work(store: Store) -> tuple[dict[str, Any], list[Record]]:
        job = await _request(store, algorithm, content_hash, keep, execute=execute)
        if wait:
            job = {**job, **await _ended(store, job["id"])}
        order = json.loads(job["payload"])
        named = [order["keep"], *order["remove"]]
        return job, list(await store.rows("list_removals", named, order["keep"], timeout=groups.READ_SECONDS))

    try:
        job, files = session.run(work)
    except KeyboardInterrupt:
        output.say("the job goes on without you")
        return 130
    _print(job, files, as_json=as_json)
    return 1 if job["status"] in {"failed", "cancelled"} else 0


async def _request(
    store: Store, algorithm: str, content_hash: bytes, keep: int | None, *, execute: bool
) -> dict[str, Any]:
    try:
        row = await store.row(
            "request_dedup_delete", session.actor(), algorithm, content_hash, keep, None, not execute
        )
    except Conflict:
        settings = {one["name"]: json.loads(one["value"]) for one in await store.rows("list_settings")}
        if execute and not settings.get(SWITCH):
            raise RealDeletionOff from None
        raise
    assert row is not None  # noqa: S101  it raises where there is none
    return dict(row)


async def _ended(store: Store, job_id: Any) -> dict[str, Any]:
    while True:
        row = await store.row("read_dedup_job", job_id)
        if row is None:
            raise NotFound(kind="job", name=job_id)
        if row["status"] in ENDED:
            return dict(row)
        await anyio.sleep(jitter(POLL_SECONDS))


def _print(job: dict[str, Any], files: list[Record], *, as_json: bool) -> None:
    kept = next((file for file in files if file["keep"]), None)
    gone = [file for file in files if not file["keep"]]
    if as_json:
        output.print_json(
            {
                "job": job["id"],
                "status": job["status"],
                "dry_run": job["dry_run"],
                "error_code": job.get("error_code"),
                "error_message": job.get("error_message"),
                "keep": kept and _plain(kept),
                "remove": [_plain(file) for file in gone],
            }
        )
        return
    output.say(f"job {job['id']} {job['status']}{', a dry run: nothing is removed' * job['dry_run']}")
    if job.get("error_code"):
        output.say(f"{job['error_code']} {job['error_message'] or ''}")
    if kept is not None:
        output.say(f"keep    {kept['id']:>10}  {kept['library']}: {kept['relative_path']}")
    for file in gone:
        where = f" -> {file['trash_path']}" if file["trash_path"] else ""
        output.say(f"remove  {file['id']:>10}  {file['library']}: {file['relative_path']}{where}")


def _plain(file: Record) -> dict[str, Any]:
    return {name: value for name, value in file.items() if name != "keep"}
