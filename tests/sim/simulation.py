"""A plan played: the replicas are given a made-up clock, chance, network and process, and play it."""

import gc
import logging
import random
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import structlog

from tests.sim import host as hosts
from tests.sim import rules, verdicts
from tests.sim.database import Database, instant
from tests.sim.loop import OrderedSet
from tests.sim.plan import Plan, Result
from tests.sim.record import letters
from tests.sim.world import World

SILENT_LEVEL: Final = logging.CRITICAL


def simulate(database: Database, plan: Plan) -> Result:
    database.reset(rules.changed_functions(database, plan.rules_off))
    world = World(database, plan)
    with _made_up(world), rules.switched_off(plan.rules_off), warnings.catch_warnings():
        # tasks that were cancelled before their first step
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        world.loop.set_exception_handler(lambda _loop, _context: None)
        world.loop.run_until_complete(world.play())
        if plan.directory is not None:
            wall = instant(world.t + world.database_offset).timestamp()
            world.record.write(plan.directory, _scenario(world), verdicts.tables(world), wall)
        result = Result(
            plan, world.violations, world.record.events, world.loop.steps, world.t, world.healed_at,
            world.statements, dict(world.witness.seen), world.nemesis.kinds,
        )  # fmt: skip
        world.bury()
        gc.collect()
    return result


@contextmanager
def _made_up(world: World) -> Iterator[None]:
    """Time, chance, the network and the process, as the replicas see them."""
    clock = SimpleNamespace(clock_gettime=lambda _clock: world.loop.time(), CLOCK_BOOTTIME=0)
    stand_ins = {
        "supervisor.clock.time": clock,
        "supervisor.clock.random": random.Random(world.plan.seed + 1),  # noqa: S311  to be repeated
        "supervisor.store.connect": world.network.connect,
        "supervisor.wakeups.connect": world.network.connect,
        "supervisor.replica.DeadMan": hosts.dead_man,
        "supervisor.replica.Identity": hosts.identity,
        "supervisor.replica.Pulse": hosts.SimPulse,
    }
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(SILENT_LEVEL))
    try:
        with ExitStack() as stack:
            for name, stand_in in stand_ins.items():
                stack.enter_context(patch(name, stand_in))
            stack.enter_context(patch("anyio._backends._asyncio.set", OrderedSet, create=True))
            yield
    finally:
        structlog.configure(**before)


def _scenario(world: World) -> dict[str, Any]:
    # the checker's bound is for one run at a time: those of one job that may not overlap wait for each other
    terminal = verdicts.bound_seconds(world) + verdicts.busiest_seconds(world)
    return {
        "name": "sim",
        "seed": world.plan.seed,
        "timings": letters(world.timings, world.reassign_seconds),
        "guards_off": sorted(world.plan.rules_off),
        "healed_at": world.healed_at,
        "ended_at": world.t,
        "bounds": {"leader_gap": world.timings.leader_lease + 4, "terminal": terminal},
        "async_failover": world.failovers > 0,
        "expects": sorted(
            name for name, count in world.witness.seen.items() if count > (name == "leader_change")
        ),
        "schedules": [{"job": "minutely", "cron": "* * * * *", "timezone": "UTC", "missed": "all"}],
    }
