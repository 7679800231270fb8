"""Commands under the launcher: whatever happens, nothing of a command outlives its bound."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from supervisor import spawn
from supervisor.clock import boottime
from supervisor.descendants import Process, descendants, look
from supervisor.isolate import Command, CommandNotStarted, Ended, OnOutput
from tests.support.eventually import eventually
from tests.support.slowness import patient, stretch

ENV = {"PATH": os.environ["PATH"]}
PYTHON = sys.executable
FAR_SECONDS = 600.0
# A daemon as daemons are made: two forks, a session of its own, none of the inherited descriptors.
DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for handle in (0, 1, 2): os.close(handle)
        open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
        os.rename(sys.argv[1] + ".new", sys.argv[1])
        time.sleep(600)
    os._exit(0)
os.wait()
"""
# The shell itself, not a child of it: it blocks signals while it forks, and Python ignores two.
SIGNALS = "while read -r a b; do case $a in SigBlk:|SigIgn:) echo $b;; esac; done < /proc/$$/status"


class Collector:
    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""

    async def __call__(self, stream: str, data: bytes) -> None:
        setattr(self, stream, getattr(self, stream) + data)


def start(
    *argv: str,
    seconds: float = FAR_SECONDS,
    kill_seconds: float = 10.0,
    output: OnOutput | None = None,
    env: Mapping[str, str] = ENV,
    cwd: str | None = None,
) -> AbstractAsyncContextManager[Command]:
    deadline, on_output = boottime() + seconds, output or Collector()
    return Command.start(
        argv, env=env, cwd=cwd, deadline=deadline, kill_seconds=kill_seconds, on_output=on_output
    )


def daemon_of(path: Path) -> Callable[[], Process | None]:
    """The process whose pid the daemon wrote down, once it did."""
    return lambda: look(int(path.read_text())) if path.exists() else None


def alive(process: Process | None) -> bool:
    """Zombies are dead: an orphan may wait a moment for whoever reaps it."""
    now = look(process.pid) if process else None
    if process is None or now is None or now.started != process.started:
        return False
    try:
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


async def gone(process: Process | None, within: float) -> None:
    await eventually(lambda: not alive(process), timeout=within, interval=0.01, what=f"the end of {process}")


def launcher_of(command: Command) -> Process:
    assert command._launcher
    return command._launcher


async def test_exit_codes_signals_and_both_streams() -> None:
    output = Collector()
    async with start("sh", "-c", "echo out; echo err >&2; exit 7", output=output) as command:
        assert await command.wait() == Ended(exit_code=7)
    assert (output.stdout, output.stderr) == (b"out\n", b"err\n")
    async with start("sh", "-c", "kill -SEGV $$") as command:
        assert await command.wait() == Ended(signal=signal.SIGSEGV)
    async with start("sh", "-c", "exit 127") as command:
        assert await command.wait() == Ended(exit_code=127)


async def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    cases = [
        (["/nonexistent/program"], None, "ENOENT"),
        (["no-such-program-anywhere"], None, "ENOENT"),
        ([str(plain)], None, "EACCES"),
        (["true"], str(tmp_path / "absent"), "cwd: .*ENOENT"),
        (["true"], str(plain), "cwd: .*ENOTDIR"),
        (["true", "x" * 3_000_000], None, "E2BIG"),
    ]
    for argv, cwd, message in cases:
        with pytest.raises(CommandNotStarted, match=message):
            async with start(*argv, cwd=cwd):
                pytest.fail("it started")


async def test_binary_output_huge_arguments_and_the_working_directory(tmp_path: Path) -> None:
    every_byte = bytes(range(256)) * 400
    (tmp_path / "bytes").write_bytes(every_byte)
    output = Collector()
    async with start("cat", "bytes", cwd=str(tmp_path), output=output) as command:
        assert await command.wait() == Ended(exit_code=0)
    assert output.stdout == every_byte
    many = ["x" * 100_000] * 10
    output = Collector()
    async with start("sh", "-c", 'echo $# "${#1}"', "sh", *many, output=output) as command:
        assert await command.wait() == Ended(exit_code=0)
    assert output.stdout == b"10 100000\n"


async def test_nothing_but_the_three_standard_descriptors_and_default_signals() -> None:
    code = """
import os
print(sorted(int(n) for n in os.listdir("/proc/self/fd"))[:-1])
print(os.read(0, 1), os.getsid(0) == os.getpid())
"""
    output = Collector()
    async with start("sh", "-c", SIGNALS, output=output) as command:
        assert await command.wait() == Ended(exit_code=0)
    # 32 and 33 are the C library's own: no program can reset them, and whoever started this may ignore them
    blocked, ignored = (int(mask, 16) & ~(0b11 << 31) for mask in output.stdout.split())
    assert (blocked, ignored) == (0, 0)
    output = Collector()
    async with start(PYTHON, "-I", "-S", "-c", code, output=output) as command:
        assert await command.wait() == Ended(exit_code=0)
    assert output.stdout.startswith(b"[0, 1, 2]\n")
    assert output.stdout.endswith(b"b'' True\n")


