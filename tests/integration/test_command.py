"""The command handler over real processes, with tools that record."""

import getpass
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import pytest

from actors.command import handle
from actors.command.arguments import directory
from supervisor import Cancel, Claim, Done, Outcome, Retry
from supervisor.actor import Place
from supervisor.clock import boottime
from supervisor.config import load_settings
from tests.support.eventually import eventually
from tests.support.slowness import patient, stretch

PLACE = Place("w1", load_settings(command_user=str(os.geteuid())), None, None)  # type: ignore[arg-type]


class Tools:
    def __init__(self, seconds: float = 600.0, kill_seconds: float = 1.0) -> None:
        self.kill_seconds = kill_seconds
        self.logged: list[tuple[str, bytes]] = []
        self._deadline = boottime() + seconds
        self._callbacks: list[Callable[[float], None]] = []

    @property
    def place(self) -> Place:
        return PLACE

    equipment = None

    async def log(self, stream: str, data: bytes) -> None:
        self.logged.append((stream, data))

    def stop_deadline(self) -> float:
        return self._deadline

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        self._callbacks.append(callback)

    def progress(self, **_columns: object) -> None:
        raise AssertionError("a command has no columns")

    def move(self, deadline: float) -> None:
        self._deadline = deadline
        for callback in self._callbacks:
            callback(deadline)

    def text(self, stream: str) -> bytes:
        return b"".join(data for name, data in self.logged if name == stream)


def claim(*argv: Any, **more: Any) -> Claim:
    return Claim(7, 5, 2, 11, UUID(int=9), "command", None, {"argv": list(argv), **more}, None)


async def run(*argv: Any, **more: Any) -> tuple[Outcome, Tools]:
    tools = Tools()
    return await handle(claim(*argv, **more), tools), tools


async def test_exit_codes_become_outcomes() -> None:
    assert (await run("true"))[0] == Done({"exit_code": 0})
    outcome, tools = await run("sh", "-c", "echo one >&2; echo two >&2; exit 4")
    assert outcome == Retry("EXIT_4", "exit code 4: two")
    assert tools.text("stderr") == b"one\ntwo\n"
    assert (await run("sh", "-c", "exit 4", success_exit_codes=[0, 4]))[0] == Done({"exit_code": 4})
    assert (await run("sh", "-c", "kill -KILL $$"))[0] == Retry("SIGNAL_SIGKILL", "killed by SIGKILL")


async def test_what_cannot_run_is_a_retry_with_a_reason(tmp_path: Path) -> None:
    outcome, _ = await run("/no/such/file")
    assert outcome == Retry(
        "SPAWN_FAILED", "the command could not be started: No such file or directory (ENOENT)"
    )
    outcome, _ = await run("true", cwd=str(tmp_path / "absent"))
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "SPAWN_FAILED"
    outcome, _ = await run(cwd="relative")
    assert isinstance(outcome, Cancel)
    assert "argv" in outcome.reason
    assert "cwd" in outcome.reason


async def test_the_environment_is_the_allow_list_and_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", "postgresql://u:secret@h/d")
    monkeypatch.setenv("TENURE_API_TOKEN", "secret")
    monkeypatch.setenv("SOMETHING", "secret")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    _, tools = await run("env", "-0", env={"MINE": "a\nb"})
    seen = dict(line.split("=", 1) for line in tools.text("stdout").decode().split("\0") if line)
    assert seen.pop("PATH") == os.environ["PATH"]
    token = {name: seen.pop(name) for name in list(seen) if name.startswith("TENURE_")}
    assert token.pop("TENURE_ARGUMENTS_FILE").startswith(str(directory()))
    assert token == {
        "TENURE_ARGUMENTS": "{}",
        "TENURE_RUN_ID": "7",
        "TENURE_ATTEMPT": "2",
        "TENURE_EPOCH": "11",
        "TENURE_CLAIM": str(UUID(int=9)),
    }
    assert seen.pop("MINE") == "a\nb"
    assert seen.pop("TZ") == "Europe/Berlin"
    assert set(seen) <= {"HOME", "LANG", "LC_ALL", "TMPDIR"}
    _, tools = await run("env", env_allow=["TZ"])
    assert b"TZ=Europe/Berlin" in tools.text("stdout")
    assert b"PATH=" not in tools.text("stdout")
    outcome, tools = await run("env", env_allow=["SOMETHING"])
    assert isinstance(outcome, Cancel)
    assert "env_allow names SOMETHING, which TENURE_COMMAND_ENV" in outcome.reason
    assert tools.logged == []


async def test_arguments_reach_the_command_in_a_file_of_its_own() -> None:
    text = {"note": "x" * 100_000, "name": "$(id); --help"}
    script = 'cat "$TENURE_ARGUMENTS_FILE"; stat -c " %a %U" "$TENURE_ARGUMENTS_FILE"; printf "%s" "$1"'
    _, tools = await run("sh", "-c", script, "sh", {"argument": "name"}, **text)
    data, _, rest = tools.text("stdout").decode().rpartition("} ")
    assert json.loads(data + "}") == text
    assert rest.splitlines() == [f"400 {getpass.getuser()}", text["name"]]
    assert list(directory().iterdir()) == []


