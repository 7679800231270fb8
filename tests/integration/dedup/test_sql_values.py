"""What the database itself lets stand in a row of the dedup domain, whoever writes it."""

import re

import asyncpg
import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, DedupWorld, refused

JOB_STATUSES = ("pending", "running", "completed", "failed", "cancelled", "retryable")
LEGAL = {
    ("jobs", "kind"): ("scan", "hash", "delete", "thumbnail"),
    ("jobs", "status"): JOB_STATUSES,
    ("scan_sessions", "status"): ("running", "succeeded", "failed"),
    ("library_files", "hash_algorithm"): ("blake3", "sha256"),
    ("thumbnails", "status"): ("pending", "running", "ready", "failed"),
    ("thumbnails", "media_type"): ("image", "video"),
    ("thumbnails", "format"): ("jpeg", "webp"),
    ("thumbnail_cleanup_jobs", "status"): ("pending", "running", "completed", "failed"),
    ("wal_maintenance_jobs", "requested_mode"): ("passive", "restart", "truncate"),
    ("wal_maintenance_jobs", "status"): ("pending", "running", "retryable", "completed", "failed"),
}
CONSTRAINT = """SELECT pg_get_constraintdef(c.oid) FROM pg_constraint c JOIN pg_attribute a
    ON a.attrelid = c.conrelid AND c.conkey = ARRAY[a.attnum]
    WHERE c.contype = 'c' AND c.convalidated AND a.attrelid = $1::text::regclass AND a.attname = $2"""
WRONG = ("unknown", "", "ready ", "succeeded", "done", "cancelled", "canceled", "md5", "png", "full", "audio")

MADE = {
    "jobs": "INSERT INTO dedup.jobs (kind) VALUES ('delete')",
    "scan_sessions": "INSERT INTO dedup.scan_sessions (library_id) SELECT id FROM dedup.library_roots",
    "library_files": "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, "
    "hash_algorithm, content_hash) SELECT id, 'a', 1, 1, 'blake3', sha256('a') FROM dedup.library_roots",
    "thumbnails": "INSERT INTO dedup.thumbnails (thumb_key, file_id) SELECT 'k', id FROM dedup.library_files",
    "thumbnail_cleanup_jobs": "INSERT INTO dedup.thumbnail_cleanup_jobs (group_key) VALUES ('g')",
    "wal_maintenance_jobs": "INSERT INTO dedup.wal_maintenance_jobs DEFAULT VALUES",
}


async def passes(world: DedupWorld, statement: str, *arguments: object) -> bool:
    """Tried without triggers and undone: constraints alone decide."""
    async with world.admin.connection.transaction():
        await world.admin.connection.execute("SET LOCAL session_replication_role = replica")
        undone = world.admin.connection.transaction()
        await undone.start()
        try:
            await world.admin.connection.execute(statement, *arguments)
        except (asyncpg.CheckViolationError, asyncpg.NotNullViolationError):
            return False
        else:
            return True
        finally:
            await undone.rollback()


@pytest.mark.parametrize(("table", "column"), LEGAL)
async def test_a_value_is_one_of_its_set_and_lower_case(world: DedupWorld, table: str, column: str) -> None:
    """R000-01, R000-05 to R000-14: exactly the values of the protocol, none of them in upper case."""
    if table == "thumbnails":
        await world.admin.sql(MADE["library_files"])
    await world.admin.sql(MADE[table])
    legal = LEGAL[table, column]
    for value in {*legal, *(v.upper() for v in legal), *(v.title() for v in legal), *WRONG}:
        change = f"UPDATE dedup.{table} SET {column} = $1"
        assert await passes(world, change, value) == (value in legal), value
    none = "hash_algorithm = NULL, content_hash" if column == "hash_algorithm" else column
    nullable = column == "hash_algorithm"
    assert await passes(world, f"UPDATE dedup.{table} SET {none} = NULL") == nullable


@pytest.mark.parametrize(("table", "column"), LEGAL)
async def test_a_constraint_names_the_whole_set(world: DedupWorld, table: str, column: str) -> None:
    """R000-05 to R000-14: no value beside those of the protocol, whatever it is called."""
    [row] = await world.admin.sql(CONSTRAINT, f"dedup.{table}", column)
    listed = re.fullmatch(rf"CHECK \(\({column} = ANY \(ARRAY\[(.*)\]\)\)\)", row[0])
    assert listed, row[0]
    assert sorted(listed[1].split(", ")) == sorted(f"'{value}'::text" for value in LEGAL[table, column])


async def test_enumerations_are_text(world: DedupWorld) -> None:
    """R000-01: the predicate of the mutex needs lower(text); a native enumeration would not do."""
    rows = await world.admin.sql(
        "SELECT table_name, column_name, data_type FROM "
        "information_schema.columns WHERE table_schema = 'dedup'"
    )
    types = {(row["table_name"], row["column_name"]): row["data_type"] for row in rows}
    assert {types[place] for place in LEGAL} == {"text"}


