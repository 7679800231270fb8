"""A real replica under connections that cost their owner nothing."""

import json
from pathlib import Path

import anyio

from supervisor.descriptors import raise_limit
from supervisor.embedded import Urls
from tests.integration.api.edge_scene import Client, Server
from tests.support.eventually import eventually
from tests.support.replica import COMMAND, replica

TOKEN = "the token of the environment"
BEARER = f"Authorization: Bearer {TOKEN}"
IDLE, DRIPPING, LOGINS = 1000, 200, 200
ROUNDS = 20
REST_SECONDS = 3.0
FEW_FILES = ("/bin/sh", "-c", 'ulimit -S -n 256; exec "$@"', "sh", *COMMAND)
FORM = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"


class Attacker:
    """Holds connections open, and opens a new one for each that is closed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.opened = 0

    async def hold(self, first: bytes, then: bytes) -> None:
        while True:
            client = await self._server.connect()
            self.opened += 1
            await client.say(first)
            await self._stay(client, then)
            self._server.leave(client)
            await anyio.sleep(REST_SECONDS)

    async def _stay(self, client: Client, then: bytes) -> None:
        while not client.has_ended:
            await anyio.sleep(0.5)
            if then:
                await client.say(then)


async def test_a_thousand_idle_and_two_hundred_dripping_connections_take_nothing_away(
    database: Urls, tmp_path: Path
) -> None:
    """S3: silent ones, heads and login forms that never end, all from this machine and coming back."""
    raise_limit()
    async with (
        replica(database, tmp_path, env={"TENURE_API_TOKEN": TOKEN}, command=FEW_FILES) as attacked,
        anyio.create_task_group() as tasks,
    ):
        limits = Path(f"/proc/{attacked.pid}/limits").read_text().partition("Max open files")[2].split()
        assert limits[0] == limits[1] != "256", "the soft limit is the hard one"
        server = Server(attacked.port)
        await eventually(lambda: _answers(server, "/status"), timeout=30, what="the first /status")
        attacker = Attacker(server)
        for number in range(IDLE + DRIPPING + LOGINS):
            first, then = _how(number)
            tasks.start_soon(attacker.hold, first, then)
        all_and_again = IDLE + DRIPPING + LOGINS + 100
        await eventually(lambda: attacker.opened > all_and_again, timeout=60, what="all, and some again")
        for _ in range(ROUNDS):
            for path in ("/healthz", "/readyz", "/metrics", "/status"):
                assert (await server.ask(path, BEARER)).status == 200
            await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
        server.close()
        events = [json.loads(line)["event"] for line in attacked.output().splitlines()]
        assert "connections full" in events
        assert len(events) < 200


async def _answers(server: Server, path: str) -> bool:
    return (await server.ask(path, BEARER)).status == 200


def _how(number: int) -> tuple[bytes, bytes]:
    """What one of them says first, and then again and again."""
    if number < IDLE:
        return b"", b""
    if number < IDLE + DRIPPING:
        return b"GET /status HTTP/1.1\r\n", b"X-More: x\r\n"
    return FORM + b"Content-Length: 8000\r\n\r\ntoken=", b"x"
