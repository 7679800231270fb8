"""What a command can get at: nothing of its replica, whoever started that."""

import json
import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import supervisor
from supervisor import landlock
from supervisor.clock import boottime
from supervisor.command_user import command_user
from supervisor.config import load_settings
from supervisor.confinement import ClosedPlaces, Confinement, confinement
from supervisor.embedded import Urls, read_urls
from supervisor.errors import BadSettings
from supervisor.isolate import Command, CommandNotStarted
from tests.integration.test_fleet import parent
from tests.support import intruder
from tests.support.eventually import eventually
from tests.support.place import value
from tests.support.replica import timings
from tests.support.server import own_root
from tests.support.slowness import stretch
from tests.support.unprivileged import unprivileged

UP = (sys.executable, "-m", "supervisor.cli", "up", "--replicas", "1", "--port", "0")
INTRUDER = Path(intruder.__file__).read_text("utf-8")
# as after a login: a key in the session keyring, which children inherit
KEYED = (
    "import ctypes, os, sys; from supervisor.prctl import leave_session_keyring; leave_session_keyring();"
    f"number = {{'x86_64': 248, 'aarch64': 217}}[os.uname().machine];"
    f"ctypes.CDLL(None).syscall(number, b'user', {intruder.KEY!r}, b'x', 1, -3);"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
PROGRAMS = (str(Path(supervisor.__file__).parent), sysconfig.get_path("purelib"))
AS_ROOT = os.geteuid() == 0
# CAP_PERFMON reads these whatever Landlock says; where the suite is run by an ordinary user, they count
OF_ROOT = ("capabilities", "environ", "maps", "fd")
needs_landlock = pytest.mark.skipif(
    landlock.abi() < landlock.SIGNALS_ABI, reason="this kernel's Landlock is too old"
)
needs_root = pytest.mark.skipif(not AS_ROOT, reason="only root has another user to give")


def interpreter() -> str:
    """An interpreter that every user may run; this one may lie in root's home."""
    for found in filter(None, (sys.executable, shutil.which("python3", path="/usr/bin:/usr/local/bin"))):
        user = {"user": 65534} if AS_ROOT else {}
        try:
            subprocess.run([found, "-c", ""], check=True, cwd="/", **user)  # type: ignore[call-overload]
        except (OSError, subprocess.CalledProcessError):
            continue
        return found
    pytest.skip("no python3 that an ordinary user may run")


async def outcome_of(urls: Urls, name: str, payload: dict[str, Any]) -> tuple[str, str]:
    """The state in which a run of this command ends, and what it printed or failed with."""
    spec = json.dumps({"domain": "command", "payload": payload, "max_attempts": 1})
    await value(
        urls.control, "SELECT count(*) FROM supervisor.save_job('test', $1, $2::jsonb, true)", name, spec
    )
    run = await value(urls.control, "SELECT id FROM supervisor.enqueue($1)", name)
    over = "SELECT state FROM supervisor.job_run WHERE id = $1 AND finished_at IS NOT NULL"
    state = str(
        await eventually(lambda: value(urls.control, over, run), timeout=60, what=f"the end of {name}")
    )
    said = "SELECT string_agg(body, '' ORDER BY seq) FROM supervisor.job_run_log WHERE run_id = $1"
    told = await value(urls.control, said, run)
    return state, str(
        told or await value(urls.control, "SELECT error_message FROM supervisor.job_run WHERE id = $1", run)
    )


@needs_landlock
async def test_a_command_gets_at_nothing_of_its_replica() -> None:
    """The attack: a command read TENURE_API_TOKEN in the environ of its ancestor, and so became admin."""
    root, python = own_root(), interpreter()
    canary = {
        "TENURE_API_TOKEN": "canary-0123456789",
        "AWS_SECRET_ACCESS_KEY": "canary",
        "SOMETHING": "canary",
    }
    up = (sys.executable, "-c", KEYED, *UP) if AS_ROOT else UP
    on_path = root / "bin"  # as ~/.local/bin, with the `tenure` of pipx and all that a replica starts
    on_path.mkdir()
    told = {"TENURE_COMMAND_ENV": "PATH,HOME,SOMETHING_ELSE", "PATH": f"{on_path}:{os.environ['PATH']}"}
    with parent(root, up, **told, **canary, **timings(stretch())) as fleet:
        await fleet.announced()
        urls = read_urls(root / "state")
        assert urls
        memory = await value(urls.control, "SELECT current_setting('dynamic_shared_memory_type')")
        assert memory == "mmap", "what has a name in /dev/shm, every program of its user can write to"
        places = (str(root / "state"), str(fleet.process.pid), *PROGRAMS, str(on_path))
        argv = [python, "-I", "-c", INTRUDER, *places]
        state, said = await outcome_of(urls, "intruder", {"argv": argv})
        assert state == "SUCCEEDED", said
        found = json.loads(said)
        assert found["got"] == [], "\n".join(found["got"])
        assert (found["uid"] == 0, found["uid"] == os.geteuid()) == (False, not AS_ROOT)
        assert "canary" not in json.dumps(found["environ"])
        assert {name for name in found["environ"] if not name.startswith(("TENURE_", "LC_CTYPE"))} == {
            "PATH",
            "HOME",
        }
        state, said = await outcome_of(
            urls, "greedy", {"argv": ["env"], "env_allow": ["AWS_SECRET_ACCESS_KEY"]}
        )
        assert state == "CANCELED"
        environment = Path(f"/proc/{fleet.process.pid}/task/{fleet.process.pid}/children").read_text().split()
        shown = [Path(f"/proc/{pid}/environ").read_text() for pid in environment] if AS_ROOT else []
        assert not [text for text in shown if "canary" in text or "postgresql://" in text], (
            "secrets go by pipe"
        )


async def run(
    *argv: str, kept: Confinement, cwd: Path | None = None, path: str = os.environ["PATH"]
) -> tuple[int | None, str, str]:
    texts = {"stdout": "", "stderr": ""}

    async def take(stream: str, data: bytes) -> None:
        texts[stream] += data.decode()

    deadline = boottime() + 60 * stretch()
    async with Command.start(
        argv,
        env={"PATH": path},
        cwd=None if cwd is None else str(cwd),
        deadline=deadline,
        kill_seconds=5,
        on_output=take,
        confinement=kept,
    ) as command:
        ended = await command.wait()
    return ended.exit_code, texts["stdout"], texts["stderr"]


@needs_landlock
async def test_landlock_closes_the_state_directory_and_other_processes(tmp_path: Path) -> None:
    """As for a replica that no root started: the command has the same user as everything it attacks."""
    state = tmp_path / "state"
    (state / "postgres" / "data").mkdir(parents=True)
    for name in ("token", "embedded.json", "postgres/data/pg_hba.conf"):
        (state / name).write_text("secret")
    program = tmp_path / "program" / "package"
    program.mkdir(parents=True)
    (program / "__init__.py").write_text("print('program')")
    (tmp_path / "link").symlink_to(state)
    (tmp_path / "up").symlink_to(tmp_path)
    kept = Confinement(confined=True, closed=ClosedPlaces([state], [program.parent]))
    assert await run(sys.executable, str(program / "__init__.py"), kept=kept) == (0, "program\n", "")
    for way in (state, tmp_path / "link", tmp_path / "up" / "state"):
        code, out, err = await run(
            sys.executable, "-I", "-c", INTRUDER, str(way), str(os.getpid()), str(program), kept=kept
        )
        assert code == 0, err
        got = json.loads(out)["got"]
        assert [what for what in got if not (AS_ROOT and what.startswith(OF_ROOT))] == [], got
    assert (state / "token").read_text() == "secret"
    free = Confinement()
    _, out, _ = await run(
        sys.executable, "-I", "-c", INTRUDER, str(state), str(os.getpid()), str(program), kept=free
    )
    assert len(json.loads(out)["got"]) > 10, "the intruder tries nothing"


@needs_landlock
async def test_landlock_leaves_everything_else_open(tmp_path: Path) -> None:
    """Files beside the state directory, the ones below them, new ones there, devices, its own processes."""
    (tmp_path / "state").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "notes").write_text("one\n")
    kept = Confinement(confined=True, closed=ClosedPlaces([tmp_path / "state"]))
    script = """
        set -e
        echo two >> notes; cat notes; ls > /dev/null
        cd work; mkdir deep; echo x > deep/file; mv deep/file file; ln -s file link; cat link; rm link
        sleep 60 & kill $!; wait $! 2> /dev/null || true
    """
    assert await run("sh", "-c", script, kept=kept, cwd=tmp_path) == (0, "one\ntwo\nx\n", "")
    code, _, err = await run("sh", "-c", "echo x > new", kept=kept, cwd=tmp_path)
    assert (code != 0, "ermission denied" in err) == (True, True), "as documented"
    (tmp_path / "later").write_text("made by others\n")
    assert (await run("cat", "later", kept=kept, cwd=tmp_path))[:2] == (0, "made by others\n")


