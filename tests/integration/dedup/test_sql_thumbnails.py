"""Thumbnails admitted under a capacity, retried in time, and removed by group."""

import asyncio
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, Claimed, DedupWorld, refused
from tests.integration.sql.world import Hand

ACTIVE = "SELECT count(*) FROM dedup.thumbnails WHERE status IN ('pending', 'running')"


async def request(
    world: DedupWorld, file: int, fmt: str | None = "webp", size: int | None = 256, hand: Hand | None = None
) -> asyncpg.Record:
    return await (hand or world.control).one(
        "SELECT * FROM dedup.request_thumbnail($1, $2, $3)", file, fmt, size
    )


async def failed(world: DedupWorld, file: int, *, after: float) -> asyncpg.Record:
    await request(world, file)
    [held] = await world.claim(leases.THUMBNAILS)
    assert await world.finish(leases.THUMBNAILS, held, "retry", tenure_after=after) == "RECORDED"
    return await world.admin.one("SELECT * FROM dedup.thumbnails WHERE id = $1", held.id)


async def test_a_request_is_queued_once(world: DedupWorld) -> None:
    """R000-27: asked again, the same row; of another form or another state of the file, another."""
    file = await world.file("a.jpg", content=HASH)
    made = await request(world, file)
    assert (made["status"], made["media_type"], made["format"]) == ("pending", "image", "webp")
    assert made["group_key"] == f"blake3:{HASH.hex()}"
    key = made["thumb_key"]
    assert made["output_relpath"] == f"{key[:2]}/{key[2:4]}/{key}.webp"
    assert (await request(world, file))["id"] == made["id"]
    assert (await request(world, file, "jpeg"))["id"] != made["id"]
    await world.admin.sql("UPDATE dedup.library_files SET mtime_ns = 2, needs_hash = true")
    assert (await request(world, file))["id"] != made["id"]


@pytest.mark.parametrize(
    ("fmt", "size"), [("png", 256), ("webp", 8), ("webp", 4096), (None, 256), ("webp", None)]
)
async def test_what_cannot_be_made_is_refused(world: DedupWorld, fmt: str | None, size: int | None) -> None:
    """R000-11"""
    await refused("TN022", request(world, await world.file("a.jpg"), fmt, size))


async def test_no_thumbnail_of_what_is_no_picture_or_not_there(world: DedupWorld) -> None:
    await refused("TN022", request(world, await world.file("a.txt")))
    await refused("TN020", request(world, 10**9))
    gone = await world.file("b.jpg")
    await world.admin.sql("UPDATE dedup.library_files SET is_missing = true")
    await refused("TN020", request(world, gone))


@pytest.mark.parametrize("capacity", [0, 3])
async def test_the_queue_never_exceeds_its_capacity(world: DedupWorld, capacity: int) -> None:
    """R000-27, R000-28: of requests at once as many are admitted as fit, the others hear that it is full."""
    await world.switch("dedup_thumbnail_capacity", str(capacity))
    files = [await world.file(f"{n}.jpg") for n in range(8)]
    hands = [await world.hand("control") for _ in files]
    answers = await asyncio.gather(
        *(request(world, file, hand=hand) for file, hand in zip(files, hands, strict=True)),
        return_exceptions=True,
    )
    refusals = [a.sqlstate for a in answers if isinstance(a, asyncpg.PostgresError)]
    assert refusals == ["TN023"] * (8 - capacity)
    assert await world.admin.value(ACTIVE) == capacity


async def test_a_count_waits_for_who_is_just_admitted(world: DedupWorld) -> None:
    """R000-27, R000-28: the lock, not luck: the second cannot count before the first has committed."""
    await world.switch("dedup_thumbnail_capacity", "1")
    one, two = await world.file("1.jpg"), await world.file("2.jpg")
    other = await world.hand("control")
    await world.control.begin()
    await request(world, one)
    waiting = await world.waiting(other, request(world, two, hand=other))
    await world.control.commit()
    await refused("TN023", waiting)
    await world.claim(leases.THUMBNAILS)
    await refused("TN023", request(world, two))


