"""Makes one rendition of the picture of a ref, or withdraws what was made of one that has ended.

What there is to do is read from the refs as they stand, so a job that is done twice, or late, does what is
right then. The rendition becomes a ref in role `thumbnail` of the same entity, by the one way that writes
refs; its request id comes from the claim, so that a call without an answer can be repeated.
"""

import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from typing import IO, Any, Final
from uuid import uuid5

from anyio.to_thread import run_sync

from actors.media.content import examine
from actors.media.render import MAX_OUTPUT_BYTES, RenditionFailed, render, renderers
from actors.media.shelf import open_shelf
from actors.media.upload import upload
from actors.media.write import Answer, Unwanted, answer_of
from supervisor import Cancel, Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.artifacts import ArtifactError, Artifacts
from supervisor.asking import ask
from supervisor.chamber import Chambers
from supervisor.store import Record

SLOTS: Final = os.cpu_count() or 2
MAX_SOURCE_BYTES: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class Studio:
    """What the renditions of a replica share."""

    chambers: Chambers
    artifacts: Artifacts


@asynccontextmanager
async def equip(place: Place) -> AsyncIterator[Studio]:
    artifacts = open_shelf(place.settings)
    try:
        async with renderers(SLOTS) as chambers:
            yield Studio(chambers, artifacts)
    finally:
        await artifacts.aclose()


async def handle(claim: Claim, tools: Tools) -> Outcome:
    store = tools.place.store
    await ask(store, "withdraw_renditions", claim.key, claim.claim_id)
    rows = await ask(store, "read_rendition", claim.key, claim.claim_id)
    if not rows:
        return Done()
    with TemporaryFile() as source, TemporaryFile() as output:
        try:
            await _fetch(tools.equipment.artifacts, rows[0], source)
            wanted = {name: rows[0][name] for name in ("format", "max_dimension", "quality")}
            await render(
                tools.equipment.chambers, source.fileno(), output.fileno(), wanted, tools.stop_deadline()
            )
            return _outcome(await _publish(claim, tools, output))
        except RenditionFailed as error:
            return Cancel(str(error), error.code) if error.is_final else Retry(error.code, str(error))
        except Unwanted:  # its source has ended: whoever ended it had this looked at again
            return Done()
        except ArtifactError as error:
            return Retry(error.code, str(error))


async def _fetch(artifacts: Artifacts, wanted: Record, source: IO[bytes]) -> None:
    if wanted["file_size"] > MAX_SOURCE_BYTES:
        raise RenditionFailed("PICTURE_TOO_LARGE", "the file is too large to be decoded", is_final=True)
    async with artifacts.open(wanted["storage_key"]) as pieces:
        async for piece in pieces:
            await run_sync(source.write, piece)
    await run_sync(source.flush)
    if await run_sync(source.tell) != wanted["file_size"]:
        raise RenditionFailed("CONTENT_DIFFERS", "the content has not its recorded size", is_final=False)


async def _publish(claim: Claim, tools: Tools, output: IO[bytes]) -> Answer:
    request = uuid5(claim.claim_id, "rendition")
    content = await run_sync(examine, output, MAX_OUTPUT_BYTES)

    async def write(facts: Mapping[str, Any]) -> Answer:
        arguments = (claim.key, claim.claim_id, request, json.dumps(facts))
        [row] = await ask(tools.place.store, "put_rendition", *arguments)
        if row["request_id"] is None:
            raise Unwanted
        return answer_of(row)

    return await upload(tools.equipment.artifacts, content, write)


def _outcome(answer: Answer) -> Outcome:
    if answer.result == "REJECTED" and answer.error_code != "SLOT_OCCUPIED":
        return Cancel(answer.error_message or "", answer.error_code or "REJECTED")
    if not answer.is_ok:
        return Retry(answer.error_code or "FAILED", answer.error_message or "")
    return Done({"made_ref_id": answer.ref_id})
