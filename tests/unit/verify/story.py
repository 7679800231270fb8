"""Good histories, told step by step: what database, replicas, executors and sink write down."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

from supervisor.jobrun import TERMINAL
from supervisor.verify.calling import contacts_of
from supervisor.verify.history import History, Limits, Scenario
from supervisor.verify.minutes import instants
from supervisor.verify.records import (
    Call,
    Effect,
    Fault,
    Late,
    Move,
    Offer,
    Root,
    Run,
    Schedule,
    Tenure,
    Term,
    Worker,
)

TIMINGS = {"L": 6.0, "R": 3.0, "retry": 0.5, "H": 0.5, "C": 1.5, "S": 4.0, "k": 1.0, "D": 7.0}
STEP = 0.01


class Story:
    """`t` is the one clock; every call takes a moment, and the database acts in the middle of it."""

    def __init__(self) -> None:
        self.t = 1000.0
        self.epoch = 0
        self.leader = ""
        self.timeline = 1
        self.runs: dict[int, Run] = {}
        self.moves: dict[int, list[Move]] = {}
        self.tenures: list[Tenure] = []
        self.calls: list[Call] = []
        self.effects: list[Effect] = []
        self.offers: list[Offer] = []
        self.lates: list[Late] = []
        self.faults: list[Fault] = []
        self.contact: dict[str, float] = {}
        self.ids = count(1)
        self.claims = count(1)

    def pass_time(self, seconds: float) -> None:
        self.t += seconds

    def lead(self, worker: str) -> None:
        if self.leader:
            self._tenure("RESIGNED")
        self.epoch, self.leader = self.epoch + 1, worker
        self._tenure("ACQUIRED")
        row = {"epoch": self.epoch, "system_identifier": 1, "timeline": self.timeline}
        self._call(worker, "acquire_tenure", {"worker": worker}, [row])

    def renew(self) -> None:
        self._call(self.leader, "renew_tenure", {"epoch": self.epoch}, [{"resign_requested": False}])

    def enqueue(self) -> int:
        run = next(self.ids)
        self._make(run, run, None, 1, 0)
        return run

    def assign(self, run: int, worker: str) -> None:
        row = self.runs[run]
        claim = str(UUID(int=next(self.claims)))
        attempt = row.attempt + (row.state == "ORPHANED")
        args = {"epoch": self.epoch, "ids": [run], "versions": [row.version], "workers": [worker]}
        with_answer = [{"id": run, "worker_id": worker, "attempt": attempt}]
        self._move(
            run,
            "ASSIGNED",
            "leader",
            "ASSIGNED",
            worker=worker,
            claim=claim,
            attempt=attempt,
            assigned_epoch=self.epoch,
        )
        self._call(self.leader, "assign_runs", args, with_answer)

    def look(self, worker: str) -> None:
        mine = [run for run in self.runs.values() if run.worker == worker and run.state == "ASSIGNED"]
        rows = [{"id": run.id, "version": run.version, "claim_id": run.claim} for run in mine]
        self._call(worker, "read_assigned", {"worker": worker}, rows)

    def start(self, run: int, *, lost_answer: bool = False) -> None:
        row = self.runs[run]
        worker, claim = row.worker or "", row.claim or ""
        args = {"worker": worker, "ids": [run], "versions": [row.version], "claims": [claim]}
        self.contact[claim] = self.t
        self._move(
            run,
            "RUNNING",
            "worker",
            "STARTED",
            leader_epoch=self.epoch,
            starts=row.starts + 1,
            started_at=self.t + STEP / 2,
        )
        if lost_answer:
            self._call(worker, "start_runs", args, [], kind="unknown")
            self.contact[claim] = self.t
        answer = "ALREADY" if lost_answer else "RECORDED"
        self._call(worker, "start_runs", args, [{"id": run, "answer": answer}])
        self._effect(run, "begin")
        self.offer(run)

    def offer(self, run: int) -> None:
        row = self.runs[run]
        newest = max((one.attempt for one in self.offers if one.root == row.root), default=0)
        accepted = row.attempt >= newest
        self.offers.append(
            Offer(
                len(self.offers) + 1,
                self.t,
                row.root,
                run,
                row.attempt,
                row.leader_epoch or 0,
                row.claim or "",
                accepted,
                None if accepted else "older",
            )
        )
        self.t += STEP

    def beat(self, worker: str) -> None:
        named = [
            run for run in self.runs.values() if run.worker == worker and run.state in {"ASSIGNED", "RUNNING"}
        ]
        for run in named:
            if run.continuation == "CONFIRMING":
                self._move(run.id, "RUNNING", "worker", "CONFIRMED", continuation="NONE")
            if run.claim is not None:
                self.contact[run.claim] = self.t
        claims = [run.claim for run in named]
        row = {"listed": claims, "epoch": self.epoch, "system_identifier": 1, "timeline": self.timeline}
        self._call(worker, "beat_worker", {"worker": worker, "claims": claims}, [row])
        for run in named:
            if run.state == "RUNNING":
                self._effect(run.id, "alive")

    def release(self, run: int) -> None:
        row = self.runs[run]
        self._move(run, "ORPHANED", "worker", "RELEASED", claim=None, worker=None)
        self._call(row.worker or "", "release_runs", {"ids": [run], "claims": [row.claim]}, [])

    def confirm(self, run: int) -> None:
        """The worker was silent for C."""
        self._move(run, "RUNNING", "leader", "SILENT", continuation="CONFIRMING")
        self._call(self.leader, "confirm_runs", {"epoch": self.epoch}, [{"id": run}])

    def expire(self, run: int, *, late: bool = True) -> None:
        """The executor stops at S, the leader ends it at D, and the worker's own word comes too late."""
        row = self.runs[run]
        self.t = max(self.t, self.contact[row.claim or ""] + TIMINGS["S"])
        self._effect(run, "end")
        self.t = max(self.t, self.contact[row.claim or ""] + TIMINGS["D"] + 0.1)
        args = {"epoch": self.epoch, "ids": [run], "versions": [row.version]}
        owed = self.t if row.starts < row.max_attempts else None
        self._end(run, "TIMED_OUT", "leader", "CONTINUATION_EXPIRED", retry_at=owed)
        self._call(self.leader, "expire_runs", args, [{"id": run, "state": "TIMED_OUT"}])
        if late:
            self.lates.append(Late(self.t, run, row.claim or "", row.worker or "", "SUCCEEDED"))
            self.runs[run] = self.runs[run]._replace(stopped_at=self.t)
            self._finish_call(row, "SUCCEEDED", "SUPERSEDED")

    def finish(self, run: int, state: str = "SUCCEEDED", *, lost_answer: bool = False) -> None:
        row = self.runs[run]
        self.offer(run)
        self._effect(run, "end")
        retry = self.t if state in {"FAILED", "TIMED_OUT"} and row.starts < row.max_attempts else None
        self._end(run, state, "worker", None, retry_at=retry, stopped_at=self.t + STEP / 2)
        if lost_answer:
            self._finish_call(row, state, None)
        self._finish_call(row, state, "ALREADY" if lost_answer else "RECORDED")

    def cancel_queued(self, run: int) -> None:
        """Two moves in one call."""
        row = self.runs[run]
        args = {"epoch": self.epoch, "ids": [run], "versions": [row.version]}
        self.runs[run] = row._replace(cancel_requested_at=self.t)
        self._move(
            run,
            "ASSIGNED",
            "leader",
            "CANCEL_REQUESTED",
            worker=self.leader,
            claim=str(UUID(int=next(self.claims))),
            assigned_epoch=self.epoch,
            attempt=row.attempt + (row.state == "ORPHANED"),
        )
        self._end(run, "CANCELED", "leader", "CANCEL_REQUESTED")
        self._call(self.leader, "cancel_runs", args, [{"id": run}])

    def next_attempt(self, run: int) -> int:
        row = self.runs[run]
        after = next(self.ids)
        self._make(after, row.root, run, row.attempt + 1, row.starts)
        self.runs[run] = row._replace(next_attempt=after)
        self._call(
            self.leader, "make_next_attempts", {"epoch": self.epoch}, [{"id": after, "retry_of_id": run}]
        )
        return after

    def history(self, expects: Sequence[str] = ()) -> History:
        roots = [
            Root(
                root,
                tuple(run for run in self.runs.values() if run.root == root),
                {run.id: tuple(self.moves[run.id]) for run in self.runs.values() if run.root == root},
                {f"w{n}": Worker(f"w{n}", self.t, TIMINGS["D"]) for n in range(1, 10)},
            )
            for root in sorted({run.root for run in self.runs.values()})
        ]
        bounds = {"leader_gap": 10.0, "terminal": 60.0}
        scenario = Scenario("story", TIMINGS, self.t, self.t + 1, bounds, expects=tuple(expects))
        contacts = contacts_of(self.calls)
        term = Term(self.epoch, 1, self.leader or None, 1, self.timeline)
        return History(
            scenario,
            Limits(stop_bound=TIMINGS["D"], contacts=contacts),
            roots=roots,
            tenures=list(self.tenures),
            term=term,
            lates=list(self.lates),
            schedules=[schedule()],
            calls=list(self.calls),
            effects=list(self.effects),
            offers=list(self.offers),
            faults=list(self.faults),
            deaths=[],
            things=[],
        )

    def _tenure(self, what: str) -> None:
        self.t += STEP
        line = Tenure(len(self.tenures) + 1, self.t, self.epoch, self.leader, what, 1, self.timeline)
        self.tenures.append(line)

    def _make(self, run: int, root: int, retry_of: int | None, attempt: int, starts: int) -> None:
        self.runs[run] = Run(
            run,
            root,
            "PENDING",
            1,
            "NONE",
            attempt,
            starts,
            3,
            None,
            None,
            None,
            None,
            retry_of,
            None,
            None,
            None,
            self.t,
            None,
            None,
            None,
            None,
            None,
        )
        actor, epoch = ("enqueue", None) if retry_of is None else ("leader", self.epoch)
        self.moves[run] = [
            Move(run, root, 1, None, "PENDING", "NONE", attempt, self.t, None, epoch, None, actor, None)
        ]
        self.t += STEP

    def _move(self, run: int, state: str, actor: str, reason: str | None, **changes: Any) -> None:
        before = self.runs[run]
        after = before._replace(state=state, version=before.version + 1, **changes)
        self.runs[run] = after
        stamped = after.leader_epoch if after.leader_epoch is not None else after.assigned_epoch
        self.moves[run].append(
            Move(
                run,
                after.root,
                after.version,
                before.state,
                state,
                after.continuation,
                after.attempt,
                self.t + STEP / 2,
                after.worker or before.worker,
                self.epoch if actor == "leader" else stamped,
                after.claim or before.claim,
                actor,
                reason,
            )
        )

    def _end(self, run: int, state: str, actor: str, reason: str | None, **changes: Any) -> None:
        assert state in TERMINAL
        self._move(
            run,
            state,
            actor,
            reason,
            continuation="NONE",
            finished_at=self.t + STEP / 2,
            finished_by=actor,
            error_code=reason,
            **changes,
        )

    def _finish_call(self, row: Run, state: str, answer: str | None) -> None:
        args = {
            "worker": row.worker,
            "ids": [row.id],
            "claims": [row.claim],
            "epochs": [row.leader_epoch],
            "states": [state],
        }
        rows = [{"id": row.id, "answer": answer}] if answer else []
        self._call(row.worker or "", "finish_runs", args, rows, kind="ok" if answer else "unknown")

    def _effect(self, run: int, what: str) -> None:
        row = self.runs[run]
        self.t += STEP
        effect = Effect(self.t, what, run, row.root, row.attempt, row.leader_epoch, row.claim or "", 1, "h")
        self.effects.append(effect)

    def _call(
        self, worker: str, name: str, args: dict[str, Any], rows: list[dict[str, Any]], kind: str = "ok"
    ) -> None:
        n = len(self.calls)
        done = self.t + STEP if kind == "ok" else None
        self.calls.append(Call(n, worker, name, f"op{n}", self.t, done, kind, args, tuple(rows), None))
        self.t += 2 * STEP