async def test_what_is_asked_for_is_stored_in_lower_case(world: DedupWorld) -> None:
    """R000-02: and another spelling is refused, not folded."""
    made = await world.request("scan")
    assert (made["kind"], made["status"]) == ("scan", "pending")
    await refused("TN022", world.request("SCAN"))
    await refused("TN022", world.request("sync"))


async def test_contracts_write_only_values_that_the_tables_know() -> None:
    """R000-03: the states of the worker's statements are of the sets that the constraints hold."""
    for lease in (leases.SCAN, leases.HASH, leases.DELETE, leases.THUMBNAIL_JOB, leases.THUMBNAILS,
                  leases.CLEANUP, leases.WAL):  # fmt: skip
        states = {*lease.claimable, lease.running} | {p.state for p in lease.paths.values() if p.state}
        assert states <= set(LEGAL[lease.table.removeprefix("dedup."), "status"]), lease.name


@pytest.mark.parametrize(
    "table", ["jobs", "thumbnails", "thumbnail_cleanup_jobs", "wal_maintenance_jobs", "library_files"]
)
async def test_what_is_leased_carries_its_lease(world: DedupWorld, table: str) -> None:
    """R000-15"""
    rows = await world.admin.sql(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = 'dedup' AND table_name = $1",
        table,
    )
    time = "timestamp with time zone"
    lease = {"worker_id": "text", "worker_heartbeat_at": time, "lease_expires_at": time}
    assert lease.items() <= {row["column_name"]: row["data_type"] for row in rows}.items()


async def test_both_named_indexes_have_their_predicates(world: DedupWorld) -> None:
    """R000-49, R000-79"""
    rows = await world.admin.sql(
        "SELECT c.relname AS name, pg_get_indexdef(i.indexrelid) AS text, i.indisunique FROM pg_index i "
        "JOIN pg_class c ON c.oid = i.indexrelid WHERE c.relname LIKE 'ix\\_%' AND i.indisvalid"
    )
    found = {row["name"]: row["text"] for row in rows}
    assert found["ix_jobs_single_active_scan_hash"] == (
        "CREATE UNIQUE INDEX ix_jobs_single_active_scan_hash ON dedup.jobs USING btree ((1)) WHERE "
        "((lower(status) = ANY (ARRAY['pending'::text, 'running'::text])) AND "
        "(lower(kind) = ANY (ARRAY['scan'::text, 'hash'::text])))"
    )
    assert found["ix_library_files_dedup_group"] == (
        "CREATE INDEX ix_library_files_dedup_group ON dedup.library_files USING btree "
        "(hash_algorithm, content_hash, id) INCLUDE (size_bytes) "
        "WHERE ((NOT is_missing) AND (NOT needs_hash) "
        "AND (hash_algorithm IS NOT NULL) AND (content_hash IS NOT NULL))"
    )


@pytest.mark.parametrize(
    "change",
    [
        "hashed_size = 11",
        "hashed_mtime_ns = 2",
        "size_bytes = 11",
        "mtime_ns = 2",
        "content_hash = NULL, hash_algorithm = NULL",
        "hashed_size = NULL",
        "hash_algorithm = NULL",
        "content_hash = '\\x00'",
        "size_bytes = -1, hashed_size = -1",
    ],
)
async def test_a_hash_of_another_state_of_the_file_is_refused(world: DedupWorld, change: str) -> None:
    """A hash counts for the size and the time it was taken of, or the row needs one."""
    await world.file(content=HASH)
    await refused("23514", world.admin.sql(f"UPDATE dedup.library_files SET {change}"))
    assert await passes(world, "UPDATE dedup.library_files SET size_bytes = 11, needs_hash = true")


MOVES = {
    ("pending", "running"), ("pending", "cancelled"), ("running", "completed"), ("running", "failed"),
    ("running", "cancelled"), ("running", "retryable"), ("running", "pending"), ("retryable", "pending"),
    ("retryable", "cancelled"), ("retryable", "failed"),
}  # fmt: skip


async def test_exactly_these_moves_of_a_job_pass(world: DedupWorld) -> None:
    """R000-17, R000-21, R000-23: and what has ended never changes again (C-08)."""
    for before in JOB_STATUSES:
        for after in JOB_STATUSES:
            job = await world.admin.value(
                "INSERT INTO dedup.jobs (kind, status) VALUES ('delete', $1) RETURNING id", before
            )
            change = world.admin.sql("UPDATE dedup.jobs SET status = $1 WHERE id = $2", after, job)
            if before == after or (before, after) in MOVES:
                await change
            else:
                over = before in {"completed", "failed", "cancelled"}
                await refused("TN010" if over else "TN011", change)


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
async def test_an_ended_job_keeps_its_figures(world: DedupWorld, status: str) -> None:
    """R000-104"""
    await world.admin.sql("INSERT INTO dedup.jobs (kind, status) VALUES ('delete', $1)", status)
    await refused("TN010", world.admin.sql("UPDATE dedup.jobs SET error_message = 'other'"))


