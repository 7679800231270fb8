"""Moving a file between two confined directories: the file that was meant, onto nothing, or not at all."""

import os
import stat

from actors.dedup.confine import Beneath, FileTrouble, SpecialFile, split, trouble
from actors.dedup.names import to_text
from actors.dedup.openat import rename_noreplace


def move_beneath(
    source: Beneath,
    path: str | bytes,
    target: Beneath,
    new_path: str | bytes,
    *,
    expected: tuple[int, int] | None = None,
) -> os.stat_result:
    """Rename `path` to `new_path`, whose parent directories are made. Never replaces a file.

    `expected` is the (device, inode) that the caller has looked into, as of os.stat: if another file has
    taken its name, it stays where it is (moved back where it was swapped in the last instant) and CHANGED
    is raised.
    """
    parent, name = split(path)
    new_parent, new_name = split(new_path)
    with source.open_directory(parent) as here:
        _check(here, name, expected)
        with target.make_directories(new_parent) as there:
            try:
                rename_noreplace(here.fd, name, there.fd, new_name)
            except OSError as error:
                raise trouble(path, error) from None
            try:
                return _check(there, new_name, expected)
            except FileTrouble:
                rename_noreplace(there.fd, new_name, here.fd, name)
                raise


def _check(directory: Beneath, name: bytes, expected: tuple[int, int] | None) -> os.stat_result:
    try:
        facts = os.stat(name, dir_fd=directory.fd, follow_symlinks=False)
    except OSError as error:
        raise trouble(name, error) from None
    if not stat.S_ISREG(facts.st_mode):
        raise SpecialFile(path=to_text(name))
    if expected is not None and (facts.st_dev, facts.st_ino) != expected:
        raise FileTrouble(path=to_text(name), code="CHANGED")
    return facts
