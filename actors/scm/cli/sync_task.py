"""`tenure sync enable`, `disable` and `schedule`: whether and when a sync starts by itself."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from actors.scm.cli.inputs import RepoName, Source, check_repo, configured, plain
from actors.scm.cli.sync_status import when
from actors.scm.config import for_task
from supervisor import schedule as schedules
from supervisor.cli import output, session
from supervisor.cli.inputs import parse_payload
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store

OWN_TIMES = ("auto", "interval_seconds")


def enable(name: RepoName, source: Source, as_json: Json = False) -> int:
    """Let it be synced again; its failures are forgotten, its schedule is as it was.

    Example: `tenure sync enable code --source svn`
    """
    return _switch("enable_sync_task", name, source, as_json=as_json)


def disable(name: RepoName, source: Source, as_json: Json = False) -> int:
    """Let it not be synced: an open sync is cancelled, its schedule rests. The cursor stays.

    Example: `tenure sync disable web --source gitlab_review`
    """
    return _switch("disable_sync_task", name, source, as_json=as_json)


def schedule(
    name: RepoName,
    source: Source,
    *,
    cron: Annotated[
        str | None, typer.Option(help="When: minute hour day month weekday, in UTC.", show_default=False)
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            min=1, max=86_400, metavar="SECONDS", help="So long after each end.", show_default=False
        ),
    ] = None,
    auto: Annotated[
        bool, typer.Option("--auto", help="The same, with interval_seconds of [scm.sync].")
    ] = False,
    manual: Annotated[bool, typer.Option("--manual", help="Only when somebody asks.")] = False,
    priority: Annotated[
        int | None,
        typer.Option(min=-1_000_000, max=1_000_000, help="The greater is first.", show_default=False),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="JSON",
            help="What is different from [scm.sync] for this one; in place of what was given before.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """Say when a sync starts by itself, how urgent it is, and what is different for it.

    Examples:

    - `tenure sync schedule code --source svn --every 300`
    - `tenure sync schedule app --source git --cron '0 3 * * *'`
    - `tenure sync schedule app --source git --manual`
    - `tenure sync schedule code --source svn --config '{"overlap": 5, "mode": "best_effort"}'`
    """
    check_repo(name)
    if sum((cron is not None, every is not None, auto, manual)) > 1:
        raise BadInput(what="--cron, --every, --auto and --manual exclude each other")
    if auto:
        every = configured().interval_seconds
        if every == 0:
            raise BadInput(
                what="interval_seconds of [scm.sync] is 0: syncs are started by hand; give --every"
            )
    if cron is None and every is None and not manual and priority is None and config is None:
        raise BadInput(what="nothing to do: give --cron, --every, --auto, --manual, --priority or --config")
    if cron is not None and (faults := schedules.complaints(cron, "UTC", session.wall_clock())):
        raise BadInput(what="; ".join(faults))
    given = None if config is None else _own(parse_payload(config), source)

    async def work(store: Store) -> Record:
        was = await _found_task(store, name, source)
        wanted = _wanted(was["config_json"], given, cron=cron, every=every, manual=manual)
        timed = cron if cron is not None else ("" if every is not None or manual else None)
        saved = await store.row(
            "save_sync_task", session.actor(), name, source, timed, priority, json.dumps(wanted)
        )
        assert saved is not None  # noqa: S101  it raises where there is none
        return saved

    saved = session.run(work)
    row = plain(saved)
    if as_json:
        output.print_json(row | {"repo": name})
    else:
        rests = "; it is disabled: tenure sync enable" if row["status"] == "disabled" else ""
        output.say(f"{source} of {name} is synced {_spoken(row)}{rests}")
    return 0


def _wanted(
    was: Mapping[str, Any],
    given: Mapping[str, Any] | None,
    *,
    cron: str | None,
    every: int | None,
    manual: bool,
) -> dict[str, Any]:
    """What the task's own configuration becomes: other times, other words, or both."""
    times = {word: was[word] for word in OWN_TIMES if word in was}
    words = {word: value for word, value in was.items() if word not in OWN_TIMES}
    if every is not None:
        times = {"auto": True, "interval_seconds": every}
    elif cron is not None or manual:
        times = {}
    return {**(words if given is None else given), **times}


def _own(given: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """Judged as the worker will."""
    if clash := [word for word in OWN_TIMES if word in given]:
        raise BadInput(what=f"{', '.join(clash)} in --config: --every and --manual say that")
    for_task(configured(), source, given)
    return given


def _switch(query: str, name: str, source: str, *, as_json: bool) -> int:
    check_repo(name)
    row = session.run(lambda store: store.row(query, session.actor(), name, source))
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json(plain(row) | {"repo": name})
    else:
        output.say(f"{source} of {name} is {'disabled' if row['status'] == 'disabled' else 'enabled'}")
    return 0


async def _found_task(store: Store, name: str, source: str) -> dict[str, Any]:
    for row in await store.rows("list_sync_tasks", name):
        if row["source_type"] == source:
            return plain(row)
    raise NotFound(kind="sync", name=f"{name}/{source}")


def _spoken(row: Mapping[str, Any]) -> str:
    told = when(row)
    return f"at {told}" if row["cron_expr"] else told
