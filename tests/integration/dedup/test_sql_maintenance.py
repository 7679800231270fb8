"""Checkpoints as the database admits, leases and retries them."""

from typing import Any

import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import Claimed, DedupWorld, refused

ASK = "SELECT * FROM dedup.request_checkpoint('anna', $1, 'test', $2)"
ROW = "SELECT * FROM dedup.wal_maintenance_jobs"


async def claimed(world: DedupWorld) -> Claimed:
    await world.control.sql(ASK, "passive", None)
    [held] = await world.claim(leases.WAL)
    return held


async def test_a_checkpoint_is_asked_for_and_waits_for_its_time(world: DedupWorld) -> None:
    """R000-42, R000-43"""
    later = await world.instant("clock_timestamp() + interval '1 hour'")
    made = await world.control.one(ASK, "restart", later)
    assert (made["status"], made["requested_mode"], made["execute_after"]) == ("pending", "restart", later)
    assert await world.claim(leases.WAL) == []
    await world.admin.sql("UPDATE dedup.wal_maintenance_jobs SET execute_after = now()")
    [held] = await world.claim(leases.WAL)
    row = await world.admin.one(ROW)
    assert (held.id, row["status"], row["worker_id"]) == (made["id"], "running", "w1")
    assert row["lease_expires_at"] > row["started_at"]


@pytest.mark.parametrize("mode", ["fast", "", "PASSIVE", None])
async def test_another_mode_is_refused(world: DedupWorld, mode: str | None) -> None:
    """R000-13"""
    await refused("TN022", world.control.sql(ASK, mode, None))


async def test_truncate_only_where_it_is_switched_on(world: DedupWorld) -> None:
    await refused("TN021", world.control.sql(ASK, "truncate", None))
    await world.switch("dedup_allow_wal_truncate", "true")
    await world.control.sql(ASK, "truncate", None)


async def test_one_in_an_interval(world: DedupWorld) -> None:
    """Of requests at once too: the second waits for the first and is told when the next may be."""
    other = await world.hand("control")
    await world.control.begin()
    await world.control.sql(ASK, "passive", None)
    waiting = await world.waiting(other, other.sql(ASK, "passive", None))
    await world.control.commit()
    await refused("TN023", waiting)
    await world.admin.sql("UPDATE dedup.wal_maintenance_jobs SET created_at = now() - interval '16 minutes'")
    await world.control.sql(ASK, "passive", None)
    await world.unguarded("UPDATE dedup.wal_maintenance_jobs SET status = 'failed'")
    await world.control.sql(ASK, "passive", None)


async def test_a_stale_one_is_tried_again_later(world: DedupWorld) -> None:
    """R000-44: with the same words each time, counted, and not before retry_after."""
    held = await claimed(world)
    for count in (1, 2):
        await world.expire("wal_maintenance_jobs")
        assert await world.claim(leases.WAL) == []
        row = await world.admin.one(ROW)
        assert (row["status"], row["error_code"], row["retry_count"]) == ("retryable", "LEASE_EXPIRED", count)
        assert row["error_message"] == leases.WAL.stale_message
        assert [row[n] for n in ("worker_id", "worker_heartbeat_at", "lease_expires_at")] == [None] * 3
        assert round((row["retry_after"] - row["updated_at"]).total_seconds()) == 120 * count
        assert await world.finish(leases.WAL, held) == "SUPERSEDED"
        await world.admin.sql("UPDATE dedup.wal_maintenance_jobs SET retry_after = now()")
        [held] = await world.claim(leases.WAL)


FIGURES = {"checkpoint_busy": 1, "checkpoint_log_frames": 5, "checkpointed_frames": 0}


@pytest.mark.parametrize(
    ("how", "status", "figures"),
    [
        ("done", "completed", {**FIGURES, "checkpoint_busy": 0}),
        ("retry", "retryable", FIGURES),
        ("cancel", "failed", {}),
    ],
)
async def test_a_checkpoint_ends(world: DedupWorld, how: str, status: str, figures: dict[str, Any]) -> None:
    """R000-45, R000-46, R000-47: with its figures; a busy one is due again later and keeps its error."""
    held = await claimed(world)
    assert await world.finish(leases.WAL, held, how, **figures) == "RECORDED"
    row = await world.admin.one(ROW)
    assert (row["status"], row["lease_expires_at"]) == (status, None)
    assert figures.items() <= dict(row).items()
    assert row["error_code"] == (None if how == "done" else "BROKEN")
    assert (row["retry_after"] is not None, row["retry_count"]) == (how == "retry", int(how == "retry"))
    assert await world.claim(leases.WAL) == []
