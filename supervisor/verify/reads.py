"""K14: what one process sees never goes back, while the database stays on its timeline."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from supervisor.verify.history import History
from supervisor.verify.records import Call
from supervisor.verify.report import Finding
from supervisor.verify.touches import READING


class Seen(NamedTuple):
    value: int
    call: Call
    answered: float


def check(history: History) -> Iterator[Finding]:
    by_key: dict[tuple[str, str, object], list[Seen]] = defaultdict(list)
    timelines: dict[str, set[object]] = defaultdict(set)
    for call in history.calls or ():
        if call.kind != "ok" or call.answered is None:
            continue
        for row in call.rows:
            if call.name in {"beat_worker", "acquire_tenure"} and row.get("epoch") is not None:
                place = (row.get("system_identifier"), row.get("timeline"))
                timelines[call.worker].add(place)
                by_key[call.worker, "epoch", place].append(Seen(row["epoch"], call, call.answered))
            elif call.name in READING and "version" in row:
                by_key[call.worker, "version of run", row["id"]].append(
                    Seen(row["version"], call, call.answered)
                )
    for (worker, what, about), seen in by_key.items():
        # a failover may have taken versions back
        if what != "epoch" and len(timelines[worker]) > 1:
            continue
        for before, after in _regressions(seen):
            name = what if what == "epoch" else f"{what} {about}"
            text = f"{worker} saw {name} {before.value}, and later {after.value}"
            yield Finding("K14", text, (_line(before.call), _line(after.call)))


def _regressions(seen: Sequence[Seen]) -> Iterator[tuple[Seen, Seen]]:
    """Pairs of which the first was answered before the second was sent, and saw more. The first such only."""
    answered = sorted(seen, key=lambda one: one.answered)
    place = 0
    most: Seen | None = None
    for one in sorted(seen, key=lambda one: one.call.sent):
        while place < len(answered) and answered[place].answered < one.call.sent:
            if most is None or answered[place].value > most.value:
                most = answered[place]
            place += 1
        if most is not None and one.value < most.value:
            yield most, one
            return


def _line(call: Call) -> str:
    return f"{call.worker} {call.name} sent {call.sent:.6f} answered {call.answered}"
