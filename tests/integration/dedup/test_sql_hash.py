"""Which files are hashed, in which batches, and what is written down of it."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, OTHER, Claimed, DedupWorld, Seen, refused

LARGE, PREFIX_OVER = 10_000, 5_000


async def plan(
    world: DedupWorld, job: Claimed, *, after: int = 0, limit: int = 1000, files: int = 100, size: int = 10**9
) -> asyncpg.Record:
    return await world.worker.one(
        "SELECT * FROM dedup.plan_hash($1, $2, $3, $4, $5, $6)", job.id, job.claim, after, limit, files, size
    )


async def hashing(world: DedupWorld, library: str | None = "photos", **payload: Any) -> Claimed:
    await world.request("hash", library, **payload)
    return await world.claimed(leases.HASH)


async def read(world: DedupWorld, batch: Claimed) -> list[asyncpg.Record]:
    return await world.worker.sql(
        "SELECT * FROM dedup.read_hash_batch($1, $2, $3)", batch.id, batch.claim, PREFIX_OVER
    )


async def record(
    world: DedupWorld, batch: Claimed, files: Sequence[asyncpg.Record], *, algorithm: str = "blake3",
    hashes: Sequence[bytes | None] | None = None, prefixes: Sequence[bytes | None] | None = None,
    codes: Sequence[str | None] | None = None,
) -> int:  # fmt: skip
    none = [None] * len(files)
    return int(
        await world.worker.value(
            "SELECT dedup.record_hashes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
            batch.id, batch.claim, algorithm, [f["id"] for f in files], [f["size_bytes"] for f in files],
            [f["mtime_ns"] for f in files], [f["inode"] for f in files], hashes or none, prefixes or none,
            codes or none,
        )
    )  # fmt: skip


async def wanted(world: DedupWorld, library: str | None = "photos", **payload: Any) -> dict[str, bool]:
    """The files that one pass of such a job reads, and whether only their beginnings."""
    await plan(world, await hashing(world, library, **payload))
    files = [file for batch in await world.claim(leases.FILES, rows=10) for file in await read(world, batch)]
    return {file["relative_path"]: file["is_prefix"] for file in files}


async def batches(world: DedupWorld) -> list[tuple[str, int]]:
    """First file and number of files of each that waits."""
    rows = (await world.files()).values()
    return [(row["relative_path"], row["hash_files"]) for row in rows if row["hash_status"] == "pending"]


async def test_all_that_need_it_are_hashed(world: DedupWorld) -> None:
    other = await world.add_library("music")
    await world.file("new")
    await world.file("hashed", content=HASH)
    await world.file("other", content=HASH, algorithm="sha256")
    await world.file("elsewhere", library=other)
    gone, later = await world.file("gone"), await world.file("later")
    await world.admin.sql("UPDATE dedup.library_files SET is_missing = true WHERE id = $1", gone)
    await world.admin.sql("UPDATE dedup.library_files SET hash_retry_after = 'infinity' WHERE id = $1", later)
    assert set(await wanted(world)) == {"new", "other"}


async def test_all_libraries_when_none_is_named(world: DedupWorld) -> None:
    await world.file("a")
    await world.file("b", library=await world.add_library("music"))
    assert set(await wanted(world, None, algorithm="sha256")) == {"a", "b"}


async def test_batches_are_of_so_many_files_and_bytes(world: DedupWorld) -> None:
    for n in range(5):
        await world.file(f"f{n}", size=10)
    job = await hashing(world)
    row = await plan(world, job, files=2)
    assert row["queued"] == 5
    assert await batches(world) == [("f0", 2), ("f2", 2), ("f4", 1)]
    assert (await plan(world, job, files=2))["queued"] == 0, "planned again, nothing is new"
    assert (await world.job_row(job.id))["total_items"] == 5
    await world.admin.sql("UPDATE dedup.library_files SET hash_status = 'idle'")
    await plan(world, job, size=25)
    assert [count for _, count in await batches(world)] == [2, 2, 1]


async def test_a_stretch_is_looked_at_and_no_more(world: DedupWorld) -> None:
    ids = [await world.file(f"f{n}") for n in range(5)]
    job = await hashing(world)
    assert tuple(await plan(world, job, limit=2)) == (ids[1], 2)
    assert tuple(await plan(world, job, after=ids[1])) == (ids[-1], 3)
    assert tuple(await plan(world, job, after=ids[-1])) == (None, 0)


async def test_only_those_with_a_partner_of_their_size(world: DedupWorld) -> None:
    """R000-98: a candidate is one by its size, a duplicate only by its whole content."""
    for path, size in (("a", 5), ("b", 5), ("alone", 6), ("empty", 0), ("empty2", 0)):
        await world.file(path, size=size)
    await world.file("hashed", size=7, content=HASH)
    await world.file("its partner", size=7)
    assert set(await wanted(world, mode="duplicates")) == {"a", "b", "empty", "empty2", "its partner"}


async def test_a_missing_partner_is_none(world: DedupWorld) -> None:
    await world.file("a")
    gone = await world.file("b")
    await world.admin.sql("UPDATE dedup.library_files SET is_missing = true WHERE id = $1", gone)
    assert await wanted(world, mode="duplicates") == {}


async def test_large_files_are_told_apart_by_their_beginnings(world: DedupWorld) -> None:
    """R000-98: only those that begin alike are read whole, and only a whole hash counts."""
    for path, prefix in (("a", HASH), ("b", HASH), ("c", OTHER)):
        await world.file(path, size=LARGE, prefix=prefix)
    await world.file("unread", size=LARGE)
    await world.file("small", size=5)
    await world.file("small2", size=5)
    assert await wanted(world, mode="duplicates") == {
        "a": False, "b": False, "unread": True, "small": False, "small2": False,
    }  # fmt: skip


async def test_a_second_pass_reads_whole_what_begins_alike(world: DedupWorld) -> None:
    for path in ("a", "b", "c"):
        await world.file(path, size=LARGE)
    job = await hashing(world, mode="duplicates")
    await plan(world, job)
    [batch] = await world.claim(leases.FILES)
    files = await read(world, batch)
    assert [file["is_prefix"] for file in files] == [True] * 3
    assert await record(world, batch, files, prefixes=[HASH, HASH, OTHER]) == 3
    assert all(row["needs_hash"] for row in (await world.files()).values())
    assert await world.finish(leases.FILES, batch) == "RECORDED"
    assert (await plan(world, job))["queued"] == 3
    [batch] = await world.claim(leases.FILES)
    assert [(f["relative_path"], f["is_prefix"]) for f in await read(world, batch)] == [
        ("a", False),
        ("b", False),
    ]


async def test_a_partner_that_was_hashed_whole_has_no_beginning(world: DedupWorld) -> None:
    await world.file("whole", size=LARGE, content=HASH)
    await world.file("a", size=LARGE, prefix=OTHER)
    assert await wanted(world, mode="duplicates") == {"a": False}


@pytest.mark.parametrize("size", [5, LARGE])
async def test_a_partner_in_another_library_is_hashed_too(world: DedupWorld, size: int) -> None:
    music, films = await world.add_library("music"), await world.add_library("films")
    prefix = HASH if size == LARGE else None
    await world.file("mine", size=size, prefix=prefix)
    await world.file("theirs", size=size, library=music, prefix=prefix)
    await world.file("x", size=8, library=music)
    await world.file("y", size=8, library=films)
    assert set(await wanted(world, mode="duplicates")) == {"mine", "theirs"}


async def test_a_lost_claim_plans_reads_and_records_nothing(world: DedupWorld) -> None:
    """R000-22"""
    await world.file("a")
    job = await hashing(world)
    await refused("TN021", plan(world, Claimed(job.id, uuid4())))
    await plan(world, job)
    [batch] = await world.claim(leases.FILES)
    files = await read(world, batch)
    stranger = Claimed(batch.id, uuid4())
    await refused("TN021", read(world, stranger))
    await refused("TN021", record(world, stranger, files, hashes=[HASH]))
    await world.expire("library_files")
    await refused("TN021", record(world, batch, files, hashes=[HASH]))
    assert (await world.files())["a"]["needs_hash"]
    await world.expire("jobs")
    await refused("TN021", plan(world, job))


async def test_a_scan_plans_no_hashes(world: DedupWorld) -> None:
    job = await world.claimed(leases.SCAN, "scan")
    await refused("TN021", plan(world, job))


async def test_a_file_that_is_not_in_the_batch_is_not_recorded(world: DedupWorld) -> None:
    await world.file("a")
    await world.file("b")
    await plan(world, await hashing(world), files=1)
    [first] = await world.claim(leases.FILES)
    files = await world.admin.sql("SELECT * FROM dedup.library_files ORDER BY id")
    assert await record(world, first, files, hashes=[HASH, HASH]) == 1
    rows = await world.files()
    assert (rows["a"]["needs_hash"], rows["b"]["needs_hash"]) == (False, True)
    assert rows["a"]["content_hash"] == HASH
    assert rows["a"]["hash_algorithm"] == "blake3"


@pytest.mark.parametrize("change", [{"size": 11}, {"mtime": 2}])
async def test_a_hash_of_what_the_file_was_is_not_recorded(world: DedupWorld, change: dict[str, int]) -> None:
    """A walk found it changed while it was hashed; the others of its batch are recorded."""
    await world.file("a")
    await world.file("b", inode=2)
    job = await hashing(world)
    await plan(world, job)
    [batch] = await world.claim(leases.FILES)
    files = await read(world, batch)
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    await world.scanned(Seen("a"), Seen("b", inode=2, **change))
    assert await record(world, batch, files, hashes=[HASH, HASH]) == 1
    rows = await world.files()
    assert (rows["a"]["needs_hash"], rows["b"]["needs_hash"]) == (False, True)


async def test_the_first_of_a_batch_may_change_too(world: DedupWorld) -> None:
    """The lease stands in its row: whatever becomes of the batch, the old hash is not recorded."""
    await world.file("a")
    job = await hashing(world)
    await plan(world, job)
    [batch] = await world.claim(leases.FILES)
    files = await read(world, batch)
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    await world.scanned(Seen("a", size=11))
    await refused("TN021", record(world, batch, files, hashes=[HASH]))
    assert (await world.files())["a"]["needs_hash"]


async def test_an_unreadable_file_waits_before_it_is_tried_again(world: DedupWorld) -> None:
    await world.file("a")
    job = await hashing(world)
    await plan(world, job)
    [batch] = await world.claim(leases.FILES)
    assert await record(world, batch, await read(world, batch), codes=["EACCES"]) == 1
    row = (await world.files())["a"]
    assert (row["hash_error_code"], row["hash_error_count"], row["needs_hash"]) == ("EACCES", 1, True)
    assert row["hash_retry_after"] is not None
    assert await read(world, batch) == []
    assert await world.finish(leases.FILES, batch) == "RECORDED"
    assert (await plan(world, job))["queued"] == 0
    await world.admin.sql("UPDATE dedup.library_files SET hash_retry_after = now()")
    assert (await plan(world, job))["queued"] == 1
    [batch] = await world.claim(leases.FILES)
    assert await record(world, batch, await read(world, batch), hashes=[HASH]) == 1
    row = (await world.files())["a"]
    assert (row["hash_error_code"], row["hash_error_count"], row["hash_retry_after"]) == (None, 0, None)


async def test_batches_of_a_job_that_is_over_are_let_go(world: DedupWorld) -> None:
    await world.file("a")
    await world.file("b")
    job = await hashing(world)
    await plan(world, job, files=1)
    [held] = await world.claim(leases.FILES)
    drop = "SELECT dedup.drop_unwanted_hashes($1)"
    assert await world.control.value(drop, world.epoch) == 0, "it is wanted"
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    await refused("TN001", world.control.sql(drop, world.epoch + 1))
    assert await read(world, held) == [], "nobody wants it any more"
    assert await world.control.value(drop, world.epoch) == 1
    states = {row["id"]: row["hash_status"] for row in (await world.files()).values()}
    assert sorted(states.values()) == ["idle", "running"]
    assert states[held.id] == "running"


async def test_batches_of_a_job_that_will_go_on_stay(world: DedupWorld) -> None:
    await world.file("a")
    await plan(world, await hashing(world))
    await world.expire("jobs")
    await world.recover(leases.HASH)
    assert await world.control.value("SELECT dedup.drop_unwanted_hashes($1)", world.epoch) == 0
    assert await batches(world) == [("a", 1)]


async def test_a_new_job_takes_along_what_waits_for_one_that_is_over(world: DedupWorld) -> None:
    """Also before the leader has let it go; else it would find nothing to do and be done."""
    await world.file("a")
    job = await hashing(world)
    await plan(world, job)
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    assert list(await wanted(world)) == ["a"]


async def test_the_hash_of_another_file_under_the_same_name_is_not_recorded(world: DedupWorld) -> None:
    """It was replaced by one of the same size and time, and a walk has seen that: only its inode tells."""
    await world.scanned(Seen("a"), Seen("b"))
    await plan(world, await hashing(world))
    (batch,) = await world.claim(leases.FILES)
    files = await read(world, batch)
    await world.admin.sql("UPDATE dedup.library_files SET inode = inode + 1000 WHERE relative_path = 'b'")
    assert await record(world, batch, files, hashes=[b"x" * 32] * len(files)) == 1
    found = await world.files()
    assert (found["a"]["needs_hash"], found["b"]["needs_hash"]) == (False, True)


async def test_files_beside_one_that_is_still_worked_on_for_another_job_are_planned(
    world: DedupWorld,
) -> None:
    await world.scanned(Seen("a"), Seen("b"), Seen("c"))
    await plan(world, first := await hashing(world))
    await world.claim(leases.FILES)
    await world.control.sql("SELECT FROM dedup.cancel_job('test', $1)", first.id)
    await plan(world, await hashing(world, algorithm="sha256"))
    assert [name for name, _ in await batches(world)] == ["b"]
