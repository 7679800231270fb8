"""The claim loop of one actor with a lease: claim, work, report; no leader is needed for it.

- Claims are batches, never more than there is room for. A full batch is followed by the next claim at once;
  an empty table is asked less and less often, up to IDLE_SECONDS, and at once after a hint `lease:<table>`.
- Nothing is worked on before the claim was answered; from then on the row's stop deadline governs
  (holdings.py), extended by the keeper's thread. A row whose lease was lost is dropped without a word:
  whatever its handler says, the row belongs to whoever recovers it.
- After a claim whose answer was lost, rows that bear our name under tokens we never heard of are given back.
- Draining: nothing more is claimed, what waits is given back at once, what runs gets the grace, then is
  stopped and given back.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, Final
from uuid import UUID

import anyio

from supervisor import row_outcome
from supervisor.actor import Actor, Claim, Place
from supervisor.claims import Timer
from supervisor.clock import boottime, jitter
from supervisor.config import CLOCK_RATE_ERROR, Timings
from supervisor.errors import BadSettings, DatabaseUnreachable, OutcomeUnknown
from supervisor.holdings import HeldRow, Holdings
from supervisor.keeper import Kept, arrays_of, stop_seconds
from supervisor.lease import Lease
from supervisor.lease_sql import render
from supervisor.logs import logger
from supervisor.metrics import Metrics
from supervisor.row_finisher import RowEnding, RowFinisher
from supervisor.row_outcome import RowVerdict
from supervisor.stoppable import Stoppable
from supervisor.store import Record
from supervisor.stored_json import UnreadableJson, decode
from supervisor.wakeups import Wakeups

BUSY_SECONDS: Final = 0.1
IDLE_SECONDS: Final = 5.0
LAST_WORDS_SECONDS: Final = 5.0
BATCH: Final = 250
"""Small enough that one batch is claimed and another finished while a third is worked on."""

_log = logger("claim_loop")


class RowTools:
    """The Tools of one leased row."""

    __slots__ = ("_row", "equipment", "kill_seconds", "place")

    def __init__(self, row: HeldRow, kill_seconds: float, place: Place, equipment: Any) -> None:
        self._row = row
        self.kill_seconds = kill_seconds
        self.place = place
        self.equipment = equipment

    async def log(self, stream: str, data: bytes) -> None:
        _log.info("handler", stream=stream, text=data.decode("utf-8", "replace"), key=self._row.key)

    def stop_deadline(self) -> float:
        return self._row.stop_at

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        self._row.moved.append(callback)

    def progress(self, **columns: Any) -> None:
        self._row.progress = {**(self._row.progress or {}), **columns}


class ClaimLoop:
    def __init__(
        self,
        actor: Actor,
        place: Place,
        slots: int,
        timings: Timings,
        timer: Timer,
        wakeups: Wakeups,
        metrics: Metrics,
    ) -> None:
        if actor.lease is None:
            raise ValueError("an actor without a lease has no table to claim from")
        lease = actor.lease
        if lease.lease_seconds < timings.stop_bound:
            raise BadSettings(
                what=f"the lease of {lease.name} ({lease.lease_seconds:g} s) is shorter than the stop bound "
                f"TENURE_STOP_BOUND_SECONDS ({timings.stop_bound:g} s)"
            )
        self.draining = False
        store, owner = place.store, place.worker_id
        self._actor, self._lease, self._place, self._store, self._owner = actor, lease, place, store, owner
        own = actor.slots() if callable(actor.slots) else actor.slots
        self._slots = own or slots
        self._room = self._slots + actor.ahead
        self._kill = timings.kill
        self._wakeups, self._metrics = wakeups, metrics
        self._sql = render(lease)
        self._holdings = Holdings(stop_seconds(lease, timings.kill, CLOCK_RATE_ERROR), timings.kill, timer)
        self._shape = _Shape(lease, actor.domain)
        self._soon = asyncio.get_running_loop().call_soon_threadsafe
        self._queue: deque[HeldRow] = deque()
        self._work = asyncio.Event()
        self._freed = asyncio.Event()
        self._returned: list[HeldRow] = []
        self._equipment: Any = None
        self._finisher = RowFinisher(store, owner, self._sql.finish, self._answered)
        self._held_gauge = metrics.leases_held.labels(lease.table)

    @property
    def kept(self) -> Kept:
        """What the keeper's thread has to do for this loop."""
        return Kept(self._lease, self._sql.beat, self._holdings)

    @property
    def held(self) -> int:
        return len(self._holdings)

    async def run(self) -> None:
        equip = nullcontext() if self._actor.equip is None else self._actor.equip(self._place)
        async with equip as self._equipment, anyio.create_task_group() as group:
            group.start_soon(self._finisher.run)
            for _ in range(self._slots):
                group.start_soon(self._serve)
            await self._keep_claiming()

    async def drain(self, grace_seconds: float) -> None:
        """Claim nothing more; what runs gets the grace; returns when all is reported or given back."""
        self.draining = True
        self._freed.set()
        self._returned += self._queue
        self._queue.clear()
        await self._give_back()
        with anyio.move_on_after(grace_seconds):
            await self._until_empty()
        self._holdings.stop_all("DRAIN")
        with anyio.move_on_after(self._kill + LAST_WORDS_SECONDS):
            await self._until_empty()

    async def _until_empty(self) -> None:
        while len(self._holdings):
            await self._give_back()
            await anyio.sleep(0.02)

    async def _keep_claiming(self) -> None:
        pause = BUSY_SECONDS
        while True:
            wanted = await self._wait_for_room()
            rows, recovered = await self._claim_safely(wanted)
            if len(rows) == wanted or recovered:
                pause = BUSY_SECONDS
                continue
            pause = BUSY_SECONDS if rows else min(pause * 2, IDLE_SECONDS)
            if await self._wakeups.wait(f"lease:{self._lease.table}", jitter(pause)):
                pause = BUSY_SECONDS

    async def _wait_for_room(self) -> int:
        """How many to claim: worth a call, and never more than can be held."""
        while True:
            self._freed.clear()
            free = self._room - len(self._holdings)
            if not self.draining and free > 0 and (not self._queue or 2 * free >= self._room):
                return min(free, BATCH)
            await self._freed.wait()

    async def _claim_safely(self, wanted: int) -> tuple[Sequence[HeldRow], int]:
        try:
            return await self._claim(wanted)
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            _log.info("claim not answered", table=self._lease.table, reason=str(error))
            await anyio.sleep(jitter(0.5))
            await self._give_back_unheard()
        except Exception:  # noqa: BLE001  a fault in one table must not end the work on the others
            _log.exception("claim failed", table=self._lease.table)
        return (), 0

    async def _claim(self, wanted: int) -> tuple[Sequence[HeldRow], int]:
        sent = boottime()
        records = await self._store.rows(self._sql.claim, self._owner, wanted, self._actor.domain)
        stop_at = sent + self._holdings.stop_seconds
        rows = self._shape.rows(records, stop_at)
        if recovered := records[0]["recovered"]:
            self._metrics.leases_recovered.labels(self._lease.table).inc(recovered)
            _log.warning("leases had run out", table=self._lease.table, rows=recovered)
        if rows:
            self._holdings.take(rows)
            self._held_gauge.inc(len(rows))
            (self._returned if self.draining else self._queue).extend(rows)
            self._work.set()
        return rows, recovered

    async def _serve(self) -> None:
        """One slot: a row at a time."""
        with Stoppable() as own:
            while True:
                while self._queue:
                    await self._carry_out(self._queue.popleft(), own)
                self._work.clear()
                await self._work.wait()

    async def _carry_out(self, row: HeldRow, slot: Stoppable) -> None:
        verdict = await self._execute(row, slot)
        if verdict is not None:
            self._finisher.add(RowEnding(row, verdict))
        elif row.why == "DRAIN" and self._sql.release is not None:
            self._returned.append(row)
        else:
            if row.why == "LOST":
                self._metrics.leases_lost.labels(self._lease.table).inc()
                _log.warning("lease lost", table=self._lease.table, key=row.key)
            self._let_go([row])

    async def _execute(self, row: HeldRow, slot: Stoppable) -> RowVerdict | None:
        """None: it has no outcome, because it was stopped or never begun."""
        if not self._holdings.begin(row, boottime(), partial(self._soon, slot.stop, row)):
            row.why = "LOST"
            return None
        try:
            verdict = await slot.do(row, self._handle(row))
            return None if row.why == "LOST" else verdict
        finally:
            self._holdings.ended(row)

    async def _handle(self, row: HeldRow) -> RowVerdict:
        tools = RowTools(row, self._kill, self._place, self._equipment)
        try:
            claim = self._shape.claim(row)
        except UnreadableJson:
            return row_outcome.UNREADABLE
        try:
            if self._lease.timeout_seconds is None:
                return row_outcome.of_outcome(self._lease, await self._actor.handle(claim, tools))
            with anyio.move_on_after(self._lease.timeout_seconds):
                return row_outcome.of_outcome(self._lease, await self._actor.handle(claim, tools))
            return row_outcome.TIMED_OUT
        except Exception as error:  # noqa: BLE001  a handler's failure is an outcome, whatever it is
            _log.exception("handler raised", table=self._lease.table, key=row.key)
            return row_outcome.of_error(error)

    def _answered(self, endings: Sequence[RowEnding], answers: Mapping[UUID, str] | None) -> None:
        self._let_go([ending.row for ending in endings])
        late = [e.row.key for e in endings if answers and answers[e.row.token] == "SUPERSEDED"]
        if late:
            self._metrics.late_finishes.inc(len(late))
            _log.warning("late completions refused", table=self._lease.table, keys=late[:5], rows=len(late))

    def _let_go(self, rows: Sequence[HeldRow]) -> None:
        self._holdings.drop(rows)
        self._held_gauge.dec(len(rows))
        self._freed.set()

    async def _give_back(self) -> None:
        """What was not worked on to the end; left to run out where the contract knows no way back."""
        rows, self._returned = self._returned, []
        if not rows:
            return
        try:
            if (statement := self._sql.release) is not None:
                await self._store.rows(statement, self._owner, *arrays_of(statement, rows))
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            _log.warning("rows not given back yet", table=self._lease.table, reason=str(error))
            self._returned += rows
            return
        self._let_go(rows)

    async def _give_back_unheard(self) -> None:
        """Nobody works on what a lost answer named; without this it would wait for its lease to run out."""
        if self._sql.release_unheld is None:
            return
        held = [row.token for row in self._holdings.named()]
        try:
            await self._store.rows(self._sql.release_unheld, self._owner, held)
        except (OutcomeUnknown, DatabaseUnreachable) as error:
            _log.info("rows not given back", table=self._lease.table, reason=str(error))


class _Shape:
    """Where what stands in a claimed record."""

    def __init__(self, lease: Lease, domain: str) -> None:
        self._domain = domain
        self._timeout = lease.timeout_seconds
        self._token = 1 + len(lease.key)
        self._attempt = self._token + 1 if lease.attempts is not None else None
        self._values = self._token + (2 if lease.attempts is not None else 1)
        self._columns = lease.columns
        self._json = lease.json_columns
        self._one_key = len(lease.key) == 1

    def rows(self, records: Sequence[Record], stop_at: float) -> list[HeldRow]:
        token, attempt, values = self._token, self._attempt, self._values
        return [
            HeldRow(
                record[1:token],
                record[token],
                record[values:],
                stop_at,
                0 if attempt is None else record[attempt] or 0,
            )
            for record in records
            if record[token] is not None
        ]

    def claim(self, row: HeldRow) -> Claim:
        payload = dict(zip(self._columns, row.values, strict=True))
        for name in self._json:
            if isinstance(payload[name], str):
                # json, other than jsonb, keeps the blanks before it
                payload[name] = decode(payload[name].lstrip())
        key = row.key[0] if self._one_key else row.key
        return Claim(0, 0, row.attempt, 0, row.token, self._domain, None, payload, self._timeout, key)
