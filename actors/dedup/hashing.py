"""Contents into hashes: bytes at hand, or an open file through one buffer a thread."""

import hashlib
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, Protocol

from blake3 import blake3

Algorithm = Literal["blake3", "sha256"]

SMALL_BYTES = 64 * 1024  # read at once
CHUNK_BYTES = 1024 * 1024
# From here on blake3 uses all cores, which pays with chunks that are this wide; but not where other files
# keep the cores busy: one thread a file does more then.
WIDE_BYTES = 16 * 1024 * 1024
WIDE_CHUNK_BYTES = 4 * 1024 * 1024
CORES = os.cpu_count() or 1
DROP_BYTES = 1024 * 1024 * 1024  # from here on the pages are given back: one file must not empty the cache

_of_thread = threading.local()


class Company:
    """How many files are being hashed at this moment, by whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> int:
        with self._lock:
            self._count += 1
            return self._count

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._count -= 1


_company = Company()


class Hasher(Protocol):
    def update(self, data: memoryview, /) -> object: ...
    def digest(self) -> bytes: ...


def hash_bytes(data: bytes, algorithm: Algorithm) -> bytes:
    if algorithm == "blake3":
        return blake3(data).digest()
    return hashlib.sha256(data, usedforsecurity=False).digest()


def hash_open(
    fd: int, wanted: int, algorithm: Algorithm, should_stop: Callable[[], bool], *, to_the_end: bool
) -> bytes | None:
    """The hash of the next `wanted` bytes; None on stop, or where there are fewer, or more `to_the_end`."""
    if wanted <= SMALL_BYTES:
        data = os.read(fd, wanted + to_the_end)
        return hash_bytes(data, algorithm) if len(data) == wanted else None
    with _company as count:
        wide = wanted >= WIDE_BYTES and algorithm == "blake3" and count < CORES
        return _hash_chunks(fd, wanted, algorithm, should_stop, to_the_end=to_the_end, wide=wide)


def _hash_chunks(
    fd: int,
    wanted: int,
    algorithm: Algorithm,
    should_stop: Callable[[], bool],
    *,
    to_the_end: bool,
    wide: bool,
) -> bytes | None:
    hasher: Hasher = _hasher(algorithm, wide=wide)
    chunk = _buffer()[: WIDE_CHUNK_BYTES if wide else CHUNK_BYTES]
    _advise(fd, os.POSIX_FADV_SEQUENTIAL)
    left = wanted + to_the_end  # a byte more than there should be: growth shows
    while left:
        if should_stop():
            return None
        count = os.readv(fd, [chunk[:left]])
        if count == 0:
            break
        left -= count
        hasher.update(chunk[:count])
    if wanted >= DROP_BYTES:
        _advise(fd, os.POSIX_FADV_DONTNEED)
    return hasher.digest() if left == to_the_end else None


def _hasher(algorithm: Algorithm, *, wide: bool) -> Hasher:
    if algorithm == "blake3":
        return blake3(max_threads=blake3.AUTO if wide else 1)
    return hashlib.sha256(usedforsecurity=False)


def _buffer() -> memoryview:
    buffer: memoryview | None = getattr(_of_thread, "buffer", None)
    if buffer is None:
        buffer = _of_thread.buffer = memoryview(bytearray(WIDE_CHUNK_BYTES))
    return buffer


def _advise(fd: int, advice: int) -> None:
    with suppress(OSError):  # not every file system takes advice
        os.posix_fadvise(fd, 0, 0, advice)
