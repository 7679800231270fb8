"""Repositories in a ledger: revisions, commits, merge requests and reviews, with their diffs as evidence."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final

from actors.scm import runs
from actors.scm.config import sync_config
from actors.scm.leases import of_source
from supervisor import Actor, Claim, Outcome, Tools
from supervisor.domain import Domain

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from prometheus_client import CollectorRegistry

    from supervisor.api.view import ReplicaView
    from supervisor.config import Settings
    from supervisor.store import Store

NAME: Final = "scm"


async def _sync(claim: Claim, tools: Tools) -> Outcome:
    from actors.scm.sync import handle  # noqa: PLC0415  an HTTP client and more: for those who work

    return await handle(claim, tools)


def _parallelism() -> int:
    return sync_config().parallelism


RUNS: Final = Actor(NAME, runs.handle, check=runs.check, task_types=runs.TASK_TYPES, waits=True)
SVN: Final = Actor(NAME, _sync, lease=of_source("svn"), slots=_parallelism)
GIT: Final = Actor(NAME, _sync, lease=of_source("git"), slots=_parallelism)
MERGE_REQUESTS: Final = Actor(NAME, _sync, lease=of_source("gitlab_mr"), slots=_parallelism)
REVIEWS: Final = Actor(NAME, _sync, lease=of_source("gitlab_review"), slots=_parallelism)


def _routes(view: "ReplicaView") -> "APIRouter":
    from actors.scm.api import routes  # noqa: PLC0415  for the one process that serves them

    return routes(view)


def _pages(view: "ReplicaView") -> "APIRouter":
    from actors.scm.pages import pages  # noqa: PLC0415  for the one process that draws them

    return pages(view)


def _commands() -> "Mapping[str, typer.Typer]":
    from actors.scm.cli import commands  # noqa: PLC0415  for the command line alone

    return commands()


def _figures(registry: "CollectorRegistry") -> "Callable[[Store], Awaitable[None]]":
    from actors.scm.figures import register  # noqa: PLC0415  for replicas alone

    return register(registry)


async def _sample(store: "Store", settings: "Settings") -> None:
    from actors.scm.sample import sample  # noqa: PLC0415  of no use but here

    await sample(store, settings)


DOMAIN: Final = Domain(
    name=NAME,
    routes=_routes,
    commands=_commands,
    pages=_pages,
    figures=_figures,
    sample=_sample,
    duties=("recover_syncs", "make_due_syncs", "cancel_syncs_of_ended_runs", "purge_syncs"),
)