async def test_jobs_requests_and_retries_share_the_capacity(world: DedupWorld) -> None:
    """R000-28: a job takes what fits and comes back; the leader returns what fits."""
    for n in range(5):
        await world.file(f"{n}.jpg")
    await world.file("x.txt")
    await world.file("y.jpg", library=await world.add_library("music"))
    await world.switch("dedup_thumbnail_capacity", "2")
    job = await world.claimed(leases.THUMBNAIL_JOB, "thumbnail", format="jpeg", max_dimension=64)
    ask = "SELECT * FROM dedup.request_thumbnails($1, $2, $3, 100)"
    first = await world.worker.one(ask, job.id, job.claim, 0)
    assert (first["queued"], first["is_full"]) == (2, False)
    full = await world.worker.one(ask, job.id, job.claim, first["last_id"])
    assert tuple(full) == (first["last_id"], 0, True)
    await world.switch("dedup_thumbnail_capacity", "100")
    rest = await world.worker.one(ask, job.id, job.claim, first["last_id"])
    assert rest["queued"] == 3
    assert tuple(await world.worker.one(ask, job.id, job.claim, rest["last_id"])) == (None, 0, False)
    assert (await world.job_row(job.id))["total_items"] == 5
    rows = await world.admin.sql("SELECT DISTINCT format, max_dimension FROM dedup.thumbnails")
    assert [tuple(row) for row in rows] == [("jpeg", 64)]
    await refused("TN021", world.worker.sql(ask, job.id, uuid4(), 0))


async def test_a_thumbnail_is_claimed_made_and_ready(world: DedupWorld) -> None:
    """R000-29, R000-32"""
    made = await request(world, await world.file("a.jpg"))
    [held] = await world.claim(leases.THUMBNAILS)
    row = await world.admin.one("SELECT * FROM dedup.thumbnails")
    assert (held.id, row["status"], row["worker_id"]) == (made["id"], "running", "w1")
    assert row["lease_expires_at"] > row["worker_heartbeat_at"]
    figures: dict[str, Any] = {"width": 256, "height": 128, "bytes_size": 999}
    assert await world.finish(leases.THUMBNAILS, held, **figures) == "RECORDED"
    row = await world.admin.one("SELECT * FROM dedup.thumbnails")
    assert (row["status"], row["lease_expires_at"], row["error_count"]) == ("ready", None, 0)
    assert figures.items() <= dict(row).items()


async def test_a_stale_one_goes_back_into_the_queue(world: DedupWorld) -> None:
    """R000-31: by the next claim, unbound, and it is claimed again."""
    await request(world, await world.file("a.jpg"))
    [held] = await world.claim(leases.THUMBNAILS)
    await world.expire("thumbnails")
    await world.claim(leases.THUMBNAILS, rows=0)
    row = await world.admin.one("SELECT * FROM dedup.thumbnails")
    assert row["status"] == "pending"
    assert [row[n] for n in ("worker_id", "worker_heartbeat_at", "lease_expires_at", "claim_id")] == [
        None
    ] * 4
    [again] = await world.claim(leases.THUMBNAILS, owner="w2")
    assert (again.id, again.claim != held.claim) == (held.id, True)


async def test_a_failure_says_why_and_when_again(world: DedupWorld) -> None:
    """R000-33"""
    row = await failed(world, await world.file("a.jpg"), after=60)
    assert (row["status"], row["error_code"], row["error_message"]) == ("failed", "BROKEN", "it broke")
    assert (row["error_count"], row["lease_expires_at"]) == (1, None)
    assert row["retry_after"] > row["finished_at"]


async def test_a_failed_one_is_left_alone_before_its_time(world: DedupWorld) -> None:
    """R000-34, R000-35: a request before retry_after gets the row as it is, one after it queues it again."""
    file = await world.file("a.jpg")
    row = await failed(world, file, after=600)
    assert await request(world, file) == row
    assert await world.control.value("SELECT dedup.retry_thumbnails($1)", world.epoch) == 0
    assert await world.admin.one("SELECT * FROM dedup.thumbnails") == row
    await world.admin.sql("UPDATE dedup.thumbnails SET retry_after = now()")
    assert (await request(world, file))["status"] == "pending"


