"""How the client of the bucket speaks, and what it makes of answers that no server gives on demand."""

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.tls import TLSListener
from pydantic import SecretStr

from supervisor.artifacts import (
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
from supervisor.artifacts import s3 as module
from supervisor.artifacts.multipart import Multipart, Part
from supervisor.artifacts.object import ObjectArtifacts
from supervisor.artifacts.s3 import Bucket, Target
from supervisor.artifacts.signature import Credentials

WHO = Credentials(SecretStr("access-canary"), SecretStr("secret-canary"))
TARGET = Target("https://s3.example.com", "artifacts", WHO)
Answer = Callable[[httpx.Request], httpx.Response]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


def bucket(answer: Answer, target: Target = TARGET) -> Bucket:
    return Bucket(target, httpx.MockTransport(answer))


def store_of(answer: Answer, target: Target = TARGET, base: str = "") -> ObjectArtifacts:
    store = ObjectArtifacts(target, base=base)
    store._bucket._transport = httpx.MockTransport(answer)
    return store


def said(status: int, code: str = "", **headers: str) -> httpx.Response:
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>access-canary</Message></Error>"
    return httpx.Response(status, text=body if code else "", headers=headers)


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "BadDigest", ChecksumMismatch),
        (400, "XAmzContentSHA256Mismatch", ChecksumMismatch),
        (400, "XAmzContentChecksumMismatch", ChecksumMismatch),
        (400, "InvalidDigest", ChecksumMismatch),
        (403, "AccessDenied", AccessDenied),
        (403, "SignatureDoesNotMatch", AccessDenied),
        (401, "", AccessDenied),
        (404, "NoSuchKey", ArtifactMissing),
        (404, "", ArtifactMissing),
        (404, "NoSuchBucket", StoreFailed),
        (409, "XMinioAdminBucketQuotaExceeded", QuotaExceeded),
        (403, "QuotaExceeded", QuotaExceeded),
        (412, "PreconditionFailed", ArtifactExists),
        (413, "EntityTooLarge", TooLarge),
        (507, "XMinioStorageFull", NoSpace),
        (301, "PermanentRedirect", StoreFailed),
        (307, "TemporaryRedirect", StoreFailed),
        (500, "InternalError", StoreFailed),
        (503, "", StoreFailed),
    ],
)
async def test_refusals_in_our_words(status: int, code: str, expected: type[ArtifactError]) -> None:
    """R001-116..119: each with its code, and nothing of what the server quoted"""
    hosts: set[str] = set()

    def answer(request: httpx.Request) -> httpx.Response:
        hosts.add(request.url.host)
        return said(status, code, location="https://elsewhere.example.com/")

    client = bucket(answer)
    with pytest.raises(expected) as caught:
        await client.send("PUT", "a/b", body=b"x")
    assert type(caught.value) is expected
    assert hosts == {"s3.example.com"}, "a redirect was followed, with the signature"
    assert "canary" not in f"{caught.value} {caught.value.facts} {caught.value.__cause__}"
    await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        said(500, "InternalError"),
        said(503, "SlowDown", **{"retry-after": "0"}),
        said(429),
        said(400, "RequestTimeout"),
        said(409, "ConditionalRequestConflict"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.RemoteProtocolError("cut"),
    ],
    ids=str,
)
async def test_what_passes_is_tried_again(answer: httpx.Response | Exception) -> None:
    """R001-117: a bounded number of times, then it is told"""
    turns = 0

    def two_bad(_: httpx.Request) -> httpx.Response:
        nonlocal turns
        turns += 1
        if turns > 2:
            return httpx.Response(200, text="well")
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, content=answer.content, headers=answer.headers)

    client = bucket(two_bad)
    assert (await client.send("GET", "a")).text == "well"
    turns = -100
    with pytest.raises(StoreFailed):
        await client.send("GET", "a")
    assert turns == -100 + module.TRIES
    await client.aclose()


async def test_a_wrong_clock_is_corrected_by_the_server() -> None:
    """S3 refuses requests that are a quarter of an hour off; its own Date says by how much."""
    theirs = datetime.now(UTC) + timedelta(hours=2)
    dates: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        dates.append(request.headers["x-amz-date"])
        if len(dates) == 1:
            return said(403, "RequestTimeTooSkewed", date=format_datetime(theirs, usegmt=True))
        return httpx.Response(200)

    client = bucket(answer)
    await client.send("GET", "a")
    await client.send("GET", "a")
    shown = [datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) for date in dates]
    assert shown[1] - shown[0] > timedelta(hours=1)
    assert shown[2] - shown[0] > timedelta(hours=1)
    await client.aclose()


