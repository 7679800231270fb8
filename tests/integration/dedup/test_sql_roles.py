"""Who may write what in the dedup domain: the whitelists of the protocol, tried as each role."""

from collections.abc import Mapping

import asyncpg
import pytest

from actors.dedup import leases
from supervisor.lease import Lease
from tests.integration.dedup.sql_world import DedupWorld
from tests.integration.sql.world import Hand

ROLES = ("control", "worker", "maintenance", "console", "client")
CONTROL, WORKER, NOBODY = {"control"}, {"worker"}, set[str]()

# Every function of the schema. A new one is listed here, or the test fails.
EXECUTE: dict[str, set[str]] = {
    "add_library": CONTROL, "remove_library": CONTROL, "request_job": CONTROL, "request_delete": CONTROL,
    "cancel_job": CONTROL, "reset_job": CONTROL, "return_retryable": CONTROL,
    "cancel_for_ended_runs": CONTROL,
    "drop_unwanted_hashes": CONTROL, "retry_thumbnails": CONTROL, "request_thumbnail": CONTROL,
    "schedule_cleanup": CONTROL, "request_checkpoint": CONTROL, "note_work": CONTROL,
    "request_for_run": WORKER, "cancel_for_run": WORKER, "begin_scan": WORKER, "record_scan": WORKER,
    "find_known": WORKER, "fold_moves": WORKER, "empty_library": CONTROL, "end_scan": WORKER,
    "plan_hash": WORKER, "read_hash_batch": WORKER,
    "record_hashes": WORKER, "claimed_batch": NOBODY, "hashed_otherwise": NOBODY, "read_deletion": WORKER,
    "trash_file": WORKER, "untrash_file": WORKER, "request_thumbnails": WORKER, "read_cleanup": WORKER,
    "remove_thumbnails": WORKER, "purge": CONTROL,
    "purge_missing": NOBODY, "purge_jobs": NOBODY, "purge_walks": NOBODY, "clean_removed": NOBODY,
    "guard_job": NOBODY, "record_job": NOBODY, "guard_moves": NOBODY, "guard_thumbnail": NOBODY,
    "guard_lease": NOBODY,
    "claimed_job": NOBODY, "setting": NOBODY, "check_payload": NOBODY, "make_job": NOBODY,
    "media_type_of": NOBODY, "thumb_key_of": NOBODY, "group_key_of": NOBODY, "thumbnail_room": NOBODY,
}  # fmt: skip

LEASE = {"worker_heartbeat_at", "lease_expires_at", "updated_at"}
CLAIM = {"status", "worker_id", *LEASE}
ENDED = {"status", "error_code", "error_message", "finished_at", *LEASE}
RETRY = {"retry_count", "retry_after"}
FIGURES = {"checkpoint_busy", "checkpoint_log_frames", "checkpointed_frames"}
TOKEN = {"claim_id"}
# C-10: the claim recovers too, and gives back what it does not work on
RECOVERY = {"status", "worker_id", "error_code", "error_message", "finished_at", *LEASE, *TOKEN}

JOBS = {
    "claim": {*CLAIM, "started_at"},
    "beat": {"processed_items", "progress", *LEASE},
    "done": {*ENDED, "progress"},
    "retry": {*ENDED, "progress"},
    "cancel": {*ENDED, "progress"},
}
WHITELIST: Mapping[str, tuple[Lease, Mapping[str, set[str]]]] = {
    "R000-80 R000-81 R000-82 scan": (leases.SCAN, JOBS),
    "R000-80 R000-81 R000-82 hash": (leases.HASH, JOBS),
    "R000-80 R000-81 R000-82 delete": (leases.DELETE, JOBS),
    "R000-80 R000-81 R000-82 thumbnail": (leases.THUMBNAIL_JOB, JOBS),
    "R000-83 R000-84 R000-85 R000-86": (
        leases.THUMBNAILS,
        {
            "claim": {*CLAIM, "started_at"},
            "beat": LEASE,
            "done": {*ENDED, "width", "height", "bytes_size", "error_count", "retry_after"},
            "retry": {*ENDED, "error_count", "retry_after"},
        },
    ),
    "R000-87 R000-88": (
        leases.CLEANUP,
        {"claim": {*CLAIM, "finished_at"}, "beat": LEASE, "done": ENDED, "retry": ENDED},
    ),
    "R000-91 R000-92 R000-93 R000-94 R000-95": (
        leases.WAL,
        {
            "claim": {*CLAIM, "started_at", "finished_at"},
            "beat": LEASE,
            "stale": {*CLAIM, *RETRY, "error_code", "error_message", "finished_at"},
            "done": {*ENDED, *FIGURES},
            "retry": {*ENDED, *RETRY, *FIGURES},
            "cancel": ENDED,
        },
    ),
}

