"""What is over goes by the leader's step: when it is old enough, only then, and at a cost that stays flat."""

from typing import Any

import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, Claimed, DedupWorld, Seen, refused
from tests.integration.dedup.test_sql_plans import cost
from tests.support.eventually import eventually

OLD = "clock_timestamp() - interval '91 days'"


async def purge(world: DedupWorld) -> int:
    return int(await world.control.value("SELECT dedup.purge($1)", world.epoch))


async def gone(world: DedupWorld, path: str, **facts: Any) -> int:
    """A file that has been missing for longer than missing ones are kept."""
    file = await world.file(path, **facts)
    await world.admin.sql(
        f"UPDATE dedup.library_files SET is_missing = true, updated_at = {OLD} WHERE id = $1", file
    )
    return file


async def names(world: DedupWorld) -> set[str]:
    return set(await world.files())


async def count(world: DedupWorld, table: str) -> int:
    return int(await world.admin.value(f"SELECT count(*) FROM dedup.{table}"))


async def test_only_the_leader_purges(world: DedupWorld) -> None:
    await gone(world, "a")
    await refused("TN001", world.control.sql("SELECT dedup.purge($1)", world.epoch + 1))
    assert await names(world) == {"a"}


async def test_files_missing_for_long_go(world: DedupWorld) -> None:
    """Those that are there, missing for less, or leading a batch that is being hashed stay."""
    await gone(world, "old")
    await world.file("there")
    await gone(world, "recent")
    await world.admin.sql("UPDATE dedup.library_files SET updated_at = now() WHERE relative_path = 'recent'")
    busy = await gone(world, "busy")
    await world.unguarded(f"UPDATE dedup.library_files SET hash_status = 'running' WHERE id = {busy}")
    assert await purge(world) == 1
    assert await names(world) == {"there", "recent", "busy"}
    await world.switch("dedup_missing_retention_days", "92")
    await gone(world, "other")
    assert await purge(world) == 0


@pytest.mark.parametrize("status", ["pending", "running", "retryable"])
async def test_what_an_open_deletion_names_stays(world: DedupWorld, status: str) -> None:
    """The file to keep and those to remove, until the job has ended; others go meanwhile."""
    keep, remove = await world.file("a", content=HASH), await world.file("b", content=HASH)
    job = (await world.delete(keep, [remove], dry_run=True))["id"]
    await world.unguarded(f"UPDATE dedup.jobs SET status = '{status}' WHERE id = '{job}'")
    await world.admin.sql(f"UPDATE dedup.library_files SET is_missing = true, updated_at = {OLD}")
    await gone(world, "c")
    assert await purge(world) == 1
    assert await names(world) == {"a", "b"}
    await world.unguarded(f"UPDATE dedup.jobs SET status = 'failed' WHERE id = '{job}'")
    assert await purge(world) == 2


async def test_payloads_of_an_older_make_are_no_obstacle(world: DedupWorld) -> None:
    for payload in ('{"remove": 7}', '{"keep": {}, "remove": ["x", null]}', "{}", '{"keep": "1e99"}'):
        await world.admin.sql(f"INSERT INTO dedup.jobs (kind, payload) VALUES ('delete', '{payload}')")
    await gone(world, "a")
    assert await purge(world) == 1


async def test_nothing_goes_from_a_library_that_is_being_walked(world: DedupWorld) -> None:
    """The walk may have seen it again; a walk that nobody will continue does not count."""
    await gone(world, "a")
    job = await world.claimed(leases.SCAN, "scan")
    await world.begin(job)
    assert await purge(world) == 0
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    assert await purge(world) == 1


async def test_a_walk_that_begins_waits_for_the_purge(world: DedupWorld) -> None:
    """Else it could take a row for known that is just going, and the file would be in no row."""
    await gone(world, "a", size=10, inode=1)
    job = await world.claimed(leases.SCAN, "scan")
    await world.control.begin()
    assert await purge(world) == 1
    waiting = await world.waiting(world.worker, world.begin(job))
    await world.control.commit()
    session = (await waiting)["session_id"]
    assert await world.record(job, session, [Seen("a")]) == (1, 0, 0)
    assert not (await world.files())["a"]["is_missing"]


async def test_a_purge_passes_over_a_library_whose_walk_just_begins(world: DedupWorld) -> None:
    await gone(world, "a")
    job = await world.claimed(leases.SCAN, "scan")
    await world.worker.begin()
    await world.begin(job)
    assert await purge(world) == 0
    await world.worker.commit()
    assert await names(world) == {"a"}


