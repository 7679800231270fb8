"""The backend `object`: objects of an S3 bucket (AWS, MinIO, Ceph, swift), shared by all replicas.

The key of the object is `<prefix><project_key>/<key>`, its address
`s3://<bucket>/<prefix><project_key>/<key>`. A put is one conditional request (If-None-Match: *) up to
`multipart_bytes`, and above that a multipart upload which is completed on that condition. The server must
honour it; deploy/s3-hardening shows how to see that it does. Each put leaves a token with its object, so
that a put whose answer was lost recognises its own work.

Not promised: `delete(before=...)` looks at the object and then removes it, and a put in the milliseconds
between can lose to it. A bucket with versions, or a trash prefix, keeps what was removed.
"""

import hashlib
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import unquote_plus
from uuid import uuid4
from xml.etree import ElementTree as ET

import httpx
from anyio.to_thread import run_sync

from supervisor.artifacts import (
    MAX_FILE_SIZE,
    Artifact,
    ArtifactExists,
    ArtifactMissing,
    Artifacts,
    BadRange,
    ChecksumMismatch,
    Content,
    Entry,
    Overwrite,
)
from supervisor.artifacts.bounds import Bounds
from supervisor.artifacts.head import SHA256, Head, instant, pieces_in, read_head, sealed, understood
from supervisor.artifacts.key import check_key, check_prefix
from supervisor.artifacts.multipart import COPY_BYTES, MULTIPART_BYTES, Multipart
from supervisor.artifacts.parcel import Parcel, packed
from supervisor.artifacts.quota import Quota
from supervisor.artifacts.reading import reported
from supervisor.artifacts.s3 import Bucket, Target, close, parse, text_of

PUT_ID: Final = "x-amz-meta-tenure-put"
LISTED: Final = 1000
# a put that finds its content there makes it young again, well before the collector's least age of a day
YOUNG: Final = timedelta(hours=12)


