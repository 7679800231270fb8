"""One PostgreSQL data directory with the project's schema in it; every server of every world is a copy.

Primary and standby are copies of the same directory, so they have one system identifier and need no base
backup. The directory is kept under a name made of what is in it (migrations, functions, the version of the
binaries), so it is made again exactly when one of these changes.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from schemas.migrate import migrate
from supervisor.cluster import Account, Cluster
from supervisor.embedded import DATABASE, USERS, Urls, new_passwords
from supervisor.embedded_home import WHEEL, account_for, binaries
from supervisor.wiring import lease_rights, task_types
from tests.chaos.place import PREFIX, ground

ROOT: Final = Path(__file__).parents[2]
KEPT: Final = 3
ACCESS: Final = "host all all samenet scram-sha-256\nhost replication all samenet scram-sha-256\n"


@dataclass(frozen=True)
class Template:
    data: Path
    binaries: Path
    account: Account | None
    passwords: dict[str, str]

    def urls(self, *addresses: tuple[str, int], attributes: str = "") -> Urls:
        """By role, to one server or to whichever of several is the primary."""
        built = Urls.build(self.passwords, 1, DATABASE)
        ends = ",".join(f"{host}:{port}" for host, port in addresses)
        if len(addresses) > 1:
            attributes = "?target_session_attrs=primary"
        return Urls(
            **{
                role: url.replace("127.0.0.1:1/", f"{ends}/") + attributes
                for role, url in vars(built).items()
            }
        )


def template() -> Template:
    """Made by whoever comes first; minutes later it costs nothing. Runs its own event loop: use a thread."""
    home = ground() / f"{PREFIX}template-{os.geteuid()}-{_digest()}"
    with _alone(home):
        facts = home / "facts.json"
        if not facts.exists():
            # whoever was killed while making it left a server that is not tied to anybody
            Cluster(home / "data", binaries=home, log=home / "log").stop()
            shutil.rmtree(home, ignore_errors=True)
            _make(home, facts)
    os.utime(home)
    _forget_old(home)
    account = account_for(home / "data") if os.geteuid() == 0 else None
    return Template(home / "data", _binaries(home, account), account, json.loads(facts.read_text()))


def _make(home: Path, facts: Path) -> None:
    home.mkdir(mode=0o711)
    home.chmod(0o711)
    account = account_for(home / "data") if os.geteuid() == 0 else None
    passwords = new_passwords()
    settings = {"max_connections": "400", "max_wal_size": "256MB", "min_wal_size": "32MB"}
    tools = _binaries(home, account)
    cluster = Cluster(home / "data", binaries=tools, log=home / "log", account=account, settings=settings)
    cluster.create(USERS["admin"], passwords["admin"])
    urls = Urls.build(passwords, cluster.start(), DATABASE)
    try:
        asyncio.run(
            migrate(urls.admin, runtime_urls=urls.runtime(), rights=lease_rights(), task_types=task_types())
        )
    finally:
        cluster.stop()
    with (home / "data" / "pg_hba.conf").open("a") as file:
        file.write(ACCESS)
    facts.touch(mode=0o600)
    facts.write_text(json.dumps(passwords))


def _binaries(home: Path, account: Account | None) -> Path:
    chosen = os.environ.get("TENURE_TEST_PG_BIN")
    return Path(chosen) if chosen else binaries(home, account)


def _digest() -> str:
    digest = hashlib.sha256(f"{version(WHEEL)} {os.environ.get('TENURE_TEST_PG_BIN')}".encode())
    for path in sorted(
        [*(ROOT / "schemas").rglob("*.sql"), *(ROOT / "actors").rglob("*.sql"), Path(__file__)]
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    with home.with_name(f"{home.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _forget_old(current: Path) -> None:
    """A world copies within a second of asking, so only the newest few are worth keeping."""
    pattern = f"{PREFIX}template-{os.geteuid()}-*"
    homes = [path for path in current.parent.glob(pattern) if path.is_dir() and path != current]
    for path in sorted(homes, key=lambda one: one.stat().st_mtime)[: -KEPT or None]:
        shutil.rmtree(path, ignore_errors=True)
        path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