async def test_the_secrets_of_a_command_stand_in_no_argument_list_or_environment_but_its_own() -> None:
    """S17: neither warden nor launcher shows them."""
    async with start("sleep", "600", env={**ENV, "CANARY": "canary-in-env"}) as command:
        for pid in (launcher_of(command).pid, launcher_of(command).parent):
            shown = Path(f"/proc/{pid}/cmdline").read_bytes()
            with suppress(PermissionError):  # closed to all but root
                shown += Path(f"/proc/{pid}/environ").read_bytes()
            assert b"canary" not in shown
            assert b"600" not in shown
        assert b"canary" in Path(f"/proc/{command.pid}/environ").read_bytes()


async def test_what_a_command_leaves_running_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    leave_when_told = f"{DAEMON}\nwhile not os.path.exists(sys.argv[1] + '.go'): time.sleep(0.01)"
    async with start(PYTHON, "-c", leave_when_told, str(note)) as command:
        daemon = await eventually(daemon_of(note))
        assert alive(daemon)
        note.with_suffix(".go").touch()
        assert await command.wait() == Ended(exit_code=0)
        assert not alive(daemon)


async def test_termination_is_polite_first() -> None:
    output = Collector()
    code = "trap 'echo bye; exit 5' TERM; echo ready; while :; do sleep 0.05; done"
    async with start("sh", "-c", code, output=output, kill_seconds=60) as command:
        async with anyio.create_task_group() as group:
            group.start_soon(command.wait)
            await eventually(lambda: output.stdout)
            begun = time.monotonic()
            ended = await command.terminate()
        assert ended == Ended(exit_code=5, stopped="terminated")
        assert time.monotonic() - begun < 60, "it waited for the kill time"
    assert output.stdout == b"ready\nbye\n"


