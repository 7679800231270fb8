"""Why a file or directory could not be used, in a word that fits a column: the errors of the file side."""

import errno
from typing import Any

from supervisor.errors import TenureError

CODES = {
    errno.ENOENT: "NOT_FOUND",
    errno.EACCES: "PERMISSION_DENIED",
    errno.EPERM: "PERMISSION_DENIED",
    errno.ENOTDIR: "NOT_A_DIRECTORY",
    errno.EISDIR: "IS_A_DIRECTORY",
    errno.ENAMETOOLONG: "NAME_TOO_LONG",
    errno.EEXIST: "ALREADY_EXISTS",
    errno.EAGAIN: "BUSY",  # a lease on the file, or renames that overtake every attempt
    errno.EBUSY: "BUSY",
    errno.EMFILE: "TOO_MANY_OPEN_FILES",
    errno.ENFILE: "TOO_MANY_OPEN_FILES",
    errno.ENOMEM: "OUT_OF_MEMORY",
    errno.ENOSPC: "NO_SPACE",
    errno.EDQUOT: "NO_SPACE",
    errno.EROFS: "READ_ONLY",
    errno.EXDEV: "OTHER_FILE_SYSTEM",
    errno.ESTALE: "STALE_HANDLE",
    errno.ETIMEDOUT: "TIMED_OUT",
}


def code_of(error: OSError) -> str:
    return CODES.get(error.errno or 0, "IO_ERROR")


class FileTrouble(TenureError):
    """{path!r} cannot be used: {code}"""

    hint = "check that it exists and that the user of the replica may read it"
    exit_code = 2

    def __init__(self, *, path: str, code: str, **more: Any) -> None:
        self.path = path
        self.code = code
        super().__init__(path=path, code=code, **more)


class Stopped(FileTrouble):
    """the reading of {path!r} was stopped"""

    def __init__(self, *, path: str) -> None:
        super().__init__(path=path, code="STOPPED")


class EscapesLibrary(FileTrouble):
    """{path!r} is refused: a symbolic link or `..` is in the way"""

    hint = "libraries are read without following links; move the files in, or mount them there"

    def __init__(self, *, path: str) -> None:
        super().__init__(path=path, code="ESCAPES_LIBRARY")


class SpecialFile(FileTrouble):
    """{path!r} is refused: it is not a regular file"""

    hint = "directories, pipes, sockets and devices are not read"

    def __init__(self, *, path: str) -> None:
        super().__init__(path=path, code="SPECIAL_FILE")
