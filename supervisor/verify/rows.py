"""From rows, as PostgreSQL or `row_to_json` gives them, to records."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from sys import intern
from typing import Any

from supervisor.store import Record
from supervisor.verify.records import Late, Move, Root, Run, Tenure, Term, Worker

Row = Mapping[str, Any] | Record
Clock = Callable[[Any], float]


def wall(value: Any) -> float:
    """Seconds since 1970 of a timestamp or of its text."""
    if isinstance(value, datetime):
        return value.timestamp()
    if value in {"infinity", "-infinity"}:
        return float(value.replace("infinity", "inf"))
    moment = datetime.fromisoformat(value)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def move_of(row: Row, clock: Clock = wall) -> Move:
    return Move(
        run=row["run_id"],
        root=row["root_id"],
        version=row["version"],
        before=_word(row["from_state"]),
        state=intern(row["to_state"]),
        continuation=intern(row["continuation_state"]),
        attempt=row["attempt"],
        at=clock(row["at"]),
        worker=_word(row["worker_id"]),
        epoch=row["leader_epoch"],
        claim=_text(row["claim_id"]),
        actor=intern(row["actor"]),
        reason=_word(row["reason"]),
    )


def run_of(row: Row, clock: Clock = wall) -> Run:
    def time(name: str) -> float | None:
        return None if row[name] is None else clock(row[name])

    return Run(
        id=row["id"],
        root=row["root_id"],
        state=row["state"],
        version=row["version"],
        continuation=row["continuation_state"],
        attempt=row["attempt"],
        starts=row["starts"],
        max_attempts=row["max_attempts"],
        assigned_epoch=row["assigned_epoch"],
        leader_epoch=row["leader_epoch"],
        worker=row["assigned_worker_id"],
        claim=_text(row["claim_id"]),
        retry_of=row["retry_of_id"],
        next_attempt=row["next_attempt_id"],
        error_code=row["error_code"],
        finished_by=row["finished_by"],
        not_before=clock(row["not_before"]),
        started_at=time("started_at"),
        finished_at=time("finished_at"),
        stopped_at=time("executor_stopped_at"),
        retry_at=time("retry_at"),
        cancel_requested_at=time("cancel_requested_at"),
    )


def tenure_of(row: Row, clock: Clock = wall) -> Tenure:
    return Tenure(
        id=row["id"],
        at=clock(row["at"]),
        epoch=row["epoch"],
        holder=row["holder"],
        what=row["what"],
        system=row["system_identifier"],
        timeline=row["timeline"],
    )


def term_of(row: Row) -> Term:
    return Term(row["epoch"], row["first_epoch"], row["holder"], row["system_identifier"], row["timeline"])


def late_of(row: Row, clock: Clock = wall) -> Late:
    return Late(clock(row["at"]), row["run_id"], str(row["claim_id"]), row["worker_id"], row["state"])


def worker_of(row: Row, clock: Clock = wall) -> Worker:
    return Worker(row["worker_id"], clock(row["heartbeat_at"]), row["stop_bound_seconds"])


def roots_of(runs: Iterable[Run], moves: Iterable[Move], workers: Iterable[Worker]) -> list[Root]:
    """By root: the runs by attempt, the moves of each by version. A history without a row is a root too."""
    known = {worker.id: worker for worker in workers}
    runs_of: dict[int, list[Run]] = defaultdict(list)
    moves_of: dict[int, dict[int, list[Move]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        runs_of[run.root].append(run)
    for move in moves:
        moves_of[move.root][move.run].append(move)
    return [
        Root(
            id=root,
            runs=tuple(sorted(runs_of.get(root, ()), key=lambda run: (run.attempt, run.id))),
            moves={
                run: tuple(sorted(of_run, key=lambda move: (move.version, move.at)))
                for run, of_run in moves_of.get(root, {}).items()
            },
            workers=known,
        )
        for root in sorted(runs_of.keys() | moves_of.keys())
    ]


def _word(text: str | None) -> str | None:
    """One of a few: kept once, not once a line."""
    return None if text is None else intern(text)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
