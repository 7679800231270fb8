"""Content that is measured before it is sent: S3 wants size and digests first. Blocking work is in threads.

Small content stays in memory, larger content goes to an anonymous temporary file; a file that can be read
twice is used as it is.
"""

import base64
import hashlib
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, Final

import anyio
from anyio.to_thread import run_sync

from supervisor.artifacts import Content
from supervisor.artifacts.errors import TooLarge

PIECE: Final = 256 * 1024
MEMORY_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Measure:
    size: int
    sha256: str
    md5: str

    @property
    def sha256_base64(self) -> str:
        return base64.b64encode(bytes.fromhex(self.sha256)).decode()

    @property
    def md5_base64(self) -> str:
        return base64.b64encode(bytes.fromhex(self.md5)).decode()


@dataclass(frozen=True, slots=True)
class Slice:
    """A piece of a parcel that can be sent, and sent again; one slice of a parcel at a time."""

    file: IO[bytes]
    start: int
    measure: Measure

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        at, end = self.start, self.start + self.measure.size
        while at < end:
            piece = await run_sync(_read_at, self.file, at, min(PIECE, end - at))
            if not piece:
                raise OSError("the content became shorter while it was sent")
            at += len(piece)
            yield piece


class Parcel:
    def __init__(self, file: IO[bytes], start: int, measure: Measure) -> None:
        self.file = file
        self.start = start
        self.measure = measure

    def whole(self) -> Slice:
        return Slice(self.file, self.start, self.measure)

    async def slices(self, size: int) -> AsyncIterator[Slice]:
        for offset in range(0, self.measure.size, size):
            length = min(size, self.measure.size - offset)
            start = self.start + offset
            yield Slice(self.file, start, await run_sync(_measure, _blocks(self.file, start, length)))


@asynccontextmanager
async def packed(key: str, content: Content, *, limit: int) -> AsyncIterator[Parcel]:
    """The content, measured; TooLarge as soon as it is longer than `limit`."""
    if isinstance(content, bytes):
        content = BytesIO(content)
    if not isinstance(content, AsyncIterable) and content.seekable():
        start = content.tell()
        measure = await run_sync(
            _measure, _blocks(content, start, None), lambda size: _require(key, size, limit)
        )
        yield Parcel(content, start, measure)
        return
    with SpooledTemporaryFile(max_size=MEMORY_BYTES) as file:
        try:
            yield Parcel(file, 0, await _spooled(key, content, file, limit))
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(file.close)


async def pieces_of(content: Content) -> AsyncGenerator[bytes, None]:
    if isinstance(content, bytes):
        yield content
    elif isinstance(content, AsyncIterable):
        async for piece in content:
            yield piece
    else:
        while piece := await run_sync(content.read, PIECE):
            yield piece


async def _spooled(key: str, content: Content, file: IO[bytes], limit: int) -> Measure:
    size, sha256, md5 = 0, hashlib.sha256(), hashlib.md5(usedforsecurity=False)

    def take(piece: bytes) -> None:
        sha256.update(piece)
        md5.update(piece)
        file.write(piece)

    async with aclosing(pieces_of(content)) as pieces:
        async for piece in pieces:
            size += len(piece)
            _require(key, size, limit)
            await run_sync(take, piece)
    return Measure(size, sha256.hexdigest(), md5.hexdigest())


def _measure(blocks: Iterator[bytes], seen: Callable[[int], None] = lambda _: None) -> Measure:
    size, sha256, md5 = 0, hashlib.sha256(), hashlib.md5(usedforsecurity=False)
    for block in blocks:
        size += len(block)
        seen(size)
        sha256.update(block)
        md5.update(block)
    return Measure(size, sha256.hexdigest(), md5.hexdigest())


def _blocks(file: IO[bytes], start: int, length: int | None) -> Iterator[bytes]:
    file.seek(start)
    left = length
    while left is None or left:
        block = file.read(PIECE if left is None else min(PIECE, left))
        if not block:
            return
        if left is not None:
            left -= len(block)
        yield block


def _read_at(file: IO[bytes], start: int, length: int) -> bytes:
    file.seek(start)
    return file.read(length)


def _require(key: str, size: int, limit: int) -> None:
    if size > limit:
        raise TooLarge(key=key, limit=limit)
