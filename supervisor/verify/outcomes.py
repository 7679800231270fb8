"""K6 and K7: a call is applied once, and what was answered is there."""

from collections import defaultdict
from collections.abc import Iterator

from supervisor.jobrun import TERMINAL
from supervisor.verify.history import History
from supervisor.verify.records import Call, Move
from supervisor.verify.report import Finding, short, shown
from supervisor.verify.touches import COMPARING, answered, items, touches


def applied_once(history: History) -> Iterator[Finding]:
    """By the token: a start and a completion of a claim are each recorded once, by the first that asks."""
    asked: dict[tuple[str, str | None], list[Call]] = defaultdict(list)
    recorded: dict[tuple[str, str | None], list[Call]] = defaultdict(list)
    for call in sorted(history.called("start_runs", "finish_runs"), key=lambda one: one.sent):
        for run, _version, claim, _state in items(call):
            key = (call.name, claim)
            answer = answered(call, run)
            if answer == "RECORDED":
                recorded[key].append(call)
            elif answer == "ALREADY" and not asked[key]:
                yield _told("K6", f"claim {short(claim)}: ALREADY, and nobody had asked before", call)
            asked[key].append(call)
    for (name, claim), calls in recorded.items():
        if len(calls) > 1:
            yield _told("K6", f"claim {short(claim)}: {name} was recorded {len(calls)} times", *calls)
    yield from _given_twice(history)
    _count_unknown(history)


def _given_twice(history: History) -> Iterator[Finding]:
    """Among the answers that were kept; one that a failover lost moved nothing."""
    by_version: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for touch in touches(history):
        if touch.wrote and touch.call.kind == "ok" and touch.call.name in COMPARING:
            by_version[touch.run, touch.version].append(touch.call)
    for (run, version), calls in by_version.items():
        if len(calls) > 1:
            yield _told("K6", f"run {run}: two calls wrote version {version}", *calls)


def _count_unknown(history: History) -> None:
    unknown = {call.n for call in history.calls or () if call.kind == "unknown"}
    applied = {touch.call.n for touch in touches(history) if touch.call.n in unknown}
    history.figures["unknown_calls"] = len(unknown)
    history.figures["unknown_calls_applied"] = len(applied)


def kept(history: History) -> Iterator[Finding]:
    """Every answer that promised something, against the database as it was at the end."""
    lossy = history.scenario is not None and history.scenario.async_failover
    here, elsewhere = _Kept(history), _Kept(history.lost) if history.lost is not None else None
    lost = 0
    for call in history.calls or ():
        if call.kind != "ok":
            continue
        for promise in _promises(call):
            if here.has(promise):
                continue
            lost += 1
            if not lossy or (elsewhere is not None and not elsewhere.has(promise)):
                run, what, claim = promise
                text = f"run {run}: {what} of claim {short(claim)} was answered, and is not there"
                yield Finding("K7", text, (_line(call), *here.instead(run)))
    history.figures["lost_answers"] = lost


Promise = tuple[int, str, str | None]


def _promises(call: Call) -> Iterator[Promise]:
    if call.name in {"start_runs", "finish_runs"}:
        for run, _version, claim, state in items(call):
            # repeated after a lost answer: it says the same
            if answered(call, run) in {"RECORDED", "ALREADY"}:
                yield run, state or "RUNNING", claim
    elif call.name == "assign_runs":
        for run, version, _claim, _state in items(call):
            if any(row.get("id") == run for row in call.rows) and version is not None:
                yield run, f"ASSIGNED version {version + 1}", None
    elif call.name == "make_next_attempts":
        for row in call.rows:
            yield row["id"], "PENDING version 1", None


class _Kept:
    def __init__(self, history: History) -> None:
        self._moves: dict[int, list[Move]] = defaultdict(list)
        self._states = {run: one.state for run, (_root, one) in history.by_run.items()}
        self._facts: set[Promise] = set()
        for move in history.moves():
            self._moves[move.run].append(move)
            self._facts.add((move.run, f"{move.state} version {move.version}", None))
            self._facts.add((move.run, move.state, move.claim))

    def has(self, promise: Promise) -> bool:
        run, what, _claim = promise
        return promise in self._facts and (what not in TERMINAL or self._states.get(run) == what)

    def instead(self, run: int) -> Iterator[str]:
        yield from map(shown, self._moves.get(run, ())[-2:])


def _told(name: str, text: str, *calls: Call) -> Finding:
    return Finding(name, text, tuple(map(_line, calls)))


def _line(call: Call) -> str:
    return f"{call.worker} {call.name} {call.kind} sent {call.sent:.6f} answered {call.answered} op {call.op}"
