"""The object backend against a real S3 server: what is sent, what is refused, and what is found out later."""

import hashlib
import os
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
from pydantic import SecretStr

from supervisor.artifacts import (
    AccessDenied,
    ArtifactExists,
    ArtifactMissing,
    ChecksumMismatch,
    Overwrite,
    StoreFailed,
)
from supervisor.artifacts.object import ObjectArtifacts
from supervisor.artifacts.parcel import Slice
from supervisor.artifacts.s3 import parse, text_of
from supervisor.artifacts.signature import Credentials
from tests.support.s3 import BUCKET, SECRET_KEY, S3Server

KEY = "scm/1/svn/r100.diff"
MIB = 1024 * 1024
Send = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def artifacts(s3: S3Server) -> AsyncIterator[ObjectArtifacts]:
    store = ObjectArtifacts(
        s3.target, base=f"engram-{uuid4().hex}/proj_a", multipart_bytes=5 * MIB, copy_bytes=5 * MIB
    )
    yield store
    await store.aclose()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[httpx.Request]:
    """Every request, as it goes to the server."""
    requests: list[httpx.Request] = []
    real = httpx.AsyncClient.send

    async def send(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        requests.append(request)
        return await real(self, request, **options)

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    return requests


async def uploads(artifacts: ObjectArtifacts) -> int:
    query = [("uploads", ""), ("prefix", artifacts._base)]
    page = parse(await artifacts._bucket.send("GET", "", query=query))
    return len(list(page.iterfind("{*}Upload")))


async def test_the_key_in_the_bucket(artifacts: ObjectArtifacts, s3: S3Server) -> None:
    """R001-087, R001-108: <prefix><project_key>/<key>, and its address"""
    stored = await artifacts.put(KEY, b"diff")
    assert stored.uri == f"s3://{BUCKET}/{artifacts._base}{KEY}"
    assert artifacts._base.endswith("/proj_a/")
    assert s3.request("GET", artifacts._base + KEY).content == b"diff"


async def test_what_an_upload_carries(artifacts: ObjectArtifacts, sent: list[httpx.Request]) -> None:
    """R001-094: Content-MD5 and x-amz-checksum-sha256, and the condition; nothing of the secret"""
    await artifacts.put(KEY, b"diff content...")
    (put,) = [request for request in sent if request.method == "PUT"]
    md5, sha256 = (hashlib.new(name, b"diff content...").digest() for name in ("md5", "sha256"))
    assert b64decode(put.headers["content-md5"]) == md5
    assert b64decode(put.headers["x-amz-checksum-sha256"]) == sha256
    assert put.headers["x-amz-content-sha256"] == sha256.hex()
    assert put.headers["if-none-match"] == "*"
    assert not any(SECRET_KEY in value for value in put.headers.values())
    await artifacts.put(KEY, b"other", overwrite=Overwrite.REPLACE)
    assert "if-none-match" not in [request for request in sent if request.method == "PUT"][-1].headers


async def test_a_taken_key_is_refused_by_the_server(
    artifacts: ObjectArtifacts, sent: list[httpx.Request]
) -> None:
    """DESIGN 14: by the condition alone; nobody looks first"""
    await artifacts.put(KEY, b"one")
    with pytest.raises(ArtifactExists):
        await artifacts.put(KEY, b"two")
    assert [request.method for request in sent] == ["PUT", "PUT", "HEAD"]


@pytest.mark.parametrize("size", [1000, 6 * MIB], ids=["one request", "parts"])
async def test_bytes_that_change_on_the_way_are_refused(
    artifacts: ObjectArtifacts, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """R001-094, R001-118: by the server, and nothing is published"""
    real = Slice.chunks

    async def chunks(self: Slice) -> AsyncIterator[bytes]:
        first = True
        async for piece in real(self):
            yield b"?" + piece[1:] if first else piece
            first = False

    monkeypatch.setattr(Slice, "chunks", chunks)
    with pytest.raises((ChecksumMismatch, AccessDenied)):
        await artifacts.put(KEY, b"x" * size)
    monkeypatch.undo()
    assert not await artifacts.exists(KEY)
    assert await uploads(artifacts) == 0


async def test_bytes_that_change_on_the_server_are_found(artifacts: ObjectArtifacts, s3: S3Server) -> None:
    """R001-080, R001-094: reading compares with the digest that was put, whatever the server thinks"""
    for call in (artifacts.get, artifacts.verify):
        content = uuid4().bytes * 10
        await artifacts.put(KEY, content, overwrite=Overwrite.REPLACE)
        damage(s3, content)
        with pytest.raises(ChecksumMismatch, match="CHECKSUM_MISMATCH"):
            await call(KEY)


def damage(s3: S3Server, content: bytes) -> None:
    """The file that holds it, on the disk of the server."""
    (path,) = (path for path in data_files(s3.root / "devices") if is_held(path, content))
    with path.open("r+b") as file:
        file.write(b"\0" if content[0] else b"\1")


def data_files(directory: Path) -> Iterator[Path]:
    """Objects of other tests come and go meanwhile."""
    for place, _, names in os.walk(directory):
        yield from (Path(place, name) for name in names if name.endswith(".data"))


def is_held(path: Path, content: bytes) -> bool:
    try:
        return path.read_bytes() == content
    except FileNotFoundError:
        return False


async def test_an_object_of_others_is_compared_by_its_etag(artifacts: ObjectArtifacts, s3: S3Server) -> None:
    """R001-094: where no digest of ours is kept with it"""
    s3.request("PUT", artifacts._base + KEY, b"written by another tool").raise_for_status()
    assert await artifacts.get(KEY) == b"written by another tool"
    damage(s3, b"written by another tool")
    with pytest.raises(ChecksumMismatch):
        await artifacts.get(KEY)


async def test_who_may_not_is_told_without_a_secret(s3: S3Server) -> None:
    """R001-088, S17: a wrong key is an error that shows neither"""
    who = Credentials(SecretStr("t:AKtest"), SecretStr("canary-secret"))
    store = ObjectArtifacts(replace(s3.target, credentials=who), base="closed")
    for call in (store.put(KEY, b"x"), store.get(KEY), store.stat(KEY), store.delete(KEY)):
        with pytest.raises(AccessDenied, match="PERMISSION_DENIED") as caught:
            await call
        shown = f"{caught.value!r} {caught.value} {caught.value.facts} {store._bucket.target!r}"
        assert "canary-secret" not in shown
        assert "AKtest" not in shown
    await store.aclose()


async def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    """R001-117: told as what it is, not as a missing artifact"""
    store = ObjectArtifacts(replace(s3.target, bucket="nobodys"), base="x")
    with pytest.raises(StoreFailed, match="NoSuchBucket"):
        await store.get(KEY)
    await store.aclose()


@pytest.mark.parametrize("size", [10, 6 * MIB], ids=["one request", "parts"])
async def test_a_put_whose_answer_was_lost_knows_its_own_work(
    artifacts: ObjectArtifacts, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """DESIGN 12: the outcome is unknown, so it is repeated, and what is there is recognised"""
    monkeypatch.setattr("supervisor.artifacts.s3.PAUSE_SECONDS", 0.001)
    content = b"x" * size
    lost = await lose_first_answer(monkeypatch, lambda request: request.method in ("PUT", "POST"))
    stored = await artifacts.put(KEY, content)
    assert len(lost) > 1
    assert stored.sha256 == hashlib.sha256(content).hexdigest()
    with pytest.raises(ArtifactExists):
        await artifacts.put(KEY, content)


async def lose_first_answer(
    monkeypatch: pytest.MonkeyPatch, chosen: Callable[[httpx.Request], bool]
) -> list[str]:
    """Each chosen request is done by the server, and its first answer never arrives."""
    seen: list[str] = []
    real = httpx.AsyncClient.send

    async def send(self: httpx.AsyncClient, request: httpx.Request, **options: Any) -> httpx.Response:
        response = await real(self, request, **options)
        name = f"{request.method} {request.url}"
        if chosen(request) and name not in seen:
            seen.append(name)
            await response.aclose()
            raise httpx.ReadError("the answer was lost")
        seen.append(name)
        return response

    monkeypatch.setattr(httpx.AsyncClient, "send", send)
    return seen


async def test_large_content_goes_in_parts(artifacts: ObjectArtifacts, sent: list[httpx.Request]) -> None:
    """Only above the bound; conditional, proven by the ETag of its parts, and read as one"""
    content = bytes(range(256)) * (12 * MIB // 256) + b"end"
    await artifacts.put("small", content[: 5 * MIB])
    assert not any("uploads" in str(request.url) for request in sent)
    stored = await artifacts.put(KEY, content, limit=len(content))
    assert sum("partNumber" in str(request.url) for request in sent) == 3
    assert stored.sha256 == hashlib.sha256(content).hexdigest()
    assert (await artifacts.verify(KEY, stored.sha256)).size == len(content)
    assert not [request for request in sent if request.method == "GET"][:-1], "no second reading was needed"
    with pytest.raises(ArtifactExists):
        await artifacts.put(KEY, content[::-1], limit=len(content))
    await artifacts.put(KEY, content, limit=len(content), overwrite=Overwrite.SAME)
    assert await artifacts.get(KEY, limit=len(content)) == content
    assert await uploads(artifacts) == 0


async def test_an_upload_that_does_not_end_is_aborted(
    artifacts: ObjectArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R16: cancelled between its parts, it leaves nothing that costs"""
    begun = anyio.Event()
    real = Slice.chunks

    async def chunks(self: Slice) -> AsyncIterator[bytes]:
        async for piece in real(self):
            yield piece
        if self.start:
            begun.set()
            await anyio.sleep_forever()

    monkeypatch.setattr(Slice, "chunks", chunks)
    async with anyio.create_task_group() as group:
        group.start_soon(artifacts.put, KEY, b"x" * (6 * MIB))
        await begun.wait()
        group.cancel_scope.cancel()
    assert await uploads(artifacts) == 0
    assert not await artifacts.exists(KEY)


async def test_sweep_finds_uploads_that_nobody_ends(artifacts: ObjectArtifacts) -> None:
    """R001-077: and what was parked in tmp/"""
    await artifacts._bucket.send("POST", artifacts._base + KEY, query=[("uploads", "")])
    await artifacts.put("tmp/parked", b"x")
    await artifacts.put("kept", b"x")
    assert await artifacts.sweep() == 0
    assert await artifacts.sweep(older_than_days=-1) == 2
    assert await uploads(artifacts) == 0
    assert {entry.key async for entry in artifacts.entries()} == {"kept"}


async def test_a_large_object_moves_in_parts(artifacts: ObjectArtifacts) -> None:
    """R001-098"""
    content = b"0123456789abcdef" * (11 * MIB // 16)
    await artifacts.put(KEY, content, limit=len(content))
    assert await artifacts.delete(KEY, trash=".trash/")
    assert await artifacts.get(f".trash/{KEY}", limit=len(content)) == content
    assert not await artifacts.exists(KEY)


async def test_keys_of_others_are_passed_by(artifacts: ObjectArtifacts, s3: S3Server) -> None:
    """S9: a listing may hold names that no store of ours makes; none of them is shown or touched"""
    await artifacts.put(KEY, b"x")
    for name in ("100%25.diff", "a//b", "back\\slash", "r1.diff.tmp." + "0" * 32):
        s3.request("PUT", artifacts._base + name, b"x").raise_for_status()
    assert [entry.key async for entry in artifacts.entries()] == [KEY]


async def test_existence_and_size_by_head(artifacts: ObjectArtifacts, sent: list[httpx.Request]) -> None:
    """R001-095"""
    await artifacts.put(KEY, b"12345")
    assert (await artifacts.stat(KEY)).size == 5
    with pytest.raises(ArtifactMissing):
        await artifacts.stat("scm/none")
    assert [request.method for request in sent] == ["PUT", "HEAD", "HEAD"]


async def test_an_old_object_put_again_is_young(artifacts: ObjectArtifacts, s3: S3Server) -> None:
    s3.put_aged(artifacts._base + KEY, b"content", 100, x_amz_meta_kept="1")
    assert (await artifacts.now() - (await artifacts.stat(KEY)).modified_at).days >= 99
    await artifacts.put(KEY, b"content", overwrite=Overwrite.SAME)
    assert (await artifacts.now() - (await artifacts.stat(KEY)).modified_at).days < 1
    assert s3.request("HEAD", artifacts._base + KEY).headers["x-amz-meta-kept"] == "1"
    with pytest.raises(ArtifactExists):
        await artifacts.put(KEY, b"another", overwrite=Overwrite.SAME)


async def test_a_reading_that_breaks_off_is_an_error(
    artifacts: ObjectArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-117: never a short content"""
    await artifacts.put(KEY, b"x" * 1000)
    real = httpx.Response.aiter_bytes

    async def short(self: httpx.Response, size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in real(self, size):
            yield piece[:10]

    async def broken(self: httpx.Response, size: int | None = None) -> AsyncIterator[bytes]:
        async for piece in real(self, size):
            yield piece[:10]
            raise httpx.ReadError("cut")

    for way in (short, broken):
        with monkeypatch.context() as patched:
            patched.setattr(httpx.Response, "aiter_bytes", way)
            with pytest.raises(StoreFailed):
                await artifacts.get(KEY)


async def test_text_of_what_is_not_there(artifacts: ObjectArtifacts) -> None:
    page = parse(await artifacts._bucket.send("GET", "", query=[("list-type", "2"), ("max-keys", "0")]))
    assert text_of(page, "Nothing") == ""
