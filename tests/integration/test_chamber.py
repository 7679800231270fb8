"""Chambers: limited children for work that may crash, hang or eat memory."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor import landlock
from supervisor.chamber import ChamberKilled, ChamberNotStarted, Chambers, ChamberTimedOut, Limits, TaskFailed
from supervisor.clock import boottime
from supervisor.descendants import descendants, look
from supervisor.errors import BadInput
from tests.support.eventually import eventually

TASK = "tests.support.chamber_tasks:obey"
MIB = 1 << 20
# Three of nothing, the line to the replica, its own memory figures.
OWN_HANDLES = 5
LIMITS = Limits(memory_bytes=512 * MIB, cpu_seconds=30, seconds=600, output_bytes=MIB)


def soon(seconds: float = 600.0) -> float:
    return boottime() + seconds


def chambers_of(size: int = 1, **limits: Any) -> Chambers:
    return Chambers(TASK, size=size, limits=replace(LIMITS, **limits))


@pytest.fixture
async def one() -> AsyncIterator[Chambers]:
    async with chambers_of() as chambers:
        yield chambers


async def do(
    chambers: Chambers, deed: str, *handles: int, deadline: float | None = None, **facts: Any
) -> Any:
    return await chambers.carry_out({"deed": deed, **facts}, handles, deadline=deadline or soon())


async def pid_of(chambers: Chambers) -> int:
    return int((await do(chambers, "echo"))["pid"])


def open_handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def children() -> set[int]:
    return {process.pid for process in descendants(os.getpid())}


@contextmanager
def files(tmp_path: Path, content: bytes = b"") -> Iterator[tuple[int, int]]:
    (tmp_path / "source").write_bytes(content)
    source = os.open(tmp_path / "source", os.O_RDONLY)
    output = os.open(tmp_path / "output", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        yield source, output
    finally:
        os.close(source)
        os.close(output)


async def test_answers_and_keeps_its_child(one: Chambers) -> None:
    first = await do(one, "echo", say="hé {}")
    assert first["said"] == "hé {}"
    assert await pid_of(one) == first["pid"]


async def test_files_go_over_as_descriptors(one: Chambers, tmp_path: Path) -> None:
    with files(tmp_path, b"content") as (source, output):
        assert (await do(one, "copy", source, output))["bytes"] == 7
        assert (tmp_path / "output").read_bytes() == b"content"
        assert os.fstat(source).st_size == 7  # the caller's own are still open
    assert len((await do(one, "surroundings"))["handles"]) == OWN_HANDLES


async def test_a_task_s_own_failure_keeps_the_child(one: Chambers) -> None:
    pid = await pid_of(one)
    with pytest.raises(TaskFailed, match=r"^bad words$") as failed:
        await do(one, "fail", say="bad\x1b\n\twords")
    assert failed.value.code == "TEST_FAILED"
    with pytest.raises(TaskFailed, match="KeyError") as failed:
        await do(one, "raise")
    assert failed.value.code == "TASK_FAILED"
    assert await pid_of(one) == pid


@pytest.mark.parametrize(
    ("deed", "signum"),
    [("segfault", signal.SIGSEGV), ("abort", signal.SIGABRT), ("leave", None)],
)
async def test_a_crash_is_typed_and_the_child_replaced(one: Chambers, deed: str, signum: int | None) -> None:
    """C34: poison work ends itself, and nothing else."""
    pid = await pid_of(one)
    with pytest.raises(ChamberKilled) as killed:
        await do(one, deed)
    assert killed.value.signal == signum
    assert look(pid) is None
    assert await pid_of(one) != pid


async def test_too_much_memory_ends_the_child_only(one: Chambers) -> None:
    with pytest.raises(ChamberKilled, match="memory"):
        await do(one, "hoard", bytes=600 * MIB)
    assert (await do(one, "hoard", bytes=10 * MIB))["pid"]


async def test_too_much_computing_ends_the_child_only() -> None:
    async with chambers_of(cpu_seconds=1) as chambers:
        with pytest.raises(ChamberKilled) as killed:
            await do(chambers, "loop")
        assert killed.value.signal == signal.SIGXCPU
        assert await pid_of(chambers)


async def test_computing_is_counted_for_each_request_anew() -> None:
    async with chambers_of(cpu_seconds=1) as chambers:
        pid = await pid_of(chambers)
        for _ in range(3):
            await do(chambers, "burn", seconds=0.4)
        assert await pid_of(chambers) == pid


async def test_a_child_in_c_code_is_killed_at_the_request_s_deadline(one: Chambers) -> None:
    pid = await pid_of(one)
    with pytest.raises(ChamberTimedOut):
        await do(one, "block", deadline=soon(0.3))
    assert look(pid) is None
    assert await pid_of(one) != pid


async def test_the_pool_s_own_bound_is_a_time_out_too() -> None:
    async with chambers_of(seconds=0.3) as chambers:
        with pytest.raises(ChamberTimedOut):
            await do(chambers, "block")


async def test_waiting_for_a_free_child_ends_at_the_deadline(one: Chambers) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(do, one, "block")
        await eventually(lambda: one._slots.value == 0)
        with pytest.raises(ChamberTimedOut):
            await do(one, "echo", deadline=soon(0.1))
        group.cancel_scope.cancel()


async def test_output_is_bounded(one: Chambers, tmp_path: Path) -> None:
    with files(tmp_path) as (_, output):
        grown = await do(one, "grow", output, bytes=4 * MIB)
    assert grown == {"written": MIB, "errno": errno.EFBIG}


async def test_a_cancelled_request_kills_its_child_first(one: Chambers, tmp_path: Path) -> None:
    with files(tmp_path) as (_, output):
        async with anyio.create_task_group() as group:
            group.start_soon(do, one, "block", output)
            await eventually(lambda: os.fstat(output).st_size)
            pid = int((tmp_path / "output").read_bytes())
            assert look(pid)
            group.cancel_scope.cancel()
        assert look(pid) is None
        assert pid not in children()
    assert await pid_of(one) != pid


async def test_a_start_that_is_cancelled_leaves_no_child() -> None:
    before = children()
    async with chambers_of() as chambers:
        for wait in (0.0, 0.001, 0.005, 0.02, 0.1):
            with anyio.move_on_after(wait):
                await do(chambers, "echo")
    assert children() == before


async def test_neither_descriptors_nor_children_are_left_over(tmp_path: Path) -> None:
    deeds = ["echo"] * 16 + ["segfault", "leave", "fail", "nonsense"]
    async with chambers_of() as chambers:  # what the event loop opens on first use stays
        await pid_of(chambers)
    before_handles, before_children = open_handles(), children()
    with files(tmp_path) as (source, output):
        async with chambers_of(2) as chambers:
            await pid_of(chambers)
            async with anyio.create_task_group() as group:
                for number in range(100):
                    group.start_soon(_any_end, chambers, deeds[number % len(deeds)], source, output)
            assert len(children() - before_children) <= 2
            assert chambers._slots.value == 2
            assert open_handles() <= before_handles + 2 + 2 * 2  # the files; a line and a pidfd a child
    assert children() == before_children
    assert open_handles() == before_handles


async def test_one_is_buried_while_the_next_is_started(
    one: Chambers, monkeypatch: pytest.MonkeyPatch
) -> None:
    chamber = await one._take()
    bury = chamber.bury

    async def overtaken() -> bool:
        buried = await bury()
        one._idle.append(await one._start())
        return buried

    monkeypatch.setattr(chamber, "bury", overtaken)
    await one._bury(chamber)
    assert one._dying == []


async def _any_end(chambers: Chambers, deed: str, source: int, output: int) -> None:
    try:
        await do(chambers, deed, source, output, bytes="{}")
    except (ChamberKilled, TaskFailed):
        return


@pytest.mark.parametrize(
    "words",
    ["{}", "[]", "\x00", "[" * 20000, '{"id": 1}', '{"id": 99, "resident_bytes": 1, "result": {}}'],
)
async def test_what_a_child_says_is_not_trusted(one: Chambers, words: str) -> None:
    with pytest.raises(ChamberKilled, match="nonsense"):
        await do(one, "nonsense", bytes=words)
    assert await pid_of(one)


async def test_messages_are_bounded_both_ways(one: Chambers) -> None:
    with pytest.raises(BadInput):
        await do(one, "echo", say="x" * 40000)
    with pytest.raises(TaskFailed, match="too long"):
        await do(one, "talk", length=40000)
    assert len((await do(one, "talk", length=30000))["long"]) == 30000


async def test_a_child_that_died_while_idle_is_not_used(one: Chambers) -> None:
    pid = await pid_of(one)
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not one._idle[0].lives)
    assert await pid_of(one) != pid


async def test_a_child_is_recycled_after_so_many_requests() -> None:
    async with chambers_of(recycle_requests=2) as chambers:
        pids = [await pid_of(chambers) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]


async def test_a_child_that_keeps_too_much_memory_is_recycled() -> None:
    async with chambers_of(recycle_resident_bytes=128 * MIB) as chambers:
        first = await pid_of(chambers)
        assert (await do(chambers, "hoard", bytes=16 * MIB))["pid"] == first
        assert (await do(chambers, "hoard", bytes=150 * MIB))["pid"] == first
        assert await pid_of(chambers) != first


async def test_requests_run_side_by_side_in_as_many_children_as_allowed(tmp_path: Path) -> None:
    with files(tmp_path) as (_, first):
        async with chambers_of(2) as chambers, anyio.create_task_group() as group:
            group.start_soon(do, chambers, "block", first)
            await eventually(lambda: os.fstat(first).st_size)
            assert os.pread(first, 16, 0) != b"%d" % await pid_of(chambers)
            group.start_soon(do, chambers, "block")
            await eventually(lambda: chambers._slots.value == 0)
            with pytest.raises(ChamberTimedOut):
                await do(chambers, "echo", deadline=soon(0.5))
            group.cancel_scope.cancel()


UNLOADABLE = ["tests.support.nothing:obey", "nothing.task:obey", "tests.support.eventually:no"]


@pytest.mark.parametrize("task", UNLOADABLE)
async def test_a_task_that_does_not_load_is_told_with_its_reason(task: str) -> None:
    async with Chambers(task, size=1, limits=LIMITS) as chambers:
        with pytest.raises(ChamberNotStarted, match=r"ModuleNotFoundError|AttributeError"):
            await do(chambers, "echo")
        assert chambers._slots.value == 1


async def test_a_closed_pool_starts_nothing(one: Chambers) -> None:
    chambers = chambers_of()
    with pytest.raises(ChamberNotStarted, match="closed"):
        await do(chambers, "echo")


async def test_the_child_has_nothing_it_does_not_need(
    one: Chambers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S12: no environment, no descriptors, no core files."""
    monkeypatch.setenv("TENURE_DATABASE_URL", "secret")
    with open(tmp_path / "held", "wb") as held:  # noqa: PTH123
        os.set_inheritable(held.fileno(), True)
        found = await do(one, "surroundings")
    assert set(found["environment"]) <= {"LD_LIBRARY_PATH", "MALLOC_ARENA_MAX", "LC_CTYPE"}
    assert len(found["handles"]) == OWN_HANDLES
    assert found["cwd"] == "/"
    assert found["limits"] == {"CORE": [0, 0], "AS": [512 * MIB] * 2, "FSIZE": [MIB] * 2}


