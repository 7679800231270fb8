"""The PostgreSQL server that a whole test run shares, and the databases on it.

The run's main process owns a directory (in memory where there is room) and names it in TENURE_TEST_ROOT; the
first test that wants a database starts the server under a file lock; the main process stops it at the end. A
killed run leaves its directory unlocked, and the next run clears it away. TENURE_TEST_PG_BIN chooses other
binaries, such as /usr/lib/postgresql/15/bin. fsync and synchronous_commit stay on: the product refuses a
server without them.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.cluster import Account, Cluster
from supervisor.embedded import USERS, Urls, new_passwords
from supervisor.embedded_home import account_for, binaries
from tests.support.slowness import ROOT

PREFIX = "tenure-test-"
ROOM_BYTES = 2_000_000_000
SETTINGS = {
    "autovacuum": "off",  # it would change statistics, and with them plans, in the middle of a test
    "max_connections": "400",
    "max_wal_size": "256MB",
    "shared_buffers": "256MB",
}


@dataclass(frozen=True)
class Server:
    port: int
    passwords: dict[str, str]

    def urls(self, database: str) -> Urls:
        return Urls.build(self.passwords, self.port, database)


def claim_root() -> int:
    """Make this run's directory; the returned file descriptor marks it as in use."""
    places = [Path("/dev/shm"), Path(tempfile.gettempdir())]  # noqa: S108  mkdtemp makes the name
    place = next((p for p in places if p.is_dir() and shutil.disk_usage(p).free > ROOM_BYTES), places[-1])
    _clear_leftovers(place)
    root = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
    root.chmod(0o711)
    os.environ[ROOT] = str(root)
    return _lock(root)


def release_root(lock: int) -> None:
    _clear(Path(os.environ.pop(ROOT)))
    os.close(lock)


def shared_server() -> Server:
    """The run's server, started by whoever comes first."""
    root = Path(os.environ[ROOT])
    facts = root / "server.json"
    with exclusively("server"):
        if not facts.exists():
            # A process of its own, so that no test process has the server for a child.
            subprocess.run([sys.executable, "-m", "tests.support.server", str(root)], check=True)
    return Server(**json.loads(facts.read_text()))


@contextmanager
def exclusively(name: str) -> Iterator[None]:
    """One process of this run at a time."""
    with (Path(os.environ[ROOT]) / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_cluster(root: Path, settings: dict[str, str] | None = None) -> Cluster:
    """A cluster in `root`, with the binaries under test, as an account that PostgreSQL accepts."""
    data = root / "data"
    account: Account | None = account_for(data) if os.geteuid() == 0 else None
    return Cluster(
        data,
        binaries=tools(root, account),
        log=root / "postgresql.log",
        account=account,
        settings={**SETTINGS, **(settings or {})},
    )


def tools(root: Path, account: Account | None = None) -> Path:
    """The binaries under test: those of the wheel, unless others are chosen."""
    chosen = os.environ.get("TENURE_TEST_PG_BIN")
    return Path(chosen) if chosen else binaries(root, account)


def own_root() -> Path:
    """A directory inside the run's, for a server that one test starts."""
    root = Path(tempfile.mkdtemp(prefix="own-", dir=os.environ[ROOT]))
    root.chmod(0o711)
    return root


def start_server(root: Path, settings: dict[str, str] | None = None) -> tuple[Cluster, Server]:
    cluster, passwords = open_cluster(root, settings), new_passwords()
    cluster.create(USERS["admin"], passwords["admin"])
    return cluster, Server(cluster.start(), passwords)


def _clear_leftovers(place: Path) -> None:
    for root in place.glob(f"{PREFIX}*"):
        try:
            if root.stat().st_uid != os.geteuid():
                continue
            lock = _lock(root)
        except (BlockingIOError, FileNotFoundError):
            continue
        _clear(root)
        os.close(lock)


def _clear(root: Path) -> None:
    for server in root.rglob("postmaster.pid"):
        Cluster(server.parent, binaries=root, log=root / "postgresql.log").stop()
    shutil.rmtree(root, ignore_errors=True)


def _lock(root: Path) -> int:
    lock = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise
    return lock


def main() -> None:
    root = Path(sys.argv[1])
    _, server = start_server(root)
    facts = root / "server.json"
    draft = facts.with_suffix(".new")
    draft.touch(mode=0o600)
    draft.write_text(json.dumps({"port": server.port, "passwords": server.passwords}))
    draft.replace(facts)


if __name__ == "__main__":
    main()
