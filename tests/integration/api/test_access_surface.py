"""The whole surface: what is open, what every answer carries, and hostile bytes in every header."""

import socket
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from starlette.responses import HTMLResponse

from actors import DOMAINS
from supervisor.api import create_app, serve
from supervisor.api.gate import BODY_BYTES
from supervisor.config import Settings
from supervisor.console.assets import Assets
from supervisor.embedded import Urls
from tests.integration.api.access_scene import Scene, bearer, raw, scene_of
from tests.support.fake_replica import FakeReplica, LendingReplica
from tests.support.routes import OPEN, paths_and_methods
from tests.support.slowness import patient

PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HOSTILE = [
    b"",
    b"\0",
    b"a\0b",
    b"\xff\xfe",
    "ü🙂".encode(),
    b"'; DROP TABLE x --",
    b"<script>",
    b"x" * 8000,
    b"%00",
]
HEADERS = [
    "Authorization",
    "Cookie",
    "Origin",
    "Sec-Fetch-Site",
    "X-CSRF-Token",
    "Content-Type",
    "Accept",
    "Host",
    "Content-Length",
    "X-Forwarded-For",
]


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    async with scene_of(database) as scene:
        yield scene


async def test_nothing_but_the_open_paths_answers_without_credentials(scene: Scene) -> None:
    """S1, S5: each route of the supervisor, the console and the domains, asked with each of its methods."""
    replica = LendingReplica(scene.store, Settings(http_host="0.0.0.0"), work_store=scene.store)
    app = create_app(replica, DOMAINS)
    asked = paths_and_methods(app)
    assert len(asked) > 130, asked
    assert ("/api/v1/jobs/scan-hash/claim", "POST") in asked, "a worker's routes are a replica's too"
    async with scene.client(app=app) as http:
        for path, method in asked:
            answer = await http.request(method, path)
            if path in OPEN:
                assert answer.status_code not in {401, 403}, (path, method)
            else:
                assert answer.status_code == 401, (path, method)
        for path in (
            "/healthz/",
            "/login/x",
            "/logout",
            "/staticx",
            "/metrics/x",
            "//login",
            "/LOGIN",
            "/",
            "/docs",
        ):
            assert (await http.get(path)).status_code == 401, path


async def test_pages_and_data_carry_their_own_policies(scene: Scene) -> None:
    """S2: a page may use what this server has; an upload that is HTML may use nothing."""
    token, static = await scene.token("anna", "view"), Assets.read().path("console.css")

    async def upload() -> HTMLResponse:
        return HTMLResponse("<script>")

    scene.app.add_api_route("/api/v1/upload", upload)
    async with scene.client() as http:
        answers = {
            path: await http.get(path, headers=bearer(token))
            for path in ("/t/page", "/t/name", "/api/v1/upload", "/nowhere", static)
        }
    policies = {path: answer.headers["content-security-policy"] for path, answer in answers.items()}
    assert policies.pop("/t/page") == PAGE_POLICY
    assert set(policies.values()) == {"default-src 'none'; frame-ancestors 'none'"}
    for path, answer in answers.items():
        assert answer.status_code == (404 if path == "/nowhere" else 200)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["referrer-policy"] == ("same-origin" if path == "/t/page" else "no-referrer")
        assert ("immutable" in answer.headers["cache-control"]) == path.startswith("/static/")


async def test_people_are_sent_to_the_login_and_programs_are_told(scene: Scene) -> None:
    async with scene.client() as http:
        page = await http.get("/runs?state=FAILED", headers={"Accept": "text/html,application/xhtml+xml"})
        assert (page.status_code, page.headers["location"]) == (303, "/login?next=/runs%3Fstate%3DFAILED")
        for headers in ({}, {"Accept": "application/json"}, {"Accept": "text/html"} | bearer("wrong")):
            told = await http.get("/status", headers=headers)
            assert (told.status_code, told.headers["content-type"]) == (401, "application/problem+json")
        assert (await http.post("/t/form", headers={"Accept": "text/html"})).status_code == 401


