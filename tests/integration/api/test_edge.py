"""The HTTP edge with real sockets: deadlines, who makes room, bounds of an address, ambiguous requests.

Deadlines are short here, and nothing is said about how long they take: only who is ended, and who is not.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import pytest
from fastapi import FastAPI, Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.api import create_app
from supervisor.api.connections import Bounds
from supervisor.api.doorway import Doorway
from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.logs import configure
from supervisor.store import Store
from tests.integration.api.edge_scene import Client, Server, head, served
from tests.support.eventually import eventually
from tests.support.fake_replica import FakeReplica
from tests.support.sessions import connected

TOKEN = "the token of the environment"
BEARER = f"Authorization: Bearer {TOKEN}"
SHORT = Bounds(requests=4, requests_per_address=2, head_seconds=0.5, window_seconds=1.0)
LONG = Bounds(requests=4, requests_per_address=2)
WIDE = Bounds(requests=64, requests_per_address=16)
HEADS = Bounds(head_seconds=0.5, window_seconds=1000)
PROBES = ("/healthz", "/readyz", "/metrics")
LOGIN = "Content-Type: application/x-www-form-urlencoded"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=4)
    yield store
    await store.close()


class Work:
    """Routes that a test holds up, and what they were given."""

    def __init__(self) -> None:
        self.go_on = anyio.Event()
        self.began = 0
        self.taken: list[int] = []
        self.asked: list[str] = []

    def add_to(self, app: FastAPI) -> None:
        async def wait() -> str:
            self.began += 1
            await self.go_on.wait()
            return "done"

        async def take(request: Request) -> int:
            size = len(await request.body())
            self.taken.append(size)
            return size

        async def take_late(request: Request) -> int:
            self.began += 1
            await self.go_on.wait()
            return await take(request)

        async def follow() -> StreamingResponse:
            return StreamingResponse(self._lines(), media_type="text/plain")

        async def name(request: Request) -> str:
            self.asked.append(request.url.path)
            return "here"

        app.add_api_route("/t/wait", wait)
        app.add_api_route("/t/take", take, methods=["POST"])
        app.add_api_route("/t/take-late", take_late, methods=["POST"])
        app.add_api_route("/t/follow", follow)
        app.add_api_route("/t/name/{any}", name, methods=["GET", "POST"])

    async def _lines(self) -> AsyncIterator[str]:
        yield "first\n"
        await self.go_on.wait()
        yield "last\n"


@asynccontextmanager
async def edge(store: Store, bounds: Bounds, *, proxies: str = "") -> AsyncIterator[tuple[Server, Work]]:
    replica, work = FakeReplica(store, Settings(api_token=TOKEN, trusted_proxies=proxies)), Work()
    app = create_app(replica)
    work.add_to(app)
    trusted = replica.settings.proxies
    async with served(Doorway(replica, lambda: app), bounds, trusted) as server:
        try:
            yield server, work
        finally:
            work.go_on.set()


async def busy(server: Server, work: Work, source: str = "127.0.0.1") -> Client:
    """A request with a valid token, in the middle of its work."""
    before, client = work.began, await server.connect(source)
    await client.say(head("/t/wait", BEARER))
    await eventually(lambda: work.began == before + 1)
    return client


async def drip(client: Client, data: bytes) -> None:
    """One byte after the other until the server has had enough."""
    while not client.has_ended:
        await client.say(data)
        await anyio.sleep(0.05)


async def test_a_head_that_does_not_come_is_not_waited_for(store: Store) -> None:
    async with edge(store, HEADS) as (server, _), anyio.create_task_group() as tasks:
        silent, dripping, second = [await server.connect() for _ in range(3)]
        await second.say(head("/healthz"))
        assert (await second.answer()).status == 200
        await dripping.say(head("/healthz")[:-2])
        tasks.start_soon(drip, dripping, b"X-More: x\r\n")
        tasks.start_soon(drip, second, b"G")
        for client in (silent, dripping, second):
            assert b"200" not in await client.rest()
        tasks.cancel_scope.cancel()


async def test_a_body_that_does_not_come_is_not_waited_for(store: Store) -> None:
    """A client that has shown a valid token is told; what it had sent is not taken for the whole."""
    async with edge(store, SHORT) as (server, work), anyio.create_task_group() as tasks:
        silent, dripping, dripping_chunks = [await server.connect() for _ in range(3)]
        await silent.say(head("/t/take", BEARER, "Content-Length: 5", method="POST"))
        await dripping.say(head("/t/take", BEARER, "Content-Length: 400000", method="POST"))
        await dripping_chunks.say(head("/t/take", BEARER, "Transfer-Encoding: chunked", method="POST"))
        tasks.start_soon(drip, dripping, b"x")
        tasks.start_soon(drip, dripping_chunks, b"1\r\nx\r\n")
        for client in (silent, dripping, dripping_chunks):
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (408, "close")
            assert answer.headers["content-type"] == "application/problem+json"
            await client.rest()
        tasks.cancel_scope.cancel()
        assert work.taken == []


async def test_a_refused_body_is_not_read_for_ever(store: Store) -> None:
    """The answer is there at once; that more of the body follows keeps no connection open."""
    async with edge(store, SHORT) as (server, _), anyio.create_task_group() as tasks:
        client = await server.connect()
        await client.say(head("/t/take", "Content-Length: 400000", method="POST"))
        assert (await client.answer()).status == 401
        tasks.start_soon(drip, client, b"x" * 100)
        await client.rest()
        tasks.cancel_scope.cancel()


async def test_a_slow_and_honest_upload_takes_as_many_windows_as_it_needs(store: Store) -> None:
    bounds = Bounds(window_seconds=0.5, bytes_per_second=100)
    async with edge(store, bounds) as (server, work):
        client = await server.connect()
        await client.say(head("/t/take", BEARER, "Content-Length: 30000", method="POST"))
        for _ in range(30):
            await client.say(b"x" * 1000)
            await anyio.sleep(0.1)
        assert (await client.answer()).body == b"30000"
        assert work.taken == [30000]


async def test_a_client_that_waits_for_us_is_not_slow(store: Store) -> None:
    """Ours was the pause: the handler had not begun to read, and more than its buffer was sent already."""
    async with edge(store, SHORT) as (server, work):
        full, asking = await server.connect(), await server.connect()
        await full.say(head("/t/take-late", BEARER, "Content-Length: 200000", method="POST"), b"x" * 150_000)
        await asking.say(
            head("/t/take-late", BEARER, "Content-Length: 5", "Expect: 100-continue", method="POST")
        )
        other = await server.connect()
        await other.say(head("/t/take", BEARER, "Content-Length: 5", method="POST"))
        assert (await other.answer()).status == 408, "a window has passed"
        await eventually(lambda: work.began == 2)
        work.go_on.set()
        assert (await asking.answer()).status == 100
        await asking.say(b"hello")
        await full.say(b"x" * 50_000)
        assert (await asking.answer()).body == b"5"
        assert (await full.answer()).body == b"200000"


async def test_no_deadline_ends_what_is_streamed_or_worked_at(store: Store) -> None:
    async with edge(store, SHORT) as (server, work):
        worker, follower, silent = await busy(server, work), await server.connect(), await server.connect()
        await follower.say(head("/t/follow", BEARER))
        assert b"first" in await follower.until(b"first\n")
        await silent.rest()
        late = await server.connect()
        await late.say(head("/t/take", BEARER, "Content-Length: 5", method="POST"))
        assert (await late.answer()).status == 408, "a window has passed"
        work.go_on.set()
        assert b"last" in await follower.until(b"last\n")
        assert (await worker.answer()).body == b'"done"'


async def test_nothing_after_too_large_a_head_is_answered(store: Store) -> None:
    async with edge(store, LONG) as (server, _):
        client = await server.connect()
        await client.say(head("/status", BEARER, f"X-Long: {'x' * 20_000}"), head("/healthz"))
        assert (await client.answer()).status == 431
        assert await client.rest() == b""


async def test_a_full_server_refuses_work_and_answers_probes(store: Store) -> None:
    async with edge(store, LONG) as (server, work):
        workers = [await busy(server, work) for _ in range(LONG.requests)]
        for _ in range(3):
            refused = await server.ask("/status", BEARER)
            assert (refused.status, refused.headers["retry-after"]) == (503, "1")
            assert refused.headers["content-type"] == "application/problem+json"
            assert (refused.headers["connection"], refused.headers["x-content-type-options"]) == (
                "close",
                "nosniff",
            )
            for path in PROBES:
                assert (await server.ask(path)).status == 200
        work.go_on.set()
        for client in workers:
            assert (await client.answer()).body == b'"done"'
        assert (await server.ask("/status", BEARER)).status == 200


async def test_the_oldest_without_a_head_makes_room(store: Store) -> None:
    async with edge(store, LONG) as (server, work):
        worker = await busy(server, work)
        kept = await server.connect()
        await kept.say(head("/t/name/1", BEARER))
        assert (await kept.answer()).status == 200
        silent = [await server.connect() for _ in range(3)]
        assert (await server.ask("/status", BEARER)).status == 200
        await silent[0].rest()
        assert not any(client.has_ended for client in (worker, kept, *silent[1:]))


async def test_a_login_that_never_ends_makes_room_for_a_valid_token(store: Store) -> None:
    async with edge(store, LONG) as (server, work):
        workers = [await busy(server, work) for _ in range(LONG.requests - 1)]
        login = await server.connect()
        await login.say(head("/login", LOGIN, "Content-Length: 100", method="POST"), b"token=")
        answer = await server.ask("/t/name/1", BEARER)
        assert answer.status == 200
        assert await login.rest() == b""
        assert not any(client.has_ended for client in workers)


async def test_what_was_right_before_is_not_pushed_out(
    store: Store, database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database takes its time to confirm it, and what comes meanwhile has proven nothing."""
    monkeypatch.setattr("supervisor.api.access.TRUST_SECONDS", 0.0)
    waits = """SELECT count(*) FROM pg_locks
               WHERE relation = 'supervisor.console_session'::regclass AND NOT granted"""
    async with edge(store, LONG) as (server, _), connected(database.admin) as other:
        form, browser = f"token={TOKEN.replace(' ', '+')}".encode(), await server.connect()
        await browser.say(head("/login", LOGIN, f"Content-Length: {len(form)}", method="POST"), form)
        cookie = (await browser.answer()).headers["set-cookie"].partition(";")[0]
        async with other.transaction():
            await other.execute("LOCK TABLE supervisor.console_session")
            known = await server.connect()
            await known.say(head("/t/name/1", f"Cookie: {cookie}"))
            await eventually(lambda: other.fetchval(waits), what="the look for the session")
            for _ in range(2 * LONG.requests):
                login = await server.connect()
                await login.say(head("/login", LOGIN, "Content-Length: 100", method="POST"), b"token=")
                assert (await server.ask("/healthz")).status == 200
        assert (await known.answer()).status in {200, 503}, "503: the database took too long"


