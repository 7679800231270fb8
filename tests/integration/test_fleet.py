"""The parent of several replicas: it starts, restarts and drains them, and takes them along when it dies."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from supervisor.api import PortInUse
from supervisor.config import load_settings
from supervisor.embedded import EmbeddedPostgres, Urls, read_urls
from supervisor.fleet import run_fleet
from tests.support.eventually import eventually
from tests.support.place import value
from tests.support.ports import free_port
from tests.support.replica import timings
from tests.support.server import own_root
from tests.support.slowness import patient, stretch

PARENT = (
    "import sys; from supervisor import umask; from supervisor.config import load_settings;"
    "from supervisor.fleet import run_fleet; umask.restrict();"
    "replica = [sys.executable, '-m', 'tests.support.stand_in'];"
    "sys.exit(run_fleet(load_settings(http_port=0), 3, command=replica))"
)
STAND_INS = (sys.executable, "-c", PARENT)
UMASK = 0o027
SAMPLE = (sys.executable, "-m", "supervisor.cli", "up", "--replicas", "3", "--sample", "--port", "0")


class Parent:
    """A fleet's parent in a process of its own, with stand-ins for replicas."""

    def __init__(self, process: subprocess.Popen[bytes], directory: Path) -> None:
        self.process = process
        self.directory = directory

    def replicas(self) -> dict[int, int]:
        """pid -> port of the stand-ins that are alive."""
        found = [path.name.split(".") for path in self.directory.glob("*.*") if path.name[0].isdigit()]
        return {int(pid): int(port) for port, pid in found if pid.isdigit() and _alive(int(pid))}

    def given(self, pid: int) -> dict[str, str]:
        given: dict[str, str] = json.loads(next(self.directory.glob(f"*.{pid}")).read_text())
        return given

    def output(self) -> str:
        return (self.directory / "output").read_text()

    def lives(self) -> None:
        """A wait for what a dead parent should do ends at once."""
        if self.process.poll() is not None:
            pytest.fail(f"it ended with {self.process.returncode}: {self.output()}")

    async def announced(self) -> None:
        def announced() -> bool:
            self.lives()
            return "is up" in self.output()

        await eventually(announced, timeout=90)

    async def up(self) -> dict[int, int]:
        await self.announced()
        assert len(self.replicas()) == 3
        return self.replicas()


@contextmanager
def parent(directory: Path, command: Sequence[str] = STAND_INS, **env: str) -> Iterator[Parent]:
    settings = {"STAND_IN_DIR": str(directory), "TENURE_STATE_DIR": str(directory / "state"), **env}
    with (directory / "output").open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**os.environ, **settings},
            stdout=output,
            stderr=subprocess.STDOUT,
            umask=UMASK,
        )
    started = Parent(process, directory)
    try:
        yield started
    finally:
        process.kill()
        process.wait()


async def test_three_replicas_with_the_urls_of_their_roles_are_replaced_and_drain_on_sigterm(
    database: Urls, tmp_path: Path
) -> None:
    """A replica that dies is replaced by a new process on its port."""
    with parent(tmp_path, TENURE_DATABASE_URL=database.control, TENURE_SLOTS="3") as fleet:
        replicas = await fleet.up()
        assert len(set(replicas.values())) == 3
        given = fleet.given(next(iter(replicas)))
        assert (given["TENURE_DATABASE_URL"], given["TENURE_SLOTS"]) == (database.control, "3")
        assert all(f":{port}/" in fleet.output() for port in replicas.values())
        umasks = {_umask(pid) for pid in (fleet.process.pid, *replicas)}
        assert umasks == {0o077, UMASK}, "a replica closes its files itself, and has what commands get"

        victim = next(iter(replicas))
        os.kill(victim, signal.SIGKILL)
        await eventually(lambda: len(fleet.replicas().keys() - replicas.keys()) == 1, timeout=20)
        assert sorted(fleet.replicas().values()) == sorted(replicas.values())

        fleet.process.terminate()
        assert fleet.process.wait(patient(20)) == 0
        assert not fleet.replicas()


async def test_replicas_die_with_a_killed_parent(database: Urls, tmp_path: Path) -> None:
    with parent(tmp_path, TENURE_DATABASE_URL=database.control) as fleet:
        await fleet.up()
        fleet.process.kill()
        await eventually(lambda: not fleet.replicas(), what="the end of the replicas")


async def test_signals_two_and_three_end_what_does_not_drain(database: Urls, tmp_path: Path) -> None:
    """The third kills at once, and the exit code tells that it was no clean stop."""
    with parent(tmp_path, TENURE_DATABASE_URL=database.control, STAND_IN_DEAF="1") as fleet:
        await fleet.up()
        for word in ("draining", "without grace", "killing"):
            fleet.process.send_signal(signal.SIGINT)
            await eventually(partial(_contains, fleet, word))
        assert fleet.process.wait(patient(10)) == 1
        assert not fleet.replicas()


