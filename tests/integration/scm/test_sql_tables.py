"""The tables as the protocol names them: columns, indexes, what a value can be, and who may write."""

import json

import asyncpg
import pytest

from supervisor.embedded import Urls
from tests.integration.scm.ledger import Ledger, one, revision, sha
from tests.support.sessions import connected

TABLES = {
    "identity": {"users", "accounts", "role_profiles"},
    "logbook": {"items", "events", "attachments", "kv", "outbox"},
    "scm": {
        "repos",
        "svn_revisions",
        "git_commits",
        "patch_blobs",
        "mrs",
        "review_events",
        "sync_tasks",
        "sync_runs",
    },
    "analysis": {"runs", "candidates"},
    "governance": {"settings", "write_audit", "promotion_queue"},
}
TASKS = {
    "task_id": ("uuid", True), "repo_id": ("bigint", True), "source_type": ("character varying(20)", True),
    "status": ("character varying(20)", True), "priority": ("integer", True),
    "cron_expr": ("character varying(50)", False),
    "config_json": ("jsonb", True), "created_at": ("timestamp with time zone", True),
    "updated_at": ("timestamp with time zone", True),
}  # fmt: skip
RUNS = {
    "run_id": ("character varying(50)", True), "task_id": ("uuid", True),
    "status": ("character varying(20)", True), "started_at": ("timestamp with time zone", True),
    "finished_at": ("timestamp with time zone", False),
    "watermark_start": ("jsonb", True), "watermark_end": ("jsonb", False), "stats_json": ("jsonb", True),
    "error_json": ("jsonb", False), "worker_id": ("character varying(100)", False),
}  # fmt: skip
INDEXES = {
    "idx_sync_tasks_repo_type": "UNIQUE INDEX idx_sync_tasks_repo_type ON scm.sync_tasks USING btree "
    "(repo_id, source_type)",
    "idx_sync_tasks_status": "(status) WHERE ((status)::text = ANY ((ARRAY['pending'::character varying, "
    "'running'",
    "idx_sync_runs_task_started": "(task_id, started_at DESC)",
    "idx_sync_runs_status": "(status) WHERE ((status)::text = 'running'::text)",
}


async def test_the_schemas_and_their_tables_are_there(ledger: Ledger) -> None:
    """R001-001, R001-002, R001-003, R001-004, R001-005, R001-059"""
    for schema, tables in TABLES.items():
        rows = await ledger.admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = $1", schema)
        assert {row[0] for row in rows} >= tables, schema


async def test_openmemory_is_left_alone_and_public_is_closed(ledger: Ledger) -> None:
    """R001-006, R001-007, R001-060: nothing of ours is there; no runtime role makes anything in public."""
    found = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE '%openmemory%'"
    assert await ledger.admin.fetchval(found) == 0
    may = "SELECT bool_or(has_schema_privilege(r, 'public', 'CREATE')) FROM unnest($1::text[]) AS r"
    roles = ["tenure_control", "tenure_worker", "tenure_maintenance", "tenure_console", "tenure_client"]
    assert not await ledger.admin.fetchval(may, roles)


@pytest.mark.parametrize(("table", "columns"), [("sync_tasks", TASKS), ("sync_runs", RUNS)])
async def test_the_columns_of_tasks_and_runs(
    ledger: Ledger, table: str, columns: dict[str, tuple[str, bool]]
) -> None:
    """R001-136, R001-143"""
    rows = await ledger.admin.fetch(
        "SELECT attname, format_type(atttypid, atttypmod) AS type, attnotnull FROM pg_attribute "
        "WHERE attrelid = ('scm.' || $1)::regclass AND attnum > 0",
        table,
    )
    found = {row["attname"]: (row["type"], row["attnotnull"]) for row in rows}
    assert {name: found.get(name) for name in columns} == columns
    keys = "SELECT conkey FROM pg_constraint WHERE conrelid = ('scm.' || $1)::regclass AND contype = $2"
    assert await ledger.admin.fetchval(keys, table, b"p") == [1]
    references = await ledger.admin.fetchval(
        "SELECT array_agg(confrelid::regclass::text) FROM pg_constraint "
        "WHERE conrelid = ('scm.' || $1)::regclass AND contype = 'f'", table
    )  # fmt: skip
    assert ("scm.repos" if table == "sync_tasks" else "scm.sync_tasks") in references


async def test_the_defaults_of_a_task(ledger: Ledger) -> None:
    """R001-136"""
    await ledger.repo()
    task = await ledger.task()
    assert (task["priority"], task["cron_expr"], task["config_json"]) == (0, None, "{}")
    assert None not in (task["created_at"], task["updated_at"])


async def test_the_indexes_are_there(ledger: Ledger) -> None:
    """R001-138, R001-139, R001-144, R001-145"""
    for name, what in INDEXES.items():
        found = await ledger.admin.fetchval(
            "SELECT indexdef FROM pg_indexes WHERE schemaname = 'scm' AND indexname = $1", name
        )
        assert found is not None
        assert what in found