async def test_whoever_guesses_and_goes_leaves_no_place_taken(store: Store) -> None:
    """Guesses wait when there were many. Those who have gone do not wait any more."""
    async with edge(store, LONG) as (server, _):
        for number in range(10):
            assert (await server.ask("/status", f"Authorization: Bearer guess {number}")).status == 401
        for number in range(40):
            client = await server.connect()
            await client.say(head("/status", f"Authorization: Bearer other guess {number}"))
            client.close()
        assert (await server.ask("/status", BEARER)).status == 200


async def test_an_address_has_its_share_and_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses of loopback stand for those of strangers."""
    for user in ("http_protocol", "connections"):
        monkeypatch.setattr(f"supervisor.api.{user}.group_of", lambda peer, proxies: peer)
    async with edge(store, LONG) as (server, work):
        workers = [await busy(server, work, "127.0.0.2") for _ in range(LONG.requests_per_address)]
        refused = await server.ask("/status", BEARER, source="127.0.0.2")
        assert refused.status == 429
        assert "TENURE_TRUSTED_PROXIES" in json.loads(refused.body)["detail"]
        assert (await server.ask("/healthz", source="127.0.0.2")).status == 200
        other = await server.connect("127.0.0.3")
        silent = [await server.connect("127.0.0.2") for _ in range(8)]
        for client in silent[:-1]:
            await client.rest()
        assert not any(client.has_ended for client in (other, silent[-1], *workers))
        assert (await server.ask("/status", BEARER, source="127.0.0.3")).status == 200


async def test_loopback_has_no_share(store: Store) -> None:
    async with edge(store, LONG) as (server, work):
        for _ in range(LONG.requests_per_address + 1):
            await busy(server, work)


SMUGGLING = [
    head("/t/name/1", BEARER, "Content-Length: 5", "Transfer-Encoding: chunked", method="POST")
    + b"0\r\n\r\n",
    head("/t/name/1", BEARER, "X-Folded: a\r\n b"),
    head("/t/name/1", BEARER, "X-Bare: a\nX-Line: b"),
    head("/t/name/1", BEARER).replace(b"\r\n", b"\n"),
    head("/t/name/1", BEARER, "Transfer-Encoding: chunked", method="POST").replace(b"HTTP/1.1", b"HTTP/1.0")
    + b"0\r\n\r\n",
]


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("ambiguous", SMUGGLING)
async def test_nothing_after_an_ambiguous_request_is_answered(
    store: Store, ambiguous: bytes, at_once: bool
) -> None:
    async with edge(store, LONG) as (server, work):
        client, second = await server.connect(), head("/t/name/2", BEARER)
        await client.say(ambiguous, second if at_once else b"")
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (400, "close")
        assert answer.headers["content-type"] == "application/problem+json"
        await client.say(second)
        assert await client.rest() == b""
        assert work.asked == []


@pytest.mark.parametrize("trailers", [b"X-Bare: a\n\r\n", b"\n", b"X-Folded: a\r\n b\r\n\r\n"])
async def test_nothing_after_ambiguous_trailers_is_answered(store: Store, trailers: bytes) -> None:
    async with edge(store, LONG) as (server, work):
        client, second = await server.connect(), head("/t/name/2", BEARER)
        await client.say(head("/t/take", BEARER, "Transfer-Encoding: chunked", method="POST"))
        await client.say(b"5\r\nhello\r\n0\r\n", trailers, second)
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
        assert (work.taken, work.asked) == ([], [])


async def test_requests_in_a_row_on_one_connection_are_answered(store: Store) -> None:
    async with edge(store, LONG) as (server, work):
        client = await server.connect()
        await client.say(
            head("/t/name/1", BEARER),
            head("/t/take", BEARER, "Content-Length: 5", method="POST"),
            b"hello",
            head("/healthz"),
            head("/t/name/2", BEARER, "Connection: close"),
        )
        assert [(await client.answer()).body for _ in range(2)] == [b'"here"', b"5"]
        assert (await client.answer()).status == 200
        assert (await client.answer()).body == b'"here"'
        assert await client.rest() == b""
        assert work.asked == ["/t/name/1", "/t/name/2"]


async def test_a_broken_body_after_the_answer_is_no_error_of_ours(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with edge(store, LONG) as (server, _):
        client = await server.connect()
        await client.say(head("/t/take", "Transfer-Encoding: chunked", method="POST"))
        assert (await client.answer()).status == 401
        await client.say(b"no chunk\r\n")
        assert await client.rest() == b""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_broken_body_that_comes_with_its_head_is_no_error_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The handler answers without reading, when the refusal has been sent."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("here")(scope, receive, send)

    async with served(answer) as server:
        client = await server.connect()
        await client.say(head("/", "Transfer-Encoding: chunked", method="POST"), b"no chunk\r\n")
        assert (await client.answer()).status == 400
        assert await client.rest() == b""
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_what_a_library_logs_is_a_line_of_ours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", logging.lastResort)
    configure(Settings(log_format="json"))
    library = logging.getLogger("uvicorn.of-this-test")
    monkeypatch.setattr(library, "propagate", False)  # to the handlers of the test runner
    library.error("Exception in ASGI application\n", exc_info=ValueError("what went wrong"))
    library.info("nothing of interest")
    line = json.loads(capsys.readouterr().err)
    assert (line["event"], line["level"], line["part"]) == (
        "Exception in ASGI application",
        "error",
        "uvicorn.of-this-test",
    )
    assert "what went wrong" in line["exception"]


async def test_what_comes_at_once_is_taken(store: Store) -> None:
    """More than one turn of the loop accepts, and more than may be open: the others wait."""
    async with edge(store, WIDE) as (server, _):
        answers = await asyncio.gather(*(server.ask("/healthz") for _ in range(300)))
        assert {answer.status for answer in answers} == {200}


async def test_a_stranger_behind_a_proxy_floods_with_guesses_and_keeps_nobody_out(store: Store) -> None:
    """More at once than there are requests, without a rest."""
    stranger, holder = "X-Forwarded-For: 203.0.113.77", "X-Forwarded-For: 198.51.100.5"

    async def guess(server: Server, number: int) -> None:
        while True:
            with suppress(AssertionError, OSError):
                await server.ask("/status", f"Authorization: Bearer guess {number}", stranger)

    async with edge(store, WIDE, proxies="127.0.0.1") as (server, _), anyio.create_task_group() as tasks:
        for number in range(4 * WIDE.requests):
            tasks.start_soon(guess, server, number)
        for _ in range(20):
            assert (await server.ask("/status", BEARER, holder)).status == 200
            for path in PROBES:
                assert (await server.ask(path)).status == 200
        tasks.cancel_scope.cancel()
