"""Who else may write to a directory, or put another in its place: by modes and owners, and without a change.

Not guaranteed: anything against the owners of the directories above, and the groups that may write to those.
Groups of one user are common, and nobody but the operator knows who is in the others.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

_LINKS: Final = 40  # as many as the kernel follows


class Step(NamedTuple):
    path: Path
    what: str


def writers(directory: Path) -> str | None:
    """Name others who may put things into a directory, as it is now; None where there are none.

    Not guaranteed: anything against others of a group that we are in ourselves. A volume that root owns and
    that a container may write to is its group's.
    """
    found = directory.stat()
    if _is_everybodys(directory, found):
        return "every user"
    if found.st_mode & stat.S_IWGRP and found.st_gid not in _own_groups():
        return f"a group (gid {found.st_gid})"
    return None


def weak_step(path: Path) -> Step | None:
    """Return the first link or directory on the way that lets other users put another directory there."""
    holder = Path("/").lstat()
    for step, found, is_above in _way(path):
        if stat.S_ISLNK(found.st_mode):
            # the rule of fs.protected_symlinks
            if found.st_uid not in (0, os.geteuid(), holder.st_uid):
                return Step(step, f"the link {step} belongs to another user (uid {found.st_uid})")
            continue
        holder = found
        if is_above and not found.st_mode & stat.S_ISVTX and _is_everybodys(step, found):
            return Step(step, f"every user may write to {step}, and put another directory in its place")
    return None


def _is_everybodys(directory: Path, found: os.stat_result) -> bool:
    return bool(found.st_mode & stat.S_IWOTH) and not _is_volume(directory, found)


def _is_volume(directory: Path, found: os.stat_result) -> bool:
    """Whether it is a volume that a container was given by its group.

    Kubernetes makes an emptyDir 0777, and with fsGroup 2777 root:GID. Users of the node cannot reach it. Not
    guaranteed there: anything against other users of the same pod.
    """
    return bool(
        found.st_uid == 0
        and found.st_mode & stat.S_ISGID
        and found.st_gid in _own_groups()
        and directory.is_mount()
    )


def _own_groups() -> set[int]:
    return {os.getegid(), *os.getgroups()}


def _way(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield the directories and links that lead there, and what it is itself, as far as there is anything.

    The last of the three says whether something below was asked for.
    """
    here, links, rest = Path("/"), 0, [*reversed(path.absolute().parts[1:])]
    yield here, here.lstat(), bool(rest)
    while rest and links <= _LINKS:
        step = here / rest.pop()
        try:
            found = step.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        if stat.S_ISLNK(found.st_mode):
            target, links = step.readlink(), links + 1
            here = Path("/") if target.is_absolute() else here
            rest += reversed([part for part in target.parts if part != "/"])
        else:
            here = step
        yield step, found, bool(rest)
