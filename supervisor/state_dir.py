"""The state directory: closed to other users, whatever the umask was and whoever made it.

First it is closed, so that nobody else can put anything there any more; then what lies there already is
looked at, and what another user made is refused with words. Never the other way round: between a look and the
closing he could put it there again.

Root lets others pass through it and through `postgres`, and read nothing on the way: the account of the
embedded server has to reach its data. What a link of ours to a directory points to is the operator's choice
and is left alone.

Not guaranteed: that nothing was taken away, or put in another place, while others could write to it; that
what lies deeper than one level below our directories is ours; anything against the owners of the directories
above, or against the groups that may write to those.
"""

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from supervisor.errors import TenureError
from supervisor.own_file import complaint_of, foreigner_of
from supervisor.way_to import weak_step, writers

# what is above comes first: it is closed before anybody looks into it
DIRECTORIES: Final = ("artifacts", "libraries", "logins", "scm", "scm/mirrors", "serving", "thumbs")
# not `token`: one that others could read is refused
FILES: Final = ("embedded.json", "location", "lock", "postgresql.log", "postgresql.log.1")
# whose files lie there are the users' own business
_UNSEEN: Final = "libraries"
# what the embedded server's account owns below `postgres`
_SERVERS: Final = ("data", "data.new", "data.new.password")
SERVER_USERS: Final = ("postgres", "nobody")
"""Whom root runs an embedded server as: the first that there is."""


class UnusableDirectory(TenureError):
    """the directory {path} cannot be used: {what}"""

    hint = "give it to the user that runs tenure, or choose another with TENURE_STATE_DIR"


class UnusableEntry(UnusableDirectory):
    """{path} cannot be used: {what}"""

    hint = "move it away if it is not yours, or choose another directory with TENURE_STATE_DIR"


class OpenWay(UnusableDirectory):
    """the state directory {path} cannot be used: {what}"""

    hint = "close {above} to others (`chmod o-w`), or choose another directory with TENURE_STATE_DIR"


def make_state_dir(state: Path) -> None:
    """Make it where it is missing, and the directories above it. Raises OSError where that cannot be done."""
    _refuse_open_way(state)
    missing = [directory for directory in (state, *state.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        # another user may have been quicker
        if foreign := foreigner_of(directory.lstat()):
            raise UnusableDirectory(path=directory, what=foreign)
        directory.chmod(0o777 & ~_denied_above())
    if not state.is_dir():
        raise UnusableDirectory(path=state, what="it is not a directory")
    _refuse_foreign(state)


def close_state_dir(state: Path) -> list[Path]:
    """Close it, and what is ours below, to other users; return what could not be closed.

    Raises UnusableDirectory for what others may still write to, and for what they made.
    """
    _refuse_open_way(state)
    if not state.is_dir():
        return []
    _refuse_foreign(state)
    was_open = is_open(state)
    own = [state.resolve()] if state.stat().st_uid == os.geteuid() else []
    left = [path for path in own if not _close(path, _denied_above())]
    _refuse_open(state)
    for name in ("postgres", *DIRECTORIES):
        path = state / name
        spoilt = was_open or is_open(path)
        left += _take_directory(path, _denied_above() if name == "postgres" else 0o077)
        if name != _UNSEEN:
            _refuse_foreign_below(path)
        if name == "logins" and spoilt:
            _empty(path)
    return left + [state / name for name in FILES if not _take_file(state / name)]


def server_accounts() -> frozenset[int]:
    """Return who may own the data of an embedded server beside us."""
    if os.geteuid() != 0:
        return frozenset()
    found = set()
    for name in SERVER_USERS:
        with suppress(KeyError):
            found.add(pwd.getpwnam(name).pw_uid)
    return frozenset(found)


def is_open(directory: Path) -> bool:
    """Whether it is there, and other users may put things into it."""
    return directory.is_dir() and writers(directory) is not None


def is_private(directory: Path) -> bool:
    """Whether it is there, and this user's alone. Asked at each use: others may write to what is above it."""
    try:
        found = directory.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def private_dir(directory: Path) -> Path:
    """Return the directory, made where it is missing; raises where other users have a part in it."""
    directory.mkdir(mode=0o700, exist_ok=True)
    if not is_private(directory):
        raise UnusableDirectory(path=directory, what="another user owns it or can enter it")
    return directory


def refuse_shared(state: Path) -> None:
    """For what is believed because it lies there: nobody else may put something in its place."""
    found = state.stat()
    if found.st_uid != os.geteuid() and found.st_mode & stat.S_IWOTH:
        raise UnusableDirectory(path=state, what="root owns it and every user may write to it")


def _denied_above() -> int:
    return 0o066 if os.geteuid() == 0 else 0o077


def _refuse_foreign(state: Path) -> None:
    # root's is fine: a container's volume is
    if (owner := state.stat().st_uid) not in (0, os.geteuid()):
        raise UnusableDirectory(path=state, what=f"it belongs to another user (uid {owner})")


def _refuse_open(directory: Path) -> None:
    """Refuse what others may still write to: root's, or a directory on a disk that knows no modes."""
    if who := writers(directory):
        raise UnusableDirectory(path=directory, what=f"{who} may write to it, and this user may not close it")


def _refuse_open_way(state: Path) -> None:
    if weak := weak_step(state):
        raise OpenWay(path=state, above=weak.path, what=weak.what)


def _take_directory(path: Path, denied: int) -> list[Path]:
    """Close a directory that we use; return it where that could not be done."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return []
    if foreign := foreigner_of(found):
        raise UnusableEntry(path=path, what=foreign)
    if stat.S_ISLNK(found.st_mode):
        if path.exists() and not path.is_dir():
            raise UnusableEntry(path=path, what="it leads to what is not a directory")
        return []
    if not stat.S_ISDIR(found.st_mode):
        raise UnusableEntry(path=path, what="it is not a directory")
    closed = _close(path, denied)
    _refuse_open(path)
    return [] if closed else [path]


def _refuse_foreign_below(directory: Path) -> None:
    """One level: mirrors and artifacts have too many files for more."""
    if not directory.is_dir() or directory.is_symlink():
        return
    with suppress(PermissionError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                owners = server_accounts() if entry.name in _SERVERS else ()
                if foreign := foreigner_of(entry.stat(follow_symlinks=False), *owners):
                    raise UnusableEntry(path=entry.path, what=foreign)


def _empty(logins: Path) -> None:
    """A name there lets somebody in, and whoever could write there may have chosen it."""
    if is_private(logins):
        for path in logins.iterdir():
            with suppress(IsADirectoryError, PermissionError, FileNotFoundError):
                path.unlink()


def _take_file(path: Path) -> bool:
    """Close a file that we use; False where that could not be done."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return True
    if complaint := complaint_of(found):
        raise UnusableEntry(path=path, what=complaint)
    return _close(path, 0o077)


def _close(path: Path, denied: int) -> bool:
    """Nobody else can change what the path leads to: what is above it is closed."""
    try:
        mode = path.lstat().st_mode
        if mode & denied:
            path.chmod(stat.S_IMODE(mode) & ~denied)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
