"""K3: every run went through the states, one version after the other, under one token an attempt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from supervisor.jobrun import MOVES, TERMINAL
from supervisor.verify.history import Limits
from supervisor.verify.records import Move, Root, Run
from supervisor.verify.report import Finding, shown

# (before, after, continuation) and who may do it
STEPS: Final[Mapping[tuple[str | None, str, str], tuple[str, ...]]] = {
    **{(before, after, "NONE"): who for (before, after), who in MOVES.items()},
    ("RUNNING", "RUNNING", "CONFIRMING"): ("leader", "worker"),
    ("RUNNING", "RUNNING", "NONE"): ("worker",),
}


def check(root: Root, limits: Limits) -> Iterator[Finding]:
    """One finding a run: what follows a first fault is its consequence."""
    claims: set[str] = set()
    for run in root.runs:
        moves = root.moves.get(run.id, ())
        fault = _first_fault(moves, claims, limits) or _end_fault(run, moves)
        if fault is not None:
            text, around = fault
            yield Finding("K3", f"run {run.id}: {text}", tuple(map(shown, around)))
    known = {run.id for run in root.runs}
    for lost in sorted(root.moves.keys() - known):
        yield Finding("K3", f"run {lost} has a history and no row", tuple(map(shown, root.moves[lost][-1:])))


Fault = tuple[str, Sequence[Move]]


def _first_fault(moves: Sequence[Move], claims: set[str], limits: Limits) -> Fault | None:
    before: Move | None = None
    for number, move in enumerate(moves, 1):
        if move.version != number:
            text = f"version {number} is missing" if move.version > number else "one version twice"
            return text, moves[max(0, number - 2) : number]
        wrong = _first(move) if before is None else _step(before, move)
        wrong = wrong or _token(before, move, claims)
        if before is not None and move.at < before.at and not limits.clock_steps:
            wrong = wrong or "it is older than the version before it"
        if wrong is not None:
            return wrong, [one for one in (before, move) if one is not None]
        before = move
    return _stamp(moves)


def _first(move: Move) -> str | None:
    if (move.before, move.state, move.continuation) != (None, "PENDING", "NONE"):
        return "it does not begin as PENDING"
    return None


def _step(before: Move, move: Move) -> str | None:
    if before.state in TERMINAL:
        return f"it moved after it had ended as {before.state}"
    if move.before != before.state:
        return f"it was {before.state}, and left {move.before}"
    who = STEPS.get((move.before, move.state, move.continuation))
    if who is None:
        return f"{move.before} -> {move.state} ({move.continuation}) is not a move"
    if move.before == move.state and move.continuation == before.continuation:
        return "a version in which nothing changed"
    if move.actor not in who:
        return f"{move.before} -> {move.state} was made by {move.actor}"
    return None


def _token(before: Move | None, move: Move, claims: set[str]) -> str | None:
    """A claim comes with an assignment, is new, and stays with its worker until the attempt is over."""
    if move.state == "PENDING" or before is None:
        return None
    if move.state == "ASSIGNED":
        if move.claim is None or move.worker is None:
            return "an assignment without a claim"
        if move.claim in claims:
            return "a claim that was given out before"
        claims.add(move.claim)
        return None
    if (move.claim, move.worker) != (before.claim, before.worker):
        return "its claim changed hands"
    return None


def _stamp(moves: Sequence[Move]) -> Fault | None:
    """The epoch of an attempt is that of its assignment, then that of its start, whoever leads later."""
    stamp: Move | None = None
    for move in moves:
        if move.state == "ASSIGNED":
            stamp = move
        elif stamp is None or move.actor != "worker":
            continue
        elif (move.before, move.state) == ("ASSIGNED", "RUNNING"):
            if move.epoch is None or move.epoch < (stamp.epoch or 0):
                return "it was started under an epoch older than its assignment's", [stamp, move]
            stamp = move
        elif move.epoch != stamp.epoch:
            return "the epoch of an attempt was stamped again", [stamp, move]
    return None


def _end_fault(run: Run, moves: Sequence[Move]) -> Fault | None:
    """The row stands where its history ends."""
    if not moves:
        return "it has no history", ()
    return _standing_fault(run, moves[-1]) or _stamps_fault(run, moves)


def _standing_fault(run: Run, last: Move) -> Fault | None:
    row = (run.version, run.state, run.continuation)
    if row != (last.version, last.state, last.continuation):
        return f"its row says {run.state} ({run.continuation}), version {run.version}", [last]
    waiting = run.state in {"PENDING", "ORPHANED"}
    if (run.claim, run.worker) != ((None, None) if waiting else (last.claim, last.worker)):
        return f"its row names claim {run.claim} of {run.worker}", [last]
    if (run.finished_by or "nobody") != (last.actor if last.state in TERMINAL else "nobody"):
        return f"its row was finished by {run.finished_by}", [last]
    if run.finished_by == "worker" and run.stopped_at is None:
        return "its worker ended it, and its executor has not stopped", [last]
    return None


def _stamps_fault(run: Run, moves: Sequence[Move]) -> Fault | None:
    started = next((move for move in moves if (move.before, move.state) == ("ASSIGNED", "RUNNING")), None)
    if (run.started_at is None) != (started is None):
        return "its row and its history do not agree that it was started", moves[-1:]
    if started is not None and run.leader_epoch != started.epoch:
        return f"its row has epoch {run.leader_epoch}", [started]
    assigned = next((move for move in reversed(moves) if move.state == "ASSIGNED"), None)
    if assigned is not None and run.assigned_epoch != assigned.epoch:
        return f"its row was assigned under epoch {run.assigned_epoch}", [assigned]
    return None