async def test_commands_write_below_the_directory_where_tenure_was_started() -> None:
    """Modules are not taken from that directory, so it is no part of the program that is closed to them."""
    root = own_root()
    (root / "work").mkdir()
    up, own = ("env", "--chdir", str(root), *UP), str(os.geteuid())
    with parent(root, up, TENURE_COMMAND_USER=own, **timings(stretch())) as fleet:
        await fleet.announced()
        urls = read_urls(root / "state")
        assert urls
        payload = {"argv": ["sh", "-c", "echo done > file; cat file"], "cwd": str(root / "work")}
        assert await outcome_of(urls, "writer", payload) == ("SUCCEEDED", "done\n")


@needs_root
async def test_root_gives_commands_to_a_user_who_is_not_the_database_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = confinement(load_settings(state_dir=tmp_path))
    assert kept.user
    assert kept.user.uid not in {0, tmp_path.stat().st_uid}
    script = "id -u; id -G; pwd; echo out > /dev/stdout; grep NoNewPrivs /proc/self/status"
    tmp_path.chmod(0o700)
    with pytest.raises(CommandNotStarted, match="ENOENT"):
        await run("no-such-program", kept=kept, path=f"{tmp_path}:{os.environ['PATH']}")
    _, out, err = await run("sh", "-c", script, kept=kept)
    uid, groups, _, told, privileges = out.splitlines()
    assert (uid, told, privileges, err) == (str(kept.user.uid), "out", "NoNewPrivs:\t1", "")
    assert groups.split() == [str(group) for group in kept.user.groups]
    data = tmp_path / "postgres" / "data"
    data.mkdir(parents=True)
    os.chown(data, kept.user.uid, -1)
    another = command_user(load_settings(state_dir=tmp_path))
    assert another
    assert another.uid not in {0, kept.user.uid}
    with pytest.raises(BadSettings, match="is the user of the embedded database"):
        command_user(load_settings(state_dir=tmp_path, command_user=kept.user.name))


