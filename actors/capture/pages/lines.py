"""The entries of a version as lines of a page, and what changed since another one. Pure.

A payload is whatever somebody stored: what has not the form of an entry is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from actors.capture.differences import Entry, differences

FIELDS: Final = ("start", "end", "title", "location")
Change = Literal["", "new", "changed", "gone"]


@dataclass(frozen=True, slots=True)
class Line:
    """An entry; `was` is what a changed one was before."""

    entry: Entry
    change: Change = ""
    was: Entry | None = None


def entries_of(payload: Mapping[str, Any] | None) -> list[Entry]:
    found = (payload or {}).get("entries")
    return [entry for entry in found if isinstance(entry, Mapping)] if isinstance(found, list) else []


def notes_of(payload: Mapping[str, Any] | None) -> list[str]:
    found = (payload or {}).get("notes")
    return [str(note) for note in found] if isinstance(found, list) else []


def lines_of(after: Sequence[Entry], before: Sequence[Entry] | None) -> list[Line]:
    """In the order of the entries, behind them those that have gone; without a before nothing has changed."""
    if before is None:
        return [Line(entry) for entry in after]
    found = differences(before, after)
    changed = list(found.changed)
    added = list(found.added)
    lines = []
    for entry in after:
        pair = next((pair for pair in changed if pair[1] is entry), None)
        if pair is not None:
            changed.remove(pair)
            lines.append(Line(entry, "changed", pair[0]))
        elif any(one is entry for one in added):
            lines.append(Line(entry, "new"))
        else:
            lines.append(Line(entry))
    return lines + [Line(entry, "gone") for entry in found.removed]
