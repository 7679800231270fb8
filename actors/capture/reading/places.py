"""The texts of an entry: its title without the signs around it, and where it takes place. Pure."""

# ruff: noqa: RUF001  (dashes of all kinds stand around titles)

import re
from typing import Final

_MARK: Final = re.compile(
    r"^(?:[@📍⚲⌖]|(?:at|location|place|where|venue|ort|wo|standort)\s*:)\s*", re.IGNORECASE
)
# What a pin or a globe is read as, before a place that is known by its word.
_PIN: Final = re.compile(r"^(?:[©®°¢*•·»>]|[Q9oO0@](?=\s))\s*")
_PLACE_WORDS: Final = (
    r"room|rm\.?|hall|building|bldg\.?|floor|auditorium|lab|studio|gate|raum|saal|zimmer|gebäude|halle|hörsaal"
    r"|aula|etage|stock"
)
_PLACE: Final = re.compile(rf"^(?:{_PLACE_WORDS})(?:\s|$)", re.IGNORECASE)
_AT: Final = re.compile(r"\s@\s?|\s(?=📍)")
_INSIDE: Final = re.compile(
    rf"\s*[,(|·•–—-]\s*((?:in\s+)?(?:{_PLACE_WORDS})\s+[^\s,()]+[^,()]*)\)?\s*$", re.IGNORECASE
)
_DURATION: Final = re.compile(
    r"^[(\[]?(?:\d{1,3}(?:[.,]\d)?\s?(?:h|hrs?|hours?|min|mins|minutes?|std|stunden?|minuten)\b\.?\s?)+[)\]]?$",
    re.IGNORECASE,
)
_EDGES: Final = " \t-–—−•·*|>»«:;,~=_"
_OPENERS: Final = " \t)]}.!?"
_CLOSED: Final = {"(": ")", "[": "]"}


def clean_title(text: str) -> str:
    """Without bullets and separators; all else as it was read."""
    text = text.strip(_EDGES).lstrip(_OPENERS).strip()
    for opening, closing in _CLOSED.items():
        if text.startswith(opening) and text.endswith(closing) and text.count(opening) == 1:
            return text[1:-1].strip()
        if text.endswith(opening):
            return text[:-1].strip()
    return text


def is_marked(text: str) -> bool:
    """It says itself that it is a place."""
    return bool(_MARK.match(text) or _PLACE.match(text) or _PLACE.match(_PIN.sub("", text)))


def is_duration(text: str) -> bool:
    return bool(_DURATION.match(text.strip()))


def clean_place(text: str) -> str | None:
    marked = _MARK.match(text)
    text = text[marked.end() :] if marked else text
    bare = _PIN.sub("", text)
    if bare != text and (_PLACE.match(bare) or not text[0].isalnum()):
        text = bare
    return clean_title(text) or None


def split_place(text: str) -> tuple[str, str | None]:
    """A title that says its place: `Standup @ Room 4`, `Standup (Room 4)`."""
    if at := _AT.search(text):
        title, place = text[: at.start()], text[at.end() :]
        if clean_title(title) and clean_title(place):
            return clean_title(title), clean_place(place)
    if inside := _INSIDE.search(text):
        title = clean_title(text[: inside.start()])
        if title:
            return title, clean_place(inside[1].removeprefix("in "))
    return clean_title(text), None
