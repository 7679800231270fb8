"""K12: when the faults are over, somebody leads and everything ends, within the stated bounds."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from supervisor.jobrun import TERMINAL
from supervisor.verify.history import History, Scenario
from supervisor.verify.records import Root, Run, Tenure
from supervisor.verify.report import Finding, shown


def check(history: History) -> Iterator[Finding]:
    scenario = history.scenario
    if scenario is None or scenario.healed_at is None or scenario.ended_at is None:
        history.doubts.append("K12 needs the times at which the faults were over and the scenario ended")
        return
    if "terminal" not in scenario.bounds or "leader_gap" not in scenario.bounds:
        history.doubts.append("K12 needs the bounds terminal and leader_gap")
        return
    yield from _runs_end(history, scenario, scenario.healed_at, scenario.ended_at)
    yield from _somebody_leads(history, scenario, scenario.healed_at, scenario.ended_at)


def _runs_end(history: History, scenario: Scenario, healed: float, ended: float) -> Iterator[Finding]:
    bound = scenario.bounds["terminal"]
    took: list[float] = []
    unsure = 0
    for root in history.roots or ():
        for run in root.runs:
            since = max(healed, run.not_before)
            until = run.finished_at if run.state in TERMINAL else None
            if until is not None:
                took.append(max(0.0, until - since))
            if until is None and ended > since + bound:
                yield _late(root, run, bound, None)
            elif until is not None and until > since + bound:
                yield _late(root, run, bound, until - since - bound)
            elif until is None:
                unsure += 1
            elif _owed(run) and ended > max(since, run.retry_at or 0.0) + bound:
                yield _late(root, run, bound, None, "its next attempt was never made")
    if unsure:
        history.doubts.append(f"K12: {unsure} runs had not ended, and their bound had not passed")
    history.figures["runs"] = sum(len(root.runs) for root in history.roots or ())
    _figures(history, "end_after_heal", took)


def _owed(run: Run) -> bool:
    return run.retry_at is not None and run.next_attempt is None


def _late(root: Root, run: Run, bound: float, seconds: float | None, why: str = "") -> Finding:
    text = why or f"it is {run.state} later than {bound:g} s after it was due and the faults were over"
    around = tuple(map(shown, root.moves.get(run.id, ())[-2:]))
    return Finding("K12", f"run {run.id}: {text}", around, seconds)


def _somebody_leads(history: History, scenario: Scenario, healed: float, ended: float) -> Iterator[Finding]:
    bound = scenario.bounds["leader_gap"]
    taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
    if not taken:
        yield Finding("K12", "nobody ever led")
        return
    gaps = list(_gaps(history, taken))
    for since, tenure in gaps:
        if tenure.at - max(since, healed) > bound:
            text = f"nobody led for {tenure.at - max(since, healed):.3f} s before epoch {tenure.epoch}"
            sign = (f"last sign of the leader before it {since:.3f}",)
            yield Finding("K12", text, sign, tenure.at - max(since, healed) - bound)
    last = _last_sign(history, taken[-1])
    if last is not None and ended - max(last, healed) > bound + _lease(scenario):
        text = f"epoch {taken[-1].epoch} was last heard of {ended - last:.3f} s before the end"
        yield Finding("K12", text)
    history.figures["leader_changes"] = len(taken) - 1
    _figures(history, "leader_gap", [tenure.at - since for since, tenure in gaps])


def _lease(scenario: Scenario) -> float:
    return scenario.timings.get("L", 0.0)


def _gaps(history: History, taken: Sequence[Tenure]) -> Iterator[tuple[float, Tenure]]:
    """Each take-over, and when the leader before it was last known to lead."""
    for before, after in pairwise(taken):
        sign = _last_sign(history, before)
        yield min(before.at if sign is None else sign, after.at), after


def _last_sign(history: History, tenure: Tenure) -> float | None:
    resigned = [
        one.at for one in history.tenures or () if one.what == "RESIGNED" and one.epoch == tenure.epoch
    ]
    if resigned:
        return resigned[0]
    if history.calls is None:
        return None
    renewed = [
        call.sent
        for call in history.called("renew_tenure")
        if call.kind == "ok" and call.rows and call.args.get("epoch") == tenure.epoch
    ]
    return max([tenure.at, *renewed])


def _figures(history: History, name: str, values: Sequence[float]) -> None:
    if values:
        ordered = sorted(values)
        history.figures[f"{name}_max"] = ordered[-1]
        history.figures[f"{name}_p50"] = ordered[len(ordered) // 2]
        history.figures[f"{name}_p99"] = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
