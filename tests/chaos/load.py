"""The work that goes on while faults happen: commands of many lengths, some failing, some poison, schedules.

From the seed alone: the same seed gives the same commands in the same order.
"""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import asyncpg

from tests.chaos.observer import Observer

SCRIPT: Final = str(Path(__file__).with_name("executor.sh"))
BATCH_SECONDS: Final = 0.5
ATTEMPTS: Final = 6
POISON: Final = ("segfault", "brood")


def command(seconds: float, how: str = "done", later: float | None = None) -> dict[str, Any]:
    """The arguments of a command that takes so many seconds of its world and then succeeds, fails, or worse.

    Its second attempt takes `later` seconds.
    """
    hundredths = {"hundredths": round(seconds * 100), "how": how}
    return hundredths if later is None else {**hundredths, "later": round(later * 100)}


def program(seconds: float) -> dict[str, Any]:
    """The definition of such a command; without arguments it takes so many seconds."""
    marks = [{"argument": name} for name in ("hundredths", "how", "later")]
    return {
        "payload": {"argv": ["bash", SCRIPT, *marks]},
        "parameters": {
            "hundredths": {"type": "integer", "default": round(seconds * 100)},
            "how": {"type": "text", "default": "done"},
            "later": {"type": "integer"},
        },
    }


@dataclass(frozen=True)
class Load:
    """per_second runs of so many seconds; shares of them fail once, or are poison and never succeed."""

    per_second: float = 1.5
    seconds: tuple[float, float] = (0.2, 4.0)
    failing: float = 0.1
    poison: float = 0.01
    schedules: int = 0


@dataclass
class Worker:
    """Feeds the load into the database until it is stopped."""

    load: Load
    see: Observer
    chance: random.Random
    runs: list[int] = field(default_factory=list)
    _made: int = 0
    _stopping: bool = False
    _task: "asyncio.Task[None] | None" = None

    async def start(self) -> None:
        await self.see.define("load", **program(1), max_attempts=ATTEMPTS)
        await self.see.define("load-poison", **program(1), max_attempts=2)
        for number in range(self.load.schedules):
            spec: dict[str, Any] = {"cron": "* * * * *", "timezone": "UTC", "missed": "all"}
            await self.see.define(f"schedule-{number}", **program(0.3), max_attempts=ATTEMPTS, **spec)
        if self.load.per_second:
            self._task = asyncio.create_task(self._feed())

    async def stop(self) -> None:
        """What is being enqueued is enqueued: a cancelled call could still be done later."""
        self._stopping = True
        if self._task is not None:
            await self._task
            self._task = None
        if self.load.schedules:
            # no further instant; the jobs stay enabled, or what was due would never be given out
            await self.see.rows(
                "UPDATE supervisor.job_definition SET next_fire_at = 'infinity', "
                "fired_until = fired_until + interval '1 microsecond' WHERE cron IS NOT NULL"
            )

    async def abandon(self) -> None:
        """At once, whatever is being enqueued: for a world that is closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _feed(self) -> None:
        owed = 0.0
        while not self._stopping:
            owed += self.load.per_second * BATCH_SECONDS
            while owed >= 1:
                owed -= 1
                await self._enqueue(*self._next())
            await asyncio.sleep(BATCH_SECONDS * self.see.stretch)

    def _next(self) -> tuple[str, dict[str, Any]]:
        dice, seconds = self.chance.random(), self.chance.uniform(*self.load.seconds)
        if dice < self.load.poison:
            return "load-poison", command(0.2, self.chance.choice(POISON))
        return "load", command(
            seconds, "fail-first" if dice < self.load.poison + self.load.failing else "done"
        )

    async def _enqueue(self, job: str, payload: dict[str, Any]) -> None:
        """Under a key, so that repeating it after a lost answer makes no second run."""
        self._made += 1
        key = f"load-{self._made}"
        while not self._stopping:
            try:
                enqueue = "SELECT id FROM supervisor.enqueue($1, $2::jsonb, $3)"
                self.runs.append(await self.see.value(enqueue, job, json.dumps(payload), key))
                return
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await asyncio.sleep(BATCH_SECONDS)
