"""sharp, the peer for thumbnails: libvips in Node.js, in a folder of its own, pinned by a lock.

The lock (node/package-lock.json) names no index: npm asks whichever it is set to.
"""

import asyncio
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from tests.bench import cpu, peers
from tests.bench.contest import Figures
from tests.bench.programs import NotInstalled, found

LOCK: Final = peers.HERE / "node" / "package-lock.json"
SCRIPT: Final = peers.HERE / "stage" / "sharp.mjs"
PATIENCE_SECONDS: Final = 600
# As its documentation has it: libuv's pool says how many pictures are worked on at once, and is made larger
# only where there are more cores than its four threads.
POOL: Final = max(4, os.cpu_count() or 1)


def version() -> str:
    pinned: str = json.loads(LOCK.read_text())["packages"]["node_modules/sharp"]["version"]
    return pinned


def install() -> Path:
    """Where it is, installed by npm from the lock unless an earlier run did."""
    home = peers.home() / "sharp"
    stamp = home / f".{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]}"
    if not stamp.exists():
        npm = found("npm")
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(LOCK.parent, home)
        quietly = ["--no-audit", "--no-fund", "--loglevel", "error"]
        done = subprocess.run([npm, "ci", *quietly], cwd=home, capture_output=True, check=False, text=True)
        if done.returncode != 0:
            raise NotInstalled(f"sharp could not be installed: {done.stderr.strip()[-200:]}")
        stamp.touch()
    return home


class Sharp:
    """A process that has loaded sharp, and makes the thumbnails it is asked for."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def make(self, sources: list[str], output: Path, form: str, pixels: int) -> Figures:
        before = cpu.seconds_of(self._process.pid)
        wanted = {"sources": sources, "output": str(output), "format": form, "pixels": pixels}
        said = await self._say(wanted)
        return {"s": said["wall"], "CPU s": cpu.seconds_of(self._process.pid) - before}

    async def _say(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self._process.stdout.readline()
        if not line:
            raise NotInstalled(f"sharp ended with {await self._process.wait()}")
        said: Mapping[str, Any] = json.loads(line)
        return said


@asynccontextmanager
async def on_stage(threads: int) -> AsyncIterator[Sharp]:
    """`threads` for each picture."""
    home = await asyncio.to_thread(install)
    process = await asyncio.create_subprocess_exec(
        found("node"),
        str(SCRIPT),
        str(home),
        str(threads),
        str(POOL),
        env={**os.environ, "UV_THREADPOOL_SIZE": str(POOL)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield Sharp(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
