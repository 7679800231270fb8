"""Every way is slow, narrow or lossy: slower work, and nobody is taken for dead who is not."""

import random
from collections.abc import Sequence
from typing import Final

from supervisor.clock import boottime
from tests.chaos.faults import Delay, Loss, Rate
from tests.chaos.load import Load, command
from tests.chaos.scenario import Scenario
from tests.chaos.topology import Topology
from tests.chaos.world import Fault, World

KBIT: Final = 1000
LOSS_PERCENT: Final = 5
# ten minutes may have one
CHANGES: Final = 1
GENTLE: Final = Load(per_second=1, seconds=(0.2, 2), failing=0, poison=0)
EACH: Final = 6
# a look, an assignment, a start and an end, each some turns of 600 ms, on connections yet to be made
SLOW_SECONDS: Final = 28.0
# the product's own: to connect takes four turns of 600 ms, more than a beat has at the short timings
DEFAULTS: Final = {
    "TENURE_LEADER_LEASE_SECONDS": "15",
    "TENURE_RENEW_DEADLINE_SECONDS": "9",
    "TENURE_RENEW_RETRY_SECONDS": "2",
    "TENURE_HEARTBEAT_SECONDS": "3",
    "TENURE_CONFIRM_AFTER_SECONDS": "9",
    "TENURE_SELF_STOP_SECONDS": "20",
    "TENURE_KILL_SECONDS": "2",
    "TENURE_STOP_BOUND_SECONDS": "30",
}


async def slow_and_narrow(world: World, chance: random.Random) -> None:
    """300 +- 200 ms each way between every replica and the database, 1 Mbit/s for every host."""
    delays = [Delay(host, "pg1", 0.3, 0.2) for host in world.members]
    await endured(world, chance, [*delays, *(Rate(host, KBIT) for host in [*world.members, "pg1"])])


async def lossy_and_narrow(world: World, chance: random.Random) -> None:
    hosts = [*world.members, "pg1", "sink"]
    losses = [Loss(host, LOSS_PERCENT) for host in hosts]
    await endured(world, chance, [*losses, *(Rate(host, KBIT) for host in [*world.members, "pg1"])])


async def endured(world: World, chance: random.Random, faults: Sequence[Fault]) -> None:
    """Work goes on meanwhile: what is asked for in the middle of it starts, and ends at its first attempt."""
    epoch = await world.see.epoch()
    async with world.during(*faults):
        began = boottime()
        await world.passed(began, chance.uniform(2, 4))
        runs = await world.see.trigger("load", EACH, command(0.5))

        async def succeeded() -> bool:
            return await world.see.succeeded(runs)

        await world.see.until(succeeded, within=SLOW_SECONDS, what="work on slow ways")
        world.figure("worked_after", boottime() - began)
        await world.passed(began, chance.uniform(14, 18))
        changes = await world.see.epoch() - epoch
    world.figure("leader_changes", changes)
    assert changes <= CHANGES, f"{changes} changes of the leader on slow ways"
    lost = """SELECT run_id, reason FROM supervisor.job_run_history
              WHERE to_state IN ('TIMED_OUT', 'ORPHANED')"""
    rows = await world.see.rows(lost)
    assert not rows, f"slow ways cost attempts: {rows[:5]}"


SCENARIOS: Final = (
    Scenario(
        "C18a",
        "every way is slow (300 +- 200 ms) and narrow (1 Mbit/s)",
        slow_and_narrow,
        rules=(4, 7, 8),
        expects=("fault",),
        topology=Topology(relayed=True, env=DEFAULTS),
        needs=("delay", "rate"),
        load=GENTLE,
    ),
    Scenario(
        "C18b",
        "every host loses 5 % of what it is sent, at 1 Mbit/s",
        lossy_and_narrow,
        rules=(4, 7, 8, 12),
        expects=("fault",),
        needs=("loss", "rate"),
        load=GENTLE,
    ),
)