class ObjectArtifacts(Artifacts):
    def __init__(
        self,
        target: Target,
        *,
        base: str = "",
        allowed_prefixes: Iterable[str] | None = None,
        max_file_size: int = MAX_FILE_SIZE,
        quota_bytes: int | None = None,
        former_places: Iterable[str] = (),
        multipart_bytes: int = MULTIPART_BYTES,
        copy_bytes: int = COPY_BYTES,
        listed: int = LISTED,
    ) -> None:
        super().__init__(former_places)
        self._bucket = Bucket(target)
        self._base = "".join(f"{name}/" for name in check_prefix(base))
        self._bounds = Bounds(allowed_prefixes=allowed_prefixes, max_file_size=max_file_size)
        self._quota = Quota(quota_bytes, self._count)
        self._listed = listed
        self._multipart = Multipart(self._bucket, multipart_bytes, copy_bytes)

    @property
    def where(self) -> str:
        return f"{self._bucket.address(self._base)} at {self._bucket.target.endpoint}"

    async def put(
        self,
        key: str,
        content: Content,
        *,
        overwrite: Overwrite = Overwrite.REFUSE,
        expected_sha256: str | None = None,
        limit: int | None = None,
    ) -> Artifact:
        self._bounds.names(key)
        bound = self._bounds.max_file_size if limit is None else limit
        async with packed(key, content, limit=bound) as parcel:
            size, sha256 = parcel.measure.size, parcel.measure.sha256
            if expected_sha256 is not None and sha256 != expected_sha256:
                raise ChecksumMismatch(key=key, found=sha256, expected=expected_sha256)
            async with self._quota.room(key, size):
                await self._store(key, parcel, overwrite)
        return Artifact(key, size, sha256, await self.uri(key))

    @asynccontextmanager
    async def open(
        self, key: str, *, start: int = 0, length: int | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._bounds.names(key)
        if start == 0 and length is None:
            async with self._reading(key) as response, aclosing(sealed(key, response)) as pieces:
                yield pieces
            return
        head = await self._head(key)
        if start < 0 or start > head.size or (length is not None and length < 0):
            raise BadRange(key=key, size=head.size, start=start, length=length)
        end = head.size if length is None else min(head.size, start + length)
        if start == end:
            yield _nothing()
            return
        headers = {"range": f"bytes={start}-{end - 1}", "if-match": f'"{head.etag}"'}
        async with self._reading(key, headers) as response, aclosing(pieces_in(key, response)) as pieces:
            yield pieces

    async def stat(self, key: str) -> Entry:
        self._bounds.names(key)
        head = await self._head(key)
        return Entry(key, head.size, head.modified_at)

    async def verify(self, key: str, sha256: str | None = None) -> Artifact:
        self._bounds.names(key)
        size, found, recorded = await self._digest(key)
        with reported(key):
            for expected in (sha256, recorded):
                if expected is not None and found != expected:
                    raise ChecksumMismatch(key=key, found=found, expected=expected)
        return Artifact(key, size, found, await self.uri(key))

    async def delete(self, key: str, *, trash: str | None = None, before: datetime | None = None) -> bool:
        self._bounds.names(key)
        prefix = "" if trash is None else "".join(f"{name}/" for name in check_prefix(trash))
        try:
            head = await self._head(key)
            if before is not None and head.modified_at >= before:
                return False
            if trash is not None:
                await self._copy(key, prefix + key, head)
        except ArtifactMissing:
            return False
        await self._bucket.send("DELETE", self._base + key)
        return True

    async def entries(self, prefix: str = "") -> AsyncIterator[Entry]:
        folder = self._base + "".join(f"{name}/" for name in check_prefix(prefix))
        query = {"list-type": "2", "prefix": folder, "encoding-type": "url", "max-keys": str(self._listed)}
        while True:
            answer = await self._bucket.send("GET", "", query=list(query.items()))
            page = parse(answer)
            for item in page.iterfind("{*}Contents"):
                with understood(answer):
                    entry = self._entry(item)
                if self._bounds.allow(entry.key):
                    yield entry
            following = text_of(page, "NextContinuationToken")
            if text_of(page, "IsTruncated") != "true" or not following:
                return
            query["continuation-token"] = following

    async def place(self) -> str | None:
        return self._bucket.address(self._base)

    async def uri(self, key: str) -> str:
        check_key(key)
        return self._bucket.address(self._base + key)

    async def sweep(self, *, older_than_days: float = 30) -> int:
        now = await self.now()
        removed = await self._multipart.abort_older(self._base, now - timedelta(days=older_than_days))
        async for entry in self.entries("tmp"):
            if entry.modified_at < now - timedelta(days=older_than_days):
                removed += await self.delete(entry.key)
        return removed

    async def now(self) -> datetime:
        query = [("list-type", "2"), ("max-keys", "1"), ("prefix", self._base + "tmp/")]
        answer = await self._bucket.send("GET", "", query=query)
        with understood(answer):
            return instant(answer.headers["date"])

    async def aclose(self) -> None:
        await self._bucket.aclose()

    async def _store(self, key: str, parcel: Parcel, overwrite: Overwrite) -> None:
        token = uuid4().hex
        headers = {PUT_ID: token, SHA256: parcel.measure.sha256, **_encryption(self._bucket.target)}
        condition = {} if overwrite is Overwrite.REPLACE else {"if-none-match": "*"}
        try:
            with _named(key):
                if self._multipart.needed(parcel.measure.size):
                    etag = await self._multipart.upload(self._base + key, parcel, headers, condition)
                    proven = etag is not None
                else:
                    proven = await self._send(key, parcel, headers | condition)
        except (ArtifactExists, ArtifactMissing):
            # the answer to our own first try may have been lost
            if not await self._is_mine(key, token):
                if overwrite is not Overwrite.SAME:
                    raise
                await self._require_same(key, parcel)
                return
            proven = False
        if not proven:
            await self._require_stored(key, parcel, token)

    async def _send(self, key: str, parcel: Parcel, headers: Mapping[str, str]) -> bool:
        """True = the server's own digest of what it stored is ours."""
        measure = parcel.measure
        sums = {"content-md5": measure.md5_base64, "x-amz-checksum-sha256": measure.sha256_base64}
        response = await self._bucket.send(
            "PUT", self._base + key, headers={**headers, **sums}, body=parcel.whole()
        )
        etag = str(response.headers.get("etag", "")).strip('"')
        checksum = str(response.headers.get("x-amz-checksum-sha256", ""))
        return etag == measure.md5 or checksum == measure.sha256_base64

    async def _require_stored(self, key: str, parcel: Parcel, token: str) -> None:
        size, found, _ = await self._digest(key)
        if (size, found) != (parcel.measure.size, parcel.measure.sha256):
            if await self._is_mine(key, token):
                await self._bucket.send("DELETE", self._base + key)
            raise ChecksumMismatch(key=key, found=found, expected=parcel.measure.sha256)

    async def _require_same(self, key: str, parcel: Parcel) -> None:
        """What is there is what was to be put, and is made young: nobody may take it for long forgotten."""
        head = await self._head(key)
        if head.size != parcel.measure.size or (await self._digest(key))[1] != parcel.measure.sha256:
            raise ArtifactExists(key=key)
        if head.now - head.modified_at > YOUNG:
            await self._copy(key, key, head)

    async def _is_mine(self, key: str, token: str) -> bool:
        try:
            return (await self._head(key)).headers.get(PUT_ID) == token
        except ArtifactMissing:
            return False

    def _entry(self, item: ET.Element) -> Entry:
        # a space is + in the listings of some, and %20 in those of others; a plus is %2B in all
        key = unquote_plus(text_of(item, "Key")).removeprefix(self._base)
        changed = datetime.fromisoformat(text_of(item, "LastModified"))
        return Entry(key, int(text_of(item, "Size")), changed)

    async def _copy(self, key: str, target: str, head: Head) -> None:
        kept = {name: value for name, value in head.headers.items() if name.startswith("x-amz-meta-")}
        headers = {**kept, **_encryption(self._bucket.target)}
        with _named(key):
            await self._multipart.copy(self._base + key, self._base + target, head.size, head.etag, headers)

    async def _head(self, key: str) -> Head:
        with _named(key):
            response = await self._bucket.send("HEAD", self._base + key)
        return read_head(response)

    async def _digest(self, key: str) -> tuple[int, str, str | None]:
        """Size and SHA-256 of what is there, and the SHA-256 that its put recorded."""
        found, size = hashlib.sha256(), 0
        async with self._reading(key) as response, aclosing(pieces_in(key, response)) as pieces:
            async for piece in pieces:
                await run_sync(found.update, piece)
                size += len(piece)
            recorded = read_head(response).sha256
        return size, found.hexdigest(), recorded

    async def _count(self) -> int:
        total = 0
        async for entry in self.entries():
            total += entry.size
        return total

    @asynccontextmanager
    async def _reading(
        self, key: str, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[httpx.Response]:
        with reported(key), _named(key):
            response = await self._bucket.begin("GET", self._base + key, headers=headers)
        try:
            yield response
        finally:
            await close(response)


@contextmanager
def _named(key: str) -> Iterator[None]:
    """The errors of the bucket, under the key that the caller knows."""
    try:
        yield
    except (ArtifactMissing, ArtifactExists, ChecksumMismatch) as error:
        raise type(error)(**{**error.facts, "key": key}) from None


async def _nothing() -> AsyncIterator[bytes]:
    pieces: tuple[bytes, ...] = ()
    for piece in pieces:
        yield piece


def _encryption(target: Target) -> dict[str, str]:
    if target.encryption is None:
        return {}
    headers: dict[str, str] = {"x-amz-server-side-encryption": target.encryption}
    if target.kms_key_id is not None:
        headers["x-amz-server-side-encryption-aws-kms-key-id"] = target.kms_key_id
    return headers
