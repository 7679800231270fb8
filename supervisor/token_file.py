"""The token that `tenure up` makes for this machine where TENURE_API_TOKEN is not set.

It is made once, whole or not at all, and kept: every `tenure up` of one state directory finds the same. One
that others could have read is refused, because they may know it.
"""

import errno
import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from supervisor.config import API_TOKEN_LENGTH
from supervisor.errors import TenureError
from supervisor.own_file import careful_handle, new_file

NAME: Final = "token"


class UnusableToken(TenureError):
    """the token in {path} is not used: {what}"""

    hint = "remove the file, and `tenure up` makes another; or set TENURE_API_TOKEN"


def load_token(state: Path) -> str:
    """Return the token of this directory; make it where there is none."""
    path = state / NAME
    if not os.path.lexists(path):
        _make(path)
    return _read(path)


def _make(path: Path) -> None:
    draft = path.with_name(f".{NAME}.{secrets.token_hex(8)}")
    try:
        with new_file(draft) as file:
            file.write(f"{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(file.fileno())
        # another `tenure up` may have been quicker: then its token holds
        with suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read(path: Path) -> str:
    try:
        handle = careful_handle(path)
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise UnusableToken(path=path, what=what) from None
    try:
        if complaint := _complaint(os.fstat(handle)):
            raise UnusableToken(path=path, what=complaint)
        token = os.read(handle, 4096).decode(errors="replace").strip()
    finally:
        os.close(handle)
    if len(token) < API_TOKEN_LENGTH or not token.isascii() or not token.isprintable():
        raise UnusableToken(path=path, what=f"it is not {API_TOKEN_LENGTH} or more plain characters")
    return token


def _complaint(found: os.stat_result) -> str | None:
    """Say why it is not used; a second name is no reason, because one that is just being made has two."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no plain file"
    if found.st_uid != os.geteuid():
        return f"another user owns it (uid {found.st_uid})"
    if found.st_mode & 0o077:
        return f"other users may have read it (mode {stat.S_IMODE(found.st_mode):04o})"
    return None