@cache
def schedule() -> Schedule:
    """A nightly one over a few days with a change of the clocks."""
    since, until = 1729700000.0, 1730200000.0
    fired = tuple(instants("30 2 * * *", "Europe/Berlin", since, until))
    return Schedule("nightly", "30 2 * * *", "Europe/Berlin", "all", since, until, fired, ())


def with_move(history: History, run: int, version: int, **changes: Any) -> History:
    """One line of a run's history, forged."""
    return with_moves(
        history,
        run,
        [one._replace(**changes) if one.version == version else one for one in moves_of(history, run)],
    )


def with_moves(history: History, run: int, moves: Sequence[Move]) -> History:
    roots = [
        root._replace(moves={**root.moves, run: tuple(moves)}) if run in root.moves else root
        for root in history.roots or ()
    ]
    return replace(history, roots=roots)


def moves_of(history: History, run: int) -> tuple[Move, ...]:
    return next(root.moves[run] for root in history.roots or () if run in root.moves)


def with_run(history: History, run: int, **changes: Any) -> History:
    roots = [
        root._replace(runs=tuple(one._replace(**changes) if one.id == run else one for one in root.runs))
        for root in history.roots or ()
    ]
    return replace(history, roots=roots)


def with_call(history: History, n: int, **changes: Any) -> History:
    calls = [one._replace(**changes) if one.n == n else one for one in history.calls or ()]
    return replace(history, calls=calls)


def calls_of(history: History, name: str) -> list[Call]:
    return [call for call in history.calls or () if call.name == name]