async def test_a_drain_that_takes_too_long_is_ended(database: Urls, tmp_path: Path) -> None:
    quick = {"TENURE_DRAIN_SECONDS": "0", "TENURE_STOP_BOUND_SECONDS": "7", "TENURE_SELF_STOP_SECONDS": "4"}
    quick |= {
        "TENURE_HEARTBEAT_SECONDS": "0.5",
        "TENURE_CONFIRM_AFTER_SECONDS": "1.5",
        "TENURE_KILL_SECONDS": "1",
    }
    with parent(tmp_path, TENURE_DATABASE_URL=database.control, STAND_IN_DEAF="1", **quick) as fleet:
        await fleet.up()
        fleet.process.terminate()
        assert fleet.process.wait(patient(20)) == 1
        assert not fleet.replicas()


def test_replicas_that_refuse_their_settings_are_not_restarted(database: Urls, tmp_path: Path) -> None:
    with parent(tmp_path, TENURE_DATABASE_URL=database.control, STAND_IN_EXIT="2") as fleet:
        assert fleet.process.wait(patient(20)) == 2
        assert len(list(tmp_path.glob("*.[0-9]*"))) <= 3


def test_a_port_in_use_is_named_before_anything_starts(tmp_path: Path) -> None:
    port = free_port(3)
    with socket.create_server(("127.0.0.1", port + 1)), pytest.raises(PortInUse, match=str(port + 1)):
        run_fleet(load_settings(http_port=port, state_dir=tmp_path), 3)
    assert not list(tmp_path.iterdir())


async def test_the_embedded_database_lives_and_stops_with_the_fleet(tmp_path: Path) -> None:
    """Migrated first, restarted on its port when it is killed; replicas never see the superuser."""
    root = own_root()
    with parent(root) as fleet:
        given = fleet.given(next(iter(await fleet.up())))
        urls = read_urls(root / "state")
        assert urls
        assert given["TENURE_DATABASE_URL"] == urls.control
        assert given["TENURE_WORKER_DATABASE_URL"] == urls.worker
        assert urls.admin not in given.values()
        with pytest.raises(Exception, match="another process"):
            EmbeddedPostgres(root / "state").start()
        pid_file = root / "state" / "postgres" / "data" / "postmaster.pid"
        first = int(pid_file.read_text().splitlines()[0])
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: not _alive(first))
        await eventually(lambda: read_urls(root / "state") == urls, timeout=20, what="the server's return")
        fleet.process.terminate()
        assert fleet.process.wait(patient(20)) == 0
        assert read_urls(root / "state") is None


async def test_the_sample_runs_on_three_real_replicas_under_one_leader() -> None:
    """What `make run` starts: one leader, three active replicas, runs that succeed, a drain on Ctrl-C."""
    root = own_root()
    with parent(root, SAMPLE, TENURE_DRAIN_SECONDS="1", **timings(stretch())) as fleet:
        await eventually(partial(_contains, fleet, "is up"), timeout=90)

        def status() -> dict[str, Any]:
            fleet.lives()
            return _status(root / "state")

        urls = read_urls(root / "state")
        assert urls
        done = "SELECT count(*) >= 4 FROM supervisor.job_run WHERE state = 'SUCCEEDED'"
        # asked here, since each `tenure status` takes as long as the whole work
        await eventually(lambda: value(urls.control, done), timeout=40, interval=0.2)
        await eventually(lambda: status()["runs"]["SUCCEEDED"] >= 4, interval=0.5)
        now = status()
        assert [replica["state"] for replica in now["replicas"]] == ["active"] * 3
        assert now["leader"]["worker_id"] in {replica["worker_id"] for replica in now["replicas"]}
        fleet.process.send_signal(signal.SIGINT)
        assert fleet.process.wait(patient(30)) == 0, fleet.output()
    assert read_urls(root / "state") is None


def _status(state: Path) -> dict[str, Any]:
    shown = subprocess.run(
        [sys.executable, "-m", "supervisor.cli", "status", "--json"],
        env={**os.environ, "TENURE_STATE_DIR": str(state)},
        capture_output=True,
        check=True,
    )
    answer: dict[str, Any] = json.loads(shown.stdout)
    return answer


def _contains(fleet: Parent, word: str) -> bool:
    return word in fleet.output()


def _umask(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1], 8) for line in status.splitlines() if line.startswith("Umask:"))


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
