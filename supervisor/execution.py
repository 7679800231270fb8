"""A started run in somebody's hand: its claim, its tools, the handler, and the verdict on its way.

The claim's stop deadline (claims.py) governs: the handler is cancelled when it passes, and whatever the
handler says after that, the attempt is reported as lost.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import anyio
from anyio.abc import TaskGroup

from supervisor import verdict
from supervisor.actor import Actor, Claim, Place
from supervisor.claims import Claims, Held
from supervisor.clock import boottime
from supervisor.finisher import Ending, Finisher
from supervisor.logs import RUN, RunNamed, logger
from supervisor.metrics import Metrics
from supervisor.runlog import RunLog
from supervisor.stoppable import Stoppable
from supervisor.store import Record
from supervisor.stored_json import UnreadableJson, decode
from supervisor.verdict import Verdict

LAST_WORDS_SECONDS: Final = 5.0

_log = logger("runner")


@dataclass(slots=True)
class Started:
    """A run whose start was answered; `in_time`: it may still be executed."""

    row: Record
    held: Held
    in_time: bool = False
    hand: Stoppable | None = None

    def stop(self) -> None:
        """On the event loop. Nobody has it yet: whoever takes it up sees why it is not to be executed."""
        if self.hand is not None:
            self.hand.stop(self)


class RunTools:
    """The Tools of one claim."""

    __slots__ = ("_held", "_open_log", "equipment", "kill_seconds", "place", "run_log")

    def __init__(
        self, held: Held, open_log: Callable[[Held], RunLog], kill_seconds: float, place: Place
    ) -> None:
        self.kill_seconds = kill_seconds
        self.place = place
        self.equipment = None
        self.run_log: RunLog | None = None
        self._held = held
        self._open_log = open_log

    async def log(self, stream: str, data: bytes) -> None:
        if self.run_log is None:  # most runs say nothing
            self.run_log = self._open_log(self._held)
        await self.run_log.write(stream, data)

    def stop_deadline(self) -> float:
        return self._held.stop_at

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        self._held.moved.append(callback)

    def progress(self, **_columns: object) -> None:
        """A run has no columns of its own."""


class Execution:
    def __init__(
        self,
        place: Place,
        actors: Mapping[str, Actor],
        kill_seconds: float,
        claims: Claims,
        finisher: Finisher,
        metrics: Metrics,
    ) -> None:
        self._place = place
        self._actors = actors
        self._kill = kill_seconds
        self._claims = claims
        self._finisher = finisher
        self._duration = cache(metrics.run_duration.labels)
        self._log = _log.bind()  # one look for the level instead of one a run

    async def carry_out(self, group: TaskGroup, started: Started, hand: Stoppable) -> None:
        """A log that the handler begins is sent by a task of `group`."""
        row, held = started.row, started.held
        run_id, attempt, epoch, domain = row["id"], row["attempt"], row["leader_epoch"], row["domain"]
        claim = _claim_of(row, held)

        def open_log(held: Held) -> RunLog:
            return RunLog(group, self._place.store, self._place.worker_id, held.run_id, held.claim_id)

        tools = RunTools(held, open_log, self._kill, self._place)
        named = RUN.set(RunNamed(run_id, held.claim_id, epoch))
        try:
            began = boottime()
            ended = await self._execute(claim, tools, started, hand, began)
            self._duration(domain, ended.state).observe(boottime() - began)
            self._log.info("run ended", state=ended.state, error_code=ended.error_code, attempt=attempt)
            if tools.run_log is not None:
                await tools.run_log.close(LAST_WORDS_SECONDS)
            self._finisher.add(Ending(run_id, held.claim_id, epoch, ended))
        finally:
            RUN.reset(named)

    async def _execute(
        self, claim: Claim | None, tools: RunTools, started: Started, hand: Stoppable, now: float
    ) -> Verdict:
        if not started.in_time:
            return verdict.LOST
        held = started.held
        started.hand = hand
        try:
            why = held.why
            if why is not None or now >= held.stop_at:  # while it waited for a hand
                return verdict.of_stop(why or "LOST")
            if claim is None:
                return verdict.UNREADABLE
            ended = await hand.do(started, self._handle(claim, tools))
            if ended is None:
                return verdict.of_stop(held.why or "LOST")
            return verdict.LOST if held.why == "LOST" else ended
        finally:
            self._claims.ended(held)

    async def _handle(self, claim: Claim, tools: RunTools) -> Verdict:
        actor = self._actors.get(claim.domain)
        if actor is None:
            return Verdict("FAILED", None, "NO_ACTOR", f"this replica has no actor for {claim.domain}")
        try:
            if claim.timeout_seconds is None:
                return verdict.of_outcome(await actor.handle(claim, tools))
            with anyio.move_on_after(claim.timeout_seconds):
                return verdict.of_outcome(await actor.handle(claim, tools))
            return verdict.TIMED_OUT
        except Exception as error:  # noqa: BLE001  a handler's failure is an outcome, whatever it is
            _log.exception("handler raised")
            return verdict.of_error(error)


def _claim_of(row: Record, held: Held) -> Claim | None:
    """Return None where the payload cannot be read: the database takes more than Python."""
    try:
        payload = decode(row["payload"])
    except UnreadableJson:
        return None
    return Claim(
        row["id"],
        row["root_id"],
        row["attempt"],
        row["leader_epoch"],
        held.claim_id,
        row["domain"],
        row["action"],
        payload,
        row["timeout_seconds"],
    )
