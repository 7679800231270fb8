"""A command that tries to get at its replica, with nothing but an interpreter.

`python intruder.py STATE TOP [PROGRAM...]`: STATE is the state directory, TOP the pid of the topmost
process, PROGRAM a directory that its code comes from. Prints what it got, as JSON: an empty list is what a
test wants to see.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

PTRACE_ATTACH = 16
PIDFD_GETFD = 438
KEYCTL_SEARCH, SESSION_KEYRING, KEY = 10, -3, b"of-whoever-logged-in"
LIBC = ctypes.CDLL(None, use_errno=True)


def parent_of(pid: int) -> int:
    """Return the parent, or 0 for a process that has ended and was not reaped: nothing is left of it."""
    state, parent = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[:2]
    return 0 if state == "Z" else int(parent)


def relatives(top: int) -> list[int]:
    """The topmost process and all below it but ourselves: our own launcher and its parents are among them."""
    found = {top}
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
    for _ in range(10):
        for pid in pids:
            try:
                if parent_of(pid) in found:
                    found.add(pid)
            except OSError:
                continue
    return sorted(found - {os.getpid()})


def succeeds(attempt: Callable[[], object]) -> bool:
    try:
        return attempt() is not False
    except OSError:
        return False


def trace(pid: int) -> bool:
    if LIBC.ptrace(PTRACE_ATTACH, pid, None, None) != 0:
        return False
    os.waitpid(pid, 0x40000000)
    LIBC.ptrace(17, pid, None, None)
    return True


def take_descriptor(pid: int) -> bool:
    handle = os.pidfd_open(pid)
    try:
        return any(LIBC.syscall(PIDFD_GETFD, handle, number, 0) >= 0 for number in range(3, 30))
    finally:
        os.close(handle)


def targets_in(directory: Path) -> list[Path]:
    """Return what the links there lead to. That there are links says nothing yet."""
    return [link.readlink() for link in directory.iterdir()]


def opens(path: Path, mode: str) -> None:
    path.open(mode).close()


def into_processes(top: int) -> Iterator[str]:
    for pid in relatives(top):
        proc = Path(f"/proc/{pid}")
        tries: dict[str, Callable[[], object]] = {
            "environ": (proc / "environ").read_bytes,
            "mem": partial(opens, proc / "mem", "rb"),
            "maps": (proc / "maps").read_bytes,
            "fd": partial(targets_in, proc / "fd"),
            "cwd": (proc / "cwd").readlink,
            "ptrace": partial(trace, pid),
            "pidfd_getfd": partial(take_descriptor, pid),
            "kill": partial(os.kill, pid, 0),
            "continue": partial(os.kill, pid, signal.SIGCONT),
            "limit": partial(resource.prlimit, pid, resource.RLIMIT_CORE, (0, 0)),
        }
        yield from (f"{name} of {pid}" for name, attempt in tries.items() if succeeds(attempt))


def into_files(state: Path) -> Iterator[str]:
    data = state / "postgres" / "data"
    known = {state / name for name in ("embedded.json", "token", "lock", "location", "postgresql.log")}
    known |= {data / name for name in ("pg_hba.conf", "PG_VERSION", "base")}
    with suppress(OSError):
        known |= set(state.rglob("*"))
    for path in sorted(known):
        tries: dict[str, Callable[[], object]] = {
            "read": path.read_bytes,
            "append": partial(opens, path, "ab"),
            "rename": partial(path.rename, path.with_name("renamed")),
            "remove": path.unlink,
        }
        yield from (f"{name} {path}" for name, attempt in tries.items() if succeeds(attempt))
    makes: dict[str, Callable[[], object]] = {
        "make a file": partial((state / "made").write_text, "x"),
        "make a link": partial((state / "token.new").symlink_to, "/"),
        "make a directory": (state / "directory").mkdir,
        "move a file in": partial(move_in, os.rename, state),
        "link a file in": partial(move_in, os.link, state),
        "move it away": partial(state.rename, state.with_name("moved")),
    }
    yield from (f"{name} in {state}" for name, attempt in makes.items() if succeeds(attempt))


def move_in(move: Callable[[Path, Path], object], state: Path) -> None:
    handle, name = tempfile.mkstemp()
    os.close(handle)
    try:
        move(Path(name), state / f"token.{move.__name__}")
    finally:
        Path(name).unlink(missing_ok=True)


def into_programs(places: Iterable[Path]) -> Iterator[str]:
    """Unlike the rest this does no harm where it succeeds: these are the places of the tests' own program."""
    for place in places:
        tries: dict[str, Callable[[], object]] = {
            "append": partial(opens, place / "__init__.py", "ab"),
            "make": partial(plant, place / "planted.pth"),
        }
        yield from (f"{name} in {place}" for name, attempt in tries.items() if succeeds(attempt))


def plant(path: Path) -> None:
    path.touch(exist_ok=False)
    path.unlink()


def keys() -> Iterator[str]:
    """A key that whoever started the replica had in the session keyring."""
    number = {"x86_64": 250, "aarch64": 219}[os.uname().machine]
    if LIBC.syscall(number, KEYCTL_SEARCH, SESSION_KEYRING, b"user", KEY, 0) > 0:
        yield "a key of the session"


def inherited() -> Iterator[str]:
    for number in range(3, 256):
        with suppress(OSError):
            yield f"descriptor {number}: {Path(f'/proc/self/fd/{number}').readlink()}"


def privileges() -> Iterator[str]:
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line
    )
    if status["NoNewPrivs"] != "1":
        yield "new privileges"
    if int(status["CapEff"], 16):
        yield f"capabilities {status['CapEff']}"


def main() -> None:
    state, top = Path(sys.argv[1]), int(sys.argv[2])
    programs = map(Path, sys.argv[3:])
    got = [*into_processes(top), *into_files(state), *into_programs(programs)]
    got += [*keys(), *inherited(), *privileges()]
    sys.stdout.write(json.dumps({"uid": os.getuid(), "got": got, "environ": dict(os.environ)}))


if __name__ == "__main__":
    main()
