"""K8 and K10: what the executors wrote down themselves, which no row can fake."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final, NamedTuple

from supervisor.verify.history import History
from supervisor.verify.records import Call
from supervisor.verify.report import Finding, short
from supervisor.verify.touches import answered, items

EPSILON: Final = 0.5  # a timer, a signal and the writing of a line
GRAIN: Final = 0.02  # executors may read a clock of hundredths


class Execution(NamedTuple):
    claim: str
    run: int
    root: int
    attempt: int
    begins: int
    first: float
    last: float
    ended: bool
    pids: frozenset[tuple[str, int]]

    def line(self) -> str:
        pids = ", ".join(f"{host}/{pid}" for host, pid in sorted(self.pids))
        over = "ended" if self.ended else "last seen"
        return (
            f"run {self.run} attempt {self.attempt} claim {short(self.claim)} ({pids})"
            f" began {self.first:.3f}, {over} {self.last:.3f}"
        )


def executions(history: History) -> list[Execution]:
    """By claim, from the first sign to the last."""
    found: dict[str, Execution] = {}
    for one in history.effects or ():
        pids = frozenset({(one.host, one.pid)})
        begins, ended = int(one.what == "begin"), one.what == "end"
        old = found.get(one.claim)
        if old is None:
            found[one.claim] = Execution(
                one.claim, one.run, one.root, one.attempt, begins, one.t, one.t, ended, pids
            )
        else:
            found[one.claim] = old._replace(
                begins=old.begins + begins,
                first=min(old.first, one.t),
                last=max(old.last, one.t),
                ended=old.ended or ended,
                pids=old.pids | pids,
            )
    return list(found.values())


def overlap(history: History) -> Iterator[Finding]:
    """K8. One that never said it ended lasts until its process died, where that was waited for."""
    died = {(one.host, one.pid): one.t for one in history.deaths or ()}
    by_root: dict[int, list[tuple[float, float, Execution]]] = defaultdict(list)
    count = 0
    for one in executions(history):
        count += 1
        if one.begins > 1:
            yield Finding("K8", f"claim {short(one.claim)} was executed {one.begins} times", (one.line(),))
        deaths = [died[pid] - GRAIN for pid in one.pids if pid in died]
        until = one.last if one.ended else max([one.last, *deaths])
        by_root[one.root].append((one.first, until, one))
    history.figures["executions"] = count
    for root, group in sorted(by_root.items()):
        yield from _sweep(root, sorted(group, key=lambda entry: entry[:2]))


def _sweep(root: int, group: list[tuple[float, float, Execution]]) -> Iterator[Finding]:
    longest: tuple[float, Execution] | None = None
    for first, until, one in group:
        if longest is not None and first < longest[0]:
            text = f"root {root}: two executions at once for {min(until, longest[0]) - first:.3f} s"
            yield Finding("K8", text, (longest[1].line(), one.line()))
        if longest is None or until > longest[0]:
            longest = (until, one)


def self_stop(history: History) -> Iterator[Finding]:
    """K10."""
    timings = history.scenario.timings if history.scenario is not None else {}
    if "S" not in timings or "k" not in timings:
        history.doubts.append("K10 needs the timings S and k")
        return
    bound = timings["S"] + timings["k"] + EPSILON
    first, last = _contacts(history)
    longest = 0.0
    for one in executions(history):
        if one.claim not in first:
            yield Finding("K10", f"claim {short(one.claim)} was executed and never started", (one.line(),))
            continue
        if one.first < first[one.claim] - GRAIN:
            text = f"claim {short(one.claim)} was executed before its start was answered"
            yield Finding("K10", text, (one.line(), f"answered {first[one.claim]:.3f}"))
        over = one.last - last[one.claim]
        longest = max(longest, over)
        if over > bound:
            text = f"claim {short(one.claim)} was executed {over:.3f} s after its last contact"
            yield Finding("K10", text, (one.line(), f"last contact sent {last[one.claim]:.3f}"))
    history.figures["longest_after_contact"] = longest


def _contacts(history: History) -> tuple[dict[str, float], dict[str, float]]:
    """By claim: when its start was answered, and when the last call that was told of it was sent."""
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for call in history.called("start_runs", "beat_worker"):
        if call.kind != "ok" or call.answered is None:
            continue
        for claim in _confirmed(call):
            last[claim] = max(last.get(claim, call.sent), call.sent)
            if call.name == "start_runs":
                first[claim] = min(first.get(claim, call.answered), call.answered)
    return first, last


def _confirmed(call: Call) -> Iterator[str]:
    if call.name == "beat_worker":
        yield from (claim for row in call.rows for claim in row.get("listed") or ())
        return
    for run, _version, claim, _state in items(call):
        if claim is not None and answered(call, run) in {"RECORDED", "ALREADY"}:
            yield claim
