"""Logins of the console: the cookie, the form's token, other sites, the way out, and where a login leads."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from supervisor.api.access import TRUST_SECONDS
from supervisor.api.csrf import FORM_BYTES
from supervisor.embedded import Urls
from tests.integration.api.access_scene import HOST, SHARED_TOKEN, Scene, bearer, raw, scene_of
from tests.support.eventually import eventually

FORGED = "x" * 43


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    async with scene_of(database) as scene:
        yield scene


async def test_a_login_gives_a_cookie_that_scripts_and_other_sites_do_not_get(scene: Scene) -> None:
    """S2, S3"""
    token = await scene.token("anna", "operate")
    async with scene.client() as http:
        form = await http.get("/login", params={"next": "/runs"})
        assert form.status_code == 200
        assert 'name="token"' in form.text
        answer = await http.post("/login", data={"token": f" {token} ", "next": "/t/name?a=b"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/t/name?a=b")
        cookie = answer.headers["set-cookie"]
        assert cookie.lower().replace(http.cookies["tenure_session"].lower(), "...") == (
            "tenure_session=...; httponly; path=/; samesite=strict"
        )
        assert (await http.get("/t/name")).json() == "token:anna"
        again = await http.get("/login", params={"next": "/t/page"})
        assert (again.status_code, again.headers["location"]) == (303, "/t/page"), "known already"
    audit = await scene.admin.fetchrow("SELECT actor FROM supervisor.audit WHERE action = 'console.login'")
    assert audit is not None
    assert audit["actor"] == "token:anna"


async def test_behind_https_the_cookie_is_for_https_only(scene: Scene) -> None:
    """The proxy in front ends the encryption; the browser says where it is."""
    token = await scene.token("anna", "view")
    async with scene.client() as http:
        headers = {"Origin": "https://replica.example:8080"}
        answer = await http.post("/login", data={"token": token}, headers=headers)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "; secure" in answer.headers["set-cookie"].lower()


async def test_a_wrong_token_opens_no_session(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    await scene.token("anna", "view")
    async with scene.client() as http:
        for token, code in (
            ("", 400),
            ("x" * 5000, 400),
            ("wrong", 401),
            (f"tnr_1_{FORGED}", 401),
            ("\u00fc\0", 401),
        ):
            answer = await http.post("/login", data={"token": token, "next": "/"})
            assert answer.status_code == code
            assert "set-cookie" not in answer.headers
            assert 'role="alert"' in answer.text
        bodies: list[dict[str, Any]] = [{}, {"data": {"next": "/"}}, {"json": {}}, {"files": {"token": b"x"}}]
        for body in bodies:
            assert (await http.post("/login", **body)).status_code == 400
    assert await scene.sessions() == 0
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""


async def test_a_form_needs_its_own_sessions_token(scene: Scene) -> None:
    """S2: in a field of either kind of form or in a header; another session's, or none, changes nothing."""
    token = await scene.token("anna", "operate")
    async with scene.client() as http, scene.client("192.0.2.2") as other:
        own, others = await scene.log_in(http, token), await scene.log_in(other, token)
        assert len(own) == 64
        assert own != others
        for wrong in ({}, {"csrf": ""}, {"csrf": others}, {"csrf": own + "x"}, {"csrf": "ü"}):
            refused = await http.post("/t/form", data={"a": "1", **wrong})
            assert (refused.status_code, refused.json()["status"]) == (403, 403), wrong
        assert (await http.post("/t/form", json={"csrf": own})).status_code == 403
        assert (await http.delete("/t/name")).status_code == 403
        assert (await http.post("/t/form", headers={"X-CSRF-Token": others})).status_code == 403
        sent = [
            await http.post("/t/form", data={"a": ["1", "2"], "csrf": own}),
            await http.post("/t/form", data={"a": ["1", "2"], "csrf": own}, files={"f": b""}),
            await http.post("/t/form", data={"a": ["1", "2"]}, headers={"X-CSRF-Token": own}),
        ]
        assert [answer.status_code for answer in sent] == [200, 200, 200]
        assert [answer.json()[:2] for answer in sent] == [["1", "2"]] * 3, "the body is there once more"
        assert (await http.delete("/t/name", headers={"X-CSRF-Token": own})).status_code == 200


