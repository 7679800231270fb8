"""The HTTP edge: probes, token, limits, errors, and a server that lives in our loop."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.types import Receive, Scope, Send

from supervisor.api import CannotListen, PortInUse, check_bind, create_app, serve
from supervisor.api.connections import HEADER_BYTES
from supervisor.api.gate import BODY_BYTES
from supervisor.config import Settings
from supervisor.domain import Domain
from supervisor.embedded import Urls
from supervisor.errors import BadSettings, Conflict
from supervisor.store import Store
from tests.support import door
from tests.support.databases import with_port
from tests.support.door import TOKEN, guarded
from tests.support.fake_replica import FakeReplica
from tests.support.ports import free_port
from tests.support.slowness import patient


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=4)
    yield store
    await store.close()


@pytest.fixture
async def nowhere() -> AsyncIterator[Store]:
    """A store whose database is not there: whoever touches it gets an error."""
    store = Store(f"postgresql://nobody:secret-word@127.0.0.1:{free_port()}/none", name="test")
    yield store
    await store.close()


def client(
    replica: FakeReplica, app: FastAPI | None = None, host: str = "127.0.0.1:8080"
) -> httpx.AsyncClient:
    return door.client(app or create_app(replica), f"http://{host}")


async def test_healthz_never_touches_the_database(nowhere: Store) -> None:
    async with client(FakeReplica(nowhere, guarded())) as http:
        answer = await http.get("/healthz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok", "worker_id": "w1"})


async def test_readyz_follows_the_database_and_the_drain(store: Store, nowhere: Store) -> None:
    replica = FakeReplica(store, guarded())
    async with client(replica) as http:
        assert (await http.get("/readyz")).status_code == 200
        replica.draining = True
        answer = await http.get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (503, "draining")
    async with client(FakeReplica(nowhere, guarded())) as http:
        answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert "does not answer" in answer.json()["detail"]
    assert "secret-word" not in answer.text


async def test_readyz_answers_in_time_when_the_database_hangs(
    database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sooner than whoever else asks a database that hangs, which is an hour here."""
    monkeypatch.setattr("supervisor.store.CONNECT_SECONDS", 3600.0)
    monkeypatch.setattr("supervisor.store.CALL_SECONDS", 3600.0)
    listener = socket.create_server(("127.0.0.1", 0))  # accepts in the kernel, and never says a word
    store = Store(with_port(database.control, listener.getsockname()[1]), name="test")
    try:
        async with client(FakeReplica(store, guarded())) as http:
            with anyio.fail_after(patient(3)):
                answer = await http.get("/readyz")
    finally:
        await store.close()
        listener.close()
    assert answer.status_code == 503


async def test_metrics_are_text_also_without_a_database(nowhere: Store) -> None:
    async with client(FakeReplica(nowhere, guarded())) as http:
        answer = await http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert "tenure_leader 0.0" in answer.text


async def test_status_is_the_figures(store: Store) -> None:
    async with client(FakeReplica(store, guarded())) as http:
        answer = await http.get("/status")
    assert answer.status_code == 200
    assert answer.json().keys() == {
        "leader",
        "replicas",
        "runs",
        "lag_seconds",
        "leases",
        "confirming",
        "orphaned",
    }


async def test_status_without_a_database_is_a_problem_with_advice(nowhere: Store) -> None:
    async with client(FakeReplica(nowhere, guarded())) as http:
        answer = await http.get("/status")
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert "TENURE_DATABASE_URL" in answer.json()["detail"]
    assert "secret-word" not in answer.text


async def test_a_conflict_is_told_as_409(store: Store) -> None:
    """R003-04: whoever asked for what is no longer possible is told so, and nothing is tried again."""
    replica = FakeReplica(store, guarded())
    app, asked = create_app(replica), []

    async def cancel() -> None:
        asked.append(1)
        raise Conflict(what="run 7 has ended as FAILED")

    app.add_api_route("/cancel", cancel)
    async with client(replica, app) as http:
        answer = await http.get("/cancel")
    assert (answer.status_code, answer.json()["title"]) == (409, "run 7 has ended as FAILED")
    assert asked == [1]


