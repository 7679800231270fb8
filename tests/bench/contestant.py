"""One contestant at work: its process, and what a phase of it costs in time and in CPU, with its servers."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from supervisor.tether import tethered
from tests.bench import cpu

ROOT: Final = Path(__file__).parents[2]
PATIENCE_SECONDS: Final = 1800
ANSWER_BYTES: Final = 64 * 1024 * 1024


class Failed(Exception):
    """A contestant that ended instead of answering."""


@dataclass(frozen=True)
class Cost:
    """Of one phase: seconds of wall, of CPU in the contestant and in its servers, and what it said itself."""

    wall: float
    own: float
    servers: float
    said: Mapping[str, Any]

    def micros(self, jobs: int) -> float:
        return (self.own + self.servers) / jobs * 1e6


class Contestant:
    def __init__(self, process: asyncio.subprocess.Process, servers: Sequence[int], log: Path) -> None:
        self._process = process
        self._servers = servers
        self._log = log

    @property
    def pid(self) -> int:
        return self._process.pid

    async def phase(self, name: str, **given: Any) -> Cost:
        stdin = self._process.stdin
        assert stdin is not None
        own, servers = cpu.seconds_of(self.pid), cpu.seconds_of(*self._servers)
        stdin.write(json.dumps([name, given]).encode() + b"\n")
        said = await self.answer()
        return Cost(
            said["wall"], cpu.seconds_of(self.pid) - own, cpu.seconds_of(*self._servers) - servers, said
        )

    async def answer(self) -> Mapping[str, Any]:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise Failed(f"it ended: {self._log.read_text(errors='replace')[-2000:]}")
        said: Mapping[str, Any] = json.loads(line)
        return said


@asynccontextmanager
async def on_stage(
    module: str,
    given: Mapping[str, Any],
    *,
    servers: Sequence[int],
    python: str = sys.executable,
    environment: Mapping[str, str] | None = None,
) -> AsyncIterator[Contestant]:
    """A contestant that is ready; killed at the end."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    command = [python, "-m", f"tests.bench.stage.{module}", json.dumps(given)]
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as directory:
        log = Path(directory, "log")
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *tethered(command),
                cwd=ROOT,
                env={
                    **clean,
                    **(environment or {}),
                    "TENURE_STATE_DIR": directory,
                    "TENURE_COMMAND_USER": str(os.geteuid()),
                },
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=sink,
                limit=ANSWER_BYTES,
            )
        contestant = Contestant(process, servers, log)
        try:
            await contestant.answer()
            yield contestant
        finally:
            if process.returncode is None:
                process.kill()
            await process.wait()
