"""One PostgreSQL data directory and the server on it, driven by `initdb` and `postgres` themselves.

Contract: the caller holds whatever lock makes it the only driver of the directory. The server answers on
loopback TCP, with passwords, and nowhere else. It lives in its own session, so a terminal's Ctrl-C does not
reach it, and it outlives a driver that is killed: the next `start` takes it over.
PostgreSQL refuses to run as root; an `Account` names whom it runs as then.
"""

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from supervisor.errors import TenureError
from supervisor.own_file import careful_handle, new_file

LOOPBACK = "127.0.0.1"
START_SECONDS = 300  # crash recovery may have much to replay
STOP_SECONDS = 60
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "password_encryption": "scram-sha-256",
    "fsync": "on",
    "synchronous_commit": "on",
    "wal_level": "replica",
    "max_connections": "200",
    "shared_buffers": "128MB",
    # in files of its data: what lies under a name in /dev/shm, every program of its user can change
    "dynamic_shared_memory_type": "mmap",
    "max_wal_size": "1GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_line_prefix": "%m [%p] %q%u@%d %a: ",
    "cluster_name": "tenure",
}


class WrongMajor(TenureError):
    """{data} belongs to PostgreSQL {found}, and the server here is PostgreSQL {ours}"""

    hint = (
        "go on with the release that made it, or dump it there and move {data} and `embedded.json` away to"
        " begin anew"
    )


class ServerFailed(TenureError):
    """{step} of the embedded PostgreSQL failed: {tail}"""

    hint = "look at {log}; usual causes are a full disk (`df -h`) and too little memory"


@dataclass(frozen=True)
class Account:
    """Whom the server runs as, when not as ourselves."""

    uid: int
    gid: int

    def own(self, path: Path | int) -> None:
        os.chown(path, self.uid, self.gid)