async def test_ended_jobs_go_with_their_moves(world: DedupWorld) -> None:
    """When they ended long ago; open ones stay however old they are."""
    for status in ("completed", "failed", "cancelled", "pending", "retryable"):
        await world.admin.sql(
            f"INSERT INTO dedup.jobs (kind, status, finished_at, updated_at) "
            f"VALUES ('delete', $1, {OLD}, {OLD}), ('thumbnail', $1, now(), now())",
            status,
        )
    assert await count(world, "job_moves") == 10
    assert await purge(world) == 3
    rows = await world.admin.sql("SELECT status FROM dedup.jobs WHERE kind = 'delete'")
    assert {row["status"] for row in rows} == {"pending", "retryable"}
    assert (await count(world, "jobs"), await count(world, "job_moves")) == (7, 7)
    await world.switch("dedup_job_retention_days", "0.01")
    await world.unguarded("UPDATE dedup.jobs SET finished_at = now() - interval '1 hour'")
    assert await purge(world) == 3


async def test_the_job_of_a_run_that_goes_on_stays(world: DedupWorld) -> None:
    """The run's next attempt asks for it again, and must not begin anew."""
    await world.job()
    claim = await world.running()
    await world.admin.sql(
        "INSERT INTO dedup.jobs (kind, status, run_id, finished_at) "
        f"VALUES ('delete', 'completed', $1, {OLD})",
        claim.id,
    )
    assert await purge(world) == 0
    assert await world.worker.finish("w1", claim) == ["RECORDED"]
    assert await purge(world) == 1


async def test_ended_cleanups_and_checkpoints_go_but_the_latest_checkpoint(world: DedupWorld) -> None:
    for status in ("completed", "failed", "pending"):
        await world.admin.sql(
            f"INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, status, finished_at) "
            f"VALUES ('g', $1, {OLD}), ('h', $1, now())",
            status,
        )
        await world.admin.sql(
            f"INSERT INTO dedup.wal_maintenance_jobs (status, finished_at) VALUES ($1, {OLD})", status
        )
    assert await purge(world) == 4
    assert (await count(world, "thumbnail_cleanup_jobs"), await count(world, "wal_maintenance_jobs")) == (
        4,
        1,
    )
    await world.admin.sql(
        f"INSERT INTO dedup.wal_maintenance_jobs (status, finished_at) VALUES ('completed', {OLD})"
    )
    assert (await purge(world), await count(world, "wal_maintenance_jobs")) == (0, 2)


async def walk(world: DedupWorld, errors: int, *, status: str = "succeeded", days: float = 91) -> int:
    session = int(
        await world.admin.value(
            "INSERT INTO dedup.scan_sessions (library_id, status, error_count, finished_at) "
            "VALUES ($1, $2, $3, clock_timestamp() - make_interval(secs => 86400 * $4)) RETURNING id",
            world.library, status, errors, days,
        )
    )  # fmt: skip
    await world.admin.sql(
        "INSERT INTO dedup.scan_errors (session_id, path, code) "
        "SELECT $1, n::text, 'EACCES' FROM generate_series(1, $2::integer) AS n",
        session, errors,
    )  # fmt: skip
    return session


async def test_errors_of_older_walks_go(world: DedupWorld) -> None:
    """In steps; those of the last walk over a library stay, however old, and so do recent ones."""
    older, recent = await walk(world, 2500, days=8), await walk(world, 5, days=6)
    last = await walk(world, 7, days=8)
    steps = [await purge(world) for _ in range(5)]
    assert steps == [1000, 1000, 500, 0, 0]
    rows = await world.admin.sql("SELECT DISTINCT session_id FROM dedup.scan_errors")
    assert {row["session_id"] for row in rows} == {recent, last}
    assert await count(world, "scan_sessions") == 3
    kept = await world.admin.value("SELECT errors_purged_at FROM dedup.scan_sessions WHERE id = $1", older)
    assert kept is not None


async def test_walks_go_but_the_last_and_the_last_that_succeeded(world: DedupWorld) -> None:
    await walk(world, 3, status="failed")
    await walk(world, 0)
    succeeded = await walk(world, 0)
    last = await walk(world, 4, status="failed")
    while await purge(world):
        pass
    rows = await world.admin.sql("SELECT id FROM dedup.scan_sessions ORDER BY id")
    assert [row["id"] for row in rows] == [succeeded, last]
    assert await count(world, "scan_errors") == 4


# thumbnails without a file


async def thumb(world: DedupWorld, status: str) -> int:
    file = await world.file(f"{status}.jpg")
    return int(
        await world.admin.value(
            "INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key, status, retry_after) "
            "VALUES ($2, $1, 'g', $2, now()) RETURNING id",
            file, status,
        )
    )  # fmt: skip