# Of a batch of files the worker writes its lease and why it failed; hashes come by a function that checks.
BATCH = {
    "hash_status", "worker_id", "worker_heartbeat_at", "lease_expires_at", "claim_id",
    "hash_error_count", "hash_error_code", "hash_error_message", "hash_retry_after",
}  # fmt: skip
WRITABLE = {
    "jobs": {*CLAIM, *ENDED, *TOKEN, "started_at", "processed_items", "progress"},
    "thumbnails": {
        *CLAIM,
        *ENDED,
        *TOKEN,
        "started_at",
        "width",
        "height",
        "bytes_size",
        "error_count",
        "retry_after",
    },
    "thumbnail_cleanup_jobs": {*CLAIM, *ENDED, *TOKEN},
    "wal_maintenance_jobs": {*CLAIM, *ENDED, *TOKEN, *RETRY, *FIGURES, "started_at"},
    "library_files": BATCH,
    "io_rate_limits": {"next_available_at_ms", "updated_at"},
}
CONTROL_WRITES = {
    "jobs": RECOVERY,
    "thumbnails": RECOVERY,
    "thumbnail_cleanup_jobs": RECOVERY,
    "wal_maintenance_jobs": {*RECOVERY, *RETRY},
    "library_files": {"hash_status", "worker_id", "worker_heartbeat_at", "lease_expires_at", "claim_id"},
}


async def code(hand: Hand, statement: str) -> str | None:
    """The SQLSTATE of a statement; None = it passed."""
    try:
        await hand.connection.execute(statement)
    except asyncpg.PostgresError as error:
        return error.sqlstate
    return None


# what reports read, column by column: sql/test_roles.py
REPORTED = {"library_roots", "library_files", "scan_sessions", "scan_errors"}


async def tables(world: DedupWorld) -> dict[str, list[str]]:
    rows = await world.admin.sql(
        "SELECT c.relname AS name, array_agg(a.attname::text) AS columns FROM pg_class c "
        "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
        "WHERE c.relnamespace = 'dedup'::regnamespace AND c.relkind IN ('r', 'p') GROUP BY 1"
    )
    return {row["name"]: row["columns"] for row in rows}


@pytest.mark.parametrize("name", WHITELIST)
def test_no_path_writes_more_than_its_whitelist(name: str) -> None:
    """R000-80 to R000-88, R000-91 to R000-95: column by column, as the protocol lists them."""
    lease, lists = WHITELIST[name]
    for path in lease.paths:
        allowed = {*lists.get(path, RECOVERY), *TOKEN}
        assert lease.written(path) <= allowed, f"{path} writes {sorted(lease.written(path) - allowed)}"


async def test_the_worker_writes_nothing_else(world: DedupWorld) -> None:
    """R000-80 to R000-97: each other column of each table is refused by rights; so are rows."""
    found = await tables(world)
    assert {"jobs", "library_files", "library_roots", "scan_sessions", "job_moves"} <= set(found)
    for table, columns in found.items():
        may = {
            column
            for column in columns
            if await code(world.worker, f"UPDATE dedup.{table} SET {column} = DEFAULT WHERE false") != "42501"
        }
        assert may == WRITABLE.get(table, set()), table
        statements = [
            f"DELETE FROM dedup.{table}",
            f"TRUNCATE dedup.{table} CASCADE",
            f"DROP TABLE dedup.{table}",
        ]
        beyond = "(updated_at) VALUES (now())" if table == "io_rate_limits" else "DEFAULT VALUES"
        for statement in (*statements, f"INSERT INTO dedup.{table} {beyond}"):
            assert await code(world.worker, statement) == "42501", statement


@pytest.mark.parametrize(
    "column", ["kind", "dry_run", "payload", "library_id", "run_id", "requested_by", "retry_after"]
)
async def test_the_policy_of_a_job_is_not_the_workers(world: DedupWorld, column: str) -> None:
    """R000-96"""
    await world.request("scan")
    assert await code(world.worker, f"UPDATE dedup.jobs SET {column} = DEFAULT") == "42501"


@pytest.mark.parametrize(
    "column", ["is_missing", "relative_path", "size_bytes", "mtime_ns", "library_id", "trashed_by",
               "trash_path", "trashed_at", "hash_job_id", "hash_until", "needs_hash", "hash_algorithm",
               "content_hash", "prefix_hash"],
)  # fmt: skip
async def test_what_is_a_duplicate_and_may_go_is_not_the_workers(world: DedupWorld, column: str) -> None:
    """R000-97: and the switch that allows deletion is not either."""
    await world.file()
    assert await code(world.worker, f"UPDATE dedup.library_files SET {column} = DEFAULT") == "42501"
    assert await code(world.worker, "UPDATE supervisor.setting SET value = 'true'") == "42501"
    assert (
        await code(world.worker, "SELECT dedup.make_job('w', 'delete', NULL, '{}', false, NULL)") == "42501"
    )


