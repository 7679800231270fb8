"""Made-up executions: what a handler does, with the exact moments at which it began and ended.

`inner` work is a coroutine of the replica: it stops when the replica is stopped, and goes on when that goes
on. A `child` is a process under a launcher: it goes on while its replica is stopped, until the deadline that
was last handed to it; it dies with its replica.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import anyio

from supervisor.actor import Claim, Tools
from supervisor.outcome import Cancel, Done, Outcome, Retry

if TYPE_CHECKING:
    from tests.sim.host import Host

ALIVE_SECONDS = 0.7


@dataclass(eq=False)
class Executor:
    pid: int
    host: "Host"
    claim: Claim
    child: bool
    ended: bool = False
    gone: asyncio.Future[str] | None = None
    deadlines: int = 0
    seconds: float = field(default=0.0)

    @property
    def root(self) -> int:
        return self.claim.root_id

    @property
    def token(self) -> dict[str, Any]:
        claim: UUID = self.claim.claim_id
        return {
            "run": self.claim.run_id,
            "root": self.root,
            "attempt": self.claim.attempt,
            "epoch": self.claim.epoch,
            "claim": str(claim),
            "pid": self.pid,
        }

    def begin(self) -> None:
        self.host.executors.append(self)
        self.host.world.witness.began(self)

    def end(self, how: str) -> None:
        if not self.ended:
            self.ended = True
            self.host.executors.remove(self)
            self.host.world.witness.ended(self, how)
            if self.gone is not None and not self.gone.done():
                self.gone.set_result(how)

    def orphaned(self) -> None:
        """Its replica is dead: so is work inside of it, and a child as soon as its launcher sees it."""
        if self.child:
            loop = self.host.world.loop
            loop.at(loop.random.uniform(0, 0.05), self.end, "EOF")
        else:
            self.end("KILLED")

    def rearm(self, deadline: float) -> None:
        """Of a child: at the deadline its launcher kills it, whoever else is stopped."""
        self.deadlines += 1
        loop = self.host.world.loop
        loop.at(max(0.0, self.host.shared(deadline) - loop.now), self._expired, self.deadlines)

    def _expired(self, number: int) -> None:
        if number == self.deadlines:
            self.end("EXPIRED")


async def handle(claim: Claim, tools: Tools) -> Outcome:
    from tests.sim.host import here

    host, order = here(), claim.payload
    executor = Executor(host.world.next_pid(), host, claim, order.get("kind") == "child")
    executor.begin()
    try:
        if executor.child:
            await _as_child(executor, tools, order)
        else:
            await _inside(executor, order)
    finally:
        executor.end("RETURNED")
    return _outcome(order, claim.attempt)


async def _inside(executor: Executor, order: Any) -> None:
    left = order.get("seconds", 1.0)
    try:
        while left > 0:
            await anyio.sleep(min(left, ALIVE_SECONDS))
            left -= ALIVE_SECONDS
            executor.host.world.witness.alive(executor)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(order.get("stop", 0.0))
        raise


async def _as_child(executor: Executor, tools: Tools, order: Any) -> None:
    loop = executor.host.world.loop
    grace = tools.kill_seconds / 2
    executor.gone = loop.create_future()
    loop.at(order.get("seconds", 1.0), executor.end, "EXITED")
    executor.rearm(tools.stop_deadline() + grace)
    tools.on_stop_deadline(lambda deadline: executor.rearm(deadline + grace))
    executor.rearm(tools.stop_deadline() + grace)
    try:
        await asyncio.shield(executor.gone)
    except asyncio.CancelledError:
        # SIGTERM now, SIGKILL after half of the kill time
        loop.at(min(order.get("stop", 0.0), grace), executor.end, "TERMINATED")
        with anyio.CancelScope(shield=True):
            await executor.gone
        raise


def _outcome(order: Any, attempt: int) -> Outcome:
    match order.get("outcome", "done"):
        case "retry" if attempt < 3:
            return Retry("PLANNED", "once more", 0.3)
        case "raise" if attempt < 2:
            raise ValueError("planned")
        case "cancel":
            return Cancel("planned")
        case _:
            return Done({"attempt": attempt})