async def test_a_refusal_is_a_page_where_a_page_was_asked_for(scene: Scene) -> None:
    """What a browser's form gets; programs, and all below /api/, get the problem."""
    asked = {"Accept": "text/html,*/*;q=0.8"}
    async with scene.client() as http:
        own = await scene.log_in(http, await scene.token("anna", "view"))
        pages: dict[tuple[int, str], dict[str, Any]] = {
            (403, "the role view may not do this"): {"data": {"csrf": own}},
            (403, "the form&#39;s token is missing"): {"data": {"csrf": "x"}, "path": "/logout"},
            (403, "sent from a page of another site"): {"headers": {"Origin": "null"}, "path": "/logout"},
            (403, "the role view may not"): {"data": {"csrf": own}, "headers": {"Host": "["}},
            (413, "the body is too large"): {"headers": {"Content-Length": "9" * 12}},
        }
        for (status, title), sent in pages.items():
            headers = asked | sent.pop("headers", {})
            page = await http.post(sent.pop("path", "/t/form"), headers=headers, **sent)
            assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8")
            assert title in page.text
            assert page.headers["content-security-policy"] == PAGE_POLICY
        problems = [
            await http.post("/t/form", data={"csrf": own}, headers={"Accept": "application/json"}),
            await http.post("/api/v1/nowhere", data={"csrf": own}, headers=asked),
        ]
    for answer in problems:
        assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    async with scene.client() as http:
        page = await http.post("/t/form", headers=asked | {"Cookie": "tenure_session=x"})
    assert (page.status_code, page.headers["www-authenticate"]) == (401, "Bearer")
    assert "a token is needed" in page.text
    assert "tenure_session=" in page.headers["set-cookie"], "what cannot be a session goes"


async def test_only_an_upload_itself_may_be_large(scene: Scene) -> None:
    """S5: not what is posted beside it; and each path that a domain names is one that takes a POST."""
    app = create_app(FakeReplica(scene.store, Settings(http_host="0.0.0.0")), DOMAINS)
    posted = {path for path, operations in app.openapi()["paths"].items() if "post" in operations}
    large = {path for domain in DOMAINS for path in domain.body_bytes}
    assert large
    assert large <= posted
    declared = {"Content-Length": str(BODY_BYTES + 1)} | bearer(await scene.token("anna", "view"))
    async with scene.client(app=app) as http:
        for path in large:
            assert (await http.post(path, headers=declared)).status_code == 403, "a matter of the role"
            assert (await http.put(path, headers=declared)).status_code == 413
            for beside in (f"{path}/", f"{path}/7/refuse", f"{path}x"):
                assert (await http.post(beside, headers=declared)).status_code == 413, beside


async def test_hostile_bytes_in_a_header_are_refused_and_not_logged(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """S5, S21: with credentials and without, in whatever they touch."""
    token = await scene.token("anna", "operate")
    async with scene.client() as http:
        own = await scene.log_in(http, token)
        for header, value in product(HEADERS, HOSTILE):
            spelled = value if header != "Authorization" else b"Bearer " + value
            for path, method, headers in (
                ("/t/name", "GET", {}),
                ("/t/form", "POST", {"X-CSRF-Token": own}),
                ("/t/name", "POST", bearer(token)),
                ("/login", "POST", {}),
            ):
                sent = raw({name: text for name, text in headers.items() if name != header})
                answer = await http.request(method, path, headers=sent | {header.encode(): spelled})
                assert answer.status_code < 500, (header, value, path)
    printed = capsys.readouterr()
    assert all(line.count("too many wrong credentials") for line in printed.out.splitlines())
    assert printed.err == ""


async def test_hostile_bytes_over_a_real_socket(scene: Scene) -> None:
    token = await scene.token("anna", "view")
    ready = anyio.Event()
    ports: list[int] = []

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    def code(head: bytes) -> int:
        with socket.create_connection(("127.0.0.1", ports[0]), timeout=patient(10)) as line:
            line.sendall(b"GET /t/name HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + head + b"\r\n\r\n")
            return int(line.makefile("rb").readline().split()[1])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(serve, scene.app, "127.0.0.1", 0, note)
        await ready.wait()
        for head, expected in (
            (b"Authorization: Bearer " + token.encode(), {200}),
            (b"Authorization: Bearer \0", {400}),
            (b"Authorization: Bearer \xff\xfe", {401}),
            (b"Authorization: Bearer " + b"x" * 12_000, {401}),
            (b"Authorization: Bearer " + b"x" * 70_000, {400, 431}),
            (b"Cookie: tenure_session=\0", {400}),
            (b"Cookie: tenure_session=" + b"\xff" * 43, {401}),
        ):
            assert await anyio.to_thread.run_sync(code, head) in expected, head[:40]
        tasks.cancel_scope.cancel()
