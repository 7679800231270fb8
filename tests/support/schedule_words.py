"""What the drawn schedules say: titles, places and the many ways to write the same time."""

# ruff: noqa: RUF001  (the dash that people type)

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

from actors.capture.reading import Entry

# Two vocabularies: rules that were tried out on the first are measured on the second.
TITLES: Final = (
    (
        "Standup", "Design review", "Lunch with Anna", "Budget planning", "Dentist", "Yoga class",
        "Board meeting", "Code review", "Interview: backend", "Team retro", "Piano lesson", "Sprint planning",
        "Product demo", "Call with supplier", "Marketing sync", "All hands", "Q&A session",
        "Onboarding day 2",
        "Physics lab", "History seminar", "Choir rehearsal", "Gym", "Parents evening", "Release 4.2",
    ),
    (
        "Breakfast club", "Security audit", "Pick up the kids", "Tax adviser", "Swimming", "Roadmap workshop",
        "Vendor negotiation", "Coffee with Omar", "Chemistry exam", "Guitar practice", "Quarterly review",
        "Incident drill", "Blood donation", "Hiring panel", "Book club", "Town hall", "Data migration",
        "Walk the dog", "Geography", "Drama group", "Backup test 7", "Pub quiz", "Train to Leeds",
        "Customer visit",
    ),
)  # fmt: skip
PLACES: Final = (
    ("Room 12", "Main hall", "Studio 2", "Library", "Room B3", "Office 4", "Cafe Nord", "Building 7"),
    ("Room 305", "Gym hall", "Canteen", "Lab 6", "Room C1", "Headquarters", "Park Lane 9", "Floor 3"),
)
GERMAN_TITLES: Final = (
    (
        "Besprechung", "Mittagspause", "Frühstück", "Übergabe", "Prüfung Mathematik", "Vorlesung Statistik",
        "Zahnarzt", "Teamrunde", "Gespräch mit Jürgen", "Elternabend",
    ),
    (
        "Dienstplanung", "Kaffeepause", "Führung", "Übung Chemie", "Einkäufe", "Chorprobe", "Sprechstunde",
        "Wöchentlicher Bericht", "Abendessen", "Ärztekonferenz",
    ),
)  # fmt: skip
GERMAN_PLACES: Final = (
    ("Raum 204", "Hörsaal 3", "Saal Nord", "Küche"),
    ("Raum 17", "Halle 2", "Büro Süd", "Aula"),
)


@dataclass(slots=True)
class Author:
    """Makes up days; the same seed gives the same ones."""

    version: int
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(4000 + self.version)  # noqa: S311  (samples, not secrets)

    def day(
        self, count: int, *, places: bool = True, german: bool = False, step: int = 5, ends: bool = True
    ) -> list[Entry]:
        """Entries in order; every start and end is a multiple of `step` minutes."""
        titles = (GERMAN_TITLES if german else TITLES)[self.version % 2]
        rooms = (GERMAN_PLACES if german else PLACES)[self.version % 2]
        minute = self.random.randrange(7 * 60, 10 * 60, step)
        entries = []
        for title in self.random.sample(titles, count):
            length = self.random.randrange(30 // step, 80 // step) * step
            end = clock(minute + length) if ends else None
            entries.append(Entry(clock(minute), end, title, self.random.choice(rooms) if places else None))
            minute += length + self.random.choice((0, 0, step, 2 * step, 30))
        return entries


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def plain(start: str, end: str | None) -> str:
    return f"{start} – {end}" if end else start


def tight(start: str, end: str | None) -> str:
    return f"{start}-{end}" if end else start


def dotted(start: str, end: str | None) -> str:
    """As Germans write it."""
    text = f"{start}–{end}" if end else start
    return f"{text} Uhr".replace(":", ".")


def compact(start: str, end: str | None) -> str:
    return tight(start, end).replace(":", "")


def spaced(start: str, end: str | None) -> str:
    return plain(_short(start), _short(end)).replace(":", " ")


def french(start: str, end: str | None) -> str:
    return plain(_short(start), _short(end)).replace(":", "h")


def decimal(start: str, end: str | None) -> str:
    """Half hours as fractions; only for schedules of whole and half hours."""
    return plain(_fraction(start), _fraction(end) if end else None)


def twelve(start: str, end: str | None) -> str:
    return plain(_twelve(start), _twelve(end) if end else None)


def shared(start: str, end: str | None) -> str:
    """The half of the day is said once, where it is the same."""
    first, last = _twelve(start), _twelve(end or start)
    if first[-2:] == last[-2:]:
        first = first[:-3]
    return f"{first}–{last.replace(' ', '').lower()}"


def _short(time: str | None) -> str:
    return (time or "").removeprefix("0")


def _fraction(time: str) -> str:
    return _short(time).replace(":30", ".5").replace(":00", "")


def _twelve(time: str) -> str:
    hour, minute = map(int, time.split(":"))
    return f"{hour % 12 or 12}:{minute:02} {'AM' if hour % 24 < 12 else 'PM'}"


Writing = Callable[[str, str | None], str]
WRITINGS: Final[Sequence[Writing]] = (plain, tight, dotted, compact, spaced, french, twelve, shared)
