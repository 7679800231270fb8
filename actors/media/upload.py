"""An upload: ask whether the content is needed, put it, and write; in this order.

Nothing is stored of what the rules reject or what is there already. Between the put and the write a crash
leaves an artifact that no row names, which `tenure artifacts gc` finds; the same request, sent again, puts
another one. An artifact whose write was answered, and which is not the one in use, is removed at once: its
key is known to nobody else. After a write without an answer it stays, because it may be in use.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anyio.to_thread import run_sync

from actors.media.content import Content
from actors.media.shelf import new_key
from actors.media.write import Answer, Unwanted
from supervisor.artifacts import ArtifactError, Artifacts, Overwrite
from supervisor.errors import BadInput, Conflict, NotFound
from supervisor.logs import logger

Write = Callable[[Mapping[str, Any]], Awaitable[Answer]]

_log = logger("media")


async def upload(artifacts: Artifacts, content: Content, write: Write) -> Answer:
    """`write` sends the request with these facts of the content."""
    answer = await write(content.facts())
    if not answer.needs_content:
        if answer.is_ok and answer.storage_key is not None:
            await _restore(artifacts, content, answer.storage_key)
        return answer
    key = new_key(content.hash)
    await run_sync(content.file.seek, 0)
    await artifacts.put(key, content.file, expected_sha256=content.sha256, limit=content.size)
    try:
        answer = await write(content.facts(key))
    except (BadInput, Conflict, NotFound, Unwanted):
        await _discard(artifacts, key)
        raise
    if answer.storage_key != key:
        await _discard(artifacts, key)
    return answer


async def _restore(artifacts: Artifacts, content: Content, key: str) -> None:
    """A content whose artifact was lost comes back with whoever has it, to where its row says it is."""
    if not await artifacts.exists(key):
        await run_sync(content.file.seek, 0)
        await artifacts.put(
            key,
            content.file,
            overwrite=Overwrite.SAME,
            expected_sha256=content.sha256,
            limit=content.size,
        )


async def _discard(artifacts: Artifacts, key: str) -> None:
    try:
        await artifacts.delete(key)
    except ArtifactError as error:
        _log.warning("an unused artifact stays for the collection", key=key, reason=str(error))
