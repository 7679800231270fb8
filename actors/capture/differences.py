"""What changed between two versions of a day. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Differences:
    """`changed` are pairs: the entry as it was and as it is."""

    added: Sequence[Entry]
    removed: Sequence[Entry]
    changed: Sequence[tuple[Entry, Entry]]

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def differences(before: Sequence[Entry], after: Sequence[Entry]) -> Differences:
    """What stands in both is the same; of the rest, what has kept its title or its start has changed."""
    gone, new = _without(before, after), _without(after, before)
    changed: list[tuple[Entry, Entry]] = []
    for keeps in (("start", "title"), ("title",), ("start",)):
        for old in list(gone):
            twin = next((one for one in new if all(one.get(name) == old.get(name) for name in keeps)), None)
            if twin is not None:
                gone.remove(old)
                new.remove(twin)
                changed.append((old, twin))
    return Differences(new, gone, changed)


def _without(some: Sequence[Entry], others: Sequence[Entry]) -> list[Entry]:
    """Those that are not among the others, as often as they are not."""
    left = list(others)
    kept = []
    for entry in some:
        if entry in left:
            left.remove(entry)
        else:
            kept.append(entry)
    return kept