def test_the_user_can_be_chosen(tmp_path: Path) -> None:
    own = pwd.getpwuid(os.geteuid()).pw_name
    for name in (own, str(os.geteuid())):
        assert command_user(load_settings(state_dir=tmp_path, command_user=name)) is None
    with pytest.raises(BadSettings, match="there is no such user"):
        command_user(load_settings(state_dir=tmp_path, command_user="no-such-user"))
    if AS_ROOT:
        chosen = command_user(load_settings(state_dir=tmp_path, command_user="54321"))
        assert chosen
        assert (chosen.uid, chosen.gid, chosen.groups) == (54321, 54321, [54321])


@needs_root
async def test_a_command_of_another_user_ends_with_all_it_started(tmp_path: Path) -> None:
    """The launcher keeps its own user, so that it may kill what it started, and dies with all of it."""
    kept = confinement(load_settings(state_dir=tmp_path))
    assert kept.user
    pids: list[int] = []

    async def take(_stream: str, data: bytes) -> None:
        pids.extend(map(int, data.split()))

    script = "trap '' TERM; setsid sleep 600 & echo $$ $!; wait"
    async with Command.start(
        ["sh", "-c", script],
        env={"PATH": os.environ["PATH"]},
        deadline=boottime() + 600,
        kill_seconds=0.5,
        on_output=take,
        confinement=kept,
    ) as command:

        async def said() -> bool:
            return len(pids) == 2

        import anyio

        async with anyio.create_task_group() as group:
            group.start_soon(command.wait)
            await eventually(said, what="its pids")
            assert Path(f"/proc/{pids[0]}").stat().st_uid == kept.user.uid
            os.kill(command._launcher.pid, 9)  # type: ignore[union-attr]
            await eventually(partial(none_alive, pids), what="the end of all of it")
    assert none_alive(pids)


def none_alive(pids: list[int]) -> bool:
    return not [
        pid
        for pid in pids
        if Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


@needs_root
@needs_landlock
def test_a_directory_of_path_that_is_closed_to_us_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever becomes another user may keep that one's PATH."""
    (tmp_path / "closed" / "bin").mkdir(parents=True)
    (tmp_path / "closed").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}/closed/bin:{os.environ['PATH']}")
    with unprivileged():
        assert confinement.__wrapped__(load_settings()).closed is not None
