"""Links that log a browser in once: by whom they are taken, what they leave behind, and what is refused."""

import os
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import httpx
import pytest

from supervisor.api.limiter import BURST
from supervisor.embedded import Urls
from supervisor.login_codes import LIFETIME_SECONDS, LoginCodes
from tests.integration.api.access_scene import HOST, SHARED_TOKEN, Scene, scene_of

ASKED = f"http://{HOST}/"
WRONG = "w" * 43


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.chdir(tmp_path)
    tmp_path.chmod(0o700)
    return tmp_path


@pytest.fixture
async def scene(database: Urls, state: Path) -> AsyncIterator[Scene]:
    async with scene_of(database, api_token=SHARED_TOKEN, state_dir=state) as scene:
        yield scene


def codes(state: Path) -> list[Path]:
    return list((state / "logins").iterdir())


async def refused(answer: httpx.Response) -> bool:
    """With words, and without a session."""
    assert answer.status_code == 401, answer.text
    assert "tenure open" in answer.text.partition('role="alert"')[2].partition("</p>")[0]
    return "set-cookie" not in answer.headers


async def test_a_link_logs_in_once(scene: Scene, state: Path) -> None:
    """S3: the session is a cookie's as every other, and nothing of the code is left in the address."""
    link = LoginCodes(state).link(ASKED)
    async with scene.client() as http, scene.client("192.0.2.2") as other:
        answer = await http.get(link)
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"].lower()
        assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/"))
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
        assert (await http.get("/t/admin")).json() == "TENURE_API_TOKEN"
        form = (await http.get("/t/page")).text
        assert (await http.post("/t/form", data={"csrf": form})).status_code == 200
        assert (await http.post("/t/form")).status_code == 403, "a session as every other"
        assert await refused(await other.get(link))
        again = await http.get(link)
        assert await refused(again)
        assert "logged in all the same" in again.text
        assert (await http.get("/t/admin")).status_code == 200
    assert codes(state) == []


async def test_of_many_who_follow_one_gets_in(scene: Scene, state: Path) -> None:
    """Also at several replicas of one state directory."""
    link, statuses = LoginCodes(state).link(ASKED), []
    other = scene.another(api_token=SHARED_TOKEN, state_dir=state)

    async def follow(number: int) -> None:
        app = other if number % 2 else scene.app
        async with scene.client(f"192.0.2.{number}", app=app) as http:
            statuses.append((await http.get(link)).status_code)

    async with anyio.create_task_group() as tasks:
        for number in range(1, 17):
            tasks.start_soon(follow, number)
    assert sorted(statuses) == [303] + [401] * 15
    assert await scene.sessions() == 1


async def test_a_link_has_an_end(scene: Scene, state: Path) -> None:
    async with scene.client() as http:
        link = LoginCodes(state).link(ASKED)
        (made,) = codes(state)
        then = time.time() - LIFETIME_SECONDS - 1
        os.utime(made, (then, then))
        assert await refused(await http.get(link))
        assert codes(state) == [], "it is gone, too"
        LoginCodes(state).link(ASKED)
        os.utime(codes(state)[0], (then, then))
        LoginCodes(state).link(ASKED)
        assert len(codes(state)) == 1, "a new one sweeps the old ones away"


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Purpose": "prefetch"},
        {"Sec-Purpose": "prefetch;prerender"},
        {"Purpose": "prefetch"},
        {"X-Purpose": "preview"},
        {"X-Moz": "prefetch"},
        {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Sec-Fetch-Site": "same-origin"},
    ],
)
async def test_what_is_not_a_person_uses_nothing_up(
    scene: Scene, state: Path, headers: dict[str, str]
) -> None:
    """A fetch ahead would take the link from its user; a page's pictures would use up the guesses."""
    link = LoginCodes(state).link(ASKED)
    async with scene.client() as http:
        for _ in range(BURST + 1):
            answer = await http.get("/login", params={"code": WRONG}, headers=headers)
            assert answer.status_code == 403
        early = await http.get(link, headers=headers)
        assert (early.status_code, "set-cookie" in early.headers) == (403, False)
        person = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Sec-Fetch-Site": "cross-site"}
        assert (await http.get(link, headers=person)).status_code == 303


async def test_wrong_codes_lock_nobody_out(
    scene: Scene, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """S5: nobody guesses 256 bits. The right link works after any number of wrong ones; none is logged."""
    link = LoginCodes(state).link(ASKED)
    async with scene.client() as http:
        for _ in range(3 * BURST):
            assert (await http.get("/login", params={"code": WRONG})).status_code == 401
        assert (await http.get(link)).status_code == 303
    printed = capsys.readouterr()
    assert WRONG not in printed.out + printed.err
    assert link.partition("code=")[2] not in printed.out + printed.err


@pytest.mark.parametrize(
    "code", ["x", "../token", "a" * 42, "a" * 44, "\0" * 43, "ü" * 43, "." * 43, "a" * 4000]
)
async def test_what_is_no_code_is_refused(scene: Scene, state: Path, code: str) -> None:
    (state / "token").write_text("kept")
    async with scene.client() as http:
        assert await refused(await http.get("/login", params={"code": code}))
    assert (state / "token").read_text() == "kept"


async def test_a_link_replaces_the_session_there_was(scene: Scene, state: Path) -> None:
    """S3: no fixation."""
    async with scene.client() as http:
        http.cookies.set("tenure_session", "x" * 43, domain="replica.example")
        await http.get(LoginCodes(state).link(ASKED))
        assert "x" * 43 not in http.cookies.values()
        await http.get(LoginCodes(state).link(ASKED))
    assert await scene.sessions() == 1


async def test_without_a_shared_token_a_link_opens_nothing(database: Urls, state: Path) -> None:
    """There is nobody whom it could log in as; it is not used up."""
    link = LoginCodes(state).link(ASKED)
    async with scene_of(database, state_dir=state) as scene, scene.client() as http:
        assert await refused(await http.get(link))
    assert len(codes(state)) == 1


async def test_codes_that_others_could_have_put_there_are_none(scene: Scene, state: Path) -> None:
    link = LoginCodes(state).link(ASKED)
    (state / "logins").chmod(0o755)
    async with scene.client() as http:
        assert await refused(await http.get(link))
        (state / "logins").chmod(0o700)
        (made,) = codes(state)
        assert stat.S_IMODE(made.stat().st_mode) == 0o600
        assert made.name not in link
        assert (await http.get(link)).status_code == 303
