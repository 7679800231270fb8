"""What a leader does: one look a tick, then each duty on its own.

A duty that raises or stalls is counted and cut off, and the others go on; a leader of which a duty makes no
progress for two leases and D gives up its tenure. Every call carries the epoch, and the database refuses it
when that is over.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import anyio

from supervisor import plan
from supervisor.artifacts import Artifacts
from supervisor.clock import Clock
from supervisor.config import Timings
from supervisor.crowd import Crowd
from supervisor.election import NoProgress, Tenure
from supervisor.errors import LostTenure, TrustOver
from supervisor.lease import Lease
from supervisor.lease_sql import render
from supervisor.logs import logger
from supervisor.maker import Maker
from supervisor.metrics import Metrics
from supervisor.plan import Assignment, Attention, Due, Worker
from supervisor.retention import Retention
from supervisor.shortlease import ShortLeases
from supervisor.skim import Skim
from supervisor.store import Record, Store
from supervisor.wakeups import Wakeups
from supervisor.watch import Watch

TICK_SECONDS: Final = 1.0
ASSIGN_BATCH: Final = 500
ASSIGN_PAUSE_SECONDS: Final = 0.01
MAKE_SECONDS: Final = 0.5
PARTITION_SECONDS: Final = 86400.0

_log = logger("leader")


@dataclass(frozen=True, slots=True)
class Sight:
    """What one look showed, and when the answer was in."""

    workers: list[Worker]
    asking: list[Attention]
    at: float


Duty = Callable[[Sight], Awaitable[None]]


class Leader:
    def __init__(
        self,
        store: Store,
        tenure: Tenure,
        timings: Timings,
        wakeups: Wakeups,
        metrics: Metrics,
        *,
        duty_store: Store | None = None,
        clock: Clock | None = None,
        short_leases: ShortLeases | None = None,
        artifacts: Artifacts | None = None,
        leases: Sequence[Lease] = (),
        domain_duties: Sequence[str] = (),
        waiting: frozenset[str] = frozenset(),
    ) -> None:
        """`waiting` domains have slots of their own; one that is not known here shares with all others."""
        self._store = store
        self._duty_store = duty_store or store
        self._tenure = tenure
        self._timings = timings
        self._wakeups = wakeups
        self._metrics = metrics
        self._clock = clock or Clock()
        self._short_leases = short_leases or ShortLeases()
        self._waiting = waiting
        self._beats: Watch[str, int] = Watch()
        self._runs: Watch[int, int] = Watch()
        self._due: Skim[Mapping[str, int]] = Skim({})
        self._counting: Skim[datetime | None] = Skim(None)
        self._crowd = Crowd()
        self._partitions_due = self._clock.now()
        self._at_it: set[str] = set()
        self._recoveries = [(lease.table, render(lease).recover) for lease in leases]
        self._maker = Maker(store, self._call)
        self._retention = Retention(store, self._call, artifacts, metrics, self._clock)
        self._of_domains = tuple(map(self._domain_duty, domain_duties))
        self.duties: tuple[Duty, ...] = (
            self.confirm,
            self.expire,
            self.orphan,
            self.cancel,
            self.time_out,
            self.exhaust,
            self.next_attempts,
            self.partitions,
            self.recover_rows,
            *self._of_domains,
        )
        watched = ["look", "assign", "schedules", "events", *(duty.__name__ for duty in self.duties)]
        # a domain's duty that cannot be done is told and counted, and is no reason to give up all the others
        watched = [name for name in watched if name not in domain_duties]
        self.progress: dict[str, float] = dict.fromkeys(watched, self._clock.now())

    async def run(self) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(self._tick_for_ever)
            group.start_soon(self._assign_for_ever)
            group.start_soon(self._fire_for_ever)
            group.start_soon(self._make_for_ever)
            group.start_soon(self._retention.run)

    async def _tick_for_ever(self) -> None:
        period = min(TICK_SECONDS, self._timings.heartbeat)
        async with anyio.create_task_group() as group:
            while True:
                self._require_progress()
                sight: list[Sight] = []
                await self._guarded("look", self._look_into(sight))
                if sight:
                    for duty in self.duties:
                        # one that is still at it keeps its own place, and nobody waits for it
                        if duty.__name__ not in self._at_it:
                            self._at_it.add(duty.__name__)
                            group.start_soon(self._take_turn, duty, sight[0], self._delay(duty, period))
                    self._metrics.last_tick.set_to_current_time()
                await self._clock.sleep(period)

    def _delay(self, duty: Duty, period: float) -> float:
        """Those of the domains are spread over the tick: together they would hold up a run that comes in."""
        if duty not in self._of_domains:
            return 0.0
        return period * self._of_domains.index(duty) / len(self._of_domains)

    async def _take_turn(self, duty: Duty, sight: Sight, delay: float) -> None:
        try:
            await self._clock.sleep(delay)
            await self._guarded(duty.__name__, duty(sight))
        finally:
            self._at_it.discard(duty.__name__)

    async def _assign_for_ever(self) -> None:
        period = min(TICK_SECONDS, self._timings.heartbeat)
        while True:
            again: list[bool] = []
            began = self._clock.now()
            await self._guarded("assign", self._assign_into(again))
            ended = self._clock.now()
            if not (again and again[0]):
                patience = self._due.patience(ended, self._short_leases.patience(period))
                # room that was only reckoned may be more by a count
                await self._wakeups.wait("run", self._counting.patience(ended, patience))
            # hints come in swarms: a rest as long as the work makes one batch of them, and costs nobody more
            rest = min(ended - began, ASSIGN_PAUSE_SECONDS)
            await self._clock.sleep(ended + rest - self._clock.now())

    async def _fire_for_ever(self) -> None:
        while True:
            await self._guarded("schedules", self._make(self._maker.schedules))
            await self._clock.sleep(MAKE_SECONDS)

    async def _make_for_ever(self) -> None:
        while True:
            await self._guarded("events", self._make(self._maker.events))
            await self._wakeups.wait("event", MAKE_SECONDS)

    async def _make(self, make: Callable[[], Awaitable[int]]) -> None:
        if await make():
            self._wakeups.hint("run")

    async def _guarded(self, name: str, work: Awaitable[None]) -> None:
        """One duty's turn: bounded, and its failure its own. The end of the tenure ends everything."""
        try:
            with anyio.fail_after(self._timings.leader_lease):
                await work
        except (LostTenure, TrustOver):
            raise
        except Exception as error:  # noqa: BLE001  whatever one duty does, the others go on
            self._metrics.duty_errors.labels(name).inc()
            _log.warning("duty failed", duty=name, error=f"{type(error).__name__}: {error}")
        else:
            if name in self.progress:
                self.progress[name] = self._clock.now()

    def _require_progress(self) -> None:
        now = self._clock.now()
        name, last = min(self.progress.items(), key=lambda item: item[1])
        # the others' watches of D have to come to their end under one leader
        if now - last > 2 * self._timings.leader_lease + self._timings.stop_bound:
            raise NoProgress(f"{name} has made no progress for {now - last:.0f} s")

    async def _call(self, query: str, *args: Any) -> Sequence[Record]:
        """A fenced call; not even sent when this leader no longer trusts itself."""
        self._require_trust()
        return await self._store.rows(query, self._tenure.epoch, *args)

    def _require_trust(self) -> None:
        if not self._tenure.trusted(self._clock.now()):
            raise TrustOver(epoch=self._tenure.epoch, why="no renewal was answered in time")

    async def _look_into(self, sight: list[Sight]) -> None:
        sight.append(await self.look())

    async def look(self) -> Sight:
        workers = await self.read_workers()
        rows = await self._store.rows("read_attention", self._timings.stop_bound)
        asking = [Attention(*row) for row in rows]
        now = self._clock.now()
        self._runs.observe({run.id: run.version for run in asking}, now)
        return Sight(workers, asking, now)

    async def read_workers(self) -> list[Worker]:
        workers, _ = await self._count_workers()
        return workers

    async def _count_workers(self) -> tuple[list[Worker], datetime | None]:
        """All that count, with what they hold, and when that was, by the database's clock."""
        rows = await self._store.rows("read_workers")
        workers = [
            Worker(
                worker_id=row["worker_id"],
                state=row["state"],
                domains=frozenset(row["domains"]),
                slots=row["slots"],
                beat_seq=row["beat_seq"],
                stop_bound_seconds=row["stop_bound_seconds"],
                silent_seconds=row["silent_seconds"],
                held_by=json.loads(row["held_by"]),
                running=row["running"],
            )
            for row in rows
        ]
        self._beats.observe({worker.worker_id: worker.beat_seq for worker in workers}, self._clock.now())
        return workers, rows[0]["counted_at"] if rows else None

    async def _who_could(self) -> list[Worker]:
        """Counted where that can be afforded, else reckoned."""
        began = self._clock.now()
        since = self._counting.begin(began)
        if since is not None:
            ended = await self._store.rows("read_ended", since)
            return self._crowd.reckoned({(row["worker_id"], row["domain"]): row["ended"] for row in ended})
        workers, counted_at = await self._count_workers()
        self._crowd.counted(workers)
        self._counting.ended(began, self._clock.now(), counted_at)
        return workers

    async def _assign_into(self, again: list[bool]) -> None:
        again.append(await self.assign())

    async def assign(self) -> bool:
        """Give out what is due; True when there may be more at once."""
        if self._clock.now() < self._tenure.quarantined_until:
            return False
        workers = await self._who_could()
        now = self._clock.now()
        # a silent worker gets nothing: it could not start it
        awake = [worker for worker in workers if worker.silent_seconds < self._timings.confirm_after]
        # each domain by its own room, so that many due runs of one never hide those of another
        rooms = {domain: min(room, ASSIGN_BATCH) for domain, room in plan.rooms(awake, self._waiting).items()}
        if not rooms:
            return False
        stopped = _named(plan.stopped(workers, self._beats, now, self._timings.stop_bound))
        rows = await self._read_due(rooms, stopped)
        chosen = plan.assign([Due(*row) for row in rows], awake, self._waiting)
        if not chosen:
            return False
        async with self._short_leases.hold([run.id for run in chosen]) as later:
            if later:
                self._due.rewind()
            return await self._give([run for run in chosen if run.id not in later], stopped) >= ASSIGN_BATCH

    async def _read_due(
        self, rooms: Mapping[str, int], stopped: tuple[list[str], list[int]]
    ) -> Sequence[Record]:
        began = self._clock.now()
        places = self._due.begin(began)
        behind = [places.get(domain) for domain in rooms]
        rows = await self._store.rows(
            "read_due", list(rooms), list(rooms.values()), *stopped, self._timings.stop_bound, behind
        )
        last = {row["domain"]: row["id"] for row in rows}  # they are in claim order
        self._due.ended(began, self._clock.now(), {**self._due.place, **last})
        return rows

    async def _give(self, chosen: Sequence[Assignment], stopped: tuple[list[str], list[int]]) -> int:
        if not chosen:
            return 0
        domains = {run.id: run.domain for run in chosen}
        try:
            assigned = await self._call(
                "assign_runs",
                [run.id for run in chosen],
                [run.version for run in chosen],
                [run.worker_id for run in chosen],
                *stopped,
                self._timings.stop_bound,
            )
        except BaseException:
            # what was given and what is still due, only complete looks can tell
            self._counting.rewind()
            self._due.rewind()
            raise
        self._crowd.given((row["worker_id"], domains[row["id"]]) for row in assigned)
        for row in assigned:
            self._metrics.run_queue.observe(row["queued_seconds"])
        if assigned:
            for worker_id in {run.worker_id for run in chosen}:
                self._wakeups.say(f"assigned:{worker_id}")
        return len(assigned)

    async def confirm(self, sight: Sight) -> None:
        silent = plan.silent(sight.workers, self._beats, sight.at, self._timings.confirm_after)
        names, seqs = _named([worker for worker in silent if worker.running])
        abandoned = {run.worker_id for run in plan.only(sight.asking, "ABANDONED") if run.worker_id}
        if names or abandoned:
            rows = await self._call(
                "confirm_runs",
                names + sorted(abandoned),
                seqs + [0] * len(abandoned),
                self._timings.confirm_after,
                self._timings.stop_bound,
                self._timings.heartbeat,
            )
            for row in rows:
                _log.warning("worker silent, confirming", run=row["id"], worker=row["worker_id"])

    async def expire(self, sight: Sight) -> None:
        bound = self._timings.stop_bound
        gone = plan.stopped(sight.workers, self._beats, sight.at, bound)
        over = plan.expire(sight.asking, gone, self._runs, sight.at, bound)
        if over:
            rows = await self._call(
                "expire_runs",
                [run.id for run in over],
                [run.version for run in over],
                [run.beat_seq for run in over],
            )
            for row in rows:
                _log.warning("not confirmed in time", run=row["id"], state=row["state"])

    async def orphan(self, sight: Sight) -> None:
        unstarted = plan.only(sight.asking, "UNSTARTED")
        if unstarted:
            silent = plan.silent(sight.workers, self._beats, sight.at, self._timings.confirm_after)
            rows = await self._call(
                "orphan_runs", *_versions(unstarted), *_named(silent), self._timings.confirm_after
            )
            self._metrics.reassigned.inc(len(rows))
            if rows:
                _log.warning("taken from a lost worker", runs=[row["id"] for row in rows])
                self._wakeups.hint("run")

    async def cancel(self, sight: Sight) -> None:
        bound = self._timings.stop_bound
        if wanted := plan.cancel(sight.asking, self._runs, sight.at, bound):
            await self._call("cancel_runs", self._tenure.holder, *_versions(wanted), bound)

    async def time_out(self, sight: Sight) -> None:
        bound = self._timings.stop_bound
        if late := plan.overdue(sight.asking, self._runs, sight.at, bound):
            await self._call("time_out_runs", *_versions(late), bound)

    async def exhaust(self, sight: Sight) -> None:
        if given_up := plan.only(sight.asking, "EXHAUSTED"):
            await self._call("exhaust_runs", self._tenure.holder, *_versions(given_up))

    async def next_attempts(self, _sight: Sight) -> None:
        if await self._call("make_next_attempts", ASSIGN_BATCH):
            self._wakeups.hint("run")

    async def recover_rows(self, _sight: Sight) -> None:
        """Leases that ran out, also where nobody claims now. Each statement is safe by itself."""
        for table, recover in self._recoveries:
            if rows := await self._duty_store.rows(recover, ASSIGN_BATCH):
                self._metrics.leases_recovered.labels(table).inc(len(rows))
                _log.warning("leases had run out", table=table, rows=len(rows))

    def _domain_duty(self, query: str) -> Duty:
        """A domain's own part of a tick: one fenced call that changes what is due and nothing else."""

        async def duty(_sight: Sight) -> None:
            self._require_trust()
            await self._duty_store.rows(query, self._tenure.epoch)

        duty.__name__ = query
        return duty

    async def partitions(self, _sight: Sight) -> None:
        if self._clock.now() >= self._partitions_due:
            await self._store.value("make_partitions", 3)
            self._partitions_due = self._clock.now() + PARTITION_SECONDS


def _named(workers: Sequence[Worker]) -> tuple[list[str], list[int]]:
    return [worker.worker_id for worker in workers], [worker.beat_seq for worker in workers]


def _versions(runs: Sequence[Attention]) -> tuple[list[int], list[int]]:
    return [run.id for run in runs], [run.version for run in runs]