async def test_owner_encryption_and_addressing_are_asked_for() -> None:
    """R001-092, S18: SSE with the key of the settings, the owner of the bucket, both forms of the address"""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, headers={"etag": '"9dd4e461268c8034f5c8564e155c67a6"'})

    target = Target(
        "https://s3.example.com/base", "artifacts", WHO, region="eu-1", addressing="virtual",
        owner="111122223333", encryption="aws:kms", kms_key_id="key-1",
    )  # fmt: skip
    store = store_of(answer, target, "engram/proj_a")
    await store.put("é x", b"x")
    (put,) = seen
    assert str(put.url) == "https://artifacts.s3.example.com/base/engram/proj_a/%C3%A9%20x"
    assert put.headers["host"] == "artifacts.s3.example.com"
    assert put.headers["x-amz-expected-bucket-owner"] == "111122223333"
    assert put.headers["x-amz-server-side-encryption"] == "aws:kms"
    assert put.headers["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
    assert "/eu-1/s3/aws4_request" in put.headers["authorization"]
    assert TARGET.origin + TARGET.path("a b") == "https://s3.example.com/artifacts/a%20b"
    assert TARGET.path("") == "/artifacts"
    await store.aclose()


async def test_a_success_that_is_none() -> None:
    """A server may begin to answer 200 and find the error later: of a completion, and of a copy."""
    for code, expected in (("PreconditionFailed", ArtifactExists), ("InternalError", StoreFailed)):
        client = bucket(lambda _, code=code: said(200, code))  # type: ignore[misc]
        parts = Multipart(client, 1, 1)
        with pytest.raises(expected):
            await parts._complete("a", "upload", [Part(1, "etag")], {"if-none-match": "*"})
        with pytest.raises(expected):
            await parts.copy("a", "b", 1, "etag", {})
        await client.aclose()


@pytest.mark.parametrize(
    "answer",
    [b"", b"<", b"{}", b"<html>", b"<!DOCTYPE x [<!ENTITY a SYSTEM 'file:///etc/passwd'>]><x>&a;</x>"],
)
async def test_an_answer_that_is_no_xml_is_an_error(answer: bytes) -> None:
    """S19: no crash, no entity, nothing of it in the message"""
    store = store_of(lambda _: httpx.Response(200, content=answer))
    with pytest.raises(StoreFailed, match="not XML"):
        _ = [entry async for entry in store.entries()]
    await store.aclose()


LISTED = "<x><Contents><Key>{key}</Key><Size>{size}</Size><LastModified>{at}</LastModified></Contents></x>"


@pytest.mark.parametrize(
    ("method", "text", "headers"),
    [
        ("list", LISTED.format(key="a", size="many", at="2026-01-01T00:00:00Z"), {}),
        ("list", LISTED.format(key="a", size="1", at="yesterday"), {}),
        ("list", LISTED.format(key="a", size="", at=""), {}),
        ("stat", "", {"last-modified": "yesterday", "date": "Mon, 16 Nov 2026 06:00:00 GMT"}),
        ("stat", "", {}),
        ("get", "x", {}),
        ("now", "<x/>", {"date": "now"}),
    ],
)
async def test_an_answer_that_is_not_of_s3_is_an_error(
    method: str, text: str, headers: dict[str, str]
) -> None:
    """S5: whatever stands at the endpoint, it is told and nothing breaks"""
    store = store_of(lambda _: httpx.Response(200, text=text, headers=headers))
    with pytest.raises(StoreFailed, match="not one of S3"):
        await {"list": lambda: anext(aiter(store.entries())), "stat": lambda: store.stat("a"),
               "get": lambda: store.get("a"), "now": store.now}[method]()  # fmt: skip
    await store.aclose()


@pytest.mark.parametrize(
    ("written", "key"), [("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("%C3%A9", "é")]
)
async def test_names_in_listings(written: str, key: str) -> None:
    """AWS writes a space as a plus"""
    text = LISTED.format(key=written, size=1, at="2026-01-01T00:00:00.000Z")
    store = store_of(lambda _: httpx.Response(200, text=text))
    assert [entry.key async for entry in store.entries()] == [key]
    await store.aclose()


async def test_a_digest_that_the_server_does_not_confirm_is_read_back() -> None:
    """R001-079: under a key of KMS the ETag says nothing; then what was stored is read and compared"""
    stored: dict[str, tuple[bytes, dict[str, str]]] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT":
            headers = {name: text for name, text in request.headers.items() if "meta" in name}
            stored["it"] = (b"changed" if spoil else request.content, headers)
            return httpx.Response(200, headers={"etag": '"unrelated"'})
        if request.method == "DELETE":
            stored.clear()
            return httpx.Response(204)
        content, headers = stored["it"]
        at = format_datetime(datetime.now(UTC), usegmt=True)
        return httpx.Response(200, content=content, headers={**headers, "last-modified": at, "date": at})

    spoil = False
    store = store_of(answer)
    await store.put("a", b"content")
    spoil = True
    with pytest.raises(ChecksumMismatch):
        await store.put("a", b"content")
    assert stored == {}
    await store.aclose()


@asynccontextmanager
async def tls_server(directory: Path) -> AsyncIterator[int]:
    """Says 404 to everything, under a certificate that nobody signed but itself."""
    x509 = pytest.importorskip("cryptography.x509", reason="no certificate can be made without cryptography")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(
            name, name, key.public_key(), 1, now - timedelta(days=1), now + timedelta(days=1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    text = key.private_bytes(pem, form, serialization.NoEncryption()) + certificate.public_bytes(pem)
    (directory / "own.pem").write_bytes(text)
    (directory / "ca.pem").write_bytes(certificate.public_bytes(pem))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(directory / "own.pem")

    async def serve(stream: Any) -> None:
        async with stream:
            await stream.receive()
            await stream.send(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with (
        TLSListener(listener, context, standard_compatible=False) as secured,
        anyio.create_task_group() as group,
    ):
        group.start_soon(secured.serve, serve)
        yield listener.extra(anyio.abc.SocketAttribute.local_port)  # noqa: S610  no Django here
        group.cancel_scope.cancel()


async def test_a_certificate_that_nobody_signed_is_refused(tmp_path: Path) -> None:
    """R001-090, S18: and accepted where the operator names it"""
    async with tls_server(tmp_path) as port:
        target = Target(f"https://localhost:{port}", "artifacts", WHO)
        refused = ObjectArtifacts(target)
        with pytest.raises(StoreFailed, match="CERTIFICATE_VERIFY_FAILED"):
            await refused.get("a")
        await refused.aclose()
        named = ObjectArtifacts(
            Target(f"https://localhost:{port}", "artifacts", WHO, ca_file=tmp_path / "ca.pem")
        )
        with pytest.raises(ArtifactMissing):
            await named.get("a")
        await named.aclose()
