"""The worker's side of a run: take what was assigned, start it, execute it, report it.

Nothing is executed before the start was answered. From then on the claim's stop deadline (claims.py)
governs: the handler is cancelled when it passes, and whatever the handler says after that, the attempt is
reported as lost.
"""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Final

import anyio
from anyio.abc import TaskGroup
from structlog.contextvars import bound_contextvars

from supervisor import verdict
from supervisor.actor import Actor, Claim, Place
from supervisor.claims import Claims, Held
from supervisor.clock import boottime, jitter
from supervisor.config import Timings
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown
from supervisor.finisher import Ending, Finisher
from supervisor.hands import Hands
from supervisor.identity import Identity
from supervisor.logs import logger
from supervisor.metrics import Metrics
from supervisor.pools import free_in, pool_of
from supervisor.runlog import RunLog
from supervisor.skim import Skim
from supervisor.store import Record
from supervisor.verdict import Verdict
from supervisor.wakeups import Wakeups

LAST_WORDS_SECONDS: Final = 5.0

_log = logger("runner")


@dataclass(slots=True)
class Started:
    """A run whose start was answered; `in_time`: it may still be executed."""

    row: Record
    held: Held
    scope: anyio.CancelScope
    in_time: bool


class RunTools:
    """The Tools of one claim."""

    def __init__(self, held: Held, log: RunLog, kill_seconds: float, place: Place) -> None:
        self.kill_seconds = kill_seconds
        self.place = place
        self.equipment = None
        self._held = held
        self.log = log.write

    def stop_deadline(self) -> float:
        return self._held.stop_at

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        self._held.moved.append(callback)

    def progress(self, **_columns: object) -> None:
        """A run has no columns of its own."""


