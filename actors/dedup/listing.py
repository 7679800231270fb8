"""One directory: its names in order, and the facts of a stretch of them.

Names are read first and sorted; facts are taken a stretch at a time, so a directory of millions of files
costs its names in memory and nothing more. Links are counted and left alone; directories are told by what
the directory itself says (d_type), everything else by its facts.
"""

import os
import stat
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from actors.dedup.confine import Beneath, FileTrouble, never
from actors.dedup.names import from_os, to_bytes
from actors.dedup.trouble import Stopped, code_of

STRETCH = 5000
ASK_EVERY = 100  # names, between two looks whether to stop
LARGEST = (1 << 63) - 1
TRASH = ".tenure-trash"


Row = tuple[str, int, int, int, int]  # path, size, mtime_ns, inode, device


@dataclass(frozen=True, slots=True)
class Fault:
    """What could not be looked at: nothing is known of `path`, nor of anything beneath `path + '/'`.

    An empty path is the library itself.
    """

    path: str
    code: str


@dataclass(slots=True)
class Facts:
    """The regular files among a stretch of names, in order; `upto` is the path of the stretch's last name."""

    upto: str
    found: list[Row] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    skipped: int = 0


@dataclass(slots=True)
class Listing:
    """`prefix` is its path with a `/`, empty for the root; `code` says why it could not be read."""

    prefix: str
    files: list[str] = field(default_factory=list)
    directories: list[str] = field(default_factory=list)  # each with its `/`, in the order of what is beneath
    skipped: int = 0
    identity: tuple[int, int] = (0, 0)
    code: str | None = None
    facts: Facts | None = None  # of all its files, where they are few


def signed(number: int) -> int:
    """Inodes and devices are unsigned; the database's bigint is not."""
    return number - (1 << 64) if number > LARGEST else number


def list_directory(root: Beneath, prefix: str, after: str = "") -> Listing:
    """The directory, without what lies wholly at or before the path `after`."""
    if root.should_stop():
        raise Stopped(path=prefix)
    listing = Listing(prefix)
    try:
        directory = root.open_directory(prefix[:-1])
    except FileTrouble as error:
        listing.code = _lasting(error)
        return listing
    with directory:
        try:
            _read(listing, directory.fd)
        except OSError as error:
            return Listing(prefix, code=code_of(error))
        listing.files.sort()
        listing.directories.sort()
        if after.startswith(prefix):
            _leave_out(listing, after[len(prefix) :])
        if len(listing.files) <= STRETCH:
            listing.facts = take_facts(directory.fd, prefix, listing.files, root.should_stop)
    return listing


def _lasting(error: FileTrouble) -> str | None:
    """A directory that is gone, or none any more, has nothing beneath it: that is knowledge, not a fault."""
    return None if error.code in ("NOT_FOUND", "NOT_A_DIRECTORY") else error.code


def _leave_out(listing: Listing, rest: str) -> None:
    del listing.files[: bisect_right(listing.files, rest)]
    listing.directories = [name for name in listing.directories if name > rest or rest.startswith(name)]


def _read(listing: Listing, fd: int) -> None:
    facts = os.fstat(fd)
    listing.identity = (facts.st_dev, facts.st_ino)
    files, directories = listing.files, listing.directories
    with os.scandir(fd) as entries:
        for entry in entries:
            name = entry.name
            if not name.isascii():
                name = from_os(name)
            if entry.is_dir(follow_symlinks=False):
                if name == TRASH and not listing.prefix:
                    listing.skipped += 1
                else:
                    directories.append(name + "/")
            elif entry.is_symlink():
                listing.skipped += 1
            else:
                files.append(name)


def steps(root: Beneath, listing: Listing) -> Iterator[Facts | str]:
    """What is in the directory, in the order of whole paths: facts of files, and prefixes of directories."""
    done = 0
    for directory in listing.directories:
        turn = bisect_left(listing.files, directory, done)
        yield from _stretches(root, listing, done, turn)
        yield listing.prefix + directory
        done = turn
    yield from _stretches(root, listing, done, len(listing.files))


def _stretches(root: Beneath, listing: Listing, start: int, stop: int) -> Iterator[Facts]:
    if listing.facts is None:
        for at in range(start, stop, STRETCH):
            yield _facts_later(root, listing, listing.files[at : min(at + STRETCH, stop)])
    elif stop - start == len(listing.files) > 0:
        yield listing.facts
    elif start < stop:
        yield _part(
            listing.facts, listing.prefix + listing.files[start], listing.prefix + listing.files[stop - 1]
        )


def _path(row: Row) -> str:
    return row[0]


def _part(facts: Facts, first: str, last: str) -> Facts:
    start, stop = bisect_left(facts.found, first, key=_path), bisect_right(facts.found, last, key=_path)
    faults = [fault for fault in facts.faults if first <= fault.path <= last]
    skipped, facts.skipped = facts.skipped, 0
    return Facts(last, facts.found[start:stop], faults, skipped)


def _facts_later(root: Beneath, listing: Listing, names: Sequence[str]) -> Facts:
    """The facts of names of a directory that was too large to take them all at once."""
    try:
        directory = root.open_directory(listing.prefix[:-1])
    except FileTrouble as error:
        code, upto = _lasting(error), listing.prefix + names[-1]
        return Facts(upto, faults=[Fault(listing.prefix[:-1], code)] if code else [])
    with directory:
        return take_facts(directory.fd, listing.prefix, names, root.should_stop)


def take_facts(fd: int, prefix: str, names: Sequence[str], should_stop: Callable[[], bool] = never) -> Facts:
    facts = Facts(prefix + names[-1] if names else prefix)
    add, look, regular = facts.found.append, os.stat, stat.S_IFREG
    for number, name in enumerate(names):
        if not number % ASK_EVERY and should_stop():
            raise Stopped(path=prefix)
        try:
            its = look(name if name.isascii() else to_bytes(name), dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            continue
        except OSError as error:
            facts.faults.append(Fault(prefix + name, code_of(error)))
            continue
        if its.st_mode & 0o170000 != regular:
            facts.skipped += 1
            continue
        inode, device = its.st_ino, its.st_dev
        if inode > LARGEST or device > LARGEST:
            inode, device = signed(inode), signed(device)
        add((prefix + name, its.st_size, its.st_mtime_ns, inode, device))
    return facts
