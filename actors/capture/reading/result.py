"""What a set of pictures says about a day."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a day. Times are "HH:MM", 24:00 included; an end before its start is after midnight."""

    start: str
    end: str | None
    title: str
    location: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    schedule_date: date
    entries: Sequence[Entry]
    languages: str
    words: int
    confidence: float
    """The mean over all words, 0 to 100, as the recognition itself sees it."""
    notes: Sequence[str] = ()
    """What a person should know: what was guessed, and what was left out."""


def payload_of(reading: Reading) -> dict[str, Any]:
    """What a version stores. The same schedule gives the same payload, however well it was seen."""
    entries = [
        {"start": entry.start, "end": entry.end, "title": entry.title, "location": entry.location}
        for entry in reading.entries
    ]
    payload: dict[str, Any] = {"schedule_date": reading.schedule_date.isoformat(), "entries": entries}
    if reading.notes:
        payload["notes"] = list(reading.notes)
    return payload