async def test_a_request_that_waited_looks_at_the_time_again(world: DedupWorld) -> None:
    """R000-34: meanwhile it was tried again and failed again."""
    file = await world.file("a.jpg")
    await failed(world, file, after=0)
    other = await world.hand("control")
    await world.admin.begin()
    await world.admin.sql("SELECT pg_advisory_xact_lock(hashtextextended('dedup.thumbnails', 0))")
    waiting = await world.waiting(other, request(world, file, hand=other))
    await world.worker.connection.execute("SELECT 1")
    third = await world.hand("admin")
    await third.sql("UPDATE dedup.thumbnails SET retry_after = now() + interval '1 hour'")
    await world.admin.commit()
    assert (await waiting)["status"] == "failed"


async def test_the_leader_retries_what_is_due(world: DedupWorld) -> None:
    """R000-34 (C-19): under its epoch, within the capacity, a few times each, where it is switched on."""
    await failed(world, await world.file("a.jpg"), after=0)
    retry = "SELECT dedup.retry_thumbnails($1)"
    await refused("TN001", world.control.sql(retry, world.epoch + 1))
    await world.switch("dedup_thumbnail_retry", "false")
    assert await world.control.value(retry, world.epoch) == 0
    await world.switch("dedup_thumbnail_retry", "true")
    await world.switch("dedup_thumbnail_capacity", "0")
    assert await world.control.value(retry, world.epoch) == 0
    await world.switch("dedup_thumbnail_capacity", "9")
    await world.admin.sql("UPDATE dedup.thumbnails SET error_count = 5")
    assert await world.control.value(retry, world.epoch) == 0
    await world.admin.sql("UPDATE dedup.thumbnails SET error_count = 4")
    assert await world.control.value(retry, world.epoch) == 1
    assert await world.admin.value("SELECT status FROM dedup.thumbnails") == "pending"


# removal


async def cleaning(world: DedupWorld, group: str = "g") -> Claimed:
    await world.control.sql("SELECT * FROM dedup.schedule_cleanup('anna', $1, 0)", group)
    [held] = await world.claim(leases.CLEANUP)
    return held


async def thumb(world: DedupWorld, status: str, group: str = "g") -> int:
    file = await world.file(f"{uuid4()}.jpg")
    return int(
        await world.admin.value(
            "INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key, status) "
            "VALUES (gen_random_uuid()::text, $1, $2, $3) RETURNING id",
            file, group, status,
        )
    )  # fmt: skip


async def test_a_cleanup_waits_for_its_time(world: DedupWorld) -> None:
    """R000-36, R000-37: scheduled as pending with the delay of the setting, claimed when it is due."""
    ask = "SELECT * FROM dedup.schedule_cleanup('anna', 'g', $1)"
    made = await world.control.one(ask, None)
    assert made["status"] == "pending"
    assert round((made["execute_after"] - made["created_at"]).total_seconds()) == 600
    assert (await world.control.one(ask, 0.0))["id"] == made["id"], "one open for each group"
    assert await world.claim(leases.CLEANUP) == []
    await world.admin.sql("UPDATE dedup.thumbnail_cleanup_jobs SET execute_after = now()")
    [held] = await world.claim(leases.CLEANUP)
    row = await world.admin.one("SELECT * FROM dedup.thumbnail_cleanup_jobs")
    assert (held.id, row["status"], row["worker_id"]) == (made["id"], "running", "w1")
    assert row["lease_expires_at"] is not None


