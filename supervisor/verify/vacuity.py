"""K17: a scenario in which nothing happened shows nothing.

This one never breaks: an effect that was expected and not seen makes the history INCONCLUSIVE.
"""

from collections.abc import Callable, Iterator
from typing import Final

from supervisor.verify.history import History
from supervisor.verify.report import Finding

Sight = Callable[[History], bool]

RESTARTS: Final = frozenset({"crash", "stop", "kill", "term"})


def check(history: History) -> Iterator[Finding]:
    expects = history.scenario.expects if history.scenario is not None else None
    if expects is None:
        history.doubts.append("K17: the scenario does not say which effects it expects")
    for name in expects or ():
        sight = EFFECTS.get(name)
        if sight is None:
            history.doubts.append(f"K17: nobody knows how {name} would be seen")
        elif not sight(history):
            history.doubts.append(f"K17: expected and not seen: {name}")
    yield from ()


def _moved(state: str) -> Sight:
    return lambda history: any(move.state == state for move in history.moves())


def _reason(*reasons: str) -> Sight:
    return lambda history: any(move.reason in reasons for move in history.moves())


def _timelines(history: History) -> bool:
    taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
    return len({(one.system, one.timeline) for one in taken}) > 1


def _reassigned(history: History) -> bool:
    return any(move.attempt > 1 and move.reason == "ASSIGNED" for move in history.moves())


def _refused(history: History) -> bool:
    return any(not offer.accepted for offer in history.offers or ())


def _unknown(history: History) -> bool:
    return any(call.kind == "unknown" for call in history.calls or ())


def _restarted(history: History) -> bool:
    return bool(history.deaths) or any(one.fault.lower() in RESTARTS for one in history.faults or ())


def _sqlstate(code: str) -> Sight:
    return lambda history: any(call.sqlstate == code for call in history.calls or ())


def _leaders(history: History) -> bool:
    return sum(one.what == "ACQUIRED" for one in history.tenures or ()) > 1


def _superseded(history: History) -> bool:
    finishes = history.called("finish_runs")
    return any(row.get("answer") == "SUPERSEDED" for call in finishes for row in call.rows)


EFFECTS: Final[dict[str, Sight]] = {
    "leader_change": _leaders,
    "resigned": lambda history: any(one.what == "RESIGNED" for one in history.tenures or ()),
    "failover": _timelines,
    "confirming": lambda history: any(move.continuation == "CONFIRMING" for move in history.moves()),
    "confirmed": _reason("CONFIRMED"),
    "no_leader": _reason("NO_LEADER"),
    "timed_out": _moved("TIMED_OUT"),
    "failed": _moved("FAILED"),
    "canceled": _moved("CANCELED"),
    "orphaned": _moved("ORPHANED"),
    "released": _reason("RELEASED"),
    "reassigned": _reassigned,
    "dropped": _reason("DROPPED"),
    "drained": _reason("DRAINED"),
    "retried": lambda history: any(len(root.runs) > 1 for root in history.roots or ()),
    "late_finish": lambda history: bool(history.lates),
    "superseded": _superseded,
    "fenced_write": _sqlstate("TN001"),
    "stale_server": _sqlstate("TN003"),
    "unknown_outcome": _unknown,
    "sink_refused": _refused,
    "death": lambda history: bool(history.deaths),
    "restart": _restarted,
    "fault": lambda history: bool(history.faults),
    "scheduled": lambda history: any(schedule.fired for schedule in history.schedules or ()),
    "skipped": lambda history: any(schedule.skips for schedule in history.schedules or ()),
}