@pytest.mark.parametrize("role", ["control", "maintenance", "console", "client"])
async def test_no_other_role_writes_a_table(world: DedupWorld, role: str) -> None:
    """R000-105: the control plane has functions; of rows it may write what a recovery writes."""
    hand = await world.hand(role)
    for table, columns in (await tables(world)).items():
        may = {
            column
            for column in columns
            if await code(hand, f"UPDATE dedup.{table} SET {column} = DEFAULT WHERE false") != "42501"
        }
        assert may <= (CONTROL_WRITES.get(table, set()) if role == "control" else set()), table
        for statement in (f"DELETE FROM dedup.{table}", f"TRUNCATE dedup.{table} CASCADE",
                          f"INSERT INTO dedup.{table} DEFAULT VALUES"):  # fmt: skip
            assert await code(hand, statement) == "42501", statement
        if role != "control" and not (role == "console" and table in REPORTED):
            assert await code(hand, f"SELECT FROM dedup.{table}") == "42501", table


async def test_every_function_is_executable_by_exactly_its_roles(world: DedupWorld) -> None:
    """R000-105"""
    rows = await world.admin.sql(
        "SELECT p.proname, r.name AS role, has_function_privilege('tenure_' "
        "|| r.name, p.oid, 'EXECUTE') AS may "
        "FROM pg_proc p CROSS JOIN unnest($1::text[]) AS r(name) "
        "WHERE p.pronamespace = 'dedup'::regnamespace",
        list(ROLES),
    )
    found: dict[str, set[str]] = {row["proname"]: set() for row in rows}
    for row in rows:
        if row["may"]:
            found[row["proname"]].add(row["role"])
    assert found == EXECUTE


@pytest.mark.parametrize("role", ROLES)
async def test_a_call_without_the_right_is_refused(world: DedupWorld, role: str) -> None:
    """R000-105: not only by the catalogue: each function is called, with NULLs, by each role that may not."""
    hand = await world.hand(role)
    rows = await world.admin.sql(
        "SELECT p.proname, format('SELECT FROM dedup.%I(%s)', p.proname, (SELECT string_agg('NULL::' || "
        "format_type(t, NULL), ', ' ORDER BY n) FROM unnest(p.proargtypes) "
        "WITH ORDINALITY AS a(t, n))) AS call "
        "FROM pg_proc p WHERE p.pronamespace = 'dedup'::regnamespace AND p.prorettype <> 'trigger'::regtype"
    )
    for row in rows:
        if role not in EXECUTE[row["proname"]]:
            assert await code(hand, row["call"]) == "42501", row["call"]


async def test_functions_pin_their_search_path_and_compile_no_switched_off_plan(world: DedupWorld) -> None:
    rows = await world.admin.sql(
        "SELECT p.oid::regprocedure::text AS name, coalesce(p.proconfig, '{}') AS config, "
        "pg_get_userbyid(p.proowner) AS owner FROM pg_proc p WHERE p.pronamespace = 'dedup'::regnamespace"
    )
    for row in rows:
        assert "search_path=pg_catalog, pg_temp" in row["config"], row["name"]
        assert row["owner"] == "tenure_owner", row["name"]
        if any(setting.startswith("enable_") for setting in row["config"]):
            assert "jit=off" in row["config"], row["name"]


async def test_the_budget_is_reserved_and_begun_by_the_worker(world: DedupWorld) -> None:
    """R000-89, R000-90: an absent bucket is begun, a present one moved on, no more."""
    begin = (
        "INSERT INTO dedup.io_rate_limits (bucket_key, next_available_at_ms) "
        "VALUES ('thumbnail_io_global', $1) "
        "ON CONFLICT (bucket_key) DO UPDATE SET next_available_at_ms = excluded.next_available_at_ms, "
        "updated_at = clock_timestamp()"
    )
    await world.worker.sql(begin, 1)
    await world.worker.sql(begin, 2)
    [row] = await world.worker.sql("SELECT bucket_key, next_available_at_ms FROM dedup.io_rate_limits")
    assert tuple(row) == ("thumbnail_io_global", 2)
    assert await code(world.worker, "UPDATE dedup.io_rate_limits SET bucket_key = 'x'") == "42501"
    assert await code(world.worker, "DELETE FROM dedup.io_rate_limits") == "42501"
