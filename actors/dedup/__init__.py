"""Libraries of files: scanned, hashed, grouped by equal content, thumbnailed and cleaned."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from actors.dedup import (
    cleanup,
    delete,
    hash_files,
    hash_job,
    leases,
    orders,
    policy,
    runs,
    scan,
    thumbnail,
    thumbnail_job,
    wal,
)
from supervisor import Actor
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.store import Store

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter

    from supervisor.api.view import ReplicaView

NAME: Final = "dedup"

RUNS: Final = Actor(NAME, runs.handle, check=runs.check, task_types=orders.TASK_TYPES, waits=True)
SCAN: Final = Actor(NAME, scan.handle, lease=leases.SCAN, slots=1, fits=policy.has_libraries)
HASH: Final = Actor(NAME, hash_job.handle, lease=leases.HASH, slots=1)
FILES: Final = Actor(
    NAME,
    hash_files.handle,
    equip=hash_files.equip,
    lease=leases.FILES,
    slots=2,
    ahead=1,
    fits=policy.has_libraries,
)
DELETE: Final = Actor(NAME, delete.handle, lease=leases.DELETE, slots=1, fits=policy.has_libraries)
THUMBNAIL_JOB: Final = Actor(NAME, thumbnail_job.handle, lease=leases.THUMBNAIL_JOB, slots=1)
THUMBNAILS: Final = Actor(
    NAME,
    thumbnail.handle,
    equip=thumbnail.equip,
    lease=leases.THUMBNAILS,
    slots=thumbnail.SLOTS,
    fits=policy.has_libraries,
)
CLEANUP: Final = Actor(NAME, cleanup.handle, lease=leases.CLEANUP, slots=1)
WAL: Final = Actor(NAME, wal.handle, lease=leases.WAL, slots=1, fits=policy.may_hold_maintenance)


def _routes(view: "ReplicaView") -> "APIRouter":
    from actors.dedup.api import routes  # noqa: PLC0415  for the one process that serves them

    return routes(view)


def _pages(view: "ReplicaView") -> "APIRouter":
    from actors.dedup.pages import pages  # noqa: PLC0415  for the one process that draws them

    return pages(view)


def _commands() -> "Mapping[str, typer.Typer]":
    from actors.dedup.cli import commands  # noqa: PLC0415  the command line is being made when this is asked

    return commands()


async def _sample(store: Store, settings: Settings) -> None:
    from actors.dedup.sample import sample  # noqa: PLC0415  draws pictures: of no use but here

    await sample(store, settings)


DOMAIN: Final = Domain(
    name=NAME,
    duties=(
        "return_retryable_jobs",
        "cancel_jobs_of_ended_runs",
        "drop_unwanted_hashes",
        "retry_failed_thumbnails",
        "purge_dedup",
    ),
    complaints=policy.complaints,
    routes=_routes,
    commands=_commands,
    pages=_pages,
    sample=_sample,
)
