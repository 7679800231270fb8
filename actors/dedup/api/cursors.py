"""Where a page begins, as the client hands it back: read as what a stranger may have written. Pure.

A cursor that is not one of ours in every detail raises InvalidCursor, a group key InvalidGroupKey: nothing
malformed ever means the first page. What was sent is not repeated in the message.

- groups: base64url of a JSON object of exactly `file_count`, `total_size_bytes`, `hash_algorithm` and
  `content_hash_hex`; blanks at its end make its length one that needs no padding;
- jobs: the id of the last job; files and walks: the last id as a decimal number; libraries: the last name;
- errors of a walk: the SHA-256 of the last path, because a path can be longer than an address may be.
"""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import UUID

from supervisor.errors import BadInput

ID_MOST: Final = 2**63 - 1
CURSOR_CHARACTERS: Final = 512
ALGORITHMS: Final = ("blake3", "sha256")

_HEX = re.compile(r"[0-9a-f]{64}")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+={0,2}")
_NUMBER = re.compile(r"[1-9][0-9]{0,18}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


class InvalidCursor(BadInput):
    """this is not a cursor of this listing: {what}"""

    hint = "give `next_cursor` of the page before as it was, or none for the first page"
    code = "INVALID_CURSOR"


class InvalidGroupKey(BadInput):
    """this is not the key of a group: {what}"""

    hint = "a key is `blake3:` or `sha256:` and 64 hexadecimal digits"
    code = "INVALID_GROUP_KEY"


@dataclass(frozen=True, slots=True)
class GroupKey:
    hash_algorithm: str
    content_hash: bytes

    def __str__(self) -> str:
        return f"{self.hash_algorithm}:{self.content_hash.hex()}"


@dataclass(frozen=True, slots=True)
class GroupCursor:
    """The last group of a page."""

    file_count: int
    total_size_bytes: int
    hash_algorithm: str
    content_hash_hex: str

    def encode(self) -> str:
        text = json.dumps(asdict(self), separators=(",", ":")).encode()
        return base64.urlsafe_b64encode(text.ljust(-(-len(text) // 3) * 3)).decode()


def parse_group_key(text: str) -> GroupKey:
    algorithm, _, digits = text.partition(":")
    if algorithm not in ALGORITHMS:
        raise InvalidGroupKey(what="it does not begin with blake3: or sha256:")
    if not _HEX.fullmatch(digits.lower() if digits.isascii() else ""):
        raise InvalidGroupKey(what="64 hexadecimal digits belong behind the colon")
    return GroupKey(algorithm, bytes.fromhex(digits))


def parse_cleanup_key(text: str) -> str:
    """A group's key in its one spelling; the thumbnails of a file that has no hash yet are `file:ID`."""
    kind, _, number = text.partition(":")
    if kind == "file" and _NUMBER.fullmatch(number) and int(number) <= ID_MOST:
        return text
    return str(parse_group_key(text))


def parse_group_cursor(text: str) -> GroupCursor:
    facts = _json_object(_decoded(text))
    if facts.keys() != {"file_count", "total_size_bytes", "hash_algorithm", "content_hash_hex"}:
        raise InvalidCursor(what="its fields are others")
    count, size = facts["file_count"], facts["total_size_bytes"]
    if not _is_between(count, 2, ID_MOST) or not _is_between(size, 0, count * ID_MOST):
        raise InvalidCursor(what="its numbers cannot be those of a group")
    algorithm, digits = facts["hash_algorithm"], facts["content_hash_hex"]
    if algorithm not in ALGORITHMS or not isinstance(digits, str) or not _HEX.fullmatch(digits):
        raise InvalidCursor(what="its hash cannot be that of a group")
    return GroupCursor(count, size, algorithm, digits)


def parse_id_cursor(text: str) -> int:
    if not _NUMBER.fullmatch(text) or int(text) > ID_MOST:
        raise InvalidCursor(what="it is not the number of a row")
    return int(text)


def parse_job_cursor(text: str) -> UUID:
    if not _UUID.fullmatch(text):
        raise InvalidCursor(what="it is not the id of a job")
    return UUID(text)


def parse_name_cursor(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise InvalidCursor(what="it is not the name of a library")
    return text


def path_cursor(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


def parse_path_cursor(text: str) -> bytes:
    if not _HEX.fullmatch(text):
        raise InvalidCursor(what="it is not 64 hexadecimal digits")
    return bytes.fromhex(text)


def _decoded(text: str) -> bytes:
    if len(text) > CURSOR_CHARACTERS or not _BASE64URL.fullmatch(text):
        raise InvalidCursor(what="it is not base64url, or too long")
    bare = text.rstrip("=")
    try:
        raw = base64.urlsafe_b64decode(bare + "=" * (-len(bare) % 4))
    except binascii.Error:
        raise InvalidCursor(what="it is cut off") from None
    # bits that belong to no byte, or padding that fits nothing: other spellings of the same cursor
    ours = base64.urlsafe_b64encode(raw).decode()
    if text not in {ours, ours.rstrip("=")}:
        raise InvalidCursor(what="it was changed")
    return raw


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        found = json.loads(raw.decode("ascii"), object_pairs_hook=_without_twins, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidCursor(what="it holds no JSON") from None
    if not isinstance(found, dict):
        raise InvalidCursor(what="it holds no JSON object")
    return found


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field stands there twice")
    return found


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _is_between(value: object, least: int, most: int) -> bool:
    return type(value) is int and least <= value <= most
