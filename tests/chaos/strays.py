"""Processes that outlived their run: found by what only they have, and ended without hitting anybody else.

Every process of a world has the world's directory in its environment under MARK, and so has what it starts.
PostgreSQL writes over its environment, but works inside its data. Who calls `end` holds the lock of the world
or slot in question, so its owner is this process or dead.
"""

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from supervisor.descendants import Process, look, send
from tests.support.slowness import Allowance

MARK: Final = "CHAOS_WORLD"
LEAVE_SECONDS: Final = 0.5
KILL_SECONDS: Final = 5.0
Ours = Callable[[int], bool]


def of_world(world: Path) -> Ours:
    mark = os.fsencode(f"{MARK}={world}")

    def ours(pid: int) -> bool:
        if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            return True
        inside = Path(f"/proc/{pid}/cwd").readlink().is_relative_to(world)
        return inside and Path(f"/proc/{pid}/exe").readlink().name == "postgres"

    return ours


def of_namespaces(names: Iterable[Path]) -> Ours:
    inodes = {(found.st_dev, found.st_ino) for found in (name.stat() for name in names)}

    def ours(pid: int) -> bool:
        found = Path(f"/proc/{pid}/ns/net").stat()
        return (found.st_dev, found.st_ino) in inodes

    return ours


def find(ours: Ours) -> Iterator[Process]:
    """Those that are alive; of a zombie nothing can be read."""
    for name in Path("/proc").iterdir():
        if name.name.isdecimal() and name.name != str(os.getpid()):
            # before it is judged: a pid that is reused in between has another start
            process = look(int(name.name))
            with suppress(OSError):
                if process is not None and ours(process.pid):
                    yield process


def end(ours: Ours) -> None:
    """Return when none is left. The stopped go on first: a server then hears that its run is dead, and leaves
    without its shared memory staying behind."""
    leaving, dying = Allowance(LEAVE_SECONDS), Allowance(KILL_SECONDS)
    while found := list(find(ours)):
        signum = signal.SIGKILL if leaving.used_up() else signal.SIGCONT
        for process in found:
            send(process, signum)
        if dying.used_up():
            return
        time.sleep(0.02)
