"""Rules of the protocol that can be taken out, by their number in the design, for negative controls.

A guard in SQL is taken out by replacing text of its function in that world's database (`sql`); the text must
be there exactly once, so a control breaks loudly when the function changes. A guard in Python is taken out
inside the replica's process (`patch`), before it runs. A scenario with `guards_off` must be seen to break.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import asyncpg

from supervisor import spawn
from supervisor.claims import Claims
from supervisor.config import Timings
from supervisor.deadman import DeadMan
from supervisor.election import Election, Tenure
from supervisor.errors import TenureError
from supervisor.memory import Memory
from supervisor.watch import Watch

HOURS: Final = 10_000.0


@dataclass(frozen=True)
class Guard:
    """What stands in for the rule when it is taken out."""

    what: str
    # (function, text in it, text instead)
    sql: tuple[tuple[str, str, str], ...] = ()
    patch: Callable[[], None] | None = None


def _trust_for_ever() -> None:
    """The leader never doubts itself, so that only the fence is left; it does not renew what it lost."""

    def trusted(self: Tenure, now: float) -> bool:
        return True

    async def renew(self: Election, tenure: Tenure) -> None:
        while True:
            await self._clock.sleep(self._timings.renew_retry)
            lease = self._timings.leader_lease
            with suppress(TenureError):
                await self._store.row("renew_tenure", tenure.epoch, self._worker_id, lease)

    Tenure.trusted = trusted  # type: ignore[method-assign]
    Election._renew = renew  # type: ignore[method-assign]


def _never_stop() -> None:
    """Claims are believed in for hours after the last word; the timers follow from that."""
    original = Claims.__init__

    def believe(self: Claims, timings: Timings, timer: Any) -> None:
        original(self, replace(timings, self_stop=HOURS), timer)

    Claims.__init__ = believe  # type: ignore[method-assign]


def _watch_nothing() -> None:
    """The leader's own watch always says: long enough."""

    def stood(self: Watch[Any, Any], key: Any, value: Any, now: float) -> float:
        return HOURS

    Watch.stood = stood  # type: ignore[method-assign]


def _see_no_failover() -> None:
    """Another timeline is learned of like another epoch: a leader waits for nothing because of it."""
    original = Memory.learn

    def learn(self: Memory, epoch: int, system_identifier: int, timeline: int) -> None:
        original(self, epoch, system_identifier, timeline)
        self.met_at = None

    Memory.learn = learn  # type: ignore[method-assign]


NO_DEAD_MAN: Final = """
from supervisor.deadman import KernelTimer
KernelTimer.arm = lambda self, deadline, every=0.0: None
from supervisor.warden import main
"""


def _no_dead_man() -> None:
    """No kernel timer kills or wakes a process that does not run: neither the replica nor a launcher."""

    def arm(self: DeadMan, deadline: float, every: float = 0.0) -> None:
        return

    DeadMan.arm = arm  # type: ignore[method-assign,assignment]
    assert "from supervisor.warden import main\n" in spawn.WARDEN_CODE
    spawn.WARDEN_CODE = spawn.WARDEN_CODE.replace("from supervisor.warden import main\n", NO_DEAD_MAN)


_FENCED: Final = "term.epoch IS DISTINCT FROM p_epoch"
_OWN_EPOCH: Final = "AND r.leader_epoch = m.epoch"
_CURRENT_EPOCH: Final = "AND (SELECT e.epoch FROM supervisor.leader_epoch e) = m.epoch"
_QUARANTINED: Final = "quarantine_until = CASE WHEN moved AND"

GUARDS: Final[Mapping[str, Guard]] = {
    "3": Guard(
        "the fence",
        sql=(("supervisor.fence", _FENCED, "false"),),
        patch=_trust_for_ever,
    ),
    "5": Guard(
        "a finish matches the row's epoch, not the current leader's",
        sql=(("supervisor.finish", _OWN_EPOCH, _CURRENT_EPOCH),),
    ),
    "7": Guard("a worker stops by itself", patch=_never_stop),
    "9": Guard("the leader's own watch before an expiry", patch=_watch_nothing),
    "10": Guard(
        "the next attempt waits until the last has stopped",
        sql=(("supervisor.root_quiesced", "SELECT NOT EXISTS", "SELECT true OR NOT EXISTS"),),
    ),
    "11": Guard("the dead man's timer", patch=_no_dead_man),
    "22": Guard(
        "nothing is assigned for D after a failover, and older assignments cannot start",
        sql=(
            ("supervisor.acquire", _QUARANTINED, "quarantine_until = CASE WHEN false AND"),
            ("supervisor.start", "r.assigned_epoch >= term.first_epoch", "true"),
        ),
        patch=_see_no_failover,
    ),
}


def take_out(names: Iterable[str]) -> None:
    """In this process."""
    for name in names:
        patch = GUARDS[name].patch
        if patch is not None:
            patch()


async def take_out_of(connection: asyncpg.Connection, names: Iterable[str]) -> None:
    """In this database."""
    for name in names:
        for function, there, instead in GUARDS[name].sql:
            found = "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.oid::regproc = $1::regproc"
            text = await connection.fetchval(found, function)
            assert text.count(there) == 1, f"guard {name}: {there!r} is not once in {function}"
            await connection.execute(text.replace(there, instead))
