"""The upgrade of a database that an older make left."""

import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from actors.dedup import leases
from schemas.migrate import MigrateFailed
from supervisor.embedded import Urls
from tests.integration.dedup.legacy import EARLY, FULL, older, upgrade
from tests.integration.dedup.sql_world import DedupWorld
from tests.support.place import connected
from tests.support.server import Server

TABLES = ("library_roots", "jobs", "scan_sessions", "library_files", "thumbnails", "thumbnail_cleanup_jobs",
          "wal_maintenance_jobs", "io_rate_limits")  # fmt: skip
SCHEMA = """
    SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           pg_get_expr(d.adbin, d.adrelid), a.attidentity::text, a.attcollation::regcollation::text
      FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
      LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
     WHERE c.relnamespace = 'dedup'::regnamespace AND c.relkind = 'r'
    UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), convalidated,
           NULL, NULL, NULL
      FROM pg_constraint WHERE connamespace = 'dedup'::regnamespace AND contype <> 'n'
    UNION ALL SELECT 'index', tablename, indexname, indexdef, NULL, NULL, NULL, NULL
      FROM pg_indexes WHERE schemaname = 'dedup'
    UNION ALL SELECT 'sequence', NULL, relname, NULL, NULL, NULL, NULL, NULL FROM pg_class
     WHERE relkind = 'S' AND relnamespace = 'dedup'::regnamespace"""


@pytest.fixture(params=["full", "early"])
async def upgraded(request: pytest.FixtureRequest, database: Urls, server: Server) -> AsyncIterator[Urls]:
    """Of each older make; `database` sees to it that the roles are there."""
    async with older(server, FULL if request.param == "full" else EARLY) as urls:
        await upgrade(urls)
        yield urls


@pytest.fixture
async def full(database: Urls, server: Server) -> AsyncIterator[Urls]:
    async with older(server, FULL) as urls:
        yield urls


async def rows(url: str, query: str, *arguments: object) -> list[dict[str, Any]]:
    async with connected(url) as connection:
        return [dict(row) for row in await connection.fetch(query, *arguments)]


async def contents(urls: Urls) -> dict[str, list[Any]]:
    """Every row of every table with the transaction that wrote it."""
    names = await rows(urls.admin, "SELECT tablename FROM pg_tables WHERE schemaname = 'dedup' ORDER BY 1")
    return {
        name["tablename"]: await rows(
            urls.admin, f"SELECT xmin, ctid, t::text FROM dedup.{name['tablename']} t ORDER BY ctid"
        )
        for name in names
    }


async def described(urls: Urls) -> list[str]:
    """The schema as the catalogue has it, without what only older makes have."""
    extra = {"note", "hash_claim_token", "schema_migrations", "job_locks", "schema_migrations_pkey"}
    found = [tuple(row.values()) for row in await rows(urls.admin, SCHEMA)]
    ours = (row for row in found if not extra & {str(part).removeprefix("dedup.") for part in row})
    return sorted(map(repr, ours))


async def test_values_are_lower_case_before_constraints_hold_them(upgraded: Urls) -> None:
    """R000-04, R000-01"""
    [jobs] = await rows(
        upgraded.admin, "SELECT array_agg(DISTINCT kind || ' ' || status) AS all FROM dedup.jobs"
    )
    assert set(jobs["all"]) == {
        "scan completed", "scan running", "scan retryable", "hash retryable", "delete running",
        "thumbnail pending", "scan failed", "hash cancelled",
    }  # fmt: skip


async def test_all_tables_are_normalised(full: Urls) -> None:
    """R000-04"""
    await upgrade(full)
    for table, column, expected in (
        ("scan_sessions", "status", {"succeeded", "failed"}),
        ("library_files", "coalesce(hash_algorithm, '')", {"blake3", "sha256", ""}),
        ("thumbnails", "status", {"ready", "failed", "running"}),
        ("thumbnails", "media_type", {"image", "video"}),
        ("thumbnails", "format", {"jpeg", "webp"}),
        ("thumbnail_cleanup_jobs", "status", {"pending", "completed", "failed"}),
        (
            "wal_maintenance_jobs",
            "requested_mode || ' ' || status",
            {"passive retryable", "truncate completed"},
        ),
    ):
        found = await rows(full.admin, f"SELECT DISTINCT {column} AS v FROM dedup.{table}")
        assert {row["v"] for row in found} == expected, (table, column)


