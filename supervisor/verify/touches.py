"""Which call wrote or saw which version of which run."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from supervisor.jobrun import TERMINAL
from supervisor.verify.history import History
from supervisor.verify.records import Call, Move

# calls that compare a version and, where they answer with the run, have written the next one
COMPARING: Final = frozenset(
    {"assign_runs", "orphan_runs", "expire_runs", "time_out_runs", "cancel_runs", "exhaust_runs"}
)
READING: Final = frozenset({"read_assigned", "read_due", "read_attention"})


class Touch(NamedTuple):
    run: int
    version: int
    call: Call
    wrote: bool


def touches(history: History) -> Iterator[Touch]:
    """Writes that were answered, writes whose answer was lost and whose effect is there, and reads."""
    moves = {(move.run, move.version): move for move in history.moves()}
    ends = {(move.run, move.claim): move for move in moves.values() if move.state in TERMINAL}
    unsure: dict[tuple[int, int], list[Touch]] = defaultdict(list)
    written: set[tuple[int, int]] = set()
    for call in history.calls or ():
        if call.kind == "ok" and call.name in READING:
            yield from _reads(call, moves)
        for touch in _writes(call, moves, ends):
            if call.kind == "ok":
                written.add((touch.run, touch.version))
                yield touch
            else:
                unsure[touch.run, touch.version].append(touch)
    for key, candidates in unsure.items():
        if key not in written:
            yield min(candidates, key=lambda touch: touch.call.sent)


def _reads(call: Call, moves: dict[tuple[int, int], Move]) -> Iterator[Touch]:
    """Of what is still there: a failover may have taken back what was seen."""
    for row in call.rows:
        move = moves.get((row["id"], row["version"])) if "version" in row else None
        if move is not None and row.get("claim_id", move.claim) == move.claim:
            yield Touch(row["id"], row["version"], call, wrote=False)


def _writes(
    call: Call, moves: dict[tuple[int, int], Move], ends: dict[tuple[int, str | None], Move]
) -> Iterator[Touch]:
    if call.kind not in {"ok", "unknown"}:
        return
    answers = {row.get("id"): row for row in call.rows}
    for run, version, claim, _state in items(call):
        if call.name == "finish_runs":
            end = ends.get((run, claim))
            if end is not None and end.actor == "worker" and _took(call, answers.get(run), "RECORDED"):
                yield Touch(run, end.version, call, wrote=True)
        elif call.name == "start_runs":
            move = moves.get((run, (version or 0) + 1))
            fits = move is not None and (move.state, move.claim) == ("RUNNING", claim)
            if version is not None and fits and _took(call, answers.get(run), "RECORDED"):
                yield Touch(run, version + 1, call, wrote=True)
        elif call.name in COMPARING and version is not None:
            move = moves.get((run, version + 1))
            fits = move is not None and move.actor == "leader" and move.epoch == call.args.get("epoch")
            if fits and (call.kind == "unknown" or run in answers):
                yield Touch(run, version + 1, call, wrote=True)


def _took(call: Call, answer: dict[str, Any] | None, wanted: str) -> bool:
    return call.kind == "unknown" or (answer is not None and answer.get("answer") == wanted)


def items(call: Call) -> Iterator[tuple[int, int | None, str | None, str | None]]:
    """(run, version, claim, state) of a call about several runs."""
    ids = call.args.get("ids") or ()
    columns = [call.args.get(name) or () for name in ("versions", "claims", "states")]
    for place, run in enumerate(ids):
        version, claim, state = (column[place] if place < len(column) else None for column in columns)
        yield run, version, claim, state


def answered(call: Call, run: int) -> str | None:
    """What a call said about one of its runs."""
    return next((row.get("answer") for row in call.rows if row.get("id") == run), None)
