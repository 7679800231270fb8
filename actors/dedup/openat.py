"""Two system calls that Python lacks: open strictly beneath a directory, and rename without replacing.

`open_beneath(directory, path, flags)` opens with no symbolic link followed at any component and nothing
outside `directory` reached, whatever is renamed meanwhile: openat2(2) does it in one call. Where that is
missing (ENOSYS, before Linux 5.6) or forbidden (EPERM from a seccomp filter), each component is opened from
the one before it with O_NOFOLLOW, which holds the same by construction. The way is chosen once for the
process.

Paths may be longer than PATH_MAX: they are walked in pieces. Callers refuse NUL, `.`, `..` and absolute
paths first. Raises OSError; ELOOP says that a symbolic link is in the way.
"""

import ctypes
import errno
import functools
import os
import platform
import stat
from typing import Any, ClassVar

SYS_OPENAT2 = 437  # the same on every 64-bit machine
SYS_RENAMEAT2 = {"x86_64": 316, "aarch64": 276}.get(platform.machine())
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08
RESOLVE = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
RENAME_NOREPLACE = 1
ATTEMPTS = 32
PIECE_BYTES = 4000  # below PATH_MAX, its NUL included
THROUGH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _How(ctypes.Structure):
    """struct open_how"""

    _fields_: ClassVar[list[tuple[str, Any]]] = [
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    ]


def _raw(*types: Any) -> Any:
    """syscall(2) with arguments of these types, on a library object of its own: it has one list of types."""
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes = [ctypes.c_long, *types]
    call.restype = ctypes.c_long
    return call


_openat2 = _raw(ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
_renameat2 = _raw(ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)


@functools.cache
def _how(flags: int) -> _How:
    # RESOLVE_NO_SYMLINKS refuses a link at the end too and says ELOOP; O_NOFOLLOW would make it ENOTDIR.
    return _How((flags | os.O_CLOEXEC) & ~os.O_NOFOLLOW, 0, RESOLVE)


def openat2(directory: int, path: bytes, flags: int) -> int:
    how = _how(flags)
    for _ in range(ATTEMPTS):
        fd: int = _openat2(SYS_OPENAT2, directory, path, how, ctypes.sizeof(how))
        if fd >= 0:
            return fd
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    number = ctypes.get_errno()
    if number == errno.EXDEV:  # it would have left the directory
        number = errno.ELOOP
    raise OSError(number, os.strerror(number))


@functools.cache
def has_openat2() -> bool:
    root = os.open("/", THROUGH)
    try:
        os.close(openat2(root, b".", THROUGH))
    except OSError:  # whatever it is, the path was fine
        return False
    finally:
        os.close(root)
    return True


def open_componentwise(directory: int, path: bytes, flags: int) -> int:
    *parents, name = path.split(b"/")
    here = directory
    try:
        for part in parents:
            # Without O_DIRECTORY a link opens as itself, told from a file; O_PATH needs no right to read.
            below = os.open(part, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            if here != directory:
                os.close(here)
            here = below
            _check_passable(here)
        if flags & os.O_DIRECTORY:
            return _open_directory(here, name, flags)
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
    finally:
        if here != directory:
            os.close(here)


def _open_directory(directory: int, name: bytes, flags: int) -> int:
    """O_DIRECTORY answers ENOTDIR for a link: what it is decides the error, and only the error."""
    try:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except NotADirectoryError:
        if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
        raise


def _check_passable(fd: int) -> None:
    mode = os.fstat(fd).st_mode
    if not stat.S_ISDIR(mode):
        number = errno.ELOOP if stat.S_ISLNK(mode) else errno.ENOTDIR
        raise OSError(number, os.strerror(number))


def open_beneath(directory: int, path: bytes, flags: int) -> int:
    opener = openat2 if has_openat2() else open_componentwise
    if len(path) <= PIECE_BYTES:
        return opener(directory, path, flags)
    here = directory
    try:
        while len(path) > PIECE_BYTES:
            cut = path.rfind(b"/", 0, PIECE_BYTES)
            if cut <= 0:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            below = opener(here, path[:cut], THROUGH)
            if here != directory:
                os.close(here)
            here, path = below, path[cut + 1 :]
        return opener(here, path, flags)
    finally:
        if here != directory:
            os.close(here)


def rename_noreplace(source: int, name: bytes, target: int, new_name: bytes) -> None:
    """Rename between two directories; FileExistsError where the new name is taken."""
    number = errno.ENOSYS
    if SYS_RENAMEAT2 is not None:
        if _renameat2(SYS_RENAMEAT2, source, name, target, new_name, RENAME_NOREPLACE) == 0:
            return
        number = ctypes.get_errno()
    if number not in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        raise OSError(number, os.strerror(number))
    # Not every file system knows the flag (NFS). A name that we have created ourselves is ours to replace.
    os.close(os.open(new_name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=target))
    try:
        os.rename(name, new_name, src_dir_fd=source, dst_dir_fd=target)
    except OSError:
        os.unlink(new_name, dir_fd=target)
        raise