async def test_the_winner_is_the_oldest_running_one(upgraded: Urls) -> None:
    """R000-53, R000-54, R000-55, R000-56: running before pending, then created_at, id; losers say why."""
    found = await rows(upgraded.admin, "SELECT * FROM dedup.jobs ORDER BY id")
    jobs = {str(row["id"])[-1]: row for row in found}
    assert [
        key
        for key, row in jobs.items()
        if row["status"] in {"pending", "running"} and row["kind"] in {"scan", "hash"}
    ] == ["3"]
    assert (jobs["3"]["worker_id"], jobs["3"]["progress"]) == ("w2", 0.25)
    for key in ("2", "4"):
        assert jobs[key]["error_code"] == "MIGRATION_MUTEX_RECOVERY"
    for key in ("5", "6"):
        assert jobs[key]["error_code"] == "MIGRATION_ACTIVE_RECOVERY"
    for key in ("2", "4", "5", "6"):
        bound = [jobs[key][name] for name in ("worker_id", "worker_heartbeat_at", "lease_expires_at")]
        assert (jobs[key]["status"], bound) == ("retryable", [None] * 3)
        assert jobs[key]["error_message"]
    untouched = {
        "1": ("completed", None),
        "9": ("retryable", "LEASE_EXPIRED"),
        "a": ("failed", "WORKER_FAILURE"),
        "b": ("cancelled", None),
    }
    assert {key: (jobs[key]["status"], jobs[key]["error_code"]) for key in untouched} == untouched
    assert (jobs["7"]["status"], jobs["8"]["status"]) == ("running", "pending"), "other kinds are not limited"
    assert all(row["retry_after"] is not None for row in found if row["status"] == "retryable")


async def test_pending_ones_alone_leave_the_oldest(database: Urls, server: Server) -> None:
    """R000-54, R000-56"""
    async with older(
        server, f"{FULL} DELETE FROM dedup.job_locks; DELETE FROM dedup.jobs WHERE status = 'RUNNING';"
    ) as urls:
        await upgrade(urls)
        found = await rows(
            urls.admin,
            "SELECT id, status FROM dedup.jobs WHERE kind IN ('scan', "
            "'hash') AND status IN ('pending', 'running')",
        )
        assert [(str(row["id"])[-1], row["status"]) for row in found] == [("5", "pending")]


async def test_nothing_is_lost(full: Urls) -> None:
    """R000-79: rows, hashes and paths; what is not ours comes along, what is its own stays untouched."""
    count = " UNION ALL ".join(f"SELECT '{table}' AS name, count(*) FROM dedup.{table}" for table in TABLES)
    before = await rows(full.admin, count)
    ledger = await rows(full.admin, "SELECT xmin, ctid, * FROM dedup.schema_migrations")
    hashes = (
        "SELECT relative_path, size_bytes, mtime_ns, encode(content_hash, "
        "'hex') AS hash FROM dedup.library_files ORDER BY id"
    )
    files = await rows(full.admin, hashes)
    await upgrade(full)
    assert await rows(full.admin, count) == before
    assert await rows(full.admin, hashes) == files
    assert await rows(full.admin, "SELECT xmin, ctid, * FROM dedup.schema_migrations") == ledger
    assert await rows(full.admin, "SELECT * FROM dedup.job_locks") == [
        {"job_id": "00000000-0000-0000-0000-000000000002", "holder": "w1"}
    ]
    [note] = await rows(full.admin, "SELECT array_agg(DISTINCT note) AS all FROM dedup.jobs")
    assert note["all"] == ["kept"]
    assert await rows(full.admin, "SELECT FROM pg_namespace WHERE nspname = 'dedup_older'") == []


async def test_types_are_ours_and_times_are_of_utc(upgraded: Urls) -> None:
    """R000-15: a time without a zone was one of UTC, a number was a truth, a text an id."""
    [row] = await rows(
        upgraded.admin, "SELECT created_at, dry_run, payload, id FROM dedup.jobs WHERE id::text LIKE '%2'"
    )
    assert row["created_at"].isoformat() == "2024-01-04T00:00:00+00:00"
    assert row["dry_run"] is True
    assert row["payload"] in {"{}", '{"algorithm": "blake3"}'}


async def test_hashes_count_when_it_is_known_of_what(full: Urls) -> None:
    """R000-66: one without its size is taken at its word, one of another state of the file is taken again."""
    await upgrade(full)
    found = await rows(
        full.admin, "SELECT relative_path, is_missing, needs_hash FROM dedup.library_files ORDER BY id"
    )
    assert [tuple(row.values()) for row in found] == [
        ("a.jpg", False, False), ("Z.jpg", False, False), ("gone.jpg", True, False), ("new.jpg", False, True),
        ("changed.jpg", False, True),
    ]  # fmt: skip


