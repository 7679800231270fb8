"""Keys: what an artifact may be called, the same on every backend. Pure.

A key is a relative path of plain names. It is refused, never repaired: two spellings of one object would be
two objects to the database. What is refused on one backend is refused on all, so that an artifact can move
between them under its key.
"""

import re
import unicodedata
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

from supervisor.artifacts.errors import InvalidKey

KEY_BYTES: Final = 1024
# leaves room for `.tmp.<uuid>` within the 255 bytes of a file name
NAME_BYTES: Final = 200
# a scheme, a query, an escape, a wildcard or a Windows device path to somebody
FOREIGN: Final = frozenset('\\:%?#*"<>|')
IDENTITY: Final = ".store"
TMP_FOLDER: Final = "tmp/"
TEMPORARY: Final = re.compile(r"\.tmp\.[0-9a-f]{32}$")


def check_key(key: str) -> tuple[str, ...]:
    """The names of a key, or InvalidKey."""
    if complaint := _complaint(key):
        raise InvalidKey(key=key, what=complaint)
    return tuple(key.split("/"))


def check_prefix(prefix: str) -> tuple[str, ...]:
    """The names of a folder; the empty prefix is everything. A final slash says nothing."""
    return check_key(prefix.removesuffix("/")) if prefix else ()


def key_in(uri: str, place: str) -> str:
    """The key of an address that begins with that place, or InvalidKey."""
    rest = uri.removeprefix(place)
    if place.startswith("local:"):
        # what is before the first slash is a host, for people
        rest = rest.partition("/")[2]
    # an object's address has its key as it is; the others are URLs
    key = rest if place.startswith("s3:") else unquote(rest)
    check_key(key)
    return key


def allowed(names: tuple[str, ...], prefixes: Iterable[tuple[str, ...]]) -> bool:
    """Is it inside one of them, name by name? (`scm` does not allow `scmx`.)"""
    return any(names[: len(prefix)] == prefix for prefix in prefixes)


def _complaint(key: str) -> str | None:
    if not key:
        return "is empty"
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        return "is not Unicode text"
    if size > KEY_BYTES:
        return f"has more than {KEY_BYTES} bytes"
    if not key.isprintable():
        return "has a character that cannot be printed"
    if foreign := FOREIGN.intersection(key):
        return f"has a {min(foreign)!r}"
    if not unicodedata.is_normalized("NFC", key):
        return "is not in Unicode's composed form (NFC)"
    return next((complaint for name in key.split("/") if (complaint := _name_complaint(name))), None)


def _name_complaint(name: str) -> str | None:
    if not name:
        return "is absolute or has an empty name in it"
    if name in (".", ".."):
        return f"has {name!r} in it"
    if len(name.encode()) > NAME_BYTES:
        return f"has a name of more than {NAME_BYTES} bytes"
    if name[-1] in ". ":
        return "has a name that ends with a dot or a space"
    if name == IDENTITY or TEMPORARY.search(name):
        return "has a name that the store keeps for itself"
    return None