async def test_one_task_a_repository_and_source(ledger: Ledger) -> None:
    """R001-137, R001-138, R001-181: the lock has the name of both."""
    repo = await ledger.repo()
    insert = "INSERT INTO scm.sync_tasks (repo_id, source_type) VALUES ($1, $2)"
    with pytest.raises(asyncpg.UniqueViolationError):
        await ledger.admin.execute(insert, repo, "svn")
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute(insert, repo, "hg")
    assert (await ledger.task())["lock_key"] == f"scm_sync:{repo}:svn"
    held = await ledger.begun()
    lock = await one(ledger.control, "SELECT * FROM scm.sync_locks")
    assert (lock["lock_key"], lock["run_id"], lock["worker_id"]) == (f"scm_sync:{repo}:svn", held.run, "w1")
    await ledger.finish(held)
    assert await ledger.control.fetch("SELECT * FROM scm.sync_locks") == []


BAD_KEYS = [
    "s3://b/k",
    "file:///etc/passwd",
    "https://x/y",
    "HTTP://x",
    "memory://x",
    "/abs",
    "a/../b",
    "../x",
    "..",
    "a\\b",
    "",
]


@pytest.mark.parametrize("uri", BAD_KEYS)
async def test_an_address_is_an_artifact_key(ledger: Ledger, uri: str) -> None:
    """R001-035, R001-037, R001-039, R001-040, R001-109, R001-110: without a scheme, or refused."""
    repo = await ledger.repo()
    item = await ledger.control.fetchval("SELECT logbook.add_item('note', 't', NULL, NULL, NULL)")
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.control.fetch(
            "SELECT * FROM logbook.attach($1, 'log', $2, $3, 1, NULL)", item, uri, "a" * 64
        )
    patch = (
        "INSERT INTO scm.patch_blobs (source_type, source_id, repo_id, uri, sha256, size_bytes, meta_json) "
        "VALUES ('svn', $1::bigint || ':1', $1, $2, $3, 1, $4)"
    )
    evidence = json.dumps({"evidence_uri": f"memory://patch_blobs/svn/{repo}:1/{'a' * 64}"})
    with pytest.raises(asyncpg.CheckViolationError, match="patch_key"):
        await ledger.admin.execute(patch, repo, uri, "a" * 64, evidence)
    await ledger.admin.execute(patch, repo, "scm/1/svn/r1.diff", "a" * 64, evidence)


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("source_type", "hg"),
        ("source_id", "1"),
        ("source_id", f"1:{sha(1)}"),
        ("source_id", "99:1"),
        ("source_id", "svn:1:1"),
        ("sha256", "a" * 63),
        ("sha256", "a" * 65),
        ("sha256", "A" * 64),
        ("sha256", "a" * 63 + "\n"),
        ("format", "patch"),
        ("meta_json", "{}"),
        ("meta_json", '{"evidence_uri": "memory://patch_blobs/svn/1:2/x"}'),
        ("size_bytes", -1),
    ],
)
async def test_a_patch_is_what_it_says(ledger: Ledger, change: str, value: object) -> None:
    """R001-032, R001-033, R001-034, R001-036, R001-066, R001-067: its evidence address names exactly it."""
    repo = await ledger.repo()
    assert repo == 1
    held = await ledger.begun()
    await ledger.record(
        held, 1, [revision(1, patch={"uri": "scm/1/svn/r1.diff", "sha256": "a" * 64, "size_bytes": 1})], 1
    )
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute(f"UPDATE scm.patch_blobs SET {change} = $1", value)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO scm.repos (name, repo_type, url) VALUES ('x', 'hg', 'u')",
        "INSERT INTO scm.repos (name, repo_type, url, default_branch) VALUES ('x', 'svn', 'u', 'main')",
        "INSERT INTO scm.repos (name, repo_type, url) VALUES ('x', 'git', 'https://a:b@c/d')",
        (
            "INSERT INTO scm.repos (name, repo_type, url, config_json) "
            "VALUES ('x', 'git', 'u', '{\"token\": \"s\"}')"
        ),
        "INSERT INTO scm.svn_revisions (repo_id, rev_num, run_id) VALUES (1, -1, 'r')",
        "INSERT INTO scm.svn_revisions (repo_id, rev_num, run_id, is_bulk) VALUES (1, 1, 'r', true)",
        (
            "INSERT INTO scm.svn_revisions (repo_id, rev_num, run_id, bulk_reason) "
            "VALUES (1, 1, 'r', 'large_changeset:1')"
        ),
        (
            "INSERT INTO scm.svn_revisions (repo_id, rev_num, run_id, is_bulk, bulk_reason) "
            "VALUES (1, 1, 'r', true, 'big')"
        ),
        "INSERT INTO scm.git_commits (repo_id, commit_sha, ts, run_id) VALUES (1, 'abc', now(), 'r')",
        (
            "INSERT INTO scm.git_commits (repo_id, commit_sha, ts, run_id, is_merge) "
            "VALUES (1, repeat('a', 40), now(), 'r', true)"
        ),
        (
            "INSERT INTO scm.git_commits (repo_id, commit_sha, ts, run_id, is_bulk) "
            "VALUES (1, repeat('a', 40), now(), 'r', true)"
        ),
        "INSERT INTO scm.mrs (mr_id, repo_id, iid, status, run_id) VALUES ('1:43', 1, 42, 'opened', 'r')",
        "INSERT INTO scm.mrs (mr_id, repo_id, iid, status, run_id) VALUES ('1:42', 1, 42, 'draft', 'r')",
    ],
)
async def test_a_value_that_has_no_meaning_is_refused(ledger: Ledger, statement: str) -> None:
    """R001-016, R001-018, R001-021, R001-022, R001-024, R001-028, R001-029, R001-044, R001-046"""
    assert await ledger.repo() == 1
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute(statement)


