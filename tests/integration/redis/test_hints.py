"""Words and short leases over a real Redis."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from supervisor import hints
from supervisor.errors import BadSettings
from supervisor.hints import Hints, lease_key, say_once
from supervisor.metrics import Metrics
from supervisor.wakeups import Wakeups
from tests.support.bad_redis import stand_in
from tests.support.eventually import eventually
from tests.support.redis import DEAD, RedisServer, at_once
from tests.support.slowness import patient

LEASE_SECONDS = 600


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A good Redis on a busy machine is not a bad one (that is for test_bad_redis.py)."""
    monkeypatch.setattr(hints, "CALL_SECONDS", patient(5))
    monkeypatch.setattr(hints, "CONNECT_SECONDS", patient(5))


class Ear:
    """A link to Redis that runs, and what it heard."""

    def __init__(self, url: str) -> None:
        self.texts: list[str] = []
        self.connects = 0
        self.metrics = Metrics()
        self.hints = Hints(url, self.metrics, self.texts.append, self._connected)

    def _connected(self) -> None:
        self.connects += 1

    def figure(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name) or 0.0


@asynccontextmanager
async def listening(url: str) -> AsyncIterator[Ear]:
    ear = Ear(url)
    async with anyio.create_task_group() as group:
        group.start_soon(ear.hints.run)
        await eventually(lambda: ear.connects and ear.hints._asking.connected, what="the connections")
        yield ear
        group.cancel_scope.cancel()


async def test_what_one_says_all_others_hear(redis: RedisServer) -> None:
    async with listening(redis.url) as one, listening(redis.url) as other:
        one.hints.say("assigned:w1")
        await eventually(lambda: "assigned:w1" in other.texts)
        assert await say_once(redis.url, "run")
        await eventually(lambda: "run" in one.texts and "run" in other.texts)
        assert one.figure("tenure_redis_errors_total") == one.figure("tenure_redis_open") == 0


async def test_a_wake_up_wakes_whoever_it_is_for_and_nonsense_nobody(redis: RedisServer) -> None:
    """S19, S20: what is heard is data."""
    wakeups = Wakeups("w1")
    hints = Hints(redis.url, Metrics(), wakeups.heard, lambda: None)
    nonsense = ["stop", "assigned:w2", "run:w2", "lease:unknown", "", ":", "run\n", "\x80\x04K\x01.", "RUN"]
    async with anyio.create_task_group() as group:
        group.start_soon(hints.run)
        with redis.client() as client:
            await eventually(lambda: client.pubsub_numsub("tenure")[0][1] == 1)
            for text in nonsense:
                client.publish("tenure", text)
            waiting = asyncio.ensure_future(wakeups.wait("lease:dedup.jobs", patient(5)))
            await asyncio.sleep(0)
            client.publish("tenure", "lease:dedup.jobs")
            assert await waiting, "said after the nonsense, so that was heard too"
            for kind in ("run", "assigned", "leader", "event"):
                assert not await wakeups.wait(kind, 0), f"{kind} was woken by nonsense"
            for text, kind in (
                ("run", "run"),
                ("assigned:w1", "assigned"),
                ("leader", "leader"),
                ("event", "event"),
            ):
                client.publish("tenure", text)
                assert await wakeups.wait(kind, patient(5))
        group.cancel_scope.cancel()


async def test_a_short_lease_is_taken_once_expires_and_is_given_back_by_its_token_only(
    redis: RedisServer,
) -> None:
    """R003-28: SET NX PX under `jobrun:lease:{id}`, deleted by whoever holds the token."""
    async with listening(redis.url) as one, listening(redis.url) as other:
        with redis.client() as client:
            assert await one.hints.take([1, 2], "mine", LEASE_SECONDS) == frozenset()
            assert 0 < client.pttl("jobrun:lease:1") <= 1000 * LEASE_SECONDS
            assert client.get(lease_key(2)) == b"mine"
            assert await other.hints.take([1, 2, 3], "theirs", LEASE_SECONDS) == {1, 2}
            other.hints.drop([1, 2, 3], "theirs")
            await eventually(lambda: not client.exists(lease_key(3)))
            assert client.exists(lease_key(1), lease_key(2)) == 2, "another's token deletes nothing"
            one.hints.drop([1, 2], "mine")
            await eventually(lambda: not client.exists(lease_key(1), lease_key(2)))
            assert one.figure("tenure_redis_errors_total") == other.figure("tenure_redis_errors_total") == 0