@pytest.mark.parametrize(
    "change", ["kind = 'thumbnail'", "dry_run = false", "payload = '{\"keep\": 1}'", "created_at = now()",
               "library_id = NULL", "run_id = 1", "id = gen_random_uuid()"],
)  # fmt: skip
async def test_what_a_job_is_never_changes(world: DedupWorld, change: str) -> None:
    """R000-96, R000-97: not even by the owner of the tables."""
    await world.admin.sql(
        "INSERT INTO dedup.jobs (kind, library_id) SELECT 'delete', id FROM dedup.library_roots"
    )
    await refused("TN013", world.admin.sql(f"UPDATE dedup.jobs SET {change}"))


async def test_thumbnails_move_and_stay_what_they_are(world: DedupWorld) -> None:
    """R000-29, R000-32 to R000-35, R000-104"""
    allowed = {("pending", "running"), ("running", "pending"), ("running", "ready"), ("running", "failed"),
               ("failed", "pending")}  # fmt: skip
    file = await world.file()
    for before in LEGAL["thumbnails", "status"]:
        for after in LEGAL["thumbnails", "status"]:
            key = f"{before}-{after}"
            await world.admin.sql(
                "INSERT INTO dedup.thumbnails (thumb_key, file_id, status) VALUES ($1, $2, $3)",
                key,
                file,
                before,
            )
            change = world.admin.sql(
                "UPDATE dedup.thumbnails SET status = $1 WHERE thumb_key = $2", after, key
            )
            if before == after or (before, after) in allowed:
                await change
            else:
                await refused("TN011", change)
    for what in ("thumb_key = 'x'", "source_size = 9", "output_relpath = '../x'", "max_dimension = 16"):
        await refused(
            "TN013", world.admin.sql(f"UPDATE dedup.thumbnails SET {what} WHERE thumb_key = 'ready-ready'")
        )


async def test_every_move_of_a_job_is_written_down(world: DedupWorld) -> None:
    """R000-104: from, to, by which worker and login, when, and why."""
    job = await world.claimed(leases.SCAN, "scan")
    await world.expire("jobs")
    assert await world.recover(leases.SCAN) == 1
    await world.control.sql("SELECT * FROM dedup.reset_job('anna', $1)", job.id)
    again = await world.claimed(leases.SCAN)
    assert await world.finish(leases.SCAN, again, "retry") == "RECORDED"
    rows = await world.admin.sql("SELECT * FROM dedup.job_moves WHERE job_id = $1 ORDER BY id", job.id)
    who = [(row["from_status"], row["to_status"], row["worker_id"], row["error_code"]) for row in rows]
    assert who == [
        (None, "pending", None, None),
        ("pending", "running", "w1", None),
        ("running", "retryable", "w1", "LEASE_EXPIRED"),
        ("retryable", "pending", None, "LEASE_EXPIRED"),
        ("pending", "running", "w1", "LEASE_EXPIRED"),
        ("running", "failed", "w1", "BROKEN"),
    ]
    logins = [row["database_user"] for row in rows]
    assert [login.removeprefix("tenure_") for login in logins] == [
        "control", "worker", "control", "control", "worker", "worker",
    ]  # fmt: skip
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    audit = await world.admin.sql(
        "SELECT actor, action FROM supervisor.audit WHERE target LIKE 'dedup-job:%' ORDER BY id"
    )
    assert [tuple(row) for row in audit] == [("anna", "dedup.scan"), ("anna", "dedup.reset")]


async def test_a_take_over_of_a_stale_deletion_is_written_down(world: DedupWorld) -> None:
    """R000-104: its status does not change, its owner does."""
    await world.admin.sql("INSERT INTO dedup.jobs (kind) VALUES ('delete')")
    [job] = await world.claim(leases.DELETE)
    await world.expire("jobs")
    [again] = await world.claim(leases.DELETE, owner="w2")
    assert again.id == job.id
    rows = await world.admin.sql("SELECT to_status, worker_id FROM dedup.job_moves ORDER BY id")
    assert [tuple(row) for row in rows] == [("pending", None), ("running", "w1"), ("running", "w2")]


async def test_moves_are_only_added_to(world: DedupWorld) -> None:
    """R000-104: they go with their job and not before it."""
    job = (await world.request("scan"))["id"]
    await refused("TN014", world.admin.sql("UPDATE dedup.job_moves SET worker_id = 'x'"))
    await refused("TN014", world.admin.sql("DELETE FROM dedup.job_moves"))
    assert await world.admin.value("SELECT count(*) FROM dedup.job_moves") == 1
    await world.admin.sql("DELETE FROM dedup.jobs WHERE id = $1", job)
    assert await world.admin.value("SELECT count(*) FROM dedup.job_moves") == 0