async def test_a_form_that_is_none_is_refused(scene: Scene) -> None:
    token = await scene.token("anna", "operate")
    async with scene.client() as http:
        own = await scene.log_in(http, token)
        broken = {"Content-Type": "multipart/form-data; boundary=x"}
        for code, more in ((403, {}), (400, {"X-CSRF-Token": own})):
            answer = await http.post("/t/form", content=b"no boundary", headers=broken | more)
            assert answer.status_code == code
        fields = b"&".join(b"a=1" for _ in range(5000))
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        assert (await http.post("/t/form", content=fields, headers=form)).status_code == 403
        assert (
            await http.post("/t/form", content=fields, headers={**form, "X-CSRF-Token": own})
        ).status_code == 400
        large = {"a": "x" * (FORM_BYTES + 1), "csrf": own}
        assert (await http.post("/t/form", data=large)).status_code == 413


FOREIGN = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "nonsense"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://evil.example"},
    {"Origin": f"http://{HOST}.evil.example"},
    {"Origin": "http://replica.example:9090"},
    {"Origin": "http://replica.example"},
    {"Origin": f"ftp://{HOST}"},
    {"Origin": "http://[::1"},
    {"Origin": "\xff", "Sec-Fetch-Site": "none"},
]
OURS = [
    {},
    {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{HOST}"},
    {"Sec-Fetch-Site": "none"},
    {"Origin": f"https://{HOST.upper()}"},
]


async def test_a_page_of_another_site_changes_nothing(scene: Scene) -> None:
    """S2: by a session, and by the login itself; a token in a header is not the browser's doing."""
    token = await scene.token("anna", "operate")
    async with scene.client() as http:
        own = await scene.log_in(http, token)
        for headers in FOREIGN:
            await _changes_nothing(scene, http, headers, token, own)


async def _changes_nothing(
    scene: Scene, http: httpx.AsyncClient, headers: dict[str, str], token: str, own: str
) -> None:
    sent = raw(headers)
    assert (await http.post("/t/form", data={"csrf": own}, headers=sent)).status_code == 403
    assert (await http.post("/logout", data={"csrf": own}, headers=sent)).status_code == 403
    assert (await http.post("/login", data={"token": token}, headers=sent)).status_code == 403
    assert await scene.sessions() == 1
    assert (await http.get("/t/name", headers=sent)).status_code == 200
    assert (await http.post("/t/name", headers=sent | raw(bearer(token)))).status_code == 200


async def test_a_page_of_ours_does(scene: Scene) -> None:
    async with scene.client() as http:
        own = await scene.log_in(http, await scene.token("anna", "operate"))
        for headers in OURS:
            answer = await http.post("/t/form", data={"csrf": own}, headers=headers)
            assert answer.status_code == 200, headers


async def test_a_viewer_reads_and_logs_out(scene: Scene) -> None:
    async with scene.client() as http:
        own = await scene.log_in(http, await scene.token("anna", "view"))
        refused = await http.post("/t/form", data={"csrf": own})
        assert (refused.status_code, refused.json()["title"]) == (403, "the role view may not do this")
        assert (await http.post("/logout")).status_code == 403, "not without the form's token"
        cookie = http.cookies["tenure_session"]
        answer = await http.post("/logout", data={"csrf": own})
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
        assert "tenure_session" not in http.cookies
        kept = {"Cookie": f"tenure_session={cookie}"}
        assert (await http.get("/t/name", headers=kept)).status_code == 401, "at once, where it was asked for"
    assert await scene.sessions() == 0


async def test_a_viewer_chooses_colours(scene: Scene) -> None:
    """It changes a cookie of the browser's own; that the form is ours is still compared."""
    async with scene.client() as http:
        own = await scene.log_in(http, await scene.token("anna", "view"))
        chosen = {"csrf": own, "theme": "dark", "next": "/runs"}
        answer = await http.post("/theme", data=chosen)
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
        assert http.cookies["tenure_theme"] == "dark"
        assert (await http.post("/theme", data=chosen | {"csrf": "x"})).status_code == 403
        foreign = {"Origin": "https://evil.example"}
        assert (await http.post("/theme", data=chosen, headers=foreign)).status_code == 403
        for path in ("/themes", "/theme/x"):
            assert (await http.post(path, data=chosen)).json()["title"] == "the role view may not do this"
    async with scene.client() as http:
        assert (await http.post("/theme", data=chosen)).status_code == 401


async def test_every_replica_honours_a_session_until_it_is_over(scene: Scene) -> None:
    other = scene.another()
    async with scene.client() as http, scene.client(app=other) as elsewhere:
        own = await scene.log_in(http, await scene.token("anna", "operate"))
        elsewhere.cookies = http.cookies
        assert (await elsewhere.post("/t/form", data={"csrf": own})).status_code == 200
        await http.post("/logout", data={"csrf": own}, headers={"X-CSRF-Token": own})
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await elsewhere.get("/t/name")).status_code == 401


