"""K11: nothing is taken from a worker that is in contact, except for a reason that it can be told.

Reasons: somebody asked to cancel, the run was over its own time, the worker itself ended it or saw no leader,
or the database failed over.
"""

from collections import defaultdict
from collections.abc import Iterator

from supervisor.jobrun import TERMINAL
from supervisor.verify.history import History
from supervisor.verify.records import Call, Move
from supervisor.verify.report import Finding, short, shown
from supervisor.verify.touches import answered, items


def check(history: History) -> Iterator[Finding]:
    timings = history.scenario.timings if history.scenario is not None else {}
    if "S" not in timings:
        history.doubts.append("K11 needs the timing S")
        return
    ways = _Ways(history)
    contact: dict[str, float] = {}
    told: set[str] = set()
    losses = 0
    for call in sorted(history.called("start_runs", "beat_worker", "finish_runs"), key=lambda one: one.sent):
        if call.kind != "ok":
            continue
        for claim in _lost(call):
            losses += 1
            since = contact.get(claim)
            if since is None or call.sent - since >= timings["S"] or claim in told or ways.caused(claim):
                continue
            told.add(claim)
            text = f"claim {short(claim)} was taken {call.sent - since:.3f} s after an answered contact"
            yield Finding("K11", text, (_line(call), *map(shown, ways.of(claim)[-2:])))
        for claim in _kept(call):
            contact[claim] = call.sent
    history.figures["claims_lost"] = losses


def _lost(call: Call) -> Iterator[str]:
    """Claims that a worker named and was not told of, or whose completion was refused."""
    if call.name == "beat_worker":
        listed = {claim for row in call.rows for claim in row.get("listed") or ()}
        yield from (claim for claim in call.args.get("claims") or () if claim not in listed)
    elif call.name == "finish_runs":
        for run, _version, claim, _state in items(call):
            if claim is not None and answered(call, run) == "SUPERSEDED":
                yield claim


def _kept(call: Call) -> Iterator[str]:
    if call.name == "beat_worker":
        yield from (claim for row in call.rows for claim in row.get("listed") or ())
    elif call.name == "start_runs":
        for run, _version, claim, _state in items(call):
            if claim is not None and answered(call, run) in {"RECORDED", "ALREADY"}:
                yield claim


class _Ways:
    """How each claim went, and whether that is a reason."""

    def __init__(self, history: History) -> None:
        self._moves: dict[str, list[Move]] = defaultdict(list)
        for move in history.moves():
            if move.claim is not None:
                self._moves[move.claim].append(move)
        self._canceled = {
            run.claim
            for root in history.roots or ()
            for run in root.runs
            if run.cancel_requested_at is not None
        }
        taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
        self._failover = len({(one.system, one.timeline) for one in taken}) > 1

    def of(self, claim: str) -> list[Move]:
        return self._moves.get(claim, [])

    def caused(self, claim: str) -> bool:
        moves = self.of(claim)
        started = any(move.state == "RUNNING" for move in moves)
        if self._failover or claim in self._canceled or not started:
            return True
        last = moves[-1]
        if last.state in TERMINAL:
            alone = any(move.reason == "NO_LEADER" for move in moves)
            own = last.actor == "worker" and last.reason != "DROPPED"
            return own or last.reason == "TIMEOUT" or alone
        # not ended: past its deadline by its own word, or the row still stands
        return last.continuation == "CONFIRMING" and last.reason == "NO_LEADER"


def _line(call: Call) -> str:
    return f"{call.worker} {call.name} sent {call.sent:.3f} answered {call.answered}"
