"""The state directory: closed to other users, whatever the umask was and whoever made it.

Root lets others pass through it and through `postgres`, and read nothing on the way: the account of the
embedded server has to reach its data. What a link in it points to is the operator's choice and is left alone.
"""

import os
import stat
from pathlib import Path
from typing import Final

from supervisor.errors import TenureError

DIRECTORIES: Final = ("artifacts", "libraries", "logins", "scm", "scm/mirrors", "serving", "thumbs")
# not `token`: one that others could read is refused
FILES: Final = ("embedded.json", "location", "lock", "postgresql.log", "postgresql.log.1")


class UnusableDirectory(TenureError):
    """the directory {path} cannot be used: {what}"""

    hint = "give it to the user that runs tenure, or choose another with TENURE_STATE_DIR"


def make_state_dir(state: Path) -> None:
    """Make it where it is missing, and the directories above it. Raises OSError where that cannot be done."""
    missing = [directory for directory in (state, *state.parents) if not directory.exists()]
    for directory in reversed(missing):
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o777 & ~_denied_above())
    if not state.is_dir():
        raise UnusableDirectory(path=state, what="it is not a directory")
    _refuse_foreign(state)


def close_state_dir(state: Path) -> list[Path]:
    """Close it, and what is ours below, to other users; return what could not be closed."""
    if not state.is_dir():
        return []
    _refuse_foreign(state)
    own = [state.resolve()] if state.stat().st_uid == os.geteuid() else []
    wanted = [(path, _denied_above()) for path in (*own, state / "postgres")]
    wanted += [(state / name, 0o077) for name in (*DIRECTORIES, *FILES)]
    return [path for path, denied in wanted if not _close(path, denied)]


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


def _close(path: Path, denied: int) -> bool:
    try:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & denied:
            path.chmod(stat.S_IMODE(mode) & ~denied)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
