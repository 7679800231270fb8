"""Reads one session: its pictures in their order, what they say, and the version that follows.

A failure is final, so what may pass is waited for here, while the lease is kept: a store that does not
answer is asked again for a while before the session fails.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import anyio

from actors.capture.canonical import canonical, hash_of
from actors.capture.config import capture_config
from actors.capture.reading import Reading, Unreadable, payload_of, read_schedule, readers
from actors.capture.submit import MAX_PICTURE_BYTES
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.artifacts import ArtifactError, ArtifactMissing, Artifacts
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.asking import ask
from supervisor.chamber import ChamberNotStarted, Chambers
from supervisor.logs import logger
from supervisor.store import Record

TRIES: Final = 6
AGAIN_SECONDS: Final = 5.0
CHILDREN: Final = 2
MISSING: Final = "PICTURE_MISSING"
MISSING_FOR: Final = timedelta(hours=1)
"""For so long a picture that is missing here may be in the store of another replica: that is its trouble, or
ours, and not the session's."""

_log = logger("capture")


@dataclass(frozen=True, slots=True)
class Desk:
    """What the sessions of a replica share."""

    artifacts: Artifacts
    readers: Chambers


@asynccontextmanager
async def equip(place: Place) -> AsyncIterator[Desk]:
    artifacts = open_artifacts(load_artifact_settings(), place.settings.state_dir)
    try:
        async with readers(CHILDREN) as children:
            yield Desk(artifacts, children)
    finally:
        await artifacts.aclose()


async def handle(claim: Claim, tools: Tools) -> Outcome:
    store, desk = tools.place.store, tools.equipment
    images = await ask(store, "list_capture_images", claim.key)
    [policy] = await ask(store, "read_capture_policy")
    taken_at: datetime = claim.payload["created_at"]
    try:
        pictures = [await _fetch(desk.artifacts, image, len(images)) for image in images]
        reading = await _read(pictures, taken_at.astimezone(UTC).date(), desk.readers, tools)
    except Unreadable as error:
        if error.code == MISSING and policy["now"] - taken_at < MISSING_FOR:
            await _give_back(claim, tools, str(error))
        return Retry(error.code, str(error))
    payload = payload_of(reading)
    return Done(
        {
            "schedule_date": reading.schedule_date,
            "payload": canonical(payload),
            "payload_hash": hash_of(payload),
            "skip_unchanged": policy["skip_unchanged"],
        }
    )


async def _give_back(claim: Claim, tools: Tools, reason: str) -> None:
    """Let another replica have it. Not at once: this one would be the first to take it again."""
    place = tools.place
    _log.error(
        "pictures are missing: do all replicas keep their artifacts in one store?",
        session=str(claim.key),
        store=tools.equipment.artifacts.where,
        reason=reason,
    )
    await anyio.sleep(AGAIN_SECONDS)
    await ask(place.store, "give_capture_back", claim.key, claim.claim_id)
    await anyio.sleep(AGAIN_SECONDS)


async def _read(pictures: Sequence[bytes], day: date, children: Chambers, tools: Tools) -> Reading:
    for tries_left in reversed(range(TRIES)):
        try:
            return await read_schedule(
                pictures,
                day=day,
                languages=capture_config().languages,
                equipment=children,
                deadline=tools.stop_deadline,
            )
        except ChamberNotStarted as error:
            if not tries_left:
                raise Unreadable(
                    "NO_READER", f"no process to read the pictures could be started: {error}"
                ) from error
            _log.warning("no reader was started", reason=str(error))
        await anyio.sleep(AGAIN_SECONDS)
    raise AssertionError("unreachable")


async def _fetch(artifacts: Artifacts, image: Record, count: int) -> bytes:
    """The whole picture: it was bounded when it was taken in, and one that has changed since is not read."""
    which = f"picture {image['sequence']} of {count}"
    for tries_left in reversed(range(TRIES)):
        try:
            return await artifacts.get(image["r2_key"], sha256=image["sha256"], limit=MAX_PICTURE_BYTES)
        except ArtifactMissing:
            raise Unreadable(MISSING, f"{which} is in the artifact store of no replica that looked") from None
        except ArtifactError as error:
            if not tries_left:
                raise Unreadable("NOT_FETCHED", f"{which} could not be fetched: {error}") from None
            _log.info("a picture is fetched again", picture=image["sequence"], reason=str(error))
        await anyio.sleep(AGAIN_SECONDS)
    raise AssertionError("unreachable")