async def test_revoking_the_token_ends_its_sessions(scene: Scene) -> None:
    async with scene.client() as http, scene.client("192.0.2.2") as other:
        await scene.log_in(http, await scene.token("anna", "operate"))
        await scene.log_in(other, await scene.token("ben", "operate"))
        await scene.revoke("anna")
        assert await scene.sessions() == 1
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await http.get("/t/name")).status_code == 401
        assert (await other.get("/t/name")).json() == "token:ben"
        # also one that a hand in the database revoked
        await scene.admin.execute(
            "UPDATE supervisor.api_token SET revoked_at = created_at, revoked_by = 'x' WHERE name = 'ben'"
        )
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await other.get("/t/name")).status_code == 401


async def test_a_session_on_the_environments_token_ends_when_that_changes(database: Urls) -> None:
    async with scene_of(database, api_token=SHARED_TOKEN) as scene, scene.client() as http:
        await scene.log_in(http, SHARED_TOKEN)
        same, changed, none = (
            scene.another(api_token=SHARED_TOKEN),
            scene.another(api_token="new"),
            scene.another(),
        )
        codes = []
        for app in (same, changed, none):
            async with scene.client(app=app) as elsewhere:
                elsewhere.cookies = http.cookies
                codes.append((await elsewhere.get("/t/admin")).status_code)
    assert codes == [200, 401, 401]


async def test_each_login_is_a_new_session_in_place_of_the_one_before(scene: Scene) -> None:
    """S3: no fixation; two people with one token have two sessions."""
    token = await scene.token("anna", "view")
    async with scene.client() as http, scene.client("192.0.2.2") as other:
        http.cookies.set("tenure_session", FORGED, domain="replica.example")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scene.log_in, http, token)
            tasks.start_soon(scene.log_in, other, token)
        first = {"Cookie": f"tenure_session={other.cookies['tenure_session']}"}
        assert FORGED not in http.cookies.values()
        assert await scene.sessions() == 2
        await other.post("/login", data={"token": token})
        assert await scene.sessions() == 2
        assert (await other.get("/t/name")).status_code == 200
        assert (await http.get("/t/name", headers=first)).status_code == 401, "its place is taken"


async def test_a_session_slides_and_has_an_end(scene: Scene) -> None:
    times = (
        "SELECT extract(epoch FROM expires_at - clock_timestamp())::integer FROM supervisor.console_session"
    )
    age = (
        "UPDATE supervisor.console_session SET created_at = created_at - $1::interval, "
        "expires_at = expires_at - $1::interval"
    )
    async with scene.client() as http:
        await scene.log_in(http, await scene.token("anna", "view"))

        async def used_after(hours: int) -> int:
            await scene.admin.execute(age, timedelta(hours=hours))
            scene.clock.pass_seconds(TRUST_SECONDS)
            return (await http.get("/t/name")).status_code

        assert await used_after(11) == 200
        assert await scene.admin.fetchval(times) > 11 * 3600
        for _ in range(14):
            assert await used_after(11) == 200
        assert await scene.admin.fetchval(times) < 3600 * 4, "a week after it began"
        assert await used_after(4) == 401
        await scene.log_in(http, await scene.token("ben", "view"))
        assert await scene.sessions() == 1, "what is over goes with the next login"


