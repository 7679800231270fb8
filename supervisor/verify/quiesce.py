"""K15: nobody is given an attempt while the one before it may still be executing.

Certain is a stop that was written down, and a contact that a move proves: the start, and a confirmation by
the worker's own beat. Where the calls were recorded, every answered beat is one.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from supervisor.verify.history import History, Limits
from supervisor.verify.records import Move, Root, Run
from supervisor.verify.report import Finding, shown

# a contact is counted where a call begins, the move that proves it is written where it ends
CALL_SECONDS: Final = 0.1
# two moves in one call: nobody ever gets such a claim
COMPOSITE = frozenset({"CANCEL_REQUESTED", "ASSIGNMENTS_EXHAUSTED"})


def check(root: Root, limits: Limits) -> Iterator[Finding]:
    for place, run in enumerate(root.runs):
        for assigned in root.moves.get(run.id, ()):
            if assigned.state != "ASSIGNED" or assigned.reason in COMPOSITE:
                continue
            for earlier in root.runs[:place]:
                yield from _unstopped(root, earlier, assigned, limits)


def _unstopped(root: Root, earlier: Run, assigned: Move, limits: Limits) -> Iterator[Finding]:
    if earlier.started_at is None:
        return
    if earlier.stopped_at is not None and earlier.stopped_at <= assigned.at:
        return
    bound = _bound(root, earlier, limits)
    if bound is None:
        return
    proof = [
        move
        for move in root.moves.get(earlier.id, ())
        if move.reason in {"STARTED", "CONFIRMED"} and move.actor == "worker" and move.at <= assigned.at
    ]
    contact = max([earlier.started_at, *(move.at for move in proof)]) - CALL_SECONDS
    if earlier.worker is not None:
        contact = max(contact, limits.last_contact(earlier.worker, assigned.at))
    if (short := contact + bound - assigned.at) > 0:
        text = (
            f"run {assigned.run} was assigned {assigned.at - contact:.3f} s after the last contact of run"
            f" {earlier.id}, whose executor had not stopped (the bound is {bound:g} s)"
        )
        yield Finding("K15", text, tuple(map(shown, [*proof[-1:], assigned])), short)


def _bound(root: Root, earlier: Run, limits: Limits) -> float | None:
    worker = root.workers.get(earlier.worker or "")
    known = [one for one in (worker and worker.stop_bound, limits.stop_bound) if one is not None]
    return max(known, default=None)


def of_history(history: History) -> Iterator[Finding]:
    for root in history.roots or ():
        yield from check(root, history.limits)
    if history.limits.stop_bound is not None:
        yield from _quarantined(history, history.limits.stop_bound)


def _quarantined(history: History, bound: float) -> Iterator[Finding]:
    """On a new timeline nothing is assigned for D, whatever has said that it stopped."""
    taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
    ends = [
        (after.at, after.at + bound)
        for before, after in pairwise(taken)
        if (before.system, before.timeline) != (after.system, after.timeline)
    ]
    if not ends:
        return
    for move in history.moves():
        if move.state == "ASSIGNED" and move.reason not in COMPOSITE:
            for since, until in ends:
                if since <= move.at < until:
                    text = f"run {move.run} was assigned {move.at - since:.3f} s after a failover"
                    yield Finding("K15", text, (shown(move),), until - move.at)
