"""Disks are full, slow or broken: what was acknowledged is there, nothing is half there, and it goes on."""

import os
import random
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import asyncpg

from supervisor.clock import boottime
from tests.chaos.faults import DiskFull, SlowSync
from tests.chaos.layer import NotHere
from tests.chaos.load import Load, command
from tests.chaos.observer import ENDED, Row
from tests.chaos.place import PREFIX, fill, ground, mount_tmpfs
from tests.chaos.scenario import Inconclusive, Scenario
from tests.chaos.scenarios.database import OUTCOMES, prepared, warmed_up
from tests.chaos.topology import Topology
from tests.chaos.world import World
from tests.support.libraries import photos
from tests.support.replicas import TAKE_OVER

MEBIBYTE: Final = 1 << 20
DATA_BYTES: Final = 160 * MEBIBYTE
SEGMENT_BYTES: Final = 16 * MEBIBYTE
SYNC_SECONDS: Final = 0.5
THUMBS_BYTES: Final = 8 * MEBIBYTE
PICTURES: Final = 12
# the same pictures for every world, made by the first
LIBRARIES: Final = ground() / f"{PREFIX}libraries-{os.geteuid()}"
LIBRARY: Final = "pictures"
# as it is delivered: two commits in a row take a third of the R of the tests' timings
DELIVERED: Final = {
    "TENURE_LEADER_LEASE_SECONDS": "15",
    "TENURE_RENEW_DEADLINE_SECONDS": "9",
    "TENURE_RENEW_RETRY_SECONDS": "2",
    "TENURE_HEARTBEAT_SECONDS": "3",
    "TENURE_CONFIRM_AFTER_SECONDS": "9",
    "TENURE_SELF_STOP_SECONDS": "20",
    "TENURE_KILL_SECONDS": "2",
    "TENURE_STOP_BOUND_SECONDS": "30",
}
NO_SPACE: Final = re.compile("NO_SPACE|No space left")
BUSY: Final = Load(per_second=2, seconds=(0.2, 2), poison=0)
CALM: Final = Load(per_second=0.5, seconds=(0.2, 1), failing=0, poison=0)


@dataclass(frozen=True)
class ThumbsFull:
    """The directory of thumbnails of every replica is a small file system without room."""

    target: str = "thumbs"

    async def start(self, world: World) -> None:
        for host in world.members:
            place = thumbs(world, host)
            place.parent.mkdir(exist_ok=True)
            mount_tmpfs(place, THUMBS_BYTES)
            fill(place / "filler")

    async def stop(self, world: World) -> None:
        for host in world.members:
            (thumbs(world, host) / "filler").unlink()


async def wal_full(world: World, chance: random.Random) -> None:
    """There is no room for the next segment of the log: the server panics, and comes back with room."""
    await warmed_up(world)
    await world.passed(boottime(), chance.uniform(0, 2))
    before = {row["id"]: row for row in await world.see.rows(OUTCOMES, list(ENDED))}
    log = world.postgres["pg1"].home / "log"
    calm = log.stat().st_size
    refused = 0
    async with world.during(DiskFull("pg1")):
        # segments would fill what is left, and nobody could take them away again
        if shutil.disk_usage(world.postgres["pg1"].data).free >= SEGMENT_BYTES:
            raise Inconclusive("the disk is not full")
        full = boottime()
        while boottime() < full + 3 * world.stretch:
            refused += await no_new_segment(world)
            await world.passed(boottime(), 0.2)
        await world.passed(boottime(), chance.uniform(0, 3))
    # a call can fail for other reasons: only the server knows that it had no room
    if not refused or not NO_SPACE.search(log.read_bytes()[calm:].decode(errors="replace")):
        raise Inconclusive("the full disk was not noticed")
    await goes_on(world, before)


async def no_new_segment(world: World) -> bool:
    try:
        await world.see.rows(
            "SELECT pg_switch_wal(), pg_logical_emit_message(false, 'chaos', repeat('x', 9999))"
        )
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
        return True
    return False


async def slow_sync(world: World, chance: random.Random) -> None:
    """Half a second for each commit: the leader stays, and nothing is taken from anybody."""
    await warmed_up(world)
    epoch = await world.see.epoch()
    async with world.during(SlowSync("pg1", seconds=SYNC_SECONDS)):

        async def slow() -> bool:
            sent = boottime()
            await world.see.trigger("load", 1, command(0.2))
            world.figure("commit", boottime() - sent)
            return world.figures["commit"] >= SYNC_SECONDS

        # the tracer needs a moment to have hold of every process
        await prepared(world, slow, within=10, what="a commit to take that long")
        await world.passed(boottime(), chance.uniform(12, 15))
    assert await world.see.epoch() == epoch, "the leader changed"
    lost = await world.see.rows("SELECT run_id FROM supervisor.job_run_history WHERE to_state = 'TIMED_OUT'")
    assert not lost, f"a slow disk cost attempts: {lost}"