@pytest.mark.parametrize("path", ["/status", "/api/v1/openapi.json", "/nowhere"])
@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", f"Basic {TOKEN}", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer ü"],
)
async def test_without_the_token_nothing_is_told(store: Store, path: str, header: str | None) -> None:
    replica = FakeReplica(store, guarded())
    headers = {} if header is None else {b"Authorization": header.encode()}
    async with client(replica, host="example.org") as http:
        del http.headers["Authorization"]
        answer = await http.get(path, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert TOKEN not in answer.text


async def test_the_token_opens_everything_and_probes_need_none(store: Store) -> None:
    async with client(FakeReplica(store, guarded()), host="example.org") as http:
        answer = await http.get("/status")
        del http.headers["Authorization"]
        probes = [(await http.get(path)).status_code for path in ("/healthz", "/readyz", "/metrics")]
    assert (answer.status_code, probes) == (200, [200, 200, 200])


async def test_unknown_paths_and_methods_are_problems_with_security_headers(store: Store) -> None:
    async with client(FakeReplica(store, guarded())) as http:
        answers = [await http.get("/nowhere"), await http.post("/status")]
    assert [answer.status_code for answer in answers] == [404, 405]
    for answer in answers:
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["status"] == answer.status_code
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "content-security-policy" in answer.headers


async def test_an_unexpected_error_tells_its_id_only(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    app = create_app(FakeReplica(store, guarded()))

    @app.get("/broken")
    async def broken() -> None:
        raise RuntimeError("the secret inside")

    async with client(FakeReplica(store, guarded()), app) as http:
        answer = await http.get("/broken")
    assert answer.status_code == 500
    assert "secret inside" not in answer.text
    assert "Traceback" not in answer.text
    printed = capsys.readouterr()
    assert answer.json()["incident"] in printed.out + printed.err
    assert "secret inside" in printed.out + printed.err


@pytest.mark.parametrize("path", ["/healthz", "/status", "/nowhere"])
async def test_a_head_over_the_limit_is_refused_however_it_arrives(store: Store, path: str) -> None:
    """Without a socket: the whole head is there at once, as it is on a busy machine."""
    async with client(FakeReplica(store, guarded())) as http:
        large = await http.get(path, headers={"X-Large": "x" * HEADER_BYTES})
        many = await http.get(path, headers={f"X-{n}": "x" * 100 for n in range(HEADER_BYTES // 100)})
        query = await http.get(path, params={"q": "x" * HEADER_BYTES})
        usual = await http.get("/healthz", headers={"X-Usual": "x" * (HEADER_BYTES // 2)})
    assert [answer.status_code for answer in (large, many, query, usual)] == [431, 431, 431, 200]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_over_the_limit_is_refused(store: Store, declared: bool) -> None:
    app = create_app(FakeReplica(store, guarded()))
    sizes = []

    async def raw(scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            sizes.append(len(message["body"]))

    app.mount("/raw", raw)

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(BODY_BYTES // 65536 + 1):
            yield b"x" * 65536

    async with client(FakeReplica(store, guarded()), app) as http:
        content: Any = b"x" * (BODY_BYTES + 1) if declared else chunks()
        answer = await http.post("/raw/", content=content)
    assert answer.status_code == 413
    assert sum(sizes) <= BODY_BYTES


@pytest.mark.parametrize("declared", [True, False])
async def test_a_domain_may_take_larger_bodies_in_some_place(store: Store, declared: bool) -> None:
    most = 2 * BODY_BYTES
    taken = Domain(name="films", body_bytes={"/films": most})
    app = create_app(FakeReplica(store, guarded()), [taken])

    async def take(request: Request) -> int:
        return sum([len(piece) async for piece in request.stream()])

    for path in ("/films", "/films/7", "/filmset"):
        app.add_api_route(path, take, methods=["POST", "PUT"])

    async def chunks(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 65536):
            yield b"x" * 65536

    async def sent(path: str, size: int, method: str = "POST") -> int:
        content: Any = b"x" * size if declared else chunks(size)
        return (await http.request(method, path, content=content)).status_code

    async with client(FakeReplica(store, guarded()), app) as http:
        assert await sent("/films", most) == 200
        assert await sent("/films", most + 65536) == 413
        assert await sent("/films", BODY_BYTES + 65536, "PUT") == 413, "an upload is a POST"
        for beside in ("/films/7", "/filmset"):
            assert await sent(beside, BODY_BYTES) == 200
            assert await sent(beside, BODY_BYTES + 65536) == 413, "a path that only begins alike"
        assert (await http.post("/films", headers={"Content-Length": "9" * 5000})).status_code == 413


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "db.example", "localhost.example"])
def test_beyond_loopback_a_token_is_required(host: str) -> None:
    with pytest.raises(BadSettings, match="TENURE_API_TOKEN"):
        check_bind(Settings(http_host=host))
    check_bind(Settings(http_host=host, api_token=TOKEN))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_token(host: str) -> None:
    check_bind(Settings(http_host=host))


@asynccontextmanager
async def served(app: FastAPI, port: int = 0) -> AsyncIterator[int]:
    ready = anyio.Event()
    ports = []

    def note(chosen: int) -> None:
        ports.append(chosen)
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, app, "127.0.0.1", port, note)
        with anyio.fail_after(patient(10)):
            await ready.wait()
        yield ports[0]
        tasks.cancel_scope.cancel()


async def test_serve_answers_and_ends_when_cancelled(nowhere: Store) -> None:
    app = create_app(FakeReplica(nowhere, guarded()))
    with anyio.fail_after(patient(15)):
        async with (
            served(app) as port,
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=patient(5)) as http,
        ):
            assert (await http.get("/healthz")).status_code == 200
            huge = await http.get("/healthz", headers={"X-Huge": "x" * 100_000})
            assert huge.status_code in {400, 431}
            assert "server" not in (await http.get("/healthz")).headers
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), timeout=1):
        pass


async def test_serve_leaves_the_signals_alone(nowhere: Store) -> None:
    import signal

    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    async with served(create_app(FakeReplica(nowhere, guarded()))):
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


async def test_a_taken_port_is_an_error_with_advice(nowhere: Store) -> None:
    app = create_app(FakeReplica(nowhere, guarded()))
    async with served(app) as port:
        with pytest.raises(PortInUse, match=str(port)) as refused:
            await serve(app, "127.0.0.1", port, lambda _port: None)
    assert "TENURE_HTTP_PORT" in refused.value.advice
    assert refused.value.exit_code == 1


async def test_an_address_that_is_not_ours_is_an_error_with_advice(nowhere: Store) -> None:
    app = create_app(FakeReplica(nowhere, guarded()))
    with pytest.raises(CannotListen):
        await serve(app, "192.0.2.1", 0, lambda _port: None)
    with pytest.raises(CannotListen):
        await serve(app, "no such host", 0, lambda _port: None)
