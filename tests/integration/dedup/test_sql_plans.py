"""Calls read their stretch and no more, however large the tables are and whatever the statistics say.

The proof is the server's own count, not a plan: how often a table was read as a whole, and how many entries
of its indexes a call has read.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import pytest

from actors.dedup import leases
from schemas import queries
from supervisor.embedded import Urls
from supervisor.lease_sql import render
from tests.integration.dedup.conftest import world_of
from tests.integration.dedup.sql_world import Claimed, DedupWorld, Seen
from tests.support.databases import ensure_filled, fresh_database
from tests.support.server import Server

FILES, STRETCH = 50_000, 500
TABLES = ("library_files", "jobs", "thumbnails", "thumbnail_cleanup_jobs", "wal_maintenance_jobs")


async def fill(world: DedupWorld) -> None:
    """A large library that is hashed, among others, and the past of every table."""
    music = await world.add_library("music")
    for table in TABLES:
        await world.admin.sql(f"ALTER TABLE dedup.{table} SET (autovacuum_enabled = false)")
    await world.admin.sql(
        "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, inode, device, "
        "needs_hash, hash_algorithm, content_hash, hashed_size, hashed_mtime_ns, first_session_id) "
        "SELECT CASE WHEN n % 2 = 0 THEN $1::bigint ELSE $2::bigint END, 'd/' || lpad(n::text, 6, '0'), "
        "n % 100, 1, n, 1, false, 'blake3', sha256((n / 2)::text::bytea), n % 100, 1, 1 "
        "FROM generate_series(1, $3::integer) AS n",
        world.library, music, FILES,
    )  # fmt: skip
    await world.admin.sql(
        "INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key, status, error_count, retry_after) "
        "SELECT 'old' || id, id, 'g' || id, CASE WHEN id % 2 = 0 THEN 'ready' ELSE 'failed' END, 5, now() "
        "FROM dedup.library_files"
    )
    for table, columns, values in (
        ("jobs", "kind, status", "(ARRAY['scan', 'hash', 'delete'])[1 + n % 3], 'completed'"),
        ("thumbnail_cleanup_jobs", "group_key, status", "'g' || n, 'completed'"),
        ("wal_maintenance_jobs", "status, created_at", "'completed', '2024-01-01'"),
    ):
        await world.unguarded(
            f"INSERT INTO dedup.{table} ({columns}) SELECT {values} FROM generate_series(1, 20000) AS n"
        )


@pytest.fixture(params=["never analyzed", "analyzed when empty", "analyzed"])
async def full(server: Server, request: pytest.FixtureRequest) -> AsyncIterator[DedupWorld]:
    """Each of them is filled once in a run, and cloned for each test."""
    analyzed = f"ANALYZE {', '.join(f'dedup.{table}' for table in TABLES)}"

    async def make(urls: Urls) -> None:
        async with world_of(urls) as world:
            if request.param == "analyzed when empty":
                await world.admin.sql(analyzed)
            await fill(world)
            if request.param == "analyzed":
                await world.admin.sql(f"VACUUM {analyzed}")

    name = f"tenure_library_{request.param.replace(' ', '_')}"
    await ensure_filled(server, name, make)
    async with fresh_database(server, name) as urls, world_of(urls) as world:
        yield world


async def reads(world: DedupWorld, tables: Sequence[str] = TABLES) -> tuple[int, int]:
    """How often one of them was read as a whole, and how many entries of their indexes were read."""
    for hand in (world.control, world.worker, world.admin):
        await hand.sql("SELECT pg_stat_force_next_flush()")
    row = await world.admin.one(
        "SELECT (SELECT sum(seq_scan) FROM pg_stat_user_tables WHERE "
        "schemaname = 'dedup' AND relname = ANY ($1)) AS whole, "
        "(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE "
        "schemaname = 'dedup' AND relname = ANY ($1)) AS entries",
        list(tables),
    )
    return int(row["whole"]), int(row["entries"])


async def cost(
    world: DedupWorld, call: Callable[[], Awaitable[Any]], times: int = 7, tables: Sequence[str] = TABLES
) -> tuple[int, int]:
    """Reads of whole tables, and index entries of a call; seven times, so that cached plans are met too."""
    before = await reads(world, tables)
    for _ in range(times):
        await call()
    after = await reads(world, tables)
    return after[0] - before[0], (after[1] - before[1]) // times


def found(first: int, count: int) -> list[Seen]:
    """What stands in the library `photos`, which has every second of the files."""
    numbers = range(first, first + 2 * count, 2)
    return [Seen(f"d/{n:06}", size=n % 100, inode=n) for n in numbers]


async def test_a_batch_of_a_walk_reads_its_stretch(full: DedupWorld) -> None:
    """Unchanged files, changed ones, new ones."""
    job = await full.claimed(leases.SCAN, "scan")
    session = (await full.begin(job))["session_id"]
    batch, after = 0, ""

    async def step(change: Callable[[Seen], Seen] = lambda seen: seen) -> None:
        nonlocal batch, after
        seen = [change(one) for one in found(2 + 2 * STRETCH * batch, STRETCH)]
        batch += 1
        await full.record(job, session, seen, batch=batch, after=after, final=False)
        after = seen[-1].path

    assert await cost(full, step) <= (0, 3 * STRETCH)
    changed = await cost(full, lambda: step(lambda s: Seen(s.path, s.size + 1, s.mtime, s.inode)), 2)
    assert changed <= (0, 6 * STRETCH)
    fresh = await cost(full, lambda: step(lambda s: Seen(f"{s.path}x", s.size, s.mtime, s.inode)), 2)
    assert fresh <= (0, 8 * STRETCH)


async def test_a_plan_reads_its_stretch(full: DedupWorld) -> None:
    """Also where everything has to be hashed."""
    await full.request("hash", None, algorithm="sha256", mode="duplicates")
    [job] = await full.claim(leases.HASH)
    ids = await full.admin.value("SELECT min(id) FROM dedup.library_files")
    after = {"id": ids - 1}

    async def step() -> None:
        row = await full.worker.one(
            "SELECT * FROM dedup.plan_hash($1, $2, $3, $4, 100, 1000000)",
            job.id,
            job.claim,
            after["id"],
            STRETCH,
        )
        after["id"] = row["last_id"]

    whole, entries = await cost(full, step)
    assert (whole, entries <= 4 * STRETCH) == (0, True), entries


async def test_a_plan_passes_over_what_has_its_hash(full: DedupWorld) -> None:
    """A few new files among very many: planned in one stretch, and read without those between them."""
    await full.admin.sql(
        "UPDATE dedup.library_files SET needs_hash = true WHERE inode IN (7, 107, $1)", FILES - 3
    )
    await full.request("hash", None, mode="all")
    [job] = await full.claim(leases.HASH)

    async def step() -> None:
        row = await full.worker.one(
            "SELECT * FROM dedup.plan_hash($1, $2, 0, $3, 100, 1000000)", job.id, job.claim, STRETCH
        )
        assert row["last_id"] is not None

    whole, entries = await cost(full, step)
    assert (whole, entries <= STRETCH) == (0, True), entries
    [batch] = await full.claim(leases.FILES)

    async def read() -> None:
        rows = await full.worker.sql(
            "SELECT * FROM dedup.read_hash_batch($1, $2, 131072)", batch.id, batch.claim
        )
        assert len(rows) == 3

    whole, entries = await cost(full, read)
    assert (whole, entries <= STRETCH) == (0, True), entries


async def test_a_batch_of_hashes_reads_its_files_and_their_partners(full: DedupWorld) -> None:
    """A partner is found at once, also among the very many files of one size, and in the other library."""
    await full.admin.sql("UPDATE dedup.library_files SET needs_hash = true, size_bytes = 7 WHERE id % 50 = 0")
    await full.request("hash", "photos", mode="duplicates")
    [job] = await full.claim(leases.HASH)
    await full.worker.sql("SELECT * FROM dedup.plan_hash($1, $2, 0, 25000, 100, 1000000)", job.id, job.claim)
    batches = iter(await full.claim(leases.FILES, rows=10))

    async def step() -> None:
        batch: Claimed = next(batches)
        rows = await full.worker.sql(
            "SELECT * FROM dedup.read_hash_batch($1, $2, 5000)", batch.id, batch.claim
        )
        assert rows

    whole, entries = await cost(full, step, 4)
    assert (whole, entries < 50 * 100 * 4) == (0, True), entries


async def test_beginnings_are_compared_by_index(full: DedupWorld) -> None:
    """Ten thousand large files of one size begin differently: that none has a partner is found at once."""
    await full.admin.sql(
        "UPDATE dedup.library_files SET needs_hash = true, size_bytes "
        "= 10000, prefix_hash = sha256(id::text::bytea) "
        "WHERE id % 5 = 0"
    )
    await full.request("hash", None, mode="duplicates")
    [job] = await full.claim(leases.HASH)
    await full.worker.sql(
        "SELECT * FROM dedup.plan_hash($1, $2, 0, 50000, 100, 10000000000)", job.id, job.claim
    )
    batches = iter(await full.claim(leases.FILES, rows=3))

    async def step() -> None:
        batch = next(batches)
        await full.worker.sql("SELECT * FROM dedup.read_hash_batch($1, $2, 5000)", batch.id, batch.claim)

    whole, entries = await cost(full, step, 3)
    assert (whole, entries < 2000) == (0, True), entries


async def test_leave_is_given_by_two_rows(full: DedupWorld) -> None:
    """And the group of a deletion is found by its index."""
    await full.switch("dedup_allow_real_delete", "true")
    content = await full.admin.value("SELECT content_hash FROM dedup.library_files OFFSET 20 LIMIT 1")
    whole, entries = await cost(full, lambda: full.delete(content=content), 3)
    assert (whole, entries < 20) == (0, True), entries
    [job] = await full.claim(leases.DELETE)
    removed = "SELECT (payload #>> '{remove, 0}')::bigint FROM dedup.jobs WHERE id = $1"
    file = await full.admin.value(removed, job.id)
    whole, entries = await cost(full, lambda: full.trash(job, file), 3)
    assert (whole, entries < 20) == (0, True), entries


LEASES = (
    leases.SCAN, leases.HASH, leases.DELETE, leases.THUMBNAIL_JOB, leases.FILES, leases.THUMBNAILS,
    leases.CLEANUP, leases.WAL,
)  # fmt: skip


async def test_neither_claims_nor_duties_read_the_past(full: DedupWorld) -> None:
    """R000-37: claim and recovery of every contract, and what the leader does each tick."""
    expensive = {}
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        duty: lambda duty=duty: full.control.sql(f"SELECT dedup.{duty}($1)", full.epoch)  # type: ignore[misc]
        for duty in (
            "return_retryable",
            "drop_unwanted_hashes",
            "retry_thumbnails",
            "cancel_for_ended_runs",
            "purge",
        )
    }
    for lease in LEASES:
        name = lease.name
        calls[f"claim {name}"] = lambda lease=lease: full.claim(lease, rows=10)  # type: ignore[misc]
        calls[f"recover {name}"] = lambda lease=lease: full.recover(lease)  # type: ignore[misc]
        calls[f"count {name}"] = lambda lease=lease: full.control.sql(render(lease).count.sql)  # type: ignore[misc]
    for name, call in calls.items():
        whole, entries = await cost(full, call)
        if whole or entries > 50:
            expensive[name] = (whole, entries)
    assert expensive == {}


async def test_a_request_reads_no_past(full: DedupWorld) -> None:
    """R000-27: the queue is counted, not what it has made."""
    file = await full.file("new.jpg")

    async def request() -> None:
        await full.control.sql("SELECT * FROM dedup.request_thumbnail($1, 'webp', 256)", file)
        await full.unguarded("DELETE FROM dedup.thumbnails WHERE status = 'pending'")

    whole, entries = await cost(full, request)
    assert (whole, entries < 50) == (0, True), entries


async def test_groups_are_read_from_their_index_alone(full: DedupWorld) -> None:
    """R000-66, R000-79: no file's row is visited, whichever page; a group's files are read by their group."""
    await full.admin.sql("VACUUM dedup.library_files")
    text = queries()["list_duplicate_groups"].sql
    await full.admin.sql("SET enable_seqscan = off")
    plan = await full.admin.sql(f"EXPLAIN {text}", None, None, None, None, 100)
    lines = "\n".join(row[0] for row in plan)
    assert "Index Only Scan using ix_library_files_dedup_group" in lines, lines
    content = await full.admin.value("SELECT content_hash FROM dedup.library_files OFFSET 20 LIMIT 1")
    files = queries()["list_group_files"].sql
    whole, entries = await cost(full, lambda: full.control.sql(files, "blake3", content, 0, 100))
    assert (whole, entries < 50) == (0, True), entries