async def test_keys_of_other_types_are_taken_and_stay(redis: RedisServer) -> None:
    async with listening(redis.url) as ear:
        with redis.client() as client:
            client.lpush(lease_key(1), "a list")
            assert await ear.hints.take([1, 2], "mine", LEASE_SECONDS) == {1}
            ear.hints.drop([1, 2], "mine")
            await eventually(lambda: not client.exists(lease_key(2)))
            assert client.exists(lease_key(1))
            assert ear.figure("tenure_redis_errors_total") == 0


async def test_five_hundred_leases_in_one_go(redis: RedisServer) -> None:
    async with listening(redis.url) as ear:
        runs = list(range(1, 501))
        assert await ear.hints.take(runs, "mine", LEASE_SECONDS) == frozenset()
        assert await ear.hints.take(runs, "theirs", LEASE_SECONDS) == frozenset(runs)
        ear.hints.drop(runs, "mine")
        with redis.client() as client:
            await eventually(lambda: client.dbsize() == 0)


async def test_a_killed_redis_is_left_alone_and_found_again_when_it_is_back(redis: RedisServer) -> None:
    """C16: the breaker opens, calls cost nothing, and it closes by itself."""
    async with listening(redis.url) as ear:
        redis.kill()
        await eventually(lambda: ear.figure("tenure_redis_open") == 1, what="the breaker to open")
        errors = ear.figure("tenure_redis_errors_total")
        assert errors >= 1
        assert at_once(ear.hints.take([1], "mine", LEASE_SECONDS)) == frozenset()
        redis.start()
        await eventually(lambda: ear.connects == 2, timeout=20, what="a new subscription")
        await eventually(
            lambda: ear.figure("tenure_redis_open") == 0, timeout=20, what="the breaker to close"
        )
        with redis.client() as client:
            client.set(lease_key(1), "theirs")

        async def asked() -> bool:
            return await ear.hints.take([1], "mine", LEASE_SECONDS) == {1}

        await eventually(asked, what="leases to be asked for again")
        ear.hints.say("run")
        await eventually(lambda: "run" in ear.texts)


@pytest.mark.parametrize("trouble", ["full", "read-only"])
async def test_a_redis_that_reads_but_does_not_write(redis: RedisServer, trouble: str) -> None:
    """C16, C17: OOM under noeviction, and a replica that lost its primary, refuse SET; nothing is put off."""
    async with listening(redis.url) as ear:
        with redis.client() as client:
            if trouble == "full":
                client.config_set("maxmemory", 1)
            else:
                client.replicaof("127.0.0.1", "1")
        assert await ear.hints.take([1], "mine", LEASE_SECONDS) == frozenset()
        assert ear.figure("tenure_redis_open") == 1


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    made = tmp_path / "cert.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run([*command, "-keyout", made, "-out", f"{made}.crt"], check=True, capture_output=True)
    return made


async def test_tls(certificate: Path) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(f"{certificate}.crt", certificate)
    async with stand_in("polite", tls=tls) as server:
        async with listening(f"{server.url}?ssl_ca_certs={certificate}.crt") as ear:
            assert ear.figure("tenure_redis_errors_total") == 0
        ear = Ear(server.url)
        async with anyio.create_task_group() as group:
            group.start_soon(ear.hints.run)
            await eventually(
                lambda: ear.figure("tenure_redis_errors_total"), what="the certificate to be refused"
            )
            assert ear.connects == 0
            group.cancel_scope.cancel()


@pytest.mark.parametrize(
    "url", ["http://u:hunter2@h", "redis://u:hunter2/x@h:6379", "redis://h:hunter2", "hunter2"]
)
def test_a_url_that_cannot_be_read_is_refused_without_a_piece_of_it(url: str) -> None:
    with pytest.raises(BadSettings) as refused:
        Hints(url, Metrics(), lambda text: None, lambda: None)
    assert "hunter2" not in str(refused.value) + refused.value.advice
    assert "TENURE_REDIS_URL" in str(refused.value)


async def test_the_url_is_never_logged(capfd: pytest.CaptureFixture[str]) -> None:
    ear = Ear(DEAD.replace("//", "//user:hunter2@"))
    async with anyio.create_task_group() as group:
        group.start_soon(ear.hints.run)
        await eventually(lambda: ear.figure("tenure_redis_errors_total"))
        group.cancel_scope.cancel()
    said = "".join(capfd.readouterr())
    assert "without Redis" in said
    assert "hunter2" not in said
