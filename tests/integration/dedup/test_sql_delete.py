"""Deletion: who is asked for leave, and when leave is given. A last copy never gets it."""

import asyncio
import itertools
from uuid import uuid4

import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, OTHER, Claimed, DedupWorld, refused


async def group(world: DedupWorld, count: int = 3) -> list[int]:
    """Copies, the oldest first, and deletion switched on."""
    await world.switch("dedup_allow_real_delete", "true")
    return [await world.file(f"f{n}", content=HASH, mtime=n + 1, inode=n) for n in range(count)]


async def job_of(world: DedupWorld, keep: int, *remove: int) -> Claimed:
    await world.delete(keep, remove)
    [claimed] = await world.claim(leases.DELETE)
    return claimed


async def present(world: DedupWorld) -> set[int]:
    return {row["id"] for row in (await world.files()).values() if not row["is_missing"]}


async def test_without_a_choice_the_oldest_stays(world: DedupWorld) -> None:
    oldest, *others = await group(world)
    made = await world.delete()
    assert f'"keep": {oldest}' in made["payload"]
    assert f'"remove": {others}' in made["payload"]
    assert (made["kind"], made["total_items"], made["dry_run"]) == ("delete", 2, False)


@pytest.mark.parametrize("how", ["kept too", "a stranger", "nothing", "keep a stranger", "a null"])
async def test_only_other_members_of_the_group_can_go(world: DedupWorld, how: str) -> None:
    first, second, _ = await group(world)
    stranger = await world.file("x", content=OTHER)
    keep, remove = {
        "kept too": (first, [first, second]),
        "a stranger": (first, [stranger]),
        "nothing": (first, []),
        "keep a stranger": (stranger, [first]),
        "a null": (first, [None]),
    }[how]
    await refused("TN022", world.delete(keep, remove))  # type: ignore[arg-type]


async def test_a_file_named_twice_counts_once(world: DedupWorld) -> None:
    first, second, _ = await group(world)
    assert (await world.delete(first, [second, second]))["total_items"] == 1


async def test_a_single_file_is_no_group(world: DedupWorld) -> None:
    await group(world, 1)
    await refused("TN020", world.delete())


async def test_real_deletion_is_asked_for_only_where_it_is_switched_on(world: DedupWorld) -> None:
    """R000-97 (C-13): off by default; a dry run is always possible."""
    await group(world)
    await world.switch("dedup_allow_real_delete", "false")
    await refused("TN021", world.delete())
    assert (await world.delete(dry_run=True))["dry_run"]
    assert await world.admin.value(
        "SELECT dry_run FROM dedup.request_delete('a', 'blake3', $1, NULL, NULL, NULL)", HASH
    )


async def test_leave_is_given_and_remembered(world: DedupWorld) -> None:
    keep, file, _ = await group(world)
    job = await job_of(world, keep, file)
    rows = await world.worker.sql("SELECT * FROM dedup.read_deletion($1, $2)", job.id, job.claim)
    assert [(row["id"], row["keep"], row["gone"]) for row in rows] == [
        (keep, True, False),
        (file, False, False),
    ]
    assert await world.trash(job, file)
    assert await world.trash(job, file), "asked again, after a kill"
    row = (await world.files())["f1"]
    assert (row["is_missing"], row["trashed_by"], row["trash_path"]) == (True, job.id, ".trash/x")
    rows = await world.worker.sql("SELECT * FROM dedup.read_deletion($1, $2)", job.id, job.claim)
    assert [(row["trash_path"], row["gone"]) for row in rows] == [(None, False), (".trash/x", False)]
    assert await world.worker.value("SELECT dedup.untrash_file($1, $2, $3)", job.id, job.claim, file)
    assert file in await present(world)


async def test_a_dry_run_gets_no_leave(world: DedupWorld) -> None:
    """R000-97"""
    keep, file, _ = await group(world)
    await world.delete(keep, [file], dry_run=True)
    [job] = await world.claim(leases.DELETE)
    await refused("TN021", world.trash(job, file))


async def test_no_leave_after_the_switch_was_turned_off(world: DedupWorld) -> None:
    """R000-97"""
    keep, file, _ = await group(world)
    job = await job_of(world, keep, file)
    await world.switch("dedup_allow_real_delete", "false")
    await refused("TN021", world.trash(job, file))


async def test_no_leave_for_what_the_job_does_not_name(world: DedupWorld) -> None:
    """R000-97"""
    keep, file, other = await group(world)
    job = await job_of(world, keep, file)
    for wrong in (keep, other, 10**9):
        await refused("TN021", world.trash(job, wrong))
    await refused("TN021", world.trash(Claimed(job.id, uuid4()), file))
    await world.expire("jobs")
    await refused("TN021", world.trash(job, file))
    assert len(await present(world)) == 3


@pytest.mark.parametrize(
    ("who", "change"),
    [
        ("keep", "is_missing = true"),
        ("keep", "needs_hash = true"),
        ("keep", "content_hash = decode(repeat('00', 32), 'hex')"),
        ("keep", "hash_algorithm = 'sha256'"),
        ("file", "is_missing = true"),
        ("file", "needs_hash = true"),
        ("file", "content_hash = decode(repeat('00', 32), 'hex')"),
    ],
)
async def test_no_leave_when_either_is_not_what_it_was(world: DedupWorld, who: str, change: str) -> None:
    keep, file, _ = await group(world)
    job = await job_of(world, keep, file)
    place = keep if who == "keep" else file
    await world.admin.sql(f"UPDATE dedup.library_files SET {change} WHERE id = $1", place)
    before = await world.files()
    assert await world.trash(job, file) is False
    assert await world.files() == before


async def test_jobs_that_count_on_each_others_file_leave_one(world: DedupWorld) -> None:
    """Every pair of jobs over three copies, one after the other: something always stays."""
    ids = await group(world)
    jobs = [(await job_of(world, keep, *(set(ids) - {keep})), set(ids) - {keep}) for keep in ids]
    for order in itertools.permutations(jobs):
        await world.admin.sql("UPDATE dedup.library_files SET is_missing = false, trashed_by = NULL")
        for job, remove in order:
            for file in remove:
                await world.trash(job, file)
        assert len(await present(world)) >= 1


async def test_two_jobs_at_once_cannot_trash_both_copies(world: DedupWorld) -> None:
    """The second waits for the first, and then finds that what it keeps is gone."""
    one, two = await group(world, 2)
    first, second = await job_of(world, one, two), await job_of(world, two, one)
    other = await world.hand("worker")
    await world.worker.begin()
    assert await world.trash(first, two)
    waiting = await world.waiting(other, world.trash(second, one, hand=other))
    await world.worker.commit()
    assert await waiting is False
    assert await present(world) == {one}


async def test_many_jobs_at_once_leave_one_and_lock_in_one_order(world: DedupWorld) -> None:
    ids = await group(world, 4)
    jobs = [(await job_of(world, keep, *(set(ids) - {keep})), set(ids) - {keep}) for keep in ids]

    async def work(job: Claimed, remove: set[int]) -> None:
        hand = await world.hand("worker")
        for file in sorted(remove, reverse=True):
            await world.trash(job, file, hand=hand)

    await asyncio.gather(*(work(job, remove) for job, remove in jobs))
    assert len(await present(world)) >= 1
