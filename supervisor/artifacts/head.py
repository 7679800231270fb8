"""What the server says of an object, and its bytes compared with that."""

import hashlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx
from anyio.to_thread import run_sync

from supervisor.artifacts.errors import ChecksumMismatch, StoreFailed
from supervisor.artifacts.parcel import PIECE
from supervisor.artifacts.reading import reported
from supervisor.artifacts.s3 import unbroken

SHA256: Final = "x-amz-meta-tenure-sha256"


@dataclass(frozen=True, slots=True)
class Head:
    """What the server says of an object."""

    size: int
    etag: str
    modified_at: datetime
    now: datetime
    headers: Mapping[str, str]

    @property
    def sha256(self) -> str | None:
        """As the put that made it recorded it."""
        return self.headers.get(SHA256)

    @property
    def md5(self) -> str | None:
        """Where its ETag is one: not of an upload in parts, nor of an object under a key of KMS."""
        plain = len(self.etag) == 32 and "aws:kms" not in self.headers.get("x-amz-server-side-encryption", "")
        return self.etag if plain else None


def read_head(response: httpx.Response) -> Head:
    headers = response.headers
    with understood(response):
        return Head(
            int(headers["content-length"]),
            headers.get("etag", "").strip('"'),
            instant(headers["last-modified"]),
            instant(headers["date"]),
            headers,
        )


def instant(text: str) -> datetime:
    return parsedate_to_datetime(text).astimezone(UTC)


@contextmanager
def understood(response: httpx.Response) -> Iterator[None]:
    """What is not there, or is no number and no date, is an error of the store."""
    try:
        yield
    except (KeyError, ValueError) as error:
        place = response.url.copy_with(query=None)
        raise StoreFailed(path=str(place), what="its answer is not one of S3") from error


async def pieces_in(key: str, response: httpx.Response) -> AsyncGenerator[bytes, None]:
    with reported(key), unbroken(key):
        async for piece in response.aiter_bytes(PIECE):
            yield piece


async def sealed(key: str, response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """All of it, compared at its end with the digest that is kept with it."""
    with reported(key):
        head = read_head(response)
        found = hashlib.sha256() if head.sha256 else hashlib.md5(usedforsecurity=False)
        expected, size = head.sha256 or head.md5, 0
        with unbroken(key):
            async for piece in response.aiter_bytes(PIECE):
                if expected is not None:
                    await run_sync(found.update, piece)
                size += len(piece)
                yield piece
        if size != head.size:
            raise StoreFailed(path=key, what=f"{size} of {head.size} bytes came")
        if expected is not None and found.hexdigest() != expected:
            raise ChecksumMismatch(key=key, found=found.hexdigest(), expected=expected)
