"""The processes below this one: who they are, and how to end every one of them.

A child subreaper inherits whatever its descendants abandon, double-forked and setsid daemons too, so the tree
below it is complete and "no child left" means "nothing left". Standard library only: the warden runs without
packages.

Signals go through a pidfd whose process is checked again after opening, so a reused pid is never hit. NOT
reachable: descendants that changed their user where this process may not signal them; they are counted and
reported. Nor is a chain in which every process forks a
successor into a new session at once: it runs ahead of any reader of /proc and ends only by itself.
"""

import os
import signal
from collections.abc import Collection, Iterator
from typing import NamedTuple

MAX_STOP_ROUNDS = 50


class Process(NamedTuple):
    """One process; (pid, started) is never reused, a pid alone is."""

    pid: int
    parent: int
    started: int


def look(pid: int) -> Process | None:
    try:
        stat = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return None
    try:
        text = os.read(stat, 1024)
    except ProcessLookupError:
        return None
    finally:
        os.close(stat)
    # The name in parentheses may itself hold spaces and parentheses: what follows the last one counts.
    fields = text.rpartition(b") ")[2].split()
    return Process(pid, int(fields[1]), int(fields[19]))


def descendants(root: int, spare: Collection[int] = ()) -> list[Process]:
    """Everything below `root`, except the subtrees of the pids in `spare`."""
    children: dict[int, list[Process]] = {}
    for process in _all_processes():
        if process.pid not in spare:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    unseen = [root]
    while unseen:
        below = children.pop(unseen.pop(), [])
        found += below
        unseen += [process.pid for process in below]
    return found


def _all_processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):  # noqa: PTH208  (the warden loads as little as it can)
        if name.isdecimal() and (process := look(int(name))):
            yield process


def send(process: Process, signum: int) -> bool:
    """Signal exactly this process; False where it may not be signalled. One that is gone is no failure."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return True
    try:
        now = look(process.pid)
        if now is not None and now.started == process.started:
            signal.pidfd_send_signal(handle, signum)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True


class Sweep(NamedTuple):
    """What one pass met: processes it killed, and processes it had no right to kill."""

    killed: int
    untouchable: int


def sweep(root: int, spare: Collection[int] = ()) -> Sweep:
    """One pass of killing everything below `root`; the caller reaps and repeats until nothing is left.

    All are stopped before any is killed: a fork bomb that is only killed grows faster than /proc is read.
    """
    held: set[Process] = set()
    untouchable: set[Process] = set()
    known: set[int] = set()
    for _ in range(MAX_STOP_ROUNDS):
        fresh = [process for process in descendants(root, spare) if process.pid not in known]
        if not fresh:
            break
        for process in fresh:
            known.add(process.pid)
            (held if send(process, signal.SIGSTOP) else untouchable).add(process)
    for process in held:
        send(process, signal.SIGKILL)
    return Sweep(len(held), len(untouchable))
