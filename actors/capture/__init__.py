"""Pictures of a person's schedule, read into versions of a day."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from actors.capture import leases
from supervisor import Actor, Claim, Outcome, Tools
from supervisor.actor import Place
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.logs import logger
from supervisor.store import Store

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter

    from supervisor.api.view import ReplicaView

NAME: Final = "capture"
# what an upload may ever have; how much it may have today is the setting capture_max_bytes, for each picture
UPLOAD_BYTES: Final = 20 * (32 << 20) + (1 << 20)


async def _handle(claim: Claim, tools: Tools) -> Outcome:
    from actors.capture.work import handle  # noqa: PLC0415  for those who work

    return await handle(claim, tools)


@asynccontextmanager
async def _equip(place: Place) -> AsyncIterator[Any]:
    from actors.capture.work import equip  # noqa: PLC0415  for those who work

    async with equip(place) as desk:
        yield desk


def _lacks() -> str | None:
    from actors.capture.config import capture_config  # noqa: PLC0415  for replicas alone
    from actors.capture.reading.languages import check_languages  # noqa: PLC0415
    from actors.capture.reading.trouble import Unreadable  # noqa: PLC0415

    try:
        check_languages(capture_config().languages)
    except Unreadable as error:
        return str(error)
    return None


def _fits(_settings: Settings) -> bool:
    """A replica without the language must not find out with somebody's session, which fails for good."""
    lacks = _lacks()
    if lacks is not None:
        logger("capture").warning("no pictures are read here", reason=lacks)
    return lacks is None


# One session at a time: reading keeps a core busy, and another replica may be idle.
SESSIONS: Final = Actor(NAME, _handle, equip=_equip, lease=leases.SESSIONS, slots=1, fits=_fits)


def _routes(view: "ReplicaView") -> "APIRouter":
    from actors.capture.api import routes  # noqa: PLC0415  for the one process that serves them

    return routes(view)


def _pages(view: "ReplicaView") -> "APIRouter":
    from actors.capture.pages import pages  # noqa: PLC0415  for the one process that draws them

    return pages(view)


def _commands() -> "Mapping[str, typer.Typer]":
    from actors.capture.cli import commands  # noqa: PLC0415  the command line is being made when this is asked

    return commands()


def _complaints(_settings: Settings) -> Sequence[str]:
    """What somebody asked for by name and this replica cannot read."""
    from actors.capture.config import capture_config  # noqa: PLC0415  for replicas alone

    lacks = _lacks() if "languages" in capture_config().model_fields_set else None
    return [] if lacks is None else [f"TENURE_CAPTURE_LANGUAGES: {lacks}"]


async def _sample(store: Store, settings: Settings) -> None:
    from actors.capture.sample import sample  # noqa: PLC0415  draws pictures: of no use but here

    await sample(store, settings)


DOMAIN: Final = Domain(
    name=NAME,
    complaints=_complaints,
    routes=_routes,
    commands=_commands,
    pages=_pages,
    sample=_sample,
    body_bytes={"/api/v1/capture/sessions": UPLOAD_BYTES},
)
