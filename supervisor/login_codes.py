"""Links that log a browser in once, as whoever may use the state directory of a replica.

A code is a file of the directory `logins`, named by the code's SHA-256: the names tell nobody a code. To take
it is to remove the file, so it is good once, at whichever replica of this directory. Its age is the file's.
No database is asked.
"""

import hashlib
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from html import escape
from pathlib import Path
from typing import Final, TextIO

from supervisor.own_file import complaint_of, new_file
from supervisor.state_dir import is_private, private_dir

LIFETIME_SECONDS: Final = 900
LINK_NOTE: Final = "(logs in one browser within 15 minutes; `tenure open` prints another)"
NO_LINK_NOTE: Final = "(others may read this output: `tenure open` prints a link that logs in)"
DIRECTORY: Final = "logins"
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tenure</title><meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0;url={link}"></head>
<body><a href="{link}">Open the console</a></body></html>
"""


class LoginCodes:
    def __init__(self, state: Path) -> None:
        self._directory = state / DIRECTORY

    def link(self, url: str) -> str:
        """Return the address that logs in at the replica of this URL."""
        return f"{url}login?code={self._make()}"

    def way_in(self, url: str, output: TextIO) -> tuple[str, str]:
        """Return what to print there: a link where only this user reads it, and a note."""
        return (self.link(url), LINK_NOTE) if is_for_us_alone(output) else (url, NO_LINK_NOTE)

    def page(self, link: str) -> Path:
        """Return a file that leads to the link: other users can read the arguments of a browser's process."""
        path = private_dir(self._directory) / f"{secrets.token_hex(8)}.html"
        _write(path, _PAGE.format(link=escape(link)))
        return path

    def take(self, code: str) -> bool:
        """Use the code up; False = there is none, or it is too old."""
        if _FORM.fullmatch(code) is None or not is_private(self._directory):
            return False
        path = self._directory / _name(code)
        try:
            is_fresh = _is_fresh(path) and complaint_of(path.lstat()) is None
            path.unlink()
        except FileNotFoundError:
            return False
        return is_fresh

    def _make(self) -> str:
        private_dir(self._directory)
        self._sweep()
        code = secrets.token_urlsafe(32)
        _write(self._directory / _name(code), "")
        return code

    def _sweep(self) -> None:
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):
                if not _is_fresh(path):
                    path.unlink()


def is_for_us_alone(output: TextIO) -> bool:
    """Whether it is a terminal, or a file that is closed to others. Who reads a pipe cannot be known."""
    if output.isatty():
        return True
    try:
        found = os.fstat(output.fileno())
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


def _name(code: str) -> str:
    return hashlib.sha256(code.encode()).hexdigest()


def _is_fresh(path: Path) -> bool:
    return abs(time.time() - path.lstat().st_mtime) <= LIFETIME_SECONDS


def _write(path: Path, text: str) -> None:
    with new_file(path) as file:
        file.write(text)