async def test_missing_columns_come_before_the_index(database: Urls, server: Server) -> None:
    """R000-78, R000-79: of a make whose files knew no hashes; the version is recorded with them."""
    async with older(server, EARLY) as urls:
        await upgrade(urls)
        found = await rows(
            urls.admin,
            "SELECT id, is_missing, needs_hash, hash_algorithm, "
            "content_hash FROM dedup.library_files ORDER BY id",
        )
        assert [tuple(row.values()) for row in found] == [
            (41, False, True, None, None),
            (42, False, True, None, None),
        ]
        [name] = await rows(
            urls.admin,
            "SELECT name FROM supervisor.schema_migration WHERE namespace = 'tenure' AND number = 11",
        )
        assert name["name"] == "duplicate_group_query_indexes"
        [index] = await rows(
            urls.admin, "SELECT indexdef FROM pg_indexes WHERE indexname = 'ix_library_files_dedup_group'"
        )
        assert "INCLUDE (size_bytes) WHERE ((NOT is_missing) AND (NOT needs_hash)" in index["indexdef"]


async def test_the_schema_is_that_of_a_new_database(upgraded: Urls, database: Urls) -> None:
    """R000-49, R000-53, R000-79: columns, constraints and indexes, both named ones with their predicates."""
    assert await described(upgraded) == await described(database)


async def test_a_second_run_changes_nothing(upgraded: Urls) -> None:
    """R000-57: no row is written anew, and nothing of the schema is other than it was."""
    schema, before = await described(upgraded), await contents(upgraded)
    report = await upgrade(upgraded)
    assert (report.applied, report.functions_replaced) == ((), False)
    assert await contents(upgraded) == before
    assert await described(upgraded) == schema


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("UPDATE dedup.jobs SET status = 'WEIRD' WHERE kind = 'DELETE'", "jobs.status has the value 'WEIRD'"),
        ("UPDATE dedup.wal_maintenance_jobs SET requested_mode = 'FAST'", "_mode has the value 'FAST'"),
        ("UPDATE dedup.thumbnails SET format = 'png'", "thumbnails.format has the value 'png'"),
        ("UPDATE dedup.scan_sessions SET status = 'done'", "scan_sessions.status has the value 'done'"),
        ("UPDATE dedup.jobs SET id = 'not an id' WHERE kind = 'DELETE'", "not an id"),
        ("UPDATE dedup.jobs SET progress = 50", "dedup.jobs.progress has the value '50'"),
        ("UPDATE dedup.library_roots SET name = '../x'", "dedup.library_roots.name has the value '../x'"),
        (
            (
                "ALTER TABLE dedup.library_files DROP CONSTRAINT library_files_library_id_fkey; "
                "UPDATE dedup.library_files SET library_id = 9"
            ),
            "dedup.library_files.library_id has the value '9'",
        ),
        ("RESET ROLE; ALTER TABLE dedup.jobs OWNER TO tenure_worker", "dedup.jobs belongs to tenure_worker"),
    ],
)  # fmt: skip
async def test_a_value_that_nobody_knows_is_named_and_nothing_changes(
    database: Urls, server: Server, change: str, complaint: str
) -> None:
    """R000-04: the older make goes on as it was."""
    async with older(server, f"{FULL} {change};") as urls:
        before = await contents(urls)
        with pytest.raises(MigrateFailed, match=re.escape(complaint)) as caught:
            await upgrade(urls)
        assert "migration 4 (dedup_older)" in str(caught.value)
        assert await contents(urls) == before
        [standing] = await rows(urls.admin, "SELECT max(number) AS number FROM supervisor.schema_migration")
        assert standing["number"] == 3


async def test_a_corrected_value_lets_the_next_run_go_on(database: Urls, server: Server) -> None:
    async with older(server, f"{FULL} UPDATE dedup.jobs SET status = 'WEIRD' WHERE kind = 'DELETE';") as urls:
        with pytest.raises(MigrateFailed):
            await upgrade(urls)
        async with connected(urls.admin) as admin:
            await admin.execute("UPDATE dedup.jobs SET status = 'FAILED' WHERE status = 'WEIRD'")
        assert 4 in (await upgrade(urls)).applied


async def test_work_goes_on_in_an_upgraded_database(full: Urls) -> None:
    """R000-79: the winner's worker is gone: its scan is recovered; new ids come behind those there are."""
    await upgrade(full)
    world = DedupWorld(full)
    try:
        await world.open()
        await world.lead()
        assert await world.recover(leases.SCAN) == 1
        world.library = 1
        assert await world.file("later.jpg") == 6
        assert (await world.request("scan"))["status"] == "pending"
        assert len(await world.claim(leases.SCAN)) == 1
        with pytest.raises(asyncpg.UniqueViolationError):
            await world.file("a.jpg")
    finally:
        await world.close()
