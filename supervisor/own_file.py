"""Files that we believe or write to: plain, of one name, and made by us or by root.

Whoever could write to a directory for a while may have left a link, a pipe or a file of his own under a name
that we use later. So no link is followed, no pipe is waited for, and what was opened is looked at before use.
"""

import os
import stat
from pathlib import Path
from typing import IO, Final

_CAREFUL: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class NotOurs(OSError):
    """What lies at `filename` is not used; `strerror` says why."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(0, what, str(path))


def new_handle(path: Path) -> int:
    """Open a new file for this user alone; raises FileExistsError where anything has that name."""
    return careful_handle(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)


def new_file(path: Path) -> IO[str]:
    return os.fdopen(new_handle(path), "w")


def careful_handle(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open what is there and no link. The caller looks at what he got."""
    return os.open(path, flags | _CAREFUL, 0o600)


def own_handle(path: Path, flags: int = os.O_RDONLY, *owners: int) -> int:
    """Open a file of ours, of root, or of one of these owners. Raises NotOurs for anything else."""
    try:
        handle = careful_handle(path, flags)
    except FileNotFoundError:
        raise
    except OSError as error:
        try:
            complaint = complaint_of(path.lstat(), *owners)
        except FileNotFoundError:
            complaint = None
        if complaint is None:
            raise
        raise NotOurs(path, complaint) from error
    if complaint := complaint_of(os.fstat(handle), *owners):
        os.close(handle)
        raise NotOurs(path, complaint)
    return handle


def read_own(path: Path, *owners: int) -> str:
    with os.fdopen(own_handle(path, os.O_RDONLY, *owners)) as file:
        return file.read()


def complaint_of(found: os.stat_result, *owners: int) -> str | None:
    """Say why this is no file to use; None for one that is."""
    if foreign := foreigner_of(found, *owners):
        return foreign
    if stat.S_ISLNK(found.st_mode):
        return "it is a symbolic link"
    if not stat.S_ISREG(found.st_mode):
        return "it is no plain file"
    if found.st_nlink > 1:
        return "the same file has another name elsewhere (a hard link)"
    return None


def foreigner_of(found: os.stat_result, *owners: int) -> str | None:
    if found.st_uid in {0, os.geteuid(), *owners}:
        return None
    return f"another user owns it (uid {found.st_uid})"