async def test_the_child_opens_no_path(one: Chambers, tmp_path: Path) -> None:
    """S12: Landlock, where the kernel has it; the kernels this project is tested on do."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    found = await do(one, "try", attempts=["read", "write", "remove"], path=str(secret))
    assert one.guards["landlock"] == landlock.abi()
    if one.guards["landlock"]:
        assert set(found.values()) <= {errno.EACCES, errno.EPERM, errno.EXDEV}
        assert secret.read_text() == "secret"
        assert list(tmp_path.iterdir()) == [secret]
        assert (await do(one, "try", attempts=["read"], path="/etc/passwd"))["read"] == errno.EACCES
        assert (await do(one, "try", attempts=["read"], path="/proc/self/environ"))["read"] == errno.EACCES


async def test_the_child_has_no_network_no_processes_and_no_hand_on_others(one: Chambers) -> None:
    """S12: seccomp, where the kernel has it."""
    forbidden = ["socket", "unix", "fork", "exec", "kill", "pidfd"]
    found = await do(one, "try", attempts=[*forbidden, "thread"])
    assert one.guards["seccomp"] is True
    assert found == {**dict.fromkeys(forbidden, errno.EPERM), "thread": 0}


STOPPABLE = f"""
import anyio, os, sys
from supervisor.chamber import Chambers, Limits
from supervisor.clock import boottime
async def main():
    limits = Limits(memory_bytes=512 << 20, cpu_seconds=60, seconds=600, output_bytes=1 << 20)
    async with Chambers({TASK!r}, size=1, limits=limits) as chambers:
        await chambers.carry_out({{"deed": "echo"}}, deadline=boottime() + 600)
        await chambers.carry_out({{"deed": "block"}}, [1], deadline=boottime() + float(sys.argv[1]))
anyio.run(main)
"""


@contextmanager
def replica(seconds: float) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    process = subprocess.Popen([sys.executable, "-c", STOPPABLE, str(seconds)], stdout=subprocess.PIPE)
    with process:
        try:
            assert process.stdout
            yield process, int(os.read(process.stdout.fileno(), 16))
        finally:
            process.kill()


async def test_a_stopped_replica_is_not_outlived_by_its_child_s_deadline() -> None:
    """C07: the dead man's timer is the kernel's; nobody has to be awake for it."""
    with replica(1.0) as (process, child):
        process.send_signal(signal.SIGSTOP)
        await eventually(lambda: _state(child) in ("Z", ""), timeout=10)


async def test_a_killed_replica_takes_its_children_along() -> None:
    """C06"""
    with replica(600.0) as (process, child):
        process.kill()
        await eventually(lambda: _state(child) in ("Z", ""), timeout=5)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return ""