async def test_arguments_that_a_killed_replica_left_are_removed(tmp_path: Path) -> None:
    """The files hold what callers gave, so they end with the replica that wrote them, however it ends."""
    script = (
        "import os; from actors.command.arguments import arguments_file;"
        " kept = arguments_file({'a': 1}, another_user=False); kept.__enter__(); os.kill(os.getpid(), 9)"
    )
    killed = {**os.environ, "TMPDIR": str(tmp_path)}
    await anyio.run_process([sys.executable, "-c", script], env=killed, check=False)
    (left,) = tmp_path.glob("*/*.json")
    foreign = tmp_path / "tenure-arguments-link"
    foreign.symlink_to(Path.cwd())
    alive = "from actors.command.arguments import directory; print(directory(), flush=True); input()"
    async with await anyio.open_process([sys.executable, "-c", alive], env=killed) as first:
        assert first.stdout is not None
        made = Path((await first.stdout.receive()).decode().strip())
        assert not left.exists()
        await anyio.run_process([sys.executable, "-c", alive], env=killed, input=b"\n")
        assert made.exists(), "its process lives"
        assert foreign.exists()
        first.kill()


async def test_arguments_find_a_place_when_theirs_was_removed() -> None:
    """A command removed the directory, and every later one of the replica failed until it was restarted."""
    assert (await run("rm", "-rf", str(directory())))[0] == Done({"exit_code": 0})
    assert (await run("sh", "-c", 'cat "$TENURE_ARGUMENTS_FILE"'))[0] == Done({"exit_code": 0})


async def test_ten_megabytes_are_bounded_marked_and_drained() -> None:
    """S22: a talkative command ends as if all had been kept."""
    outcome, tools = await run("head", "-c", "10000000", "/dev/zero", max_output_bytes=100_000)
    assert outcome == Done({"exit_code": 0})
    mark = b"\n[truncated: output beyond 100000 bytes is not kept]\n"
    assert tools.text("stdout") == bytes(100_000) + mark
    _, tools = await run("head", "-c", "2000000", "/dev/zero")
    assert len(tools.text("stdout")) < 1024 * 1024 + 100
    assert tools.text("stdout").count(b"[truncated: ") == 1


async def test_cancellation_passes_after_everything_is_dead(tmp_path: Path) -> None:
    """TERM, then KILL for what ignores it, within kill_seconds."""
    note = tmp_path / "pid"
    code = (
        "import os, signal, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "open(sys.argv[1], 'w').write(f'{os.getpid()}\\n'); time.sleep(600)"
    )
    tools = Tools(kill_seconds=2 * stretch())
    begun = 0.0
    async with anyio.create_task_group() as group:
        group.start_soon(handle, claim(sys.executable, "-c", code, str(note)), tools)
        await eventually(lambda: note.exists() and note.read_text().endswith("\n"))
        begun = time.monotonic()
        group.cancel_scope.cancel()
    assert 0.4 * tools.kill_seconds < time.monotonic() - begun < patient(tools.kill_seconds)
    assert not Path(f"/proc/{int(note.read_text())}").exists()


async def test_a_stop_deadline_that_moves_keeps_the_command_alive() -> None:
    unit = stretch()
    tools = Tools(seconds=0.5 * unit, kill_seconds=0.4 * unit)
    begun = boottime()

    async def beat() -> None:
        for _ in range(5):
            await anyio.sleep(0.2 * unit)
            tools.move(boottime() + 0.5 * unit)

    async with anyio.create_task_group() as group:
        group.start_soon(beat)
        outcome = await handle(claim("sleep", str(1.2 * unit)), tools)
    assert outcome == Done({"exit_code": 0})
    assert boottime() - begun > 1.1 * unit


async def test_a_stop_deadline_that_stands_ends_a_stopped_command_within_the_kill_time() -> None:
    """C07: dead by S + k, though the handler was not cancelled."""
    unit = stretch()
    tools = Tools(seconds=0.6 * unit, kill_seconds=0.8 * unit)
    begun = boottime()
    outcome = await handle(claim("sh", "-c", "kill -STOP $$; echo woken"), tools)
    assert 0.6 * unit < boottime() - begun < 0.6 * unit + patient(0.8)
    assert isinstance(outcome, Retry)
    assert outcome.error_code == "STOPPED"
    assert tools.text("stdout") == b""


async def test_a_segfault_costs_nobody_else_anything() -> None:
    """C34: poison beside healthy work."""
    poison = "import ctypes; ctypes.string_at(0)"
    outcomes: list[Outcome] = []

    async def one(*argv: str) -> None:
        outcomes.append((await run(*argv))[0])

    async with anyio.create_task_group() as group:
        group.start_soon(one, sys.executable, "-c", poison)
        for _ in range(5):
            group.start_soon(one, "sleep", "0.2")
    assert outcomes.count(Done({"exit_code": 0})) == 5
    assert Retry("SIGNAL_SIGSEGV", "killed by SIGSEGV") in outcomes