async def test_logins_do_not_fill_the_table(scene: Scene) -> None:
    token = await scene.token("anna", "view")
    await scene.admin.execute(
        "INSERT INTO supervisor.console_session (digest, token_id, created_at, expires_at) "
        "SELECT sha256(n::text::bytea), t.id, t.created_at - interval '1 h', t.created_at + interval '1 h' "
        "FROM supervisor.api_token t CROSS JOIN generate_series(1, 300) n"
    )
    async with scene.client() as http:
        await scene.log_in(http, token)
        assert (await http.get("/t/name")).status_code == 200
    assert await scene.sessions() == 100


@pytest.mark.parametrize("first", ["revoke", "login"])
async def test_a_login_and_a_revocation_at_once_leave_no_session(scene: Scene, first: str) -> None:
    """Whoever comes second waits for the token's row."""
    token = await scene.token("anna", "view")
    token_id = int(token.split("_")[1])
    calls = {
        "revoke": "SELECT FROM supervisor.revoke_token('cli:test', 'anna')",
        "login": f"SELECT supervisor.open_session(sha256('x'), {token_id}, NULL, 'token:anna', NULL)",
    }
    codes = []

    async def second() -> None:
        if first == "login":
            await scene.revoke("anna")
        else:
            async with scene.client() as http:
                codes.append((await http.post("/login", data={"token": token})).status_code)

    async with scene.client() as http:
        assert (await http.get("/t/name", headers=bearer(token))).status_code == 200  # trusted for a while
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
        "AND datname = current_database()"
    )
    async with anyio.create_task_group() as tasks, scene.admin.transaction():
        await scene.admin.execute(calls[first])
        tasks.start_soon(second)
        await eventually(lambda: scene.admin.fetchval(waiting))
    assert await scene.sessions() == 0
    assert codes == ([401] if first == "revoke" else [])


COOKIES = [
    f"tenure_session={FORGED}",
    f"tenure_session={FORGED}x",
    f"tenure_session={FORGED}; tenure_session={'y' * 43}",
    f"tenure_session={FORGED[:-1]}\0",
    f"tenure_session={FORGED[:-1]}\xff",
    "tenure_session=short",
    "tenure_session=",
    "tenure_session",
    ";" * 3000,
    "=; ;=tenure_session",
]


async def test_a_forged_cookie_is_nobody(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    async with scene.client() as http:
        for cookie in COOKIES:
            sent = raw({"Cookie": cookie})
            assert (await http.get("/t/name", headers=sent)).status_code == 401, cookie
            assert (await http.post("/t/form", headers=sent)).status_code == 401, cookie
            assert (await http.get("/login", headers=sent)).status_code == 200, cookie
            page = await http.get("/t/page?a=\u00fc&b=%00", headers=sent | {b"Accept": b"text/html,*/*"})
            assert page.headers["location"] == "/login?next=/t/page%3Fa%3D%25C3%25BC%26b%3D%2500"
            forgets = 'tenure_session=""' in page.headers.get("set-cookie", "")
            assert (page.status_code, forgets) == (303, len(cookie.partition("session=")[2]) > 0), cookie
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""


async def test_a_login_leads_to_a_page_of_ours(scene: Scene) -> None:
    token = await scene.token("anna", "view")
    for wanted, led_to in (
        ("/runs/7?tab=log", "/runs/7?tab=log"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\r\nSet-Cookie: evil=b", "/"),
    ):
        async with scene.client() as http:
            form = await http.get("/login", params={"next": wanted})
            assert (form.status_code, "evil" in form.text) == (200, False)
            answer = await http.post("/login", data={"token": token, "next": wanted})
        assert (answer.status_code, answer.headers["location"]) == (303, led_to)


async def test_a_link_from_another_site_finds_the_session_again(scene: Scene) -> None:
    """The browser keeps the cookie back on the way from elsewhere: asked again from our page, it sends it."""
    async with scene.client() as http:
        headers = {"Sec-Fetch-Site": "cross-site"}
        answer = await http.get("/login", params={"next": "/runs/7?a=b"}, headers=headers)
        again = answer.headers["refresh"].removeprefix("0;url=")
        assert again == "/login?again=1&next=/runs/7%3Fa%3Db"
        assert "refresh" not in (await http.get(again, headers=headers)).headers
        await scene.log_in(http, await scene.token("anna", "view"))
        assert (await http.get(again)).headers["location"] == "/runs/7?a=b"
