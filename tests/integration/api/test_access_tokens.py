"""Bearer tokens: what each role may, what a wrong one gets, how soon one ends, and what guessing costs."""

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import asyncpg
import httpx
import pytest

from supervisor.api.access import AT_ONCE, TRUST_SECONDS, USE_SECONDS, Access, check_entrance
from supervisor.api.credentials import Given
from supervisor.api.limiter import BURST, PAUSE_SECONDS, REFILL_SECONDS
from supervisor.api.tokens import Token, shown
from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.errors import BadSettings
from supervisor.store import Store
from tests.integration.api.access_scene import (
    CHANGING,
    SHARED_TOKEN,
    Scene,
    bearer,
    replica_app,
    scene_of,
)
from tests.support.eventually import eventually
from tests.support.fake_clock import FakeClock
from tests.support.fake_replica import FakeReplica
from tests.support.ports import free_port
from tests.support.slowness import patient

UNKNOWN = shown(999, "u" * 43)


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    async with scene_of(database) as scene:
        yield scene


class Verifications:
    """Counts argon2 where it is called, and holds it up while `held`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = self.now = self.most = 0
        self.go_on = threading.Event()
        self.go_on.set()
        lock, real = threading.Lock(), Token.fits

        def fits(token: Token, encoded: str) -> bool:
            with lock:
                self.count, self.now = self.count + 1, self.now + 1
                self.most = max(self.most, self.now)
            self.go_on.wait(patient(20))
            with lock:
                self.now -= 1
            return real(token, encoded)

        monkeypatch.setattr(Token, "fits", fits)


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> Verifications:
    return Verifications(monkeypatch)


@pytest.mark.parametrize(
    ("role", "read", "changed", "administered"),
    [("view", 200, 403, 403), ("operate", 200, 200, 403), ("admin", 200, 200, 200)],
)
async def test_a_role_permits_so_much_on_every_route(
    scene: Scene, role: str, read: int, changed: int, administered: int
) -> None:
    """A route that says nothing needs `operate` for every method that may change something."""
    headers = bearer(await scene.token("ci", role))
    async with scene.client() as http:
        got = await http.get("/t/name", headers=headers)
        assert (got.status_code, got.json()) == (read, "token:ci")
        for method in CHANGING:
            answer = await http.request(method, "/t/name", headers=headers)
            assert answer.status_code == changed, method
        answer = await http.get("/t/admin", headers=headers)
    assert answer.status_code == administered
    if administered == 403:
        assert answer.headers["content-type"] == "application/problem+json"
        assert "--role admin" in answer.json()["detail"]


async def test_a_wrong_token_is_401_and_leaves_no_trace(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    await scene.token("ci", "admin")
    wrong = (
        "tnr_1_",
        "tnr_0_x",
        UNKNOWN,
        UNKNOWN + "x",
        "tnr_" + "9" * 40,
        f"tnr_{2**63}_{'u' * 43}",
        "x" * 9000,
    )
    async with scene.client() as http:
        answers = [await http.get("/t/name", headers=bearer(given)) for given in (*wrong, "", " ")]
    for answer in answers:
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    printed = capsys.readouterr()
    assert printed.out + printed.err == ""
    assert not any(given in answer.text for answer in answers for given in wrong)


async def test_a_token_with_another_ones_id_is_wrong(scene: Scene) -> None:
    first, second = await scene.token("a", "view"), await scene.token("b", "admin")
    crossed = shown(int(second.split("_")[1]), first.split("_", 2)[2])
    async with scene.client() as http:
        assert (await http.get("/t/name", headers=bearer(crossed))).status_code == 401
        twice = [("Authorization", f"Bearer {first}"), ("Authorization", f"Bearer {second}")]
        assert (await http.get("/t/name", headers=twice)).status_code == 400


async def test_a_revocation_is_in_force_within_the_trusted_seconds(scene: Scene) -> None:
    headers = bearer(await scene.token("ci", "view"))
    async with scene.client() as http:
        assert (await http.get("/t/name", headers=headers)).status_code == 200
        await scene.revoke("ci")
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await http.get("/t/name", headers=headers)).status_code == 401
        scene.clock.pass_seconds(10 * TRUST_SECONDS)
        assert (await http.get("/t/name", headers=headers)).status_code == 401


async def test_a_token_is_trusted_no_longer_than_it_lives(scene: Scene) -> None:
    headers = bearer(await scene.token("ci", "view", seconds=60))
    async with scene.client() as http:
        await scene.admin.execute(
            "UPDATE supervisor.api_token SET expires_at = clock_timestamp() + interval '9 s'"
        )
        assert (await http.get("/t/name", headers=headers)).status_code == 200
        await scene.admin.execute(
            "UPDATE supervisor.api_token SET created_at = '2020-01-01', expires_at = '2020-01-02'"
        )
        assert (await http.get("/t/name", headers=headers)).status_code == 200, "asked a moment ago"
        scene.clock.pass_seconds(9)
        assert (await http.get("/t/name", headers=headers)).status_code == 401


async def test_use_and_revocation_at_once_end_in_a_refusal(scene: Scene) -> None:
    headers = bearer(await scene.token("ci", "view"))
    codes = []

    async def use() -> None:
        async with scene.client() as http:
            for _ in range(5):
                codes.append((await http.get("/t/name", headers=headers)).status_code)
                scene.clock.pass_seconds(TRUST_SECONDS)

    async with anyio.create_task_group() as tasks:
        for _ in range(4):
            tasks.start_soon(use)
        tasks.start_soon(scene.revoke, "ci")
    assert set(codes) <= {200, 401}
    async with scene.client() as http:
        scene.clock.pass_seconds(TRUST_SECONDS)
        assert (await http.get("/t/name", headers=headers)).status_code == 401


async def test_argon2_runs_once_for_a_token_however_often_it_is_used(
    scene: Scene, verifications: Verifications
) -> None:
    headers = bearer(await scene.token("ci", "view"))
    async with scene.client() as http:
        codes = []

        async def use() -> None:
            codes.append((await http.get("/t/name", headers=headers)).status_code)

        async with anyio.create_task_group() as tasks:
            for _ in range(48):
                tasks.start_soon(use)
        assert set(codes) == {200}
        scene.clock.pass_seconds(100 * TRUST_SECONDS)
        assert (await http.get("/t/name", headers=headers)).status_code == 200
    assert verifications.count == 1


async def test_an_unknown_id_costs_a_verification_too(scene: Scene, verifications: Verifications) -> None:
    token = await scene.token("ci", "view")
    async with scene.client() as http:
        for wrong in (UNKNOWN, token[:-4] + "AAAA"):
            before = verifications.count
            assert (await http.get("/t/name", headers=bearer(wrong))).status_code == 401
            assert verifications.count == before + 1
            assert (await http.get("/t/name", headers=bearer(wrong))).status_code == 401
            assert verifications.count == before + 1, "the same again costs nothing"


async def test_few_verifications_run_at_once_and_nobody_is_turned_away(
    scene: Scene, verifications: Verifications
) -> None:
    """Whoever asks with wrong tokens waits in a line; the rest of the replica finds its processor."""
    verifications.go_on.clear()
    app = scene.another(api_token=SHARED_TOKEN)
    token = await scene.token("ci", "view")
    answers: list[httpx.Response] = []

    async def ask(address: str, given: str) -> None:
        async with scene.client(address, app) as http:
            answers.append(await http.get("/t/name", headers=bearer(given)))

    async with anyio.create_task_group() as tasks:
        for number in range(1, 41):
            tasks.start_soon(ask, "192.0.2.1", shown(number, "u" * 43))
        await eventually(lambda: verifications.now == 1, what="one address has one place")
        tasks.start_soon(ask, "192.0.2.2", token)
        await eventually(lambda: verifications.now == 2, what="another address has the other")
        assert answers == []
        async with scene.client("198.51.100.1", app) as http:
            assert (await http.get("/t/name", headers=bearer(SHARED_TOKEN))).status_code == 200
        verifications.go_on.set()
    assert sorted(answer.status_code for answer in answers) == [200] + [401] * 40
    assert verifications.most <= AT_ONCE


async def test_no_stranger_locks_out_who_has_a_token(scene: Scene) -> None:
    """S3: wrong credentials from the same address, of every form, refuse no right one."""
    fresh = await scene.token("fresh", "view")
    app = scene.another(api_token=SHARED_TOKEN)
    async with scene.client(app=app) as http:
        for number in range(3 * BURST):
            await http.get("/t/name", headers=bearer(f"guess {number}"))
            await http.get("/t/name", headers={"Cookie": f"tenure_session={number:043d}"})
            await http.post("/login", data={"token": f"another guess {number}"})
        for number in range(BURST):
            crossed = shown(int(fresh.split("_")[1]), f"{number:043d}")
            assert (await http.get("/t/name", headers=bearer(crossed))).status_code == 401
        assert (await http.get("/t/name", headers=bearer("a guess"))).status_code == 429
        assert (await http.get("/t/name", headers=bearer(SHARED_TOKEN))).status_code == 200
        assert (await http.get("/t/name", headers=bearer(fresh))).status_code == 200
        await http.post("/login", data={"token": "a guess"})
        await scene.log_in(http, SHARED_TOKEN)
        assert (await http.get("/t/name")).json() == "TENURE_API_TOKEN"


async def test_the_token_of_the_environment_cannot_be_guessed_faster(database: Urls) -> None:
    """S3: an address without a guess left waits for every answer, and for the right one as long."""
    right = bearer(SHARED_TOKEN)
    async with (
        scene_of(database, api_token=SHARED_TOKEN) as scene,
        scene.client("2001:db8::1") as http,
        scene.client("2001:db8::ffff:1") as neighbour,
        scene.client("2001:db8:1::1") as elsewhere,
    ):

        async def ask(client: httpx.AsyncClient, headers: dict[str, str]) -> tuple[int, float]:
            asked_at = scene.clock.now()
            answer = await client.get("/t/name", headers=headers)
            return answer.status_code, scene.clock.now() - asked_at

        assert await ask(neighbour, right) == (200, 0)
        for number in range(BURST):
            assert await ask(http, bearer(f"guess {number}")) == (401, 0)
        assert await ask(http, bearer("one more")) == (429, PAUSE_SECONDS)
        limited = await http.post("/login", data={"token": "x"})
        assert limited.status_code == 429
        assert 0 < int(limited.headers["retry-after"]) <= REFILL_SECONDS
        assert await ask(neighbour, right) == (200, PAUSE_SECONDS), "of the same network"
        assert await ask(elsewhere, right) == (200, 0)
        scene.clock.pass_seconds(REFILL_SECONDS)
        assert await ask(http, bearer("a guess that came back")) == (401, 0)


async def test_a_stream_of_the_right_token_does_not_wait_for_those_who_guess(scene: Scene) -> None:
    """It asks every second whether it is still permitted, and would stand still for as long as they guess."""
    clock, settings = scene.clock, Settings(http_host="0.0.0.0", api_token=SHARED_TOKEN)
    access = Access(settings, scene.store, clock)
    given = Given(bearer=SHARED_TOKEN.encode())
    for number in range(BURST):
        assert await access.who(Given(bearer=b"guess %d" % number), "192.0.2.1") is None
    asked_at = clock.now()
    assert await access.is_still_known(given, "192.0.2.1")
    assert clock.now() == asked_at
    assert await access.who(given, "192.0.2.1") is not None
    assert clock.now() == asked_at + PAUSE_SECONDS


async def test_behind_a_trusted_proxy_each_client_has_its_own_guesses(database: Urls) -> None:
    """S3: the last hop that is no trusted proxy counts, and nothing that the client says of itself."""
    right = bearer(SHARED_TOKEN)
    async with (
        scene_of(database, api_token=SHARED_TOKEN, trusted_proxies="10.0.0.0/8") as scene,
        scene.client("10.0.0.1") as proxy,
        scene.client("192.0.2.66") as direct,
    ):

        async def seconds(http: httpx.AsyncClient, headers: dict[str, str], client: str) -> float:
            asked_at = scene.clock.now()
            forwarded = {"X-Forwarded-For": client}
            await http.get("/t/name", headers={**headers, **forwarded})
            return scene.clock.now() - asked_at

        for number in range(BURST):
            guess = bearer(f"guess {number}")
            await seconds(proxy, guess, f"203.0.113.{number}, 198.51.100.1")
            await seconds(direct, guess, f"203.0.113.{number}")
        assert await seconds(proxy, right, "198.51.100.1, 10.0.0.2") == PAUSE_SECONDS
        assert await seconds(proxy, right, "198.51.100.2") == 0
        assert await seconds(direct, right, "198.51.100.2") == PAUSE_SECONDS, "its header is not believed"


async def test_without_a_database_the_environments_token_is_enough() -> None:
    store = Store(f"postgresql://nobody:secret-word@127.0.0.1:{free_port()}/none", name="test")
    settings = Settings(http_host="0.0.0.0", api_token=SHARED_TOKEN)
    transport = httpx.ASGITransport(replica_app(FakeReplica(store, settings), FakeClock()))
    async with httpx.AsyncClient(transport=transport, base_url="http://replica.example") as http:
        assert (await http.post("/t/name", headers=bearer(SHARED_TOKEN))).status_code == 200
        answers = [
            await http.get("/t/name", headers=bearer(UNKNOWN)),
            await http.get("/t/name", headers={"Cookie": f"tenure_session={'x' * 43}"}),
            await http.post("/login", data={"token": UNKNOWN}),
        ]
    await store.close()
    assert [answer.status_code for answer in answers] == [503, 503, 503]
    assert not any("secret-word" in answer.text for answer in answers)


async def test_the_last_use_is_noted_now_and_then(scene: Scene) -> None:
    headers = bearer(await scene.token("ci", "view"))
    last = "SELECT last_used_at FROM supervisor.api_token"
    async with scene.client() as http:
        assert await scene.admin.fetchval(last) is None
        await http.get("/t/name", headers=headers)
        noted = await scene.admin.fetchval(last)
        assert noted is not None
        scene.clock.pass_seconds(USE_SECONDS)
        await http.get("/t/name", headers=headers)
        assert await scene.admin.fetchval(last) == noted, "by the database's clock it is a moment ago"
        await scene.admin.execute("UPDATE supervisor.api_token SET last_used_at = '2020-01-01'")
        scene.clock.pass_seconds(USE_SECONDS)
        await http.get("/t/name", headers=headers)
        assert await scene.admin.fetchval(last) > noted


@pytest.mark.parametrize("role", ["control", "worker", "maintenance", "console", "client"])
async def test_no_role_reads_the_tables_and_only_control_calls_the_functions(
    scene: Scene, database: Urls, role: str
) -> None:
    """S7: least rights; what a worker's login can reach is nothing of this."""
    await scene.token("ci", "admin")
    connection = await asyncpg.connect(getattr(database, role))
    try:
        for table in ("api_token", "console_session"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"SELECT FROM supervisor.{table}")
        if role == "control":
            assert len(await connection.fetch("SELECT * FROM supervisor.list_tokens()")) == 1
            return
        for call in ("list_tokens()", "find_token(1)", "has_token()", "use_session('')", "close_session('')"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(f"SELECT supervisor.{call}")
    finally:
        await connection.close()


async def test_the_database_does_not_know_the_secret(scene: Scene) -> None:
    token = await scene.token("ci", "admin")
    async with scene.client() as http:
        await scene.log_in(http, token)
        cookie = http.cookies["tenure_session"]
    rows = await scene.admin.fetch(
        "SELECT t::text FROM supervisor.api_token t UNION ALL SELECT a::text FROM supervisor.audit a "
        "UNION ALL SELECT s::text FROM supervisor.console_session s"
    )
    kept = " ".join(row[0] for row in rows)
    assert "$argon2id$" in kept
    assert token.split("_", 2)[2] not in kept
    assert cookie not in kept
    assert cookie.encode().hex() not in kept


async def test_beyond_loopback_somebody_must_be_able_to_come_in(scene: Scene) -> None:
    """S1: a usable token in the database is as good as one in the environment."""
    open_to_all = Settings(http_host="0.0.0.0")
    await check_entrance(Settings(), scene.store)
    await check_entrance(Settings(http_host="0.0.0.0", api_token="x"), scene.store)
    with pytest.raises(BadSettings, match="token create"):
        await check_entrance(open_to_all, scene.store)
    await scene.token("ci", "view")
    await check_entrance(open_to_all, scene.store)
    await scene.revoke("ci")
    with pytest.raises(BadSettings):
        await check_entrance(open_to_all, scene.store)
