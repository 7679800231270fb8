"""One replica process of a fleet: tied to its parent, in a session of its own, signalled by the parent only.

A session of its own, because a terminal sends Ctrl-C to the whole foreground group: the replica would count
the parent's forwarded signal as the second and skip its drain.
"""

import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress

import anyio
import httpx
from anyio.abc import Process

from supervisor import umask
from supervisor.handover import environment_for_child
from supervisor.serving import url_of
from supervisor.tether import tethered

CLEAN_ENDS = (0, -signal.SIGTERM)  # the second: told to stop before it was up


class Member:
    def __init__(self, host: str, port: int, command: Sequence[str]) -> None:
        self.port = port
        self.url = url_of(host, port)
        self.returncode: int | None = None
        self._command = command
        self._process: Process | None = None
        self._pending: signal.Signals | None = None

    async def run(self, environment: Mapping[str, str]) -> int:
        """Start it, wait for its end; on cancellation it is killed."""
        async with await self._start({**environment, "TENURE_HTTP_PORT": str(self.port)}) as process:
            self._process = process
            if self._pending is not None:
                process.send_signal(self._pending)
            self.returncode = await process.wait()
        self._process = None
        return self.returncode

    async def _start(self, environment: Mapping[str, str]) -> Process:
        with environment_for_child(environment) as (plain, handle):
            return await anyio.open_process(
                tethered(self._command),
                env=plain,
                pass_fds=[handle],
                stdin=subprocess.DEVNULL,
                stdout=None,
                stderr=None,
                start_new_session=True,
                umask=umask.started_with(),
            )

    def signal(self, signum: signal.Signals) -> None:
        """Also for a process that is being started at this moment."""
        self._pending = signum
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(signum)

    async def await_ready(self) -> None:
        async with httpx.AsyncClient(base_url=self.url, timeout=2) as client:
            while True:
                with suppress(httpx.HTTPError):
                    if (await client.get("/readyz")).is_success:
                        return
                await anyio.sleep(0.2)
