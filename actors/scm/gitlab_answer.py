"""What a GitLab server answers, made safe: JSON with bounds, fields of the type they have to have, no NUL.
Pure.

Nothing of an answer's content goes into a message: only where in it something was wrong. Texts keep what
people wrote, directions of writing included; NUL and lone surrogates, which PostgreSQL refuses, become
U+FFFD, and what is longer than its bound is cut. A field that is needed and is not what it should be is a
BadAnswer; one that is not needed counts as absent then.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from actors.scm.backoff import Trouble
from actors.scm.records import SourceFailed, Unreadable

T = TypeVar("T")

__all__ = [
    "BadAnswer",
    "Incomplete",
    "TooLarge",
    "clean",
    "instant",
    "instant_or_none",
    "mapping",
    "next_page",
    "number",
    "parse_json",
    "read_each",
    "stamp",
    "text",
    "wait_seconds",
]

MAX_TEXT: Final = 1 << 20
MAX_FIELD: Final = 16_384
MAX_DEPTH: Final = 40
# An object takes some forty times its two characters in memory.
MAX_CONTAINERS: Final = 1_000_000
MAX_VALUES: Final = 5_000_000
MAX_NUMBER: Final = (1 << 63) - 1
MAX_WAIT_SECONDS: Final = 86_400.0
NOT_TEXT: Final = re.compile("[\x00\ud800-\udfff]")
NAME: Final = re.compile(r"[A-Za-z0-9]{1,64}", re.ASCII)
NEXT: Final = re.compile(r'<([^<>]{1,8192})>\s*;[^,<]{0,200}?\brel="?next"?')
# Of the link to the next page only these are taken: everything else of a request is ours.
PAGE_PARAMETERS: Final = frozenset({"page", "cursor", "id_after", "page_token"})


class BadAnswer(SourceFailed):
    """gitlab: bad_answer: {what}"""

    hint = (
        "this is not the API of GitLab, or one that differs from the documented; see the address of the repo"
    )
    code: Final = "bad_answer"

    def __init__(self, what: str) -> None:
        super().__init__(source="gitlab", trouble=Trouble.BAD_CONFIG, what=what)


def read_each(
    items: Iterable[Any], read: Callable[[Any], T], what: str, told: list[Unreadable] | None
) -> list[T]:
    """What can be read of them. One that cannot goes to `told`; where that is None it ends the reading."""
    found = []
    for number_, one in enumerate(items, start=1):
        try:
            found.append(read(one))
        except BadAnswer as failure:
            if told is None:
                raise
            told.append(Unreadable(f"{what} {_called(one, number_)}", failure.code, str(failure)))
    return found


def _called(given: Any, place: int) -> str:
    """By which it can be found again: a number, or an id of letters and digits."""
    names = [given.get(key) for key in ("iid", "id")] if isinstance(given, dict) else []
    known = (str(name) for name in names if isinstance(name, int | str) and NAME.fullmatch(str(name)))
    return next(known, f"number {place} of its page")


class TooLarge(BadAnswer):
    """gitlab: bad_answer: {what}"""

    hint = "ask for less at a time: lower scm.sync.gitlab.per_page"


class Incomplete(ValueError):
    """The answer ends in the middle: another try may bring the rest."""


def parse_json(body: bytes) -> Any:
    """The value in it, cleaned. Incomplete when it only lacks its end."""
    if body.count(b"{") + body.count(b"[") > MAX_CONTAINERS or body.count(b",") > MAX_VALUES:
        raise TooLarge("a body of too many values")
    try:
        value = json.loads(body.decode(), parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data":
            raise Incomplete from None
        raise BadAnswer("no UTF-8") from None
    except json.JSONDecodeError as error:
        if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated"):
            raise Incomplete from None
        raise BadAnswer(f"no JSON, from character {error.pos} on") from None
    except (ValueError, RecursionError):
        raise BadAnswer("no JSON that can be read") from None
    return clean(value)


def _no_constant(_: str) -> Any:
    raise ValueError("not a number")


def clean(value: Any, depth: int = 0) -> Any:
    """The same value as PostgreSQL takes it."""
    if isinstance(value, str):
        return NOT_TEXT.sub("\ufffd", value[:MAX_TEXT])
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if not isinstance(value, dict | list):
        return value
    if depth >= MAX_DEPTH:
        raise BadAnswer(f"JSON that is more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return [clean(one, depth + 1) for one in value]
    return {clean(key, depth)[:MAX_FIELD]: clean(one, depth + 1) for key, one in value.items()}


def mapping(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadAnswer(f"{what} that is no object")
    return value


def number(value: Any, what: str) -> int:
    """A positive whole number, as ids are."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= MAX_NUMBER:
        raise BadAnswer(f"{what} that is no number")
    return value


def text(value: Any, bound: int = MAX_FIELD) -> str:
    """A text, empty where there is none."""
    return value[:bound] if isinstance(value, str) else ""


def instant(value: Any, what: str) -> datetime:
    found = instant_or_none(value)
    if found is None:
        raise BadAnswer(f"{what} that is no time")
    return found


def instant_or_none(value: Any) -> datetime | None:
    if not isinstance(value, str) or not 16 <= len(value) <= 40:
        return None
    try:
        found = datetime.fromisoformat(value)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


def stamp(moment: datetime) -> str:
    """As GitLab writes times, cut to what it keeps of them: so a comparison with it includes the moment."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def next_page(link: str, host: str, path: str) -> dict[str, str] | None:
    """The parameters of the next page from a Link header, or None at the end. A link elsewhere is refused."""
    found = NEXT.search(link)
    if not found:
        return None
    try:
        parts = urlsplit(found[1])
        there = (parts.hostname or "").lower()
        given = parse_qsl(parts.query, max_num_fields=100)
    except ValueError:
        raise BadAnswer("a link to its next page that is no address") from None
    if there != host.lower() or parts.path != path:
        raise BadAnswer("a link to its next page that leads elsewhere")
    taken = {key: value for key, value in given if key in PAGE_PARAMETERS and len(value) <= 1024}
    if not taken:
        raise BadAnswer("a link to its next page that names no page")
    return taken


def wait_seconds(headers: Mapping[str, str], now: datetime) -> float | None:
    """For how long a server wants to be left alone: Retry-After (seconds or a date), else RateLimit-Reset."""
    now = _date(headers.get("date")) or now
    after = headers.get("retry-after", "").strip()
    if after.isascii() and after.isdecimal():
        return min(float(after[:9]), MAX_WAIT_SECONDS)
    until = _date(after)
    if until is None:
        reset = headers.get("ratelimit-reset", "").strip()
        if not (reset.isascii() and reset.isdecimal() and len(reset) <= 11):
            return None
        until = datetime.fromtimestamp(int(reset), UTC)
    return min(max((until - now).total_seconds(), 0.0), MAX_WAIT_SECONDS)


def _date(value: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(value or "")
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError, TypeError):
        return None


def server_date(headers: Mapping[str, str]) -> datetime | None:
    """What the server's own clock said: the one that its times are of."""
    return _date(headers.get("date"))
