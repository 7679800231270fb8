"""Sees everything that happens, in its one true order, and says what must not have.

Statements run one at a time, so the order in which they were executed is the order in which they took effect:
what is checked here does not depend on any clock of the database or of a host.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import asyncpg

from tests.sim.network import Call
from tests.sim.work import Executor

if TYPE_CHECKING:
    from tests.sim.world import World

# the arguments that matter, by their place
ARGUMENTS: Final[dict[str, dict[str, int]]] = {
    "acquire_tenure": {"worker": 0, "epoch_seen": 3, "timeline_seen": 5},
    "renew_tenure": {"epoch": 0},
    "resign_tenure": {"epoch": 0, "reason": 2},
    "assign_runs": {"epoch": 0, "ids": 1, "versions": 2, "workers": 3, "silent": 4},
    "orphan_runs": {"epoch": 0, "ids": 1, "versions": 2},
    "confirm_runs": {"epoch": 0, "workers": 1, "beat_seqs": 2},
    "expire_runs": {"epoch": 0, "ids": 1, "versions": 2, "beat_seqs": 3},
    "time_out_runs": {"epoch": 0, "ids": 1, "versions": 2},
    "cancel_runs": {"epoch": 0, "ids": 2, "versions": 3},
    "exhaust_runs": {"epoch": 0, "ids": 2, "versions": 3},
    "make_next_attempts": {"epoch": 0},
    "fire_schedules": {"epoch": 0, "ids": 1, "instants": 9},
    "process_events": {"epoch": 0},
    "start_runs": {"worker": 0, "beat_no": 2, "ids": 3, "versions": 4, "claims": 5},
    "beat_worker": {"worker": 0, "beat_no": 2, "epoch_seen": 3, "claims": 4, "draining": 8},
    "finish_runs": {"worker": 0, "ids": 1, "claims": 2, "epochs": 3, "states": 4},
    "release_runs": {"worker": 0, "ids": 1, "claims": 2},
    "confirm_self": {"worker": 0, "claims": 1},
    "leave_worker": {"worker": 0},
}
FENCED: Final = frozenset(name for name, places in ARGUMENTS.items() if places.get("epoch") == 0) - {
    "renew_tenure",
    "resign_tenure",
}
ENDING: Final = frozenset({"expire_runs", "time_out_runs", "cancel_runs"})
OWN_TIME: Final = ("CANCELED", "TIMED_OUT")


class Witness:
    def __init__(self, world: "World") -> None:
        self._world = world
        self.epoch = 0
        self.outcomes: dict[int, str] = {}
        self.fenced = 0
        self.seen: dict[str, int] = defaultdict(int)
        self._listed_at: dict[UUID, float] = {}
        self._claim_of: dict[int, UUID] = {}
        self._executing: dict[int, list[Executor]] = defaultdict(list)
        self._sink: dict[int, int] = {}

    # statements

    def invoked(self, call: Call) -> None:
        if call.name in ARGUMENTS:
            self._line(call, "invoke", args=_arguments(call))

    def executed(self, call: Call, outcome: Any) -> None:
        if call.name not in ARGUMENTS:
            return
        if isinstance(outcome, asyncpg.PostgresError):
            self._note(call, "refused", sqlstate=outcome.sqlstate)
            self.fenced += outcome.sqlstate == "TN001"
            return
        result = _result(outcome)
        if result or call.name not in ("process_events", "make_next_attempts", "acquire_tenure"):
            self._note(call, "executed", result=result)
        if call.name in FENCED and outcome and call.args[0] != self.epoch and _changed(call, outcome):
            self._world.violate("a write under an epoch that was over", call=call.name,
                                epoch=call.args[0], current=self.epoch, result=result)  # fmt: skip
        if (check := getattr(self, f"_on_{call.name}", None)) is not None:
            check(call, outcome)
        if call.name in ENDING:
            self._on_ending(call, outcome)

    def answered(self, call: Call, outcome: Any) -> None:
        if call.name not in ARGUMENTS:
            return
        if isinstance(outcome, asyncpg.PostgresError):
            self._line(call, "fail", sqlstate=outcome.sqlstate)
        elif isinstance(outcome, Exception):
            self._line(call, "unknown")
        else:
            self._line(call, "ok", result=_result(outcome))

    def failed_over(self) -> None:
        """Commits were lost: what was seen of them does not bind the new server."""
        self.outcomes.clear()
        self._listed_at.clear()

    def _on_acquire_tenure(self, call: Call, outcome: Any) -> None:
        for row in outcome:
            if row["epoch"] <= self.epoch:
                self._world.violate("an epoch given out twice, or backwards", epoch=row["epoch"],
                                    before=self.epoch, worker=call.args[0])  # fmt: skip
            self.epoch = row["epoch"]
            self.seen["leader_change"] += 1

    def _on_start_runs(self, call: Call, outcome: Any) -> None:
        claims = dict(zip(call.args[3], call.args[5], strict=True))
        for row in outcome:
            if row["answer"] != "REFUSED":
                self._claim_of[row["id"]] = claims[row["id"]]
                self._listed_at[claims[row["id"]]] = self._world.loop.now

    def _on_beat_worker(self, _call: Call, outcome: Any) -> None:
        for claim in outcome[0]["listed"]:
            self._listed_at[claim] = self._world.loop.now

    def _on_confirm_runs(self, _call: Call, outcome: Any) -> None:
        self.seen["confirming"] += len(outcome)

    def _on_orphan_runs(self, _call: Call, outcome: Any) -> None:
        self.seen["reassigned"] += len(outcome)

    def _on_finish_runs(self, call: Call, outcome: Any) -> None:
        wanted = dict(zip(call.args[1], call.args[4], strict=True))
        claims = dict(zip(call.args[1], call.args[2], strict=True))
        for row in outcome:
            run = row["id"]
            if row["answer"] == "RECORDED":
                self._ended(run, wanted[run], call.name)
            elif row["answer"] == "SUPERSEDED":
                self.seen["late_finish"] += 1
                listed = self._world.loop.now - self._listed_at.get(claims[run], -1e9)
                healthy = listed < self._world.timings.confirm_after and row["state"] not in OWN_TIME
                if (row["state"] == "RUNNING" or healthy) and not self._world.failovers:
                    self._world.violate("a healthy worker's outcome was refused", run=run,
                                        state=row["state"], listed_seconds_ago=listed)  # fmt: skip

    def _on_ending(self, call: Call, outcome: Any) -> None:
        for row in outcome:
            state = row["state"] if "state" in row else call.name  # noqa: SIM401  a Record has no get with default
            self._ended(row["id"], state, call.name)
            if call.name != "expire_runs":
                continue
            self.seen["timed_out"] += 1
            listed = self._world.loop.now - self._listed_at.get(self._claim_of.get(row["id"]), -1e9)  # type: ignore[arg-type]
            if listed < 0.95 * self._world.timings.stop_bound:
                self._world.violate("an attempt was expired that was confirmed within D", run=row["id"],
                                    listed_seconds_ago=listed)  # fmt: skip

    def _ended(self, run: int, state: str, by: str) -> None:
        if run in self.outcomes:
            self._world.violate(
                "an attempt ended twice", run=run, first=self.outcomes[run], then=state, by=by
            )
        self.outcomes[run] = state

    # executions

    def began(self, executor: Executor) -> None:
        self._effect("begin", executor)
        others = self._executing[executor.root]
        if others:
            self._world.violate("two executions at once", root=executor.root,
                                one=others[0].token, other=executor.token)  # fmt: skip
        others.append(executor)
        if job := executor.claim.payload.get("alone"):
            rivals = [
                one for some in self._executing.values() for one in some
                if one is not executor and one.claim.payload.get("alone") == job
            ]  # fmt: skip
            if rivals:
                self._world.violate("more executions of a job than its concurrency", job=job,
                                    one=rivals[0].token, other=executor.token)  # fmt: skip

    def alive(self, executor: Executor) -> None:
        if executor.ended:
            return
        world = self._world
        world.record.line("effects", world.t, what="alive", host=executor.host.place, **executor.token)
        accepted = executor.claim.attempt >= self._sink.get(executor.root, 0)
        self._sink[executor.root] = max(self._sink.get(executor.root, 0), executor.claim.attempt)
        world.record.line("sink", world.t, seq=len(world.record.lines["sink"]) + 1, accepted=accepted,
                          reason=None if accepted else "OLDER_ATTEMPT", **executor.token)  # fmt: skip

    def ended(self, executor: Executor, how: str) -> None:
        self._executing[executor.root].remove(executor)
        self._effect("end", executor, how=how)

    def _effect(self, what: str, executor: Executor, **more: Any) -> None:
        world = self._world
        world.record.note(world.t, executor.host.worker_id, what, **executor.token, **more)
        world.record.line("effects", world.t, what=what, host=executor.host.place, **executor.token)

    def _note(self, call: Call, what: str, **facts: Any) -> None:
        world = self._world
        sent = round(call.sent_at, 4)
        world.record.note(
            world.t, call.host.worker_id, what, call=call.name, sent=sent, **_arguments(call), **facts
        )

    def _line(self, call: Call, kind: str, **facts: Any) -> None:
        world = self._world
        world.record.line(f"calls-{call.host.place}", world.t, n=call.number, worker=call.host.worker_id,
                          kind=kind, op_id=call.number, f=call.name, **facts)  # fmt: skip


def _arguments(call: Call) -> dict[str, Any]:
    return {name: _plain(call.args[place]) for name, place in ARGUMENTS[call.name].items()}


def _result(rows: Sequence[asyncpg.Record]) -> list[dict[str, Any]]:
    hidden = ("payload", "queued_seconds", "system_identifier", "domain", "action")
    return [
        {name: _plain(value) for name, value in row.items() if name not in hidden and value not in (None, [])}
        for row in rows
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def _changed(call: Call, outcome: Any) -> bool:
    return call.name != "process_events" or any(row["runs"] for row in outcome)
