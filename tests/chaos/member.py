"""One replica of a world: where it runs, under which name, and what can be asked of it."""

import os
import re
import signal
import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.layer import Layer
from tests.chaos.processes import Process, Processes

HTTP_PORT = 8080


@dataclass
class Member:
    host: str
    layer: Layer
    processes: Processes
    env: Mapping[str, str]
    variant: str = "plain"
    worker_id: str = ""
    port: int = 0
    process: Process | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.host} was never started"
        return self.process.pid

    async def start(self, log: Path, env: Mapping[str, str] = {}) -> None:
        """A new process under a new name; the caller waits for its first beat."""
        self.worker_id = f"{self.host}-{uuid.uuid4()}"
        self.port = self.layer.port(HTTP_PORT)
        clean = {n: v for n, v in os.environ.items() if not n.startswith(("TENURE_", "CHAOS_", "PYTEST_"))}
        settings = {
            "TENURE_HTTP_PORT": str(self.port),
            "TENURE_LOG_FORMAT": "json",
            "CHAOS_HOST": self.host,
            "CHAOS_WORKER": self.worker_id,
            **self.env,
            **env,
        }
        self.process = await self.processes.start(
            self.host,
            [sys.executable, "-m", "tests.chaos.recorder", self.variant],
            log=log,
            env={**clean, **settings},
        )

    def signal(self, signum: signal.Signals) -> None:
        if self.process is not None:
            self.process.signal(signum)

    async def metric(self, name: str) -> float:
        """The sum over its labels."""
        text = await self.layer.get(self.host, self.port, "/metrics")
        found = re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        assert found, f"no metric {name}"
        return sum(map(float, found))
