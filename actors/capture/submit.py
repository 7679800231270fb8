"""Takes pictures in: each goes to the artifact store, then the session names them all at once.

Until then no row names the artifacts: what a crash leaves behind, `tenure artifacts gc` finds. Sent again
under its id, a session is the same one, and what was put for it a second time is removed.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any, Final
from uuid import UUID, uuid4

from anyio.to_thread import run_sync

from supervisor.artifacts import ArtifactError, Artifacts
from supervisor.errors import BadInput, Conflict
from supervisor.images.sniff import HEAD_BYTES, sniff
from supervisor.logs import logger
from supervisor.store import Store

PREFIX: Final = "capture/"
MAX_PICTURE_BYTES: Final = 32 << 20
"""The most that the setting capture_max_bytes can be."""


@dataclass(frozen=True, slots=True)
class Picture:
    """`name` is for messages: what somebody calls it says nothing of what it is."""

    name: str
    file: IO[bytes]


class NoPicture(BadInput):
    """{name} is not a picture: {what}"""

    hint = "send PNG, JPEG, WebP, GIF, TIFF, BMP, HEIC or AVIF"


class PictureTooLarge(BadInput):
    """{name} is larger than {limit} bytes, the most a picture may have"""

    hint = "send a smaller one, or raise the setting capture_max_bytes"
    http_status = 413


async def submit(
    store: Store,
    artifacts: Artifacts,
    actor: str,
    user: int,
    pictures: Sequence[Picture],
    session: UUID | None = None,
) -> tuple[UUID, bool]:
    """Return the session's id, and whether it is new. `actor` is for the audit, `user` has the schedule."""
    session = session or uuid4()
    policy = await store.row("read_capture_policy")
    assert policy is not None  # noqa: S101  an aggregate: one row, always
    if not 0 < len(pictures) <= policy["max_images"]:
        raise BadInput(what=f"a session has 1 to {policy['max_images']} pictures, not {len(pictures)}")
    known = [await run_sync(_examine, picture, policy["max_bytes"]) for picture in pictures]
    images: list[dict[str, Any]] = []
    try:
        for number, (picture, facts) in enumerate(zip(pictures, known, strict=True), start=1):
            key = f"{PREFIX}{session}/{number:03}-{uuid4().hex[:16]}"
            images.append({"r2_key": key, **facts})
            await artifacts.put(key, picture.file, expected_sha256=facts["sha256"], limit=facts["size_bytes"])
        [row] = await store.rows("submit_capture", actor, session, user, json.dumps(images))
    except (ArtifactError, BadInput, Conflict):
        await _discard(artifacts, images)
        raise
    if not row["created"]:
        await _discard(artifacts, images)
    return session, row["created"]


def _examine(picture: Picture, limit: int) -> dict[str, Any]:
    head = picture.file.read(HEAD_BYTES)
    if not head:
        raise NoPicture(name=picture.name, what="it is empty")
    if sniff(head) is None:
        raise NoPicture(name=picture.name, what="its first bytes are those of no picture")
    digest, size = hashlib.sha256(head), len(head)
    while piece := picture.file.read(1 << 20):
        digest.update(piece)
        size += len(piece)
        if size > limit:
            raise PictureTooLarge(name=picture.name, limit=limit)
    picture.file.seek(0)
    return {"sha256": digest.hexdigest(), "size_bytes": size}


async def _discard(artifacts: Artifacts, images: Sequence[dict[str, Any]]) -> None:
    for image in images:
        try:
            await artifacts.delete(image["r2_key"])
        except ArtifactError as error:
            reason = str(error)
            logger("capture").warning("an unused artifact stays", key=image["r2_key"], reason=reason)
