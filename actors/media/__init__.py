"""Media of an application's own things: contents, who uses them and where, and every write told in events."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from actors.media import gc, leases, renditions
from supervisor import Actor
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.store import Store

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter

    from supervisor.api.view import ReplicaView
    from supervisor.doctor import Finding

NAME: Final = "media"
# what an upload may ever have; how much it may have today is the setting media_max_bytes
UPLOAD_BYTES: Final = 17_179_869_184 + (1 << 20)

RENDITIONS: Final = Actor(
    NAME,
    renditions.handle,
    equip=renditions.equip,
    lease=leases.RENDITIONS,
    slots=renditions.SLOTS,
    ahead=renditions.SLOTS,
)
COLLECTIONS: Final = Actor(NAME, gc.handle, equip=gc.equip, lease=leases.COLLECTIONS, slots=2)
ACTORS: Final = (RENDITIONS, COLLECTIONS)


def _routes(view: "ReplicaView") -> "APIRouter":
    from actors.media.api import routes  # noqa: PLC0415  for the one process that serves them

    return routes(view)


def _pages(view: "ReplicaView") -> "APIRouter":
    from actors.media.pages import pages  # noqa: PLC0415  for the one process that draws them

    return pages(view)


def _commands() -> "Mapping[str, typer.Typer]":
    from actors.media.cli import commands  # noqa: PLC0415  the command line is being made when this is asked

    return commands()


async def _sample(store: Store, settings: Settings) -> None:
    from actors.media.sample import sample  # noqa: PLC0415  draws pictures: of no use but here

    await sample(store, settings)


async def _findings(store: Store) -> "list[Finding]":
    from actors.media.health import findings  # noqa: PLC0415  for the one command that asks

    return await findings(store)


DOMAIN: Final = Domain(
    name=NAME,
    duties=("tend_media",),
    routes=_routes,
    commands=_commands,
    pages=_pages,
    findings=_findings,
    sample=_sample,
    body_bytes={"/api/v1/media/blobs": UPLOAD_BYTES},
)
