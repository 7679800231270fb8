"""What it was measured on."""

import os
import platform
from importlib.metadata import version
from pathlib import Path

from tests.bench.arena import MEMORY, Arena


async def described(arena: Arena, rounds: int, scale: str) -> str:
    peers = ", ".join(f"{name} {number}" for name, number in arena.peers.versions.items())
    lines = [
        f"- {cpu()}, {os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}",
        f"- PostgreSQL {await arena.version()}, fsync and synchronous_commit on, {_place(arena.data)}",
        f"- tenure {version('tenure')}, asyncpg {version('asyncpg')}; {peers or 'no peers'}",
        f"- sizes `{scale}`, {rounds} interleaved rounds, medians; load {os.getloadavg()[0]:.1f} at first",
    ]
    return "\n".join(lines)


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _place(data: Path) -> str:
    return "in memory" if data.is_relative_to(MEMORY) else "on disk"
