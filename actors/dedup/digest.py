"""The hash of a file's contents, of one unchanged state of it or not at all.

    result = hash_file(root, "2024/a.jpg", "blake3", (size, mtime_ns))      # Digest | Failure

The file is opened confined and looked at before and after it is read. If anything about it changed in
between, or the bytes read are not as many as it has, it is opened and hashed again, three times at most. A
file that was changed within the last second is waited for. A Digest names the state it belongs to: after a
repeat its size, mtime_ns and inode are newer than the expected ones, and whoever records it records them
together.

Failure codes: CHANGED_SINCE_SCAN (not what the caller expected), CHANGING (no two looks alike), STOPPED,
BAD_PATH and those of trouble.py. NOT detected: a single write that goes on for longer than that second, and
writes through a memory map that the kernel has not stamped yet.

Nothing is read through a memory map here (blake3's `update_mmap`): it takes a path, which would be resolved
again without confinement, and a file that is truncated meanwhile would end the replica with SIGBUS.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from actors.dedup.confine import FILE, Beneath, FileTrouble
from actors.dedup.hashing import SMALL_BYTES, Algorithm, hash_bytes, hash_open
from actors.dedup.listing import signed
from actors.dedup.names import BadPath
from actors.dedup.parents import Parents
from actors.dedup.trouble import code_of

Expected = tuple[int, int]  # size, mtime_ns
Item = tuple[str, int, int]  # path, size, mtime_ns

ATTEMPTS = 3
CLOCK_REALTIME_COARSE = 5  # what the kernel stamps files with
SECOND_NS = 1_000_000_000
QUIET_NS = SECOND_NS
POLL_SECONDS = 0.02


class Digest(NamedTuple):
    value: bytes
    size: int
    mtime_ns: int
    inode: int
    device: int
    whole: bool  # not a prefix of something longer


class Failure(NamedTuple):
    code: str


def never() -> bool:
    return False


def hash_file(
    root: Beneath,
    path: str | bytes,
    algorithm: Algorithm = "blake3",
    expected: Expected | None = None,
    *,
    prefix_bytes: int | None = None,
    should_stop: Callable[[], bool] = never,
) -> Digest | Failure:
    """The whole file, or its first `prefix_bytes`. `expected`: what the scan saw; None takes it as it is."""
    for attempt in range(ATTEMPTS):
        try:
            fd, before = root.open_regular(path)
        except BadPath:
            return Failure("BAD_PATH")
        except FileTrouble as error:
            return Failure(error.code)
        try:
            if attempt == 0 and expected is not None and (before.st_size, before.st_mtime_ns) != expected:
                return Failure("CHANGED_SINCE_SCAN")
            result = _hash_open(fd, before, algorithm, prefix_bytes, should_stop)
        except OSError as error:
            return Failure(code_of(error))
        finally:
            os.close(fd)
        if result is not None:
            return result
    return Failure("CHANGING")


def _hash_open(
    fd: int,
    before: os.stat_result,
    algorithm: Algorithm,
    prefix_bytes: int | None,
    should_stop: Callable[[], bool],
) -> Digest | Failure | None:
    """None where the file changed meanwhile."""
    if not _settled(fd, before.st_ctime_ns, should_stop):
        return Failure("STOPPED") if should_stop() else None
    size = before.st_size
    wanted = size if prefix_bytes is None else min(size, prefix_bytes)
    value = hash_open(fd, wanted, algorithm, should_stop, to_the_end=wanted == size)
    if value is None:
        return Failure("STOPPED") if should_stop() else None
    return _digest(value, before, os.fstat(fd), whole=wanted == size)


def _digest(value: bytes, before: os.stat_result, after: os.stat_result, *, whole: bool) -> Digest | None:
    """ctime is compared too: it cannot be set back, as mtime can. A rename moves it and costs a repeat."""
    mtime_ns, size = before.st_mtime_ns, before.st_size
    if after.st_mtime_ns != mtime_ns or after.st_ctime_ns != before.st_ctime_ns or after.st_size != size:
        return None
    return Digest(value, size, mtime_ns, signed(before.st_ino), signed(before.st_dev), whole)


def _settled(fd: int, stamp_ns: int, should_stop: Callable[[], bool]) -> bool:
    """Wait until the last change is a while ago; False where another one came.

    The kernel stamps a file when a write begins, with a clock of some milliseconds: a write that still goes
    on, and a second one in the same tick, would leave no trace. Some file systems count whole seconds, or
    two. A stamp of the future (another host's clock) is not waited for.
    """
    quiet_ns = QUIET_NS if stamp_ns % SECOND_NS else 2 * SECOND_NS
    while not should_stop():
        age_ns = time.clock_gettime_ns(CLOCK_REALTIME_COARSE) - stamp_ns
        if age_ns > quiet_ns or age_ns < -SECOND_NS:
            return True
        time.sleep(POLL_SECONDS)
        if os.fstat(fd).st_ctime_ns != stamp_ns:
            return False
    return False


def hash_files(
    root: Beneath,
    items: Iterable[Item],
    algorithm: Algorithm = "blake3",
    *,
    prefix_bytes: int | None = None,
    should_stop: Callable[[], bool] = never,
) -> list[Digest | Failure]:
    """A result for each item, in this thread. Items in the order of their paths cost the least."""
    results: list[Digest | Failure] = []
    settled_ns = time.clock_gettime_ns(CLOCK_REALTIME_COARSE) - 2 * SECOND_NS
    with Parents(root) as parents:
        for path, size, mtime_ns in items:
            if should_stop():
                results.append(Failure("STOPPED"))
                continue
            result = None
            wanted = size if prefix_bytes is None or size < prefix_bytes else prefix_bytes
            if wanted <= SMALL_BYTES:
                result = _hash_small(parents, path, (size, mtime_ns), wanted, algorithm, settled_ns)
            results.append(
                result
                or hash_file(
                    root,
                    path,
                    algorithm,
                    (size, mtime_ns),
                    prefix_bytes=prefix_bytes,
                    should_stop=should_stop,
                )
            )
    return results


def hash_unchanged(
    root: Beneath, items: Iterable[tuple[str, int, int, int]], algorithm: Algorithm
) -> list[bytes | None]:
    """Of small files (path, size, mtime_ns, inode) in the order of paths; None where it was not smooth."""
    settled_ns = time.clock_gettime_ns(CLOCK_REALTIME_COARSE) - 2 * SECOND_NS
    values: list[bytes | None] = []
    with Parents(root) as parents:
        for path, size, mtime_ns, inode in items:
            digest = _hash_small(parents, path, (size, mtime_ns), size, algorithm, settled_ns)
            values.append(digest.value if digest is not None and digest.inode == inode else None)
    return values


def _hash_small(
    parents: Parents, path: str, expected: Expected, wanted: int, algorithm: Algorithm, settled_ns: int
) -> Digest | None:
    """The smooth way for few bytes of a file as expected; None for all else: that is `hash_file`'s."""
    fd = parents.open(path, FILE)
    if fd is None:
        return None
    try:
        before = os.fstat(fd)
        if (before.st_size, before.st_mtime_ns) != expected or before.st_ctime_ns >= settled_ns:
            return None
        if not stat.S_ISREG(before.st_mode):
            return None
        whole = wanted == expected[0]
        data = os.read(fd, wanted + whole)
        if len(data) != wanted:
            return None
        return _digest(hash_bytes(data, algorithm), before, os.fstat(fd), whole=whole)
    except OSError:
        return None
    finally:
        os.close(fd)
