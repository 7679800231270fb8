"""The worker's side of a run: take what was assigned, start it, have it executed (execution.py), report it.

Nothing is executed before the start was answered.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import anyio

from supervisor.actor import Actor, Place
from supervisor.claims import Claims, Held
from supervisor.clock import boottime, jitter
from supervisor.config import Timings
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown
from supervisor.execution import LAST_WORDS_SECONDS, Execution, Started
from supervisor.finisher import Ending, Finisher
from supervisor.hands import Hands
from supervisor.identity import Identity
from supervisor.logs import logger
from supervisor.metrics import Metrics
from supervisor.pools import Pool, free_in, pool_of
from supervisor.skim import Skim
from supervisor.store import Record
from supervisor.wakeups import Wakeups

_log = logger("runner")


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
        self._slots = slots
        self._waiting = waiting
        self._looked = looked
        self._timings = timings
        self._claims = claims
        self._wakeups = wakeups
        self._metrics = metrics
        self._finisher = Finisher(store, identity.worker_id, self._answered)
        self._execution = Execution(place, actors, timings.kill, claims, self._finisher, metrics)
        self._given = Skim(0)
        self.draining = False

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._finisher.run)
            hands = Hands(group, partial(self._execution.carry_out, group))
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
        begun = partial(self._begun, asyncio.get_running_loop().call_soon_threadsafe, sent)
        hands.give([begun(row, held[row["id"]]) for row in answers if row["answer"] != "REFUSED"])

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

    def _begun(self, soon: Callable[..., object], sent: float, row: Record, held: Held) -> Started:
        """From here on it counts as being executed, whenever a hand takes it up."""
        started = Started(row, held)
        started.in_time = self._claims.begin(held, sent, boottime(), partial(soon, started.stop))
        return started

    def _that_fit(self, rows: Iterable[Record]) -> list[Record]:
        """In their order, as many as each pool has room for, whatever the leader gave."""
        held_by = self._claims.held_by()
        free: dict[Pool, int] = {}
        fitting = []
        for row in rows:
            pool = pool_of(row["domain"], self._waiting)
            if pool not in free:
                free[pool] = free_in(pool, self._slots, held_by, self._waiting)
            if free[pool]:
                free[pool] -= 1
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

    def _answered(self, endings: Sequence[Ending], answers: Mapping[int, str]) -> None:
        self._claims.drop([ending.claim_id for ending in endings])
        self._wakeups.hint("assigned")
        self._wakeups.say("run")
        for ending in endings:
            if answers[ending.run_id] == "SUPERSEDED":
                self._metrics.late_finishes.inc()
                _log.warning("late completion refused", run=ending.run_id, claim=str(ending.claim_id))