async def test_a_cleanup_is_due_at_its_very_time(world: DedupWorld) -> None:
    """R000-37: not only behind it; in one transaction now() stands still."""
    await world.control.sql("SELECT * FROM dedup.schedule_cleanup('anna', 'g', 600)")
    await world.admin.begin()
    await world.admin.sql("UPDATE dedup.thumbnail_cleanup_jobs SET execute_after = now()")
    assert len(await world.claim(leases.CLEANUP, hand=world.admin)) == 1
    await world.admin.commit()


@pytest.mark.parametrize("status", ["pending", "running"])
async def test_a_group_at_work_is_not_cleaned(world: DedupWorld, status: str) -> None:
    """R000-38: not while one of its thumbnails waits or is being made; another group's does not matter."""
    one = await thumb(world, status)
    await thumb(world, status, "other")
    await world.control.sql("SELECT * FROM dedup.schedule_cleanup('anna', 'g', 0)")
    assert await world.claim(leases.CLEANUP) == []
    await world.admin.sql("DELETE FROM dedup.thumbnails WHERE id = $1", one)
    assert len(await world.claim(leases.CLEANUP)) == 1


async def test_a_stale_cleanup_goes_back(world: DedupWorld) -> None:
    """R000-39"""
    held = await cleaning(world)
    await world.expire("thumbnail_cleanup_jobs")
    await world.claim(leases.CLEANUP, rows=0)
    row = await world.admin.one("SELECT * FROM dedup.thumbnail_cleanup_jobs")
    assert row["status"] == "pending"
    assert [row[n] for n in ("worker_id", "worker_heartbeat_at", "lease_expires_at", "claim_id")] == [
        None
    ] * 4
    assert await world.finish(leases.CLEANUP, held) == "SUPERSEDED"


@pytest.mark.parametrize(
    ("how", "status", "code"), [("done", "completed", None), ("retry", "failed", "BROKEN")]
)
async def test_a_cleanup_ends(world: DedupWorld, how: str, status: str, code: str | None) -> None:
    """R000-40: and the group can be cleaned again later."""
    held = await cleaning(world)
    assert await world.finish(leases.CLEANUP, held, how) == "RECORDED"
    row = await world.admin.one("SELECT * FROM dedup.thumbnail_cleanup_jobs")
    assert (row["status"], row["error_code"], row["lease_expires_at"]) == (status, code, None)
    assert row["finished_at"] is not None
    assert (await cleaning(world)).id != held.id


async def test_only_ended_thumbnails_are_removed(world: DedupWorld) -> None:
    """R000-41, R000-102: of this group, ready or failed; no file of a library is touched."""
    held = await cleaning(world)
    ids = {status: await thumb(world, status) for status in ("pending", "running", "ready", "failed")}
    other = await thumb(world, "ready", "other")
    files = await world.files()
    listed = await world.worker.sql("SELECT id FROM dedup.read_cleanup($1, $2, 10)", held.id, held.claim)
    assert {row["id"] for row in listed} == {ids["ready"], ids["failed"]}
    remove = "SELECT dedup.remove_thumbnails($1, $2, $3)"
    assert await world.worker.value(remove, held.id, held.claim, [*ids.values(), other]) == 2
    left = {row["id"] for row in await world.admin.sql("SELECT id FROM dedup.thumbnails")}
    assert left == {ids["pending"], ids["running"], other}
    assert await world.files() == files


async def test_a_lost_cleanup_removes_nothing(world: DedupWorld) -> None:
    """R000-41, R000-22"""
    held = await cleaning(world)
    ready = await thumb(world, "ready")
    remove = "SELECT dedup.remove_thumbnails($1, $2, $3)"
    await refused("TN021", world.worker.sql(remove, held.id, uuid4(), [ready]))
    read = "SELECT id FROM dedup.read_cleanup($1, $2, 10)"
    assert await world.worker.sql(read, held.id, uuid4()) == []
    await world.expire("thumbnail_cleanup_jobs")
    await refused("TN021", world.worker.sql(remove, held.id, held.claim, [ready]))
    assert await world.worker.sql(read, held.id, held.claim) == []
    assert await world.admin.value("SELECT count(*) FROM dedup.thumbnails") == 1