async def test_thumbnails_outlive_their_file_and_wait_for_their_removal(world: DedupWorld) -> None:
    """They are neither made nor tried again nor shown; whoever is at one finishes it."""
    for status in ("ready", "failed", "pending"):
        await thumb(world, status)
    [held] = await world.claim(leases.THUMBNAILS)
    await thumb(world, "running")
    await world.admin.sql("UPDATE dedup.library_files SET is_missing = true, updated_at = " + OLD)
    assert await purge(world) == 4 + 1
    rows = await world.admin.sql("SELECT * FROM dedup.thumbnails ORDER BY id")
    assert {(row["file_id"], row["group_key"], row["retry_after"]) for row in rows} == {
        (None, "removed", None)
    }
    assert [row["status"] for row in rows] == ["ready", "failed", "running", "running"]
    assert await world.claim(leases.CLEANUP) == [], "not while one is being made"
    assert await world.finish(leases.THUMBNAILS, held, "retry") == "RECORDED"
    await world.expire("thumbnails")
    await world.unguarded("UPDATE dedup.thumbnails SET lease_expires_at = NULL WHERE status = 'running'")
    assert await world.recover(leases.THUMBNAILS) == 1
    rows = await world.admin.sql("SELECT * FROM dedup.thumbnails ORDER BY id")
    assert [row["status"] for row in rows] == ["ready", "failed", "failed", "failed"]
    assert {row["retry_after"] for row in rows} == {None}
    assert await world.control.value("SELECT dedup.retry_thumbnails($1)", world.epoch) == 0
    assert len(await world.claim(leases.CLEANUP)) == 1


async def cleaning(world: DedupWorld) -> Claimed:
    [held] = await world.claim(leases.CLEANUP)
    return held


async def test_a_failed_removal_is_tried_again_in_an_hour(world: DedupWorld) -> None:
    await thumb(world, "ready")
    await world.control.sql("SELECT dedup.remove_library('anna', 'photos')")
    assert await purge(world) == 1
    assert await world.finish(leases.CLEANUP, await cleaning(world), "retry") == "RECORDED"
    assert await purge(world) == 0
    await world.unguarded(
        "UPDATE dedup.thumbnail_cleanup_jobs SET finished_at = now() - interval '61 minutes'"
    )
    assert await purge(world) == 1


async def test_a_thumbnail_without_a_file_is_of_the_removed(world: DedupWorld) -> None:
    """No statement leaves one behind that nobody would clean up."""
    with pytest.raises(Exception, match="thumbnail_removed"):
        await world.unguarded("INSERT INTO dedup.thumbnails (thumb_key, group_key) VALUES ('x', 'g')")


TABLES = ("library_files", "jobs", "job_moves", "thumbnails", "thumbnail_cleanup_jobs", "scan_sessions",
          "scan_errors", "wal_maintenance_jobs")  # fmt: skip


@pytest.mark.fresh_database
async def test_a_step_reads_what_it_removes_and_not_what_is_kept(world: DedupWorld) -> None:
    """Also where much is kept that is not old enough, and much is old that is still needed."""
    for table in TABLES:
        await world.admin.sql(f"ALTER TABLE dedup.{table} SET (autovacuum_enabled = false)")
    await world.unguarded(
        "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, is_missing, "
        f"updated_at) SELECT {world.library}, n::text, 1, 1, n % 2 = 0, "
        f"CASE WHEN n <= 8000 THEN {OLD} ELSE now() END FROM generate_series(1, 20000) AS n"
    )
    for ended in (OLD, "now()"):
        await world.unguarded(
            "INSERT INTO dedup.jobs (kind, status, finished_at) "
            f"SELECT 'delete', 'completed', {ended} FROM generate_series(1, 5000)"
        )
        await world.unguarded(
            "INSERT INTO dedup.scan_sessions (library_id, status, finished_at) "
            f"SELECT {world.library}, 'succeeded', {ended} FROM generate_series(1, 5000)"
        )
    # the first step only: the next may meet again what is gone, while any transaction could still see it
    while_full = await cost(world, lambda: purge(world), 1, TABLES)
    assert while_full[0] == 0
    assert while_full[1] < 12_000, while_full
    while await purge(world):
        pass

    async def reads_little() -> bool:
        # what is gone is skipped once no transaction of the server, in any database, could still see it
        whole, entries = await cost(world, lambda: purge(world), 7, TABLES)
        assert whole == 0
        assert entries < 50
        return True

    await eventually(reads_little, timeout=60, interval=0.5, what="a step that reads nothing of what is gone")
    assert await count(world, "library_files") == 16_000


async def test_a_library_that_is_being_walked_does_not_stop_the_others(world: DedupWorld) -> None:
    """However many of the oldest are its own."""
    await gone(world, "a")
    job = await world.claimed(leases.SCAN, "scan")
    await world.begin(job)
    await world.admin.sql("INSERT INTO dedup.library_roots (name, root_path) VALUES ('other', 'other')")
    await world.admin.sql(
        f"""INSERT INTO dedup.library_files
                   (library_id, relative_path, size_bytes, mtime_ns, is_missing, updated_at)
            SELECT l.id, 'b', 1, 1, true, {OLD} + interval '1 hour'
              FROM dedup.library_roots l WHERE l.name = 'other'"""
    )
    assert await world.admin.value("SELECT dedup.purge_missing(1)") == 1
