"""A directory that nothing is opened outside of.

    with library_root(libraries_dir, "photos") as root:
        fd = root.open_file("2024/a.jpg")

A relative path is text as of names.py, or the bytes themselves. No symbolic link is followed at any
component, also when somebody swaps a directory for a link at that moment (see openat.py). Files open
without blocking and are regular files, or `SpecialFile` is raised; every other reason is a `FileTrouble`
with a short code.

NOT guaranteed: that what was opened is still in the library a moment later. A descriptor follows its file.
"""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Self

from actors.dedup.names import BadPath, check_given, to_bytes, to_text
from actors.dedup.openat import open_beneath
from actors.dedup.trouble import EscapesLibrary, FileTrouble, SpecialFile, code_of

__all__ = ["Beneath", "EscapesLibrary", "FileTrouble", "SpecialFile", "library_root", "split"]

FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def _shown(path: str | bytes) -> str:
    if isinstance(path, str):
        return path
    return repr(path) if b"\0" in path else to_text(path)


def _bytes_of(path: str | bytes) -> bytes:
    """The path as bytes, each of its components a plain name."""
    try:
        raw = to_bytes(path) if isinstance(path, str) else path
    except ValueError as error:
        raise BadPath(path=ascii(path), why=str(error)) from None
    if b"\0" in raw:
        raise BadPath(path=_shown(path), why="it holds NUL")
    parts = raw.split(b"/")
    if b".." in parts or raw.startswith(b"/"):
        raise EscapesLibrary(path=_shown(path))
    if b"" in parts or b"." in parts:
        raise BadPath(path=_shown(path), why="a component names nothing")
    return raw


def split(path: str | bytes) -> tuple[bytes, bytes]:
    """The parent (empty for the directory itself) and the name."""
    parent, _, name = _bytes_of(path).rpartition(b"/")
    return parent, name


def trouble(path: str | bytes, error: OSError) -> FileTrouble:
    if error.errno == errno.ELOOP:
        return EscapesLibrary(path=_shown(path))
    return FileTrouble(path=_shown(path), code=code_of(error))


def never() -> bool:
    return False


class Beneath:
    """An open directory. Threads may share it; whoever made it closes it."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.should_stop: Callable[[], bool] = never
        """Asked by whoever reads much of it in one go; then `Stopped` is raised."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def open_file(self, relative: str | bytes) -> int:
        return self.open_regular(relative)[0]

    def open_regular(self, relative: str | bytes) -> tuple[int, os.stat_result]:
        """A regular file, and what it was when it was opened."""
        try:
            fd = open_beneath(self.fd, _bytes_of(relative), FILE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # a socket
                raise SpecialFile(path=_shown(relative)) from None
            raise trouble(relative, error) from None
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode):
            os.close(fd)
            raise SpecialFile(path=_shown(relative))
        return fd, facts

    def open_directory(self, relative: str | bytes = "") -> "Beneath":
        """A directory below; with no path, this directory again (a descriptor has one reading position)."""
        return Beneath(self.open_directory_at(relative))

    def open_directory_at(self, relative: str | bytes = "") -> int:
        try:
            if not relative:
                return os.open(".", DIRECTORY, dir_fd=self.fd)
            return open_beneath(self.fd, _bytes_of(relative), DIRECTORY)
        except OSError as error:
            raise trouble(relative, error) from None

    def make_directories(self, relative: str | bytes, mode: int = 0o700) -> "Beneath":
        """The directory at `relative`, made with those above it where they are missing."""
        here = self.open_directory()
        for part in _bytes_of(relative).split(b"/") if relative else ():
            with here:
                try:
                    os.mkdir(part, mode, dir_fd=here.fd)
                except FileExistsError:
                    pass
                except OSError as error:
                    raise trouble(relative, error) from None
                here = here.open_directory(part)
        return here


def library_root(libraries_dir: Path, root_path: str) -> Beneath:
    """The library at `root_path` below the libraries' directory, which alone may be a link."""
    check_given(root_path)
    try:
        above = os.open(libraries_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise FileTrouble(path=str(libraries_dir), code=code_of(error)) from None
    with Beneath(above) as libraries:
        return libraries.open_directory(root_path)