@pytest.mark.parametrize(
    "name", ["", "a" * 39, "a" * 41, "a" * 63, "a" * 65, "A" * 40, "g" * 40, "a" * 39 + "\n", "\n" + "a" * 39]
)
async def test_names_of_commits_are_whole_and_in_digits(ledger: Ledger, name: str) -> None:
    """R001-024, R001-066: of either length, and nothing else."""
    repo = await ledger.repo("r", "git")
    commit = "INSERT INTO scm.git_commits (repo_id, commit_sha, ts, run_id) VALUES ($1, $2, now(), 'r')"
    patch = (
        "INSERT INTO scm.patch_blobs (source_type, source_id, repo_id, uri, sha256, size_bytes, meta_json) "
        "VALUES ('git', $2::text, $1, 'scm/1', $3::text, 1, jsonb_build_object('evidence_uri', "
        "'memory://patch_blobs/git/' || $2::text || '/' || $3::text))"
    )
    for right in ("0123456789abcdef" * 4, "0123456789" * 4):
        await ledger.admin.execute(commit, repo, right)
        await ledger.admin.execute(patch, repo, f"{repo}:{right}", "a" * 64)
    with pytest.raises(asyncpg.CheckViolationError, match="commit_sha"):
        await ledger.admin.execute(commit, repo, name)
    with pytest.raises(asyncpg.CheckViolationError, match="patch_source"):
        await ledger.admin.execute(patch, repo, f"{repo}:{name}", "a" * 64)


async def test_names_of_sources_cannot_be_written(ledger: Ledger) -> None:
    """R001-063, R001-064, R001-065: they are made of the row."""
    await ledger.repo()
    for table in ("svn_revisions", "git_commits", "mrs"):
        with pytest.raises(asyncpg.GeneratedAlwaysError):
            await ledger.admin.execute(f"UPDATE scm.{table} SET source_id = 'x'")


async def test_a_watermark_end_only_with_success(ledger: Ledger) -> None:
    """R001-146"""
    await ledger.repo()
    held = await ledger.begun()
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute("UPDATE scm.sync_runs SET watermark_end = '5' WHERE run_id = $1", held.run)


async def test_nobody_writes_a_table_by_itself(database: Urls) -> None:
    """R001-009, R001-012: functions only; the ledger is read by others, and written over by nobody."""
    tables = [f"{schema}.{table}" for schema, names in TABLES.items() for table in names] + [
        "scm.sync_run_moves",
        "scm.run_days",
    ]
    async with connected(database.admin) as admin:
        for role in (
            "tenure_control",
            "tenure_worker",
            "tenure_maintenance",
            "tenure_console",
            "tenure_client",
        ):
            for table in tables:
                rights = [
                    right
                    for right in ("INSERT", "UPDATE", "DELETE", "TRUNCATE")
                    if await admin.fetchval("SELECT has_table_privilege($1, $2, $3)", role, table, right)
                ]
                assert rights == [], f"{role} may {rights} {table}"


async def test_a_worker_has_only_its_functions(database: Urls) -> None:
    """The moves of others, and what people ask for, are not its own."""
    denied = (
        "SELECT scm.add_repo('w', 'x', 'svn', 'u', NULL, NULL, NULL)",
        "SELECT scm.disable_task('w', 'x', 'svn')",
        "SELECT scm.make_due_runs(1)",
        "SELECT scm.save_cursor(NULL, NULL, NULL)",
        "SELECT identity.save_user('w', 'x', '{}')",
        "SELECT * FROM logbook.events",
        "SELECT * FROM scm.git_commits",
    )
    async with connected(database.worker) as worker:
        for statement in denied:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await worker.fetch(statement)
    async with connected(database.control) as control:
        for statement in (
            "SELECT scm.begin_sync('x', gen_random_uuid(), 1)",
            "SELECT scm.record_svn('x', gen_random_uuid(), 1, '[]', NULL)",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await control.fetch(statement)