class Cluster:
    def __init__(
        self,
        data: Path,
        *,
        binaries: Path,
        log: Path,
        account: Account | None = None,
        settings: Mapping[str, str] = {},
    ) -> None:
        self.data = data.resolve()
        self.port = 0
        self._binaries = binaries
        self._log = log
        self._account = account
        self._settings = {**SETTINGS, **settings}
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def exists(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    def create(self, superuser: str, password: str) -> None:
        """Run initdb beside the final place and rename, so that a killed initdb leaves nothing half made."""
        half_made = self.data.with_name(self.data.name + ".new")
        shutil.rmtree(half_made, ignore_errors=True)
        half_made.mkdir(mode=0o700)
        secret = half_made.with_name(f"{half_made.name}.password")
        secret.unlink(missing_ok=True)
        with new_file(secret) as file:
            file.write(password)
        if self._account:
            self._account.own(half_made)
            self._account.own(secret)
        options = [
            "-U",
            superuser,
            f"--pwfile={secret}",
            "--auth=scram-sha-256",
            "-E",
            "UTF8",
            *self._locale(),
        ]
        command = [self._tool("initdb"), "-D", half_made, *options, "--data-checksums", "--no-instructions"]
        try:
            self._run("initdb", command)
            half_made.rename(self.data)
        finally:
            secret.unlink(missing_ok=True)
            shutil.rmtree(half_made, ignore_errors=True)

    def start(self, port: int = 0) -> int:
        """Return the port of the server: one found running, else a new one, on `port` where that is free."""
        self._refuse_other_major()
        if (pid := self.postmaster()) is not None:
            self._await_ready(pid)
            return self.port
        for patience in (5, 4, 3, 2, 1, 0):
            self.port = _free_port(port)
            try:
                self._launch()
            except ServerFailed as failure:
                # The port went to another process, or the last backends of a killed server are still leaving.
                passing = re.search("Address already in use|is still in use", str(failure))
                if not passing or patience == 0:
                    raise
                time.sleep(0.5)
            else:
                break
        return self.port

    def stop(self) -> None:
        """Fast shutdown: sessions end, everything is on disk. What does not stop in time is stopped hard."""
        pid = self.postmaster()
        if pid is None:
            return
        for signum in (signal.SIGINT, signal.SIGQUIT):
            if _signal_and_wait(pid, signum, STOP_SECONDS):
                break
        if self._child is not None:
            self._child.wait()
            self._child = None

    def postmaster(self) -> int | None:
        """The pid of the server that is running on this directory, whoever started it."""
        lines = self._pid_file()
        pid = int(lines[0]) if lines and lines[0].isdigit() else 0
        return pid if pid and self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        process = Path(f"/proc/{pid}")
        try:
            if os.fsencode(self.data) in (process / "cmdline").read_bytes().split(b"\0"):
                return True
            # Started under another name of the same directory: a server works inside its data.
            return (process / "cwd").samefile(self.data)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return False

    def _launch(self) -> None:
        # The pid file of a killed server may name another process by now, which PostgreSQL would take for a
        # server. Whether a backend is still on the data it finds out by other means, from shared memory.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        self._write_settings()
        with _appended(self._log) as log:
            self._child = subprocess.Popen(
                [self._tool("postgres"), "-D", self.data],
                cwd="/",
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._as_account(),
            )
        self._await_ready(self._child.pid)

    def _await_ready(self, pid: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            lines = self._pid_file()
            if len(lines) > 7 and lines[0] == str(pid) and lines[7].startswith(("ready", "standby")):
                self.port = int(lines[3])
                return
            if self._child is not None and self._child.poll() is not None:
                self._child = None
                raise ServerFailed(step="the start", tail=_tail(self._log), log=self._log)
            if self._child is None and not _alive(pid):
                raise ServerFailed(step="the start", tail=_tail(self._log), log=self._log)
            time.sleep(0.02)
        raise ServerFailed(step="the start", tail=f"not ready after {START_SECONDS} s", log=self._log)

    def _pid_file(self) -> list[str]:
        try:
            return [line.strip() for line in (self.data / "postmaster.pid").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def _write_settings(self) -> None:
        path = self.data / "postgresql.conf"
        lines = [
            f"{name} = '{value}'\n" for name, value in {**self._settings, "port": str(self.port)}.items()
        ]
        # The server's account owns the directory, and could have put a link there: the file is a new one.
        path.unlink(missing_ok=True)
        with new_file(path) as file:
            file.write("# Written at every start; use ALTER SYSTEM for changes that stay.\n" + "".join(lines))
            if self._account:
                self._account.own(file.fileno())

    def _refuse_other_major(self) -> None:
        found, ours = (self.data / "PG_VERSION").read_text().strip(), str(self._major())
        if found != ours:
            raise WrongMajor(data=self.data, found=found, ours=ours)

    def _major(self) -> int:
        version = self._run("postgres --version", [self._tool("postgres"), "--version"])
        match = re.search(r"\) (\d+)", version)
        if match is None:
            raise ServerFailed(step="postgres --version", tail=version, log=self._log)
        return int(match[1])

    def _locale(self) -> list[str]:
        return (
            ["--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"]
            if self._major() >= 17
            else ["--locale=C"]
        )

    def _tool(self, name: str) -> Path:
        return self._binaries / name

    def _as_account(self) -> dict[str, Any]:
        if self._account is None:
            return {}
        return {"user": self._account.uid, "group": self._account.gid, "extra_groups": []}

    def _run(self, step: str, command: list[Any]) -> str:
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command,
                cwd="/",
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                check=False,
                **self._as_account(),
            )
        except OSError as error:
            raise ServerFailed(step=step, tail=str(error), log=self._log) from error
        if done.returncode != 0:
            with _appended(self._log) as log:
                log.write((done.stdout + done.stderr).encode())
            raise ServerFailed(step=step, tail=_tail(self._log), log=self._log)
        return done.stdout


def _free_port(preferred: int) -> int:
    for port in (preferred, 0):
        with socket.socket() as probe, suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((LOOPBACK, port))
            return int(probe.getsockname()[1])
    raise ServerFailed(step="choosing a port", tail=f"no free port on {LOOPBACK}", log="`ss -ltn`")


def _signal_and_wait(pid: int, signum: signal.Signals, seconds: float) -> bool:
    """Through a pidfd: it names this very process, and tells the end of one that is not our child."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        signal.pidfd_send_signal(process, signum)
        return bool(select.select([process], [], [], seconds)[0])
    except ProcessLookupError:
        return True
    finally:
        os.close(process)


def _alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def _appended(log: Path) -> IO[bytes]:
    return os.fdopen(careful_handle(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def _tail(log: Path, lines: int = 8) -> str:
    try:
        with os.fdopen(careful_handle(log), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 8192))
            return "\n  ".join(["", *file.read().decode(errors="replace").splitlines()[-lines:]])
    except FileNotFoundError:
        return "no log"
