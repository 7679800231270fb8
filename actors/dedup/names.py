"""File names as text that PostgreSQL can store, and back without loss; which relative paths are accepted.

A name on Linux is bytes without NUL and `/`. `to_text` reads them as UTF-8; a byte 0xNN that is none
becomes the private-use character U+F7NN. A genuine character of U+F780..U+F7FF is written as its three
bytes, each in that form, so that every text has one name and every name one text. Both ways work path
component by path component: `/` is never part of an escape.

The order of texts (code points) is the order of their UTF-8 bytes, which is `COLLATE "C"` in the database.
"""

import os
import re

from supervisor.errors import BadInput

_ESCAPES = re.compile("[\uf780-\uf7ff]")
_TO_ESCAPE = re.compile("[\uf780-\uf7ff\udc80-\udcff]")


class BadPath(BadInput):
    """the path {path!r} is refused: {why}"""

    hint = "give a path below the libraries' directory, as in `photos/2024`"


def _escaped(found: re.Match[str]) -> str:
    return "".join(chr(0xF700 + byte) for byte in found[0].encode("utf-8", "surrogateescape"))


def _unescaped(found: re.Match[str]) -> str:
    return chr(0xDC00 + ord(found[0]) - 0xF700)


def to_text(name: bytes) -> str:
    """The text of a name or path. ValueError where it holds NUL: no file has such a name."""
    if b"\0" in name:
        raise ValueError("a file name holds no NUL")
    text = name.decode("utf-8", "surrogateescape")
    return text if text.isascii() else _TO_ESCAPE.sub(_escaped, text)


def to_bytes(text: str) -> bytes:
    """The name or path that has this text. ValueError where no name has it."""
    if "\0" in text:
        raise ValueError("a file name holds no NUL")
    if text.isascii() or not _ESCAPES.search(text):
        return text.encode()  # a lone surrogate is refused here
    text.encode()
    name = _ESCAPES.sub(_unescaped, text).encode("utf-8", "surrogateescape")
    if to_text(name) != text:
        raise ValueError("this text is not the text of a file name: it escapes what needs no escape")
    return name


def from_os(name: str) -> str:
    """The text of a name as Python's own functions (os.scandir) give it."""
    return name if name.isascii() else to_text(os.fsencode(name))


def check_relative(path: str) -> str:
    """The path itself where it is plainly relative: components that name something, nothing that climbs."""
    if not path:
        raise BadPath(path=path, why="it is empty")
    if path.startswith("/"):
        raise BadPath(path=path, why="it is absolute")
    for part in path.split("/"):
        if part in ("", ".", ".."):
            raise BadPath(path=path, why=f"it has the component {part!r}")
    try:
        to_bytes(path)
    except ValueError as error:
        raise BadPath(path=ascii(path), why=str(error)) from None
    return path


def check_given(path: str) -> str:
    """As `check_relative`, for a path that a person or a client gives.

    `~` and `$` are what a shell would have replaced; files with such names exist and are scanned all the
    same.
    """
    if path.startswith("~"):
        raise BadPath(path=path, why="it begins with ~")
    if "$" in path:
        raise BadPath(path=path, why="it holds a $")
    return check_relative(path)
