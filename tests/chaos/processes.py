"""Processes on hosts. They end with this one, and every end that was waited for is in deaths.jsonl."""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from supervisor.cluster import Account
from supervisor.tether import tethered
from tests.chaos import strays
from tests.chaos.journal import Journal
from tests.chaos.layer import Layer
from tests.support.slowness import patient


@dataclass
class Process:
    host: str
    log: Path
    _process: asyncio.subprocess.Process
    _ended: asyncio.Task[int] = field(repr=False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return not self._ended.done()

    def signal(self, signum: signal.Signals) -> None:
        if self.alive:
            try:
                os.kill(self.pid, signum)
            except ProcessLookupError:
                return

    async def wait(self, timeout: float = 30) -> int:
        return await asyncio.wait_for(asyncio.shield(self._ended), patient(timeout))

    async def kill(self) -> None:
        self.signal(signal.SIGKILL)
        await self.wait()

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Processes:
    def __init__(self, layer: Layer, deaths: Journal, world: Path) -> None:
        self._layer = layer
        self._mark = {strays.MARK: str(world)}
        self._deaths = deaths
        self.all: list[Process] = []

    async def start(
        self,
        host: str,
        command: Sequence[str],
        *,
        log: Path,
        env: Mapping[str, str] | None = None,
        account: Account | None = None,
    ) -> Process:
        line = [*self._layer.enter(host), *_as(account), *command]
        # changing the user would untie it again, so setpriv ties it itself
        line = line if account else tethered(line)
        with log.open("ab") as sink:
            process = await asyncio.create_subprocess_exec(
                *line,
                env={**(os.environ if env is None else env), **self._mark},
                cwd="/",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                start_new_session=True,  # a terminal's Ctrl-C is for the run, which then ends them in order
            )
        ended = asyncio.create_task(self._bury(host, process))
        started = Process(host, log, process, ended)
        self.all.append(started)
        return started

    async def _bury(self, host: str, process: asyncio.subprocess.Process) -> int:
        code = await process.wait()
        self._deaths.write(host=host, pid=process.pid, code=code)
        return code

    async def close(self) -> None:
        """The newest first: replicas before their servers."""
        for process in reversed(self.all):
            process.signal(signal.SIGCONT)
            await process.kill()


def _as(account: Account | None) -> list[str]:
    if account is None:
        return []
    who = [f"--reuid={account.uid}", f"--regid={account.gid}", "--clear-groups"]
    return ["/usr/bin/setpriv", *who, "--pdeathsig=QUIT"]
