"""A bucket over the S3 protocol: signed requests, repeated while that can help, and its faults in our words.

Every request here may be sent twice without harm: what must happen once carries a condition (If-None-Match)
and a token of its own, by which the caller recognises his earlier try. Redirects are not followed: a
signature belongs to one host. Bodies carry their SHA-256, in the signature and as a checksum, and their
MD5.

A client of our own over httpx: obstore sends no Content-MD5, cannot complete a multipart upload on
condition and names no bucket owner, all of which are asked for here.
"""

import hashlib
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Literal
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import anyio
import httpx

from supervisor.artifacts.errors import (
    AccessDenied,
    ArtifactError,
    ArtifactExists,
    ArtifactMissing,
    ChecksumMismatch,
    NoSpace,
    QuotaExceeded,
    StoreFailed,
    TooLarge,
)
from supervisor.artifacts.parcel import Slice
from supervisor.artifacts.signature import NO_BODY, Credentials, encode_path, encode_query, sign
from supervisor.clock import jitter

TRIES: Final = 5
PAUSE_SECONDS: Final = 0.2
PAUSE_MOST_SECONDS: Final = 10.0
TIMEOUT: Final = httpx.Timeout(30, connect=5, pool=None)
CONNECTIONS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=16)
ERROR_BYTES: Final = 64 * 1024
PASSING: Final = frozenset({429, 500, 502, 503, 504})
PASSING_CODES: Final = frozenset(
    {"RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted"}
)
SKEWED: Final = "RequestTimeTooSkewed"
FULL: Final = frozenset({"XMinioStorageFull", "InsufficientCapacity"})
OVER_QUOTA: Final = frozenset({"QuotaExceeded", "XMinioAdminBucketQuotaExceeded"})
WRONG_BYTES: Final = frozenset(
    {
        "BadDigest",
        "InvalidDigest",
        "XAmzContentSHA256Mismatch",
        "XAmzContentChecksumMismatch",
        "BadChecksum",
    }
)

Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Target:
    """Which bucket, and as whom. Its credentials are not shown."""

    endpoint: str
    bucket: str
    credentials: Credentials
    region: str = "us-east-1"
    addressing: Literal["path", "virtual"] = "path"
    owner: str | None = None
    encryption: Literal["AES256", "aws:kms"] | None = None
    kms_key_id: str | None = None
    ca_file: Path | None = None

    @property
    def origin(self) -> str:
        endpoint = urlsplit(self.endpoint)
        host = f"{self.bucket}.{endpoint.netloc}" if self.addressing == "virtual" else endpoint.netloc
        return f"{endpoint.scheme}://{host}"

    def path(self, key: str) -> str:
        """The root of the bucket, for the empty key."""
        base = urlsplit(self.endpoint).path.rstrip("/")
        inside = f"/{key}" if self.addressing == "virtual" else f"/{self.bucket}/{key}"
        return encode_path(base + (inside if key else inside.rstrip("/") or "/"))


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the server said, without its text: that may quote what was sent, and so a key or a signature."""

    status: int
    code: str

    @property
    def passing(self) -> bool:
        return self.status in PASSING or self.code in PASSING_CODES or self.code == SKEWED


class Bucket:
    """`transport` takes the place of the network, for tests."""

    def __init__(self, target: Target, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.target = target
        self._transport = transport
        self._client: httpx.AsyncClient | None = None
        self._skew_seconds = 0.0

    async def send(
        self, method: str, key: str, *, query: Query = (), headers: Mapping[str, str] | None = None,
        body: Slice | bytes = b"",
    ) -> httpx.Response:  # fmt: skip
        """The answer, read; or an ArtifactError."""
        response = await self.begin(method, key, query=query, headers=headers, body=body)
        try:
            with unbroken(key):
                await response.aread()
            return response
        finally:
            await close(response)

    async def begin(
        self, method: str, key: str, *, query: Query = (), headers: Mapping[str, str] | None = None,
        body: Slice | bytes = b"",
    ) -> httpx.Response:  # fmt: skip
        """The answer, not read yet, for the caller to close; or an ArtifactError."""
        for turn in range(1, TRIES + 1):
            pause = min(PAUSE_SECONDS * 2**turn, PAUSE_MOST_SECONDS)
            try:
                request = self._request(method, key, query, headers or {}, body)
                response = await self._open_client().send(request, stream=True)
            except httpx.RequestError as error:
                if turn == TRIES or "CERTIFICATE_VERIFY" in str(error):
                    raise StoreFailed(path=self.address(key), what=_words(error)) from error
            else:
                if response.is_success:
                    return response
                refusal = await self._refusal(response)
                if turn == TRIES or not refusal.passing:
                    raise self._fault(key, refusal)
                pause = max(pause, _retry_after(response))
            await anyio.sleep(jitter(pause))
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    def address(self, key: str) -> str:
        return f"s3://{self.target.bucket}/{key}"

    def _request(
        self, method: str, key: str, query: Query, headers: Mapping[str, str], body: Slice | bytes
    ) -> httpx.Request:
        path, text = self.target.path(key), encode_query(query)
        size, sha256, content = _content(body)
        given = {"host": urlsplit(self.target.origin).netloc, **headers}
        if self.target.owner is not None:
            given["x-amz-expected-bucket-owner"] = self.target.owner
        if method in ("PUT", "POST"):
            given["content-length"] = str(size)
        # the protocol is bound to the time of day; where a server finds ours wrong, its own is used
        at = datetime.fromtimestamp(time.time() + self._skew_seconds, UTC)
        signed = sign(self.target.credentials, self.target.region, at, method, path, text, given, sha256)
        url = f"{self.target.origin}{path}" + (f"?{text}" if text else "")
        return self._open_client().build_request(method, url, headers=signed, content=content)

    async def _refusal(self, response: httpx.Response) -> Refusal:
        try:
            text = b""
            async for piece in response.aiter_bytes():
                text += piece
                if len(text) > ERROR_BYTES:
                    break
        except httpx.HTTPError:
            text = b""
        finally:
            await response.aclose()
        refusal = Refusal(response.status_code, _code(text))
        if refusal.code == SKEWED and "date" in response.headers:
            self._skew_seconds = parsedate_to_datetime(response.headers["date"]).timestamp() - time.time()
        return refusal

    def _fault(self, key: str, refusal: Refusal) -> ArtifactError:
        status, code, place = refusal.status, refusal.code, self.address(key)
        what = f"{code or 'no reason given'} (HTTP {status})"
        if code in WRONG_BYTES:
            return ChecksumMismatch(key=key, found="other than what was sent", expected="what was sent")
        if status == 412:
            return ArtifactExists(key=key)
        if status == 404 and code != "NoSuchBucket":
            return ArtifactMissing(key=key, place=f"s3://{self.target.bucket}")
        if code in OVER_QUOTA:
            return QuotaExceeded(key=key, what=what)
        if code in FULL or status == 507:
            return NoSpace(key=key, place=f"s3://{self.target.bucket}")
        if code == "EntityTooLarge" or status == 413:
            return TooLarge(key=key, limit="the server's own bound of")
        if status in (401, 403):
            return AccessDenied(path=place, what=what)
        return StoreFailed(path=place, what=what)

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            self._client = httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=self.target.ca_file),
                timeout=TIMEOUT,
                limits=CONNECTIONS,
                transport=self._transport,
                headers={"user-agent": "tenure", "accept-encoding": "identity"},
            )
        return self._client


@contextmanager
def unbroken(key: str) -> Iterator[None]:
    """A body that does not come to its end is an error of the store."""
    try:
        yield
    except httpx.HTTPError as error:
        raise StoreFailed(path=key, what=_words(error)) from error


async def close(response: httpx.Response) -> None:
    with anyio.CancelScope(shield=True):
        await response.aclose()


def text_of(element: ET.Element, name: str) -> str:
    """The text of the first such element below, whatever its namespace; '' where there is none."""
    found = element.find(f".//{{*}}{name}")
    return (found.text or "") if found is not None else ""


def parse(response: httpx.Response) -> ET.Element:
    try:
        # expat resolves no external entity and bounds the expansion of internal ones
        return ET.fromstring(response.content)  # noqa: S314
    except ET.ParseError as error:
        raise StoreFailed(
            path=str(response.url.copy_with(query=None)), what="its answer is not XML"
        ) from error


def _content(body: Slice | bytes) -> tuple[int, str, bytes | AsyncIterator[bytes]]:
    if isinstance(body, Slice):
        return body.measure.size, body.measure.sha256, body.chunks()
    return len(body), hashlib.sha256(body).hexdigest() if body else NO_BODY, body


def _code(text: bytes) -> str:
    try:
        code = text_of(ET.fromstring(text), "Code")  # noqa: S314  see parse
    except ET.ParseError:
        return ""
    return code[:100] if code.isascii() and code.isalnum() else ""


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    return min(float(value), PAUSE_MOST_SECONDS) if value.isdecimal() else 0.0


def _words(error: httpx.HTTPError) -> str:
    return f"{type(error).__name__}: {error}"
