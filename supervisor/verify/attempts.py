"""K4: the attempts of a root are 1, 2, 3, ..., one at a time, and no more than it was allowed."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from supervisor.jobrun import LIVE
from supervisor.verify.history import Limits
from supervisor.verify.records import Move, Root, Run
from supervisor.verify.report import Finding, shown

GIVEN_BACK = frozenset({"DRAINED", "DROPPED"})


def check(root: Root, _limits: Limits) -> Iterator[Finding]:
    """One finding a root: what follows a first fault is its consequence."""
    fault = _alone(root) or _chain(root.runs) or _numbers(root) or _starts(root.runs)
    if fault is not None:
        text, around = fault
        yield Finding("K4", f"root {root.id}: {text}", tuple(map(shown, around)))
    else:
        yield from _turns(root)


Fault = tuple[str, Sequence[Move]]


def _alone(root: Root) -> Fault | None:
    for text, states in (("two live runs", LIVE), ("more than one success", frozenset({"SUCCEEDED"}))):
        found = [run.id for run in root.runs if run.state in states]
        if len(found) > 1:
            return f"{text}: {found}", [root.moves[run][-1] for run in found if root.moves.get(run)]
    ended = [run for run in root.runs[:-1] if run.state in LIVE or run.state == "SUCCEEDED"]
    if ended:
        return f"an attempt follows run {ended[0].id}, which is {ended[0].state}", ()
    return None


def _chain(runs: Sequence[Run]) -> Fault | None:
    """Each row names the one before it and the one after."""
    if runs and (runs[0].id != runs[0].root or runs[0].retry_of is not None):
        return f"its first run is {runs[0].id}, a retry of {runs[0].retry_of}", ()
    for before, after in pairwise(runs):
        if after.retry_of != before.id or before.next_attempt != after.id:
            names = f"run {after.id} retries {after.retry_of}, run {before.id} is followed by"
            return f"{names} {before.next_attempt}", ()
    if runs and runs[-1].next_attempt is not None:
        return f"run {runs[-1].id} is followed by {runs[-1].next_attempt}, which is not there", ()
    return None


def _numbers(root: Root) -> Fault | None:
    """An attempt is an assignment: it grows with the next row, and when an orphan is assigned again."""
    number = 0
    for run in root.runs:
        before: Move | None = None
        for move in root.moves.get(run.id, ()):
            grows = before is None or (move.before, move.state) == ("ORPHANED", "ASSIGNED")
            number += grows
            if move.attempt != number:
                return f"attempt {number} is numbered {move.attempt}", [
                    one for one in (before, move) if one is not None
                ]
            before = move
        if before is None:
            number = run.attempt
        elif run.attempt != number:
            return f"run {run.id} says attempt {run.attempt}, its history {number}", ()
    return None


def _starts(runs: Sequence[Run]) -> Fault | None:
    carried = 0
    for run in runs:
        if run.starts > run.max_attempts:
            return f"run {run.id} has {run.starts} starts of {run.max_attempts}", ()
        if run.starts != carried + (run.started_at is not None):
            return f"run {run.id} counts {run.starts} starts, there were {carried} before it", ()
        carried = max(0, run.starts - (run.error_code in GIVEN_BACK))
    return None


def _turns(root: Root) -> Iterator[Finding]:
    """The next row is made when the one before it has ended."""
    for before, after in pairwise(root.runs):
        ended, made = root.moves.get(before.id, ())[-1:], root.moves.get(after.id, ())[:1]
        if ended and made and made[0].at < ended[0].at:
            text = f"root {root.id}: run {after.id} was made before run {before.id} had ended"
            yield Finding("K4", text, tuple(map(shown, [*ended, *made])), ended[0].at - made[0].at)