async def test_cancellation_kills_what_ignores_sigterm(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    stubborn = f"{DAEMON}\ntime.sleep(600)"
    command: Command | None = None
    kill_seconds = stretch()
    with anyio.CancelScope() as scope:
        async with (
            start(PYTHON, "-c", stubborn, str(note), kill_seconds=kill_seconds) as command,
            anyio.create_task_group() as group,
        ):
            group.start_soon(command.wait)
            daemon = await eventually(daemon_of(note))
            begun = time.monotonic()
            scope.cancel()
    assert scope.cancelled_caught
    assert command
    assert command.ended == Ended(signal=signal.SIGKILL, stopped="terminated")
    assert 0.9 * kill_seconds < time.monotonic() - begun < patient(2 * kill_seconds)
    assert not alive(daemon)


async def test_a_callback_that_fails_or_hangs_does_not_save_the_command() -> None:
    async def fail(_stream: str, _data: bytes) -> None:
        raise LookupError("no log today")

    with pytest.raises(LookupError):
        async with start("yes", output=fail) as command:
            await command.wait()
    assert command.ended

    async def hang(_stream: str, _data: bytes) -> None:
        scope.cancel()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        async with start("yes", kill_seconds=stretch(), output=hang) as command:
            await command.wait()
    assert command.ended
    assert command.ended.stopped == "terminated"


async def test_a_slow_reader_slows_the_command() -> None:
    taken = 0
    release = anyio.Event()

    async def slow(_stream: str, data: bytes) -> None:
        nonlocal taken
        taken += len(data)
        await release.wait()

    code = "import os\nfor n in range(100): os.write(1, b'x' * 65536); os.write(2, b'%d\\n' % n)"
    async with (
        start(PYTHON, "-I", "-S", "-c", code, output=slow) as command,
        anyio.create_task_group() as group,
    ):
        group.start_soon(command.wait)
        await eventually(lambda: taken)
        await anyio.sleep(0.3)  # time to read more, if it would
        assert taken <= 2 * 65536
        assert command.ended is None
        release.set()
    assert taken == 100 * 65536 + 290


async def test_the_deadline_kills_also_a_stopped_command_and_rearming_moves_it() -> None:
    """C07: SIGSTOP of the child with its parent alive."""
    begun, unit = boottime(), stretch()
    async with start("sleep", "600", seconds=0.6 * unit, kill_seconds=0.8 * unit) as command:
        assert command.pid
        os.kill(command.pid, signal.SIGSTOP)
        command.rearm(begun + 1.2 * unit)
        # later than deadline and kill time it would be "lost": the dead man's timer is the launcher's end
        assert await command.wait() == Ended(signal=signal.SIGKILL, stopped="expired")
    assert boottime() - begun > 1.1 * unit


async def test_rearming_at_the_very_end_does_not_hide_the_end() -> None:
    """An order that the launcher leaves unread is a reset connection for us, ahead of its report."""
    for number in range(120):
        async with start("true") as command:
            time.sleep(number * 0.00004)  # nothing may be read before the order is sent
            command.rearm(boottime() + FAR_SECONDS)
            assert await command.wait() == Ended(exit_code=0)


async def test_a_deadline_that_passed_before_the_start_starts_nothing(tmp_path: Path) -> None:
    async with start("touch", str(tmp_path / "touched"), seconds=-1, kill_seconds=5) as command:
        assert (await command.wait()).stopped == "expired"
    assert not (tmp_path / "touched").exists()


async def test_a_stopped_launcher_wakes_at_the_deadline_and_kills(tmp_path: Path) -> None:
    """C07 one level up: the launcher is stopped, the command and its daemon are not."""
    note = tmp_path / "pid"
    begun, unit = boottime(), stretch()
    stubborn = f"{DAEMON}\ntime.sleep(600)"
    async with start(PYTHON, "-c", stubborn, str(note), seconds=1.5 * unit, kill_seconds=unit) as command:
        daemon = await eventually(daemon_of(note))
        os.kill(launcher_of(command).pid, signal.SIGSTOP)
        # later than deadline and kill time it would be "lost"
        assert (await command.wait()).stopped == "expired"
        assert not alive(daemon)
    assert boottime() - begun > 1.4 * unit


async def test_a_stopped_launcher_does_not_delay_termination() -> None:
    """Not continued, it would be killed after the kill time, and the command be lost."""
    async with start("sleep", "600") as command:
        os.kill(launcher_of(command).pid, signal.SIGSTOP)
        assert await command.terminate() == Ended(signal=signal.SIGTERM, stopped="terminated")


async def test_a_killed_launcher_takes_everything_with_it(tmp_path: Path) -> None:
    """The warden buries what the launcher can no longer: end of file comes only when all is dead."""
    note = tmp_path / "pid"
    async with start(PYTHON, "-c", f"{DAEMON}\ntime.sleep(600)", str(note)) as command:
        daemon = await eventually(daemon_of(note))
        main = look(command.pid or 0)
        async with start("sleep", "600") as other:
            os.kill(launcher_of(command).pid, signal.SIGKILL)
            assert await command.wait() == Ended(stopped="lost")
            assert not alive(daemon)
            assert not alive(main)
            assert alive(look(other.pid or 0))


async def test_the_command_dies_with_its_launcher_also_without_a_warden() -> None:
    """PR_SET_PDEATHSIG: the kernel needs nobody's help for the command itself."""
    async with start("sleep", "600") as command:
        main = look(command.pid or 0)
        assert alive(main)
        assert spawn.WARDEN._process
        spawn.WARDEN._process.kill()
        spawn.WARDEN._process.wait()
        os.kill(launcher_of(command).pid, signal.SIGKILL)
        assert await command.wait() == Ended(stopped="lost")
        await gone(main, 1)


async def test_a_killed_warden_is_replaced_and_its_commands_go_on() -> None:
    output = Collector()
    async with start("sh", "-c", "sleep 0.5; echo still here", output=output) as command:
        assert spawn.WARDEN._process
        spawn.WARDEN._process.kill()
        spawn.WARDEN._process.wait()
        async with start("true") as next_command:
            assert await next_command.wait() == Ended(exit_code=0)
        assert await command.wait() == Ended(exit_code=0)
    assert output.stdout == b"still here\n"


async def test_a_stopped_warden_goes_on_by_itself() -> None:
    async with start("true") as command:
        await command.wait()
    assert spawn.WARDEN._process
    spawn.WARDEN._process.send_signal(signal.SIGSTOP)
    async with start("true") as command:
        assert await command.wait() == Ended(exit_code=0)


STAND_IN = """
import os, sys, anyio
from supervisor.clock import boottime
from supervisor.isolate import Command
async def output(stream, data): pass
async def main():
    argv, deadline = [sys.executable, "-c", sys.argv[1], sys.argv[2]], boottime() + float(sys.argv[3])
    async with Command.start(
        argv, env=dict(os.environ), deadline=deadline, kill_seconds=60, on_output=output
    ) as command:
        print(command.pid, command._launcher.pid, command._launcher.started, flush=True)
        await command.wait()
anyio.run(main)
"""


class Replica:
    """A process that runs one command and can be killed or stopped."""

    def __init__(self, code: str, note: Path, seconds: float) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-c", STAND_IN, code, str(note), str(seconds)], stdout=subprocess.PIPE
        )
        assert self.process.stdout
        command, launcher, _started = self.process.stdout.readline().split()
        self.command, self.launcher = look(int(command)), look(int(launcher))
        assert self.command
        assert self.launcher
        self.warden = look(self.launcher.parent)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