class Runner:
    def __init__(
        self,
        place: Place,
        identity: Identity,
        actors: Mapping[str, Actor],
        slots: int,
        timings: Timings,
        claims: Claims,
        wakeups: Wakeups,
        metrics: Metrics,
        *,
        waiting: frozenset[str] = frozenset(),
        looked: Callable[[], None] = lambda: None,
    ) -> None:
        """`looked` is told whenever what was assigned has been seen to."""
        self._place = place
        self._store = store = place.store
        self._worker_id = identity.worker_id
        self._secret = identity.secret
        self._actors = actors
        self._slots = slots
        self._waiting = waiting
        self._looked = looked
        self._timings = timings
        self._claims = claims
        self._wakeups = wakeups
        self._metrics = metrics
        self._duration = cache(metrics.run_duration.labels)
        self._finisher = Finisher(store, identity.worker_id, self._answered)
        self._given = Skim(0)
        self.draining = False

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._finisher.run)
            hands = Hands(group, partial(self._carry_out, group))
            while True:
                if not self.draining:
                    await self._take_safely(hands)
                patience = self._given.patience(boottime(), jitter(self._timings.heartbeat))
                await self._wakeups.wait("assigned", patience)

    async def drain(self, grace_seconds: float) -> None:
        """Take nothing more; what runs gets the grace, then is stopped; returns when all is reported."""
        self.draining = True
        with anyio.move_on_after(grace_seconds):
            await self._until_empty()
        self._claims.stop_all("DRAIN")
        with anyio.move_on_after(self._timings.kill + LAST_WORDS_SECONDS):
            await self._until_empty()

    async def _until_empty(self) -> None:
        while len(self._claims):
            await anyio.sleep(0.02)

    async def _take_safely(self, hands: Hands[Started]) -> None:
        try:
            await self._take(hands)
            self._looked()
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            _log.info("could not look for work", reason=str(error))

    async def _take(self, hands: Hands[Started]) -> None:
        fresh = await self._look()
        if not fresh or self.draining:
            return
        held = {row["id"]: self._claims.hold(row["claim_id"], row["id"], row["domain"]) for row in fresh}
        began = sent = boottime()
        answers: list[Record] | None = None
        while answers is None:
            sent = boottime()
            try:
                answers = await self._start(fresh)
            except (OutcomeUnknown, DatabaseUnreachable) as error:
                _log.warning("start not answered", runs=len(fresh), reason=str(error))
                if self._gives_up(began):
                    # never executed, and the next list, which does not name them, says so
                    self._claims.drop(row["claim_id"] for row in fresh)
                    return
                await anyio.sleep(jitter(0.2))
        self._claims.drop(held[row["id"]].claim_id for row in answers if row["answer"] == "REFUSED")
        hands.give([self._begun(row, held[row["id"]], sent) for row in answers if row["answer"] != "REFUSED"])

    async def _look(self) -> list[Record]:
        """What was given, is not held yet, and fits, in claim order."""
        began = boottime()
        place = self._given.begin(began)
        rows = await self._store.rows("read_assigned", self._worker_id, self._secret, place)
        answered = boottime()
        fresh = self._that_fit(row for row in rows if row["claim_id"] not in self._claims)
        left = {row["id"] for row in rows} - {row["id"] for row in fresh}
        last = min(left) - 1 if left else max((row["id"] for row in rows), default=self._given.place)
        self._given.ended(began, answered, last)
        return fresh

    def _begun(self, row: Record, held: Held, sent: float) -> Started:
        """From here on it counts as being executed, whenever a hand takes it up."""
        scope, loop = anyio.CancelScope(), asyncio.get_running_loop()

        def stop() -> None:
            loop.call_soon_threadsafe(scope.cancel)

        return Started(row, held, scope, self._claims.begin(held, sent, boottime(), stop))

    def _that_fit(self, rows: Iterable[Record]) -> list[Record]:
        """In their order, as many as each pool has room for, whatever the leader gave."""
        held_by = self._claims.held_by()
        fitting = []
        for row in rows:
            if free_in(pool_of(row["domain"], self._waiting), self._slots, held_by, self._waiting):
                held_by[row["domain"]] += 1
                fitting.append(row)
        return fitting

    def _gives_up(self, began: float) -> bool:
        return self.draining or boottime() - began > self._timings.self_stop

    async def _start(self, fresh: list[Record]) -> list[Record]:
        return list(
            await self._store.rows(
                "start_runs",
                self._worker_id,
                self._secret,
                self._claims.beat_no,
                [row["id"] for row in fresh],
                [row["version"] for row in fresh],
                [row["claim_id"] for row in fresh],
            )
        )

    async def _carry_out(self, group: TaskGroup, started: Started) -> None:
        row, held = started.row, started.held
        claim = Claim(
            run_id=row["id"],
            root_id=row["root_id"],
            attempt=row["attempt"],
            epoch=row["leader_epoch"],
            claim_id=held.claim_id,
            domain=row["domain"],
            action=row["action"],
            payload=json.loads(row["payload"]),
            timeout_seconds=row["timeout_seconds"],
        )
        with bound_contextvars(run=claim.run_id, claim=str(claim.claim_id), epoch=claim.epoch):
            log = RunLog(group, self._store, self._worker_id, claim.run_id, claim.claim_id)
            began = boottime()
            ended = await self._execute(claim, started, log) if started.in_time else verdict.LOST
            self._duration(claim.domain, ended.state).observe(boottime() - began)
            _log.info("run ended", state=ended.state, error_code=ended.error_code, attempt=claim.attempt)
            await log.close(LAST_WORDS_SECONDS)
            self._finisher.add(Ending(claim.run_id, claim.claim_id, claim.epoch, ended))

    async def _execute(self, claim: Claim, started: Started, log: RunLog) -> Verdict:
        held, why = started.held, started.held.why
        try:
            if why is not None or boottime() >= held.stop_at:  # while it waited for a hand
                return verdict.of_stop(why or "LOST")
            with started.scope:
                ended = await self._handle(claim, held, log)
                return verdict.LOST if held.why == "LOST" else ended
            return verdict.of_stop(held.why or "LOST")
        finally:
            self._claims.ended(held)

    async def _handle(self, claim: Claim, held: Held, log: RunLog) -> Verdict:
        actor = self._actors.get(claim.domain)
        if actor is None:
            return Verdict("FAILED", None, "NO_ACTOR", f"this replica has no actor for {claim.domain}")
        tools = RunTools(held, log, self._timings.kill, self._place)
        try:
            if claim.timeout_seconds is None:
                return verdict.of_outcome(await actor.handle(claim, tools))
            with anyio.move_on_after(claim.timeout_seconds):
                return verdict.of_outcome(await actor.handle(claim, tools))
            return verdict.TIMED_OUT
        except Exception as error:  # noqa: BLE001  a handler's failure is an outcome, whatever it is
            _log.exception("handler raised")
            return verdict.of_error(error)

    def _answered(self, endings: Sequence[Ending], answers: Mapping[int, str]) -> None:
        self._claims.drop([ending.claim_id for ending in endings])
        self._wakeups.hint("assigned")
        self._wakeups.say("run")
        for ending in endings:
            if answers[ending.run_id] == "SUPERSEDED":
                self._metrics.late_finishes.inc()
                _log.warning("late completion refused", run=ending.run_id, claim=str(ending.claim_id))
