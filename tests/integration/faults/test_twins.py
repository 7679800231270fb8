"""Twins with a guard taken out: what the other tests assert is then seen to fail, or they prove nothing."""

from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.replicas import TAKE_OVER, Fleet, Member, replicas

pytestmark = pytest.mark.slow

NO_FENCE = """
    CREATE OR REPLACE FUNCTION supervisor.fence(p_epoch bigint) RETURNS void
    LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN END $$"""


@pytest.mark.parametrize("fenced", [True, False])
async def test_two_leaders_at_once_are_kept_apart_by_the_fence_alone(
    database: Urls, tmp_path: Path, *, fenced: bool
) -> None:
    """The old leader goes on, blind, while the new one is frozen: nothing but the fence refuses it."""
    async with replicas(database, tmp_path, count=0, checked=fenced) as fleet:
        old, new, epoch = await two_leaders(fleet)
        await fleet.define("work", fleet.effects.command(0.2))
        if not fenced:
            await fleet.rows(NO_FENCE)
        new.stop()
        old.cont()
        runs = await fleet.trigger("work", 5)

        async def refused() -> bool:
            return await old.metric("tenure_fenced_writes_total") >= 1

        async def moved() -> bool:
            return any(text.startswith("I2 ") for text in await fleet.violations())

        if fenced:
            await fleet.until(refused, within=3, what="the write to be refused")
            # it may lead again, under a new epoch, once the frozen one's lease is over
            await fleet.until(lambda: fleet.succeeded(runs), within=TAKE_OVER + 5, what="all runs to succeed")
            moves = [move for run in runs for move in await fleet.history(run)]
            assert min(move["leader_epoch"] for move in moves if move["to_state"] == "ASSIGNED") > epoch + 1
        else:
            await fleet.until(moved, within=3, what="a move under the old epoch to be seen")


async def two_leaders(fleet: Fleet) -> tuple[Member, Member, int]:
    """One that never doubts itself, frozen, and the one that replaced it; a worker that does not lead."""
    (old,) = await fleet.start(variant="without-trust")
    await fleet.leader()
    epoch = await fleet.epoch()
    (new,) = await fleet.start(variant="leads-only")
    await fleet.start(variant="never-leads")
    old.stop()
    await fleet.led_after(epoch, TAKE_OVER)
    return old, new, epoch
