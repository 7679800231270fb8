"""A real replica as a process of its own: started, asked, stopped, killed, frozen by its pid."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx

from supervisor.api.probes import PROBES
from supervisor.embedded import Urls
from supervisor.tether import tethered
from tests.support.door import BEARER, TOKEN
from tests.support.eventually import eventually
from tests.support.ports import free_port
from tests.support.redis import url_for_all
from tests.support.replica_forks import fork
from tests.support.slowness import patient, stretch

COMMAND = (sys.executable, "-P", "-m", "supervisor.cli", "up")
# what makes a replica only work, and what it must not have
WORKS_ONLY: Mapping[str, str | None] = {
    "TENURE_LEAD": "false",
    "TENURE_DATABASE_URL": None,
    "TENURE_LISTEN_DATABASE_URL": None,
    "TENURE_API_TOKEN": None,
}
SECONDS = {
    "TENURE_LEADER_LEASE_SECONDS": 6,
    "TENURE_RENEW_DEADLINE_SECONDS": 3,
    "TENURE_RENEW_RETRY_SECONDS": 0.5,
    "TENURE_HEARTBEAT_SECONDS": 0.5,
    "TENURE_CONFIRM_AFTER_SECONDS": 1.5,
    "TENURE_SELF_STOP_SECONDS": 4,
    "TENURE_KILL_SECONDS": 1,
    "TENURE_STOP_BOUND_SECONDS": 7,
}


def timings(factor: float = 1) -> dict[str, str]:
    """The protocol's timings in tests, longer by a factor."""
    return {name: str(seconds * factor) for name, seconds in SECONDS.items()}


class ReplicaEnded(Exception):
    """The replica ended while a test waited for its answer."""


class Process(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...


class Replica:
    def __init__(self, process: Process, environment: Mapping[str, str], log: Path) -> None:
        self._process = process
        self.environment = environment
        self.port = int(environment["TENURE_HTTP_PORT"])
        self.log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def get(self, path: str) -> httpx.Response:
        # a probe is answered at once; the rest is made at the first request for it
        patience = patient(2 if path in PROBES else 10)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}",
            timeout=patience,
            headers=BEARER,
            verify=False,  # noqa: S501  there is no TLS, and to load the certificates of all the world takes 17 ms
        ) as client:
            return await client.get(path)

    async def status(self) -> dict[str, Any]:
        answer: dict[str, Any] = (await self.get("/status")).raise_for_status().json()
        return answer

    async def answers(self, path: str = "/healthz") -> bool:
        if self.returncode is not None:
            raise ReplicaEnded(f"with {self.returncode}:\n{self.output()}")
        with suppress(httpx.HTTPError):
            return (await self.get(path)).is_success
        return False

    async def worker_id(self) -> str | None:
        with suppress(httpx.HTTPError):
            name: str = (await self.get("/healthz")).json()["worker_id"]
            return name
        return None

    def signal(self, signum: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, signum)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    async def stop(self, timeout: float = 30) -> int:
        """Drain, as Kubernetes would; the exit code."""
        self.signal(signal.SIGTERM)
        return await asyncio.wait_for(self._process.wait(), patient(timeout))

    async def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return await self._process.wait()

    async def wait(self, timeout: float = 30) -> int:
        return await asyncio.wait_for(self._process.wait(), patient(timeout))

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@asynccontextmanager
async def replica(
    urls: Urls,
    directory: Path,
    *,
    env: Mapping[str, str | None] = {},
    command: Sequence[str] = COMMAND,
    variant: str | None = None,
    ready: str | None = "/healthz",
) -> AsyncIterator[Replica]:
    """A replica on this database; `env` adds to or replaces its TENURE_ settings, and None takes one away.

    It dies with the test.

    Instead of a command, `variant` names a kind of replica (variants.py) that is forked.
    """
    port = free_port()
    settings: dict[str, str | None] = {
        "TENURE_DATABASE_URL": urls.control,
        "TENURE_WORKER_DATABASE_URL": urls.worker,
        "TENURE_LISTEN_DATABASE_URL": urls.control,
        "TENURE_HTTP_PORT": str(port),
        "TENURE_STATE_DIR": str(directory / f"state-{port}"),
        "TENURE_LOG_FORMAT": "json",
        "TENURE_COMMAND_USER": str(os.geteuid()),  # they write where their test does
        "TENURE_API_TOKEN": TOKEN,
        **timings(stretch()),
        **url_for_all(urls.control),
        **env,
    }
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    environment |= {name: value for name, value in settings.items() if value is not None}
    log = directory / f"replica-{port}.log"
    with log.open("wb") as sink:
        os.fchmod(sink.fileno(), 0o600)  # a link that logs in is printed to nothing that others can read
        process: Process
        if variant is not None:
            process = await fork(variant, environment, directory, sink)
        else:
            process = await asyncio.create_subprocess_exec(
                *tethered(command), env=environment, cwd=directory, stdout=sink, stderr=sink
            )
    started = Replica(process, environment, log)
    try:
        if ready:
            await eventually(lambda: started.answers(ready), timeout=60, what=f"{ready} of the replica")
        yield started
    finally:
        started.thaw()
        await started.kill()