async def test_everything_dies_with_a_killed_replica(tmp_path: Path) -> None:
    """C06: SIGKILL of the parent: command and double-forked, setsid grandchild dead in less than 1 s,
    not after the kill time, which is a minute here."""
    note = tmp_path / "pid"
    replica = Replica(f"{DAEMON}\ntime.sleep(600)", note, FAR_SECONDS)
    try:
        daemon = await eventually(daemon_of(note))
        assert alive(daemon)
        replica.process.kill()
        dying = (replica.command, daemon, replica.launcher)
        await eventually(lambda: not list(filter(alive, dying)), timeout=1, what="the end of all")
        await gone(replica.warden, 2)
    finally:
        replica.end()


async def test_everything_dies_when_replica_and_launcher_are_stopped(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    seconds = 2 * stretch()
    replica = Replica(f"{DAEMON}\ntime.sleep(600)", note, seconds)
    try:
        daemon = await eventually(daemon_of(note))
        assert replica.launcher
        replica.process.send_signal(signal.SIGSTOP)
        os.kill(replica.launcher.pid, signal.SIGSTOP)
        assert alive(daemon)
        for process in (daemon, replica.command):
            await gone(process, seconds + 2)
    finally:
        replica.end()


# Four lines; each process forks a successor that leaves its session, and exits: no list of pids stays true.
# Bounded by its own arithmetic: 4 * 1000 processes over 20 s or more, about 20 of them at a time.
BOMB_SECONDS = 20
BOMB = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
os.fork()
os.write(1, b"armed")
for _ in range(1000):
    if os.fork():
        time.sleep(0.1)
        os._exit(0)
    os.setsid()
    time.sleep(0.02)
"""


async def test_a_small_fork_bomb_is_beaten() -> None:
    """C34: a command that forks faster than it is killed one by one."""
    output = Collector()
    code = f"import os\nif os.fork():\n    while True: os.wait(); os.kill(os.getpid(), 19)\n{BOMB}"
    async with (
        start(PYTHON, "-I", "-S", "-c", code, output=output, kill_seconds=0.3) as command,
        anyio.create_task_group() as group,
    ):
        group.start_soon(command.wait)
        await eventually(lambda: len(output.stdout) == 4 * len("armed"))
        below = launcher_of(command).pid
        begun = time.monotonic()
        await command.terminate()
    assert time.monotonic() - begun < BOMB_SECONDS / 2, "it ended by itself"
    assert descendants(below) == []


async def test_two_hundred_commands_leave_no_descriptors_and_no_processes() -> None:
    async with start("true") as command:
        await command.wait()
    before = len(list(Path("/proc/self/fd").iterdir()))
    limit = anyio.CapacityLimiter(20)
    ended: list[Ended] = []

    async def one(number: int) -> None:
        async with limit, start("sh", "-c", f"echo {number}; exit {number % 3}") as command:
            ended.append(await command.wait())

    async with anyio.create_task_group() as group:
        for number in range(200):
            group.start_soon(one, number)
    assert sorted(end.exit_code or 0 for end in ended) == sorted(number % 3 for number in range(200))
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    warden = spawn.WARDEN._process
    assert warden
    await eventually(lambda: descendants(warden.pid) == [])
    # its descriptors are closed to all but root; the size of their table is not
    size = re.search(r"^FDSize:\s+([0-9]+)$", Path(f"/proc/{warden.pid}/status").read_text(), re.MULTILINE)
    assert size
    assert int(size[1]) <= 256, "each command left some"


async def test_the_event_loop_is_not_blocked_while_commands_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warden that starts, and then launches, only when the loop has gone on meanwhile."""
    async with start("true") as command:
        await command.wait()
    warden, went_on = spawn.WARDEN._requests, threading.Event()
    assert warden
    ours, held_up = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)

    def restart(_broken: socket.socket | None) -> socket.socket:
        assert went_on.wait(patient(5)), "the loop waits for the warden to start"
        return ours

    async def go_on() -> None:
        await anyio.sleep(0.05)
        went_on.set()
        await anyio.wait_readable(held_up)
        await anyio.sleep(0.05)
        message, handles, _, _ = socket.recv_fds(held_up, 16, 4)
        socket.send_fds(warden, [message], handles)
        for handle in handles:
            os.close(handle)

    with ours, held_up, monkeypatch.context() as slow:
        slow.setattr(spawn.WARDEN, "_requests", None)
        slow.setattr(spawn.WARDEN, "_restart", restart)
        async with anyio.create_task_group() as group:
            group.start_soon(go_on)
            async with start("true") as command:
                assert await command.wait() == Ended(exit_code=0)
