"""What a run leaves when it is stopped or killed, and that nothing is taken from one that is alive."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from supervisor.descendants import descendants
from tests.chaos import namespaces, place, strays
from tests.chaos.layer import choose_layer
from tests.chaos.namespaces import Namespaces
from tests.chaos.place import Place, fill, mount_tmpfs
from tests.support.effects import is_alive
from tests.support.eventually import eventually
from tests.support.slowness import patient

ROOT = Path(__file__).parents[2]
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# each prints what it made and a process of it that stands still, and waits to be killed
OWNER = """
import os, signal, subprocess, sys, time
def stray(*before, **more):
    sleep = subprocess.Popen([*before, "sleep", "600"], env={**os.environ, **more}, start_new_session=True)
    while open(f"/proc/{sleep.pid}/comm").read() != "sleep\\n":
        time.sleep(0.01)
    os.kill(sleep.pid, signal.SIGSTOP)
    return sleep.pid
"""
WORLD = """
from tests.chaos.place import Place
place = Place()
print(place.path, stray(CHAOS_WORLD=str(place.path)), flush=True)
time.sleep(600)
"""
HOSTS = """
from tests.chaos.namespaces import Namespaces
layer = Namespaces()
layer.open(["a"])
print("/run/netns/" + layer._ns("a"), stray(*layer.enter("a")), flush=True)
time.sleep(600)
"""


@contextmanager
def owner(script: str) -> Iterator[tuple["subprocess.Popen[str]", Path, int]]:
    command = [sys.executable, "-c", OWNER + script]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            made, stray = process.stdout.readline().split()
            yield process, Path(made), int(stray)
        finally:
            process.kill()


async def gone(made: Path, stray: int, clear: Callable[[], None]) -> None:
    """Soon: another run on this machine may be the one that clears it, and holds the lock meanwhile."""

    def cleared() -> bool:
        clear()
        return not made.exists() and not is_alive(stray)

    await eventually(cleared, what=f"{made} to be cleared")


async def test_a_world_is_cleared_with_its_processes_once_its_owner_is_dead() -> None:
    with owner(WORLD) as (living, kept, neighbour), owner(WORLD) as (killed, left, stray):
        place.clear_leftovers()
        assert left.exists()
        assert is_alive(stray)
        killed.kill()
        killed.wait()
        await gone(left, stray, place.clear_leftovers)
        assert kept.exists()
        assert is_alive(neighbour)
        assert living.poll() is None
    await gone(kept, neighbour, place.clear_leftovers)


async def test_a_namespace_is_cleared_with_its_processes_once_its_owner_is_dead() -> None:
    if choose_layer() is not Namespaces:
        pytest.skip("hosts cannot be namespaces here")
    with owner(HOSTS) as (living, kept, neighbour), owner(HOSTS) as (killed, left, stray):
        killed.kill()
        killed.wait()
        await gone(left, stray, namespaces.clear_leftovers)
        assert kept.exists()
        assert is_alive(neighbour)
        assert living.poll() is None
    await gone(kept, neighbour, namespaces.clear_leftovers)


@pytest.mark.slow
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_a_stopped_run_leaves_nothing(signum: signal.Signals) -> None:
    command = [sys.executable, "-m", "tests.chaos", "--scenario", "C01", "--seed", "1"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, start_new_session=True) as run:
        try:
            world = await eventually(lambda: world_of(run.pid), timeout=60, what="a replica")
            assert world is not None
            hosts = hosts_of(run.pid)
            assert hosts or choose_layer() is not Namespaces
            below = [process.pid for process in descendants(run.pid)]
            run.send_signal(signum)
            assert run.wait(patient(30)) == 128 + signum
        finally:
            run.kill()
    assert not world.exists()
    assert not [host for host in hosts if host.exists()]
    assert not [pid for pid in below if is_alive(pid)]
    assert not list(strays.find(strays.of_world(world)))


def world_of(run: int) -> Path | None:
    """Once there is a replica in it."""
    for process in descendants(run):
        try:
            environment = Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        found = dict(line.decode(errors="replace").partition("=")[::2] for line in environment)
        if "CHAOS_WORKER" in found:
            return Path(found[strays.MARK])
    return None


def hosts_of(run: int) -> list[Path]:
    """The names of the namespaces that its processes are in."""
    below = {process.pid for process in descendants(run)}
    names = Path("/run/netns").glob("tnr*") if Path("/run/netns").is_dir() else ()
    return [name for name in names if below & {one.pid for one in strays.find(strays.of_namespaces([name]))}]


@NEEDS_ROOT
@pytest.mark.parametrize("pages_over", [0, 1, 14, 15])
def test_a_filler_ends_when_there_is_no_room_whatever_room_there_was(pages_over: int) -> None:
    world = Place()
    try:
        mount_tmpfs(world.path / "disk", (1 << 20) + pages_over * os.sysconf("SC_PAGE_SIZE"))
        fill(world.path / "disk" / "filler")
        room = os.statvfs(world.path / "disk")
        assert room.f_bfree == 0
    finally:
        world.close()
    assert not world.path.exists()


def test_a_filler_that_fails_otherwise_says_so(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        fill(tmp_path)