async def broken_sync(world: World, chance: random.Random) -> None:
    """One failed sync of the log: the server trusts nothing, panics and recovers."""
    await warmed_up(world)
    await world.passed(boottime(), chance.uniform(0, 2))
    before = {row["id"]: row for row in await world.see.rows(OUTCOMES, list(ENDED))}
    log = world.postgres["pg1"].home / "log"
    async with world.during(SlowSync("pg1", error="EIO")):

        async def recovered() -> bool:
            text = log.read_text(errors="replace")
            return "PANIC" in text and "automatic recovery in progress" in text

        await world.see.until(recovered, within=10, what="the server to panic and recover")
    await goes_on(world, before)


async def goes_on(world: World, before: dict[int, Row]) -> None:
    up = boottime()

    async def read() -> dict[int, Row]:
        return {row["id"]: row for row in await world.see.rows(OUTCOMES, list(ENDED))}

    now: dict[int, Row] = await world.see.until(read, within=TAKE_OVER, what="the database")
    lost = [row for run, row in before.items() if now.get(run) != row]
    assert not lost, f"acknowledged outcomes were lost: {lost}"
    await world.leader(within=TAKE_OVER)
    world.figure("leader_gap", boottime() - up)


async def thumbs_full(world: World, chance: random.Random) -> None:
    """A thumbnail without room fails and says so; nothing of it can be seen, and later it is made."""
    if os.geteuid() != 0:
        raise NotHere("needs root to mount a file system of a size")
    make_library()
    await warmed_up(world)
    await world.see.rows("SELECT FROM dedup.add_library('chaos', $1, $1)", LIBRARY)
    await world.see.define("pictures", {"library": LIBRARY}, domain="dedup", action="scan", max_attempts=1)
    await world.see.define(
        "thumbs", {"library": LIBRARY}, domain="dedup", action="thumbnails-for-library", max_attempts=1
    )
    await ends(world, await world.see.trigger("pictures"), 20)
    async with world.during(ThumbsFull()):
        await world.passed(boottime(), chance.uniform(0, 0.5))
        await ends(world, await world.see.trigger("thumbs"), 30)
        failed = await world.see.rows("SELECT status, error_code, error_message FROM dedup.thumbnails")
        assert len(failed) == PICTURES, failed
        for row in failed:
            reason = f"{row['error_code']} {row['error_message']}"
            assert row["status"] == "failed", f"made without room: {row}"
            assert NO_SPACE.search(reason), f"it does not say why: {row}"
        seen = [path for host in world.members for path in thumbs(world, host).rglob("*") if path.is_file()]
        assert all(path.name == "filler" for path in seen), f"something half made is visible: {seen}"


async def ends(world: World, runs: list[int], within: float) -> None:
    async def over() -> bool:
        return not set(await world.see.states(runs)) - set(ENDED)

    await world.see.until(over, within=within, what="the run of a library to end")


def make_library() -> None:
    if not (LIBRARIES / LIBRARY).exists():
        draft = LIBRARIES / f"draft-{os.getpid()}"
        photos(draft, PICTURES, different=PICTURES)
        with suppress(OSError):
            draft.rename(LIBRARIES / LIBRARY)


def thumbs(world: World, host: str) -> Path:
    return world.home / f"state-{host}" / "thumbs"


SCENARIOS: Final = (
    Scenario(
        "C28",
        "there is no room for the database's log, then there is again",
        wal_full,
        rules=(12,),
        expects=("fault", "unknown_outcome"),
        topology=Topology(disk_bytes=DATA_BYTES),
        load=BUSY,
    ),
    Scenario(
        "C29",
        "there is no room for thumbnails: they fail with the reason, and nothing half made is visible",
        thumbs_full,
        rules=(14,),
        expects=("fault",),
        topology=Topology(env={"TENURE_LIBRARIES_DIR": str(LIBRARIES)}),
        load=CALM,
    ),
    Scenario(
        "C30a",
        "every sync of the database's disk takes half a second longer",
        slow_sync,
        rules=(4, 7),
        expects=("fault",),
        topology=Topology(env=DELIVERED),
        load=CALM,
    ),
    Scenario(
        "C30b",
        "a sync of the database's disk fails",
        broken_sync,
        rules=(12,),
        expects=("fault", "unknown_outcome"),
        load=BUSY,
    ),
)
