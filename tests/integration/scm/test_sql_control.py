"""What people ask for: repositories, tasks, syncs; each leaves an audit row, and no secret is stored."""

import json
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest

from tests.integration.scm.ledger import Ledger, one, revision


async def add(
    ledger: Ledger, name: str, kind: str, url: str, branch: str | None = None, **config: Any
) -> asyncpg.Record:
    row = await one(
        ledger.control,
        "SELECT * FROM scm.add_repo('me', $1, $2, $3, 'proj_a', $4, $5)",
        name,
        kind,
        url,
        branch,
        json.dumps(config),
    )
    assert row is not None
    return row


async def sources(ledger: Ledger, repo: int) -> list[str]:
    rows = await ledger.admin.fetch(
        "SELECT source_type FROM scm.sync_tasks WHERE repo_id = $1 ORDER BY source_type", repo
    )
    return [row[0] for row in rows]


async def audits(ledger: Ledger) -> list[str]:
    return [
        row[0]
        for row in await ledger.admin.fetch(
            "SELECT action FROM supervisor.audit WHERE actor = 'me' ORDER BY id"
        )
    ]


async def test_a_repository_is_registered_with_its_sources(ledger: Ledger) -> None:
    """R001-016, R001-017, R001-018: gitlab is git behind an address of url and project_id."""
    svn = await add(ledger, "s", "svn", "svn://svn.example/s")
    git = await add(ledger, "g", "git", "https://git.example/g.git", "main")
    lab = await add(
        ledger, "l", "gitlab", "https://gitlab.example/", "dev", project_id=7, token_env="GITLAB_TOKEN"
    )
    assert (svn["repo_type"], svn["url"], svn["project_key"], svn["default_branch"]) == (
        "svn",
        "svn://svn.example/s",
        "proj_a",
        None,
    )
    assert (git["repo_type"], git["default_branch"]) == ("git", "main")
    assert (lab["repo_type"], lab["url"]) == ("git", "https://gitlab.example/projects/7")
    assert json.loads(lab["config_json"])["gitlab_url"] == "https://gitlab.example"
    assert await sources(ledger, svn["repo_id"]) == ["svn"]
    assert await sources(ledger, git["repo_id"]) == ["git"]
    assert await sources(ledger, lab["repo_id"]) == ["git", "gitlab_mr", "gitlab_review"]
    assert await audits(ledger) == ["repo.add"] * 3


@pytest.mark.parametrize(
    ("kind", "url", "branch", "config"),
    [
        ("hg", "https://x", None, {}),
        ("svn", "", None, {}),
        ("svn", "svn://x\n", None, {}),
        ("svn", "svn://x", "main", {}),
        ("git", "https://user:secret@git.example/g", None, {}),
        ("git", "https://git.example/g", None, {"token": "glpat-1"}),
        ("git", "https://git.example/g", None, {"password": "x"}),
        ("git", "https://git.example/g", None, {"token_env": "glpat-1!"}),
        ("git", "https://git.example/g", None, {"project_id": 7}),
        ("gitlab", "https://gitlab.example", None, {}),
        ("gitlab", "https://gitlab.example", None, {"project_id": "7; x"}),
    ],
)
async def test_a_bad_repository_is_refused(
    ledger: Ledger, kind: str, url: str, branch: str | None, config: dict[str, Any]
) -> None:
    """R001-016, R001-017, R001-018: and no secret is taken in."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await add(ledger, "r", kind, url, branch, **config)
    assert caught.value.sqlstate == "TN022"
    assert "glpat" not in str(caught.value)
    assert await ledger.count("scm.repos") == 0


async def test_a_name_and_an_address_are_taken_once(ledger: Ledger) -> None:
    await add(ledger, "r", "svn", "svn://x")
    for name, url in (("r", "svn://y"), ("q", "svn://x")):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await add(ledger, name, "svn", url)
        assert caught.value.sqlstate == "TN021"
    with pytest.raises(asyncpg.PostgresError) as caught:
        await add(ledger, "../r", "svn", "svn://z")
    assert caught.value.sqlstate == "TN022"


async def test_a_repository_goes_with_all_that_was_read(ledger: Ledger) -> None:
    """The ledger stays; an open sync is in the way."""
    await add(ledger, "r", "svn", "svn://x")
    held = await ledger.begun()
    await ledger.record(held, 1, [revision(1)], 1)
    remove = "SELECT scm.remove_repo('me', 'r')"
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetchval(remove)
    assert caught.value.sqlstate == "TN021"
    await ledger.finish(held)
    await ledger.control.fetchval(remove)
    for table in (
        "scm.repos",
        "scm.svn_revisions",
        "scm.sync_tasks",
        "scm.sync_runs",
        "scm.sync_run_moves",
        "logbook.kv",
    ):
        assert await ledger.count(table) == 0, table
    assert await ledger.count("logbook.events") == 4
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetchval(remove)
    assert caught.value.sqlstate == "TN020"


async def save(
    ledger: Ledger, source: str = "svn", cron: str | None = None, priority: int | None = None, **config: Any
) -> asyncpg.Record:
    row = await one(ledger.control,
         "SELECT * FROM scm.save_task('me', 'r', $1, $2, $3, $4)",
        source, cron, priority, json.dumps(config) if config else None,
    )  # fmt: skip
    assert row is not None
    return row


async def test_a_cron_expression_is_fired_through_a_definition(ledger: Ledger) -> None:
    """R001-141: NULL is by hand only; the leader's scheduler is the only one."""
    await add(ledger, "r", "svn", "svn://x")
    definition = "SELECT * FROM supervisor.job_definition WHERE name = 'scm/r/svn'"
    assert (await ledger.task())["cron_expr"] is None
    assert await ledger.admin.fetch(definition) == []
    await save(ledger, cron="*/5 * * * *")
    row = await one(ledger.admin, definition)
    assert (row["domain"], row["action"], row["cron"], row["enabled"]) == ("scm", "sync", "*/5 * * * *", True)
    assert json.loads(row["payload"]) == {"repo": "r", "source": "svn"}
    await save(ledger, cron="0 1 * * *")
    assert (await one(ledger.admin, definition))["cron"] == "0 1 * * *"
    await save(ledger, priority=4)
    assert (await one(ledger.admin, definition))["enabled"], "what is not named stays"
    await ledger.control.fetch("SELECT * FROM scm.disable_task('me', 'r', 'svn')")
    assert not (await one(ledger.admin, definition))["enabled"]
    await ledger.control.fetch("SELECT * FROM scm.enable_task('me', 'r', 'svn')")
    row = await one(ledger.admin, definition)
    assert (row["enabled"], row["cron"]) == (True, "0 1 * * *")
    await save(ledger, cron="")
    row = await one(ledger.admin, definition)
    assert (row["enabled"], (await ledger.task())["cron_expr"]) == (False, None)


async def test_a_task_keeps_what_is_not_named(ledger: Ledger) -> None:
    """R001-140, R001-142"""
    await add(ledger, "r", "svn", "svn://x")
    saved = await save(ledger, priority=7, overlap=3)
    assert (saved["priority"], json.loads(saved["config_json"])) == (7, {"overlap": 3})
    saved = await save(ledger, priority=8)
    assert (saved["priority"], json.loads(saved["config_json"])) == (8, {"overlap": 3})


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("batch_size", [10, 1000], [9, 1001, "10", 10.5]),
        ("interval_seconds", [0, 86400], [-1, 86401]),
        ("retry_count", [0, 10], [-1, 11]),
        ("retry_interval", [1, 60], [0, 61]),
        ("default_overlap", [0, 100], [-1, 101]),
        ("parallelism", [1, 16], [0, 17]),
        ("lock_timeout", [60, 3600], [59, 3601]),
        ("max_lag_seconds", [300, 86400], [299, 86401]),
        ("bulk_threshold", [50, 500], [49, 501]),
        ("diff_size_limit_mb", [1, 50], [0, 51]),
        ("mode", ["strict", "best_effort"], ["lax", None]),
        ("retry_backoff", ["fixed", "linear", "exponential"], ["random"]),
        ("diff_fetch_enabled", [True, False], ["yes"]),
        ("auto", [True], [1]),
        ("token", [], ["x"]),
    ],
)
async def test_a_configuration_is_checked(ledger: Ledger, name: str, good: list[Any], bad: list[Any]) -> None:
    """R001-142, R001-148 to R001-162: what is out of range is refused, and changes nothing."""
    await add(ledger, "r", "svn", "svn://x")
    for value in good:
        assert json.loads((await save(ledger, **{name: value}))["config_json"]) == {name: value}
    before = await ledger.task()
    for value in bad:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await save(ledger, **{name: value})
        assert caught.value.sqlstate == "TN022", value
    assert await ledger.task() == before


async def test_a_source_that_a_repository_does_not_have_is_refused(ledger: Ledger) -> None:
    """R001-137"""
    await add(ledger, "r", "svn", "svn://x")
    for source in ("git", "gitlab_mr", "hg"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await save(ledger, source)
        assert caught.value.sqlstate == "TN022"
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.request(source=source)
        assert caught.value.sqlstate == "TN020"


async def test_a_second_request_gets_the_open_run(ledger: Ledger) -> None:
    """R001-126, R001-182: waiting or running; another mode is a conflict, not silence."""
    await ledger.repo()
    first = await ledger.request()
    assert first[1]
    assert await ledger.request() == (first[0], False)
    await ledger.claim()
    assert await ledger.request() == (first[0], False)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.request(mode="backfill", span={"from": 1, "to": 2})
    assert caught.value.sqlstate == "TN021"


@pytest.mark.parametrize(
    ("mode", "span"),
    [
        ("sideways", None),
        ("incremental", {"from": 1}),
        ("backfill", {"from": 5, "to": 4}),
        ("backfill", {"from": "2024-01-01T00:00:00Z"}),
        ("backfill", {"upto": 3}),
        ("backfill", {"update_watermark": 1}),
    ],
)
async def test_a_bad_request_is_refused(ledger: Ledger, mode: str, span: dict[str, Any] | None) -> None:
    """R001-129"""
    await ledger.repo()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.request(mode=mode, span=span)
    assert caught.value.sqlstate == "TN022"
    assert await ledger.count("scm.sync_runs") == 0


async def test_what_is_unknown_is_not_found(ledger: Ledger) -> None:
    calls = (
        "scm.request_sync('me', 'nope', 'svn')",
        "scm.enable_task('me', 'nope', 'svn')",
        "scm.disable_task('me', 'nope', 'svn')",
        "scm.save_task('me', 'nope', 'svn', NULL, NULL, NULL)",
        "scm.cancel_sync('me', 'nope')",
    )
    for call in calls:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.control.fetch(f"SELECT * FROM {call}")
        assert caught.value.sqlstate == "TN020", call


async def test_a_disabled_task_is_not_scheduled(ledger: Ledger) -> None:
    """R001-171: what is open is cancelled, its worker changes nothing more; enabled it is pending."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.control.fetch("SELECT * FROM scm.disable_task('me', 'r', 'svn')")
    assert (await ledger.run(held.run))["status"] == "cancelled"
    assert (await ledger.task())["status"] == "disabled"
    with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
        await ledger.record(held, 1, [revision(1)], 1)
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.request()
    assert caught.value.sqlstate == "TN021"
    await ledger.control.fetch("SELECT * FROM scm.enable_task('me', 'r', 'svn')")
    assert (await ledger.task())["status"] == "pending"
    assert (await ledger.request())[1]
    assert await audits(ledger) == ["sync.disable", "sync.enable"]


async def job_run(ledger: Ledger, number: int, root: int) -> UUID:
    token = uuid4()
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        await ledger.admin.execute(
            "UPDATE supervisor.job_run SET state = 'FAILED', finished_at = now(), finished_by = 'worker'"
        )
        await ledger.admin.execute(
            "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, "
            "state, claim_id, assigned_worker_id, leader_epoch, started_at, start_beat_no, attempt) "
            "VALUES ($1::bigint, $2, 1, 'scm', '{}', 3, 'RUNNING', $3, 'w1', 1, now(), 1, "
            "$1::bigint::integer)",
            number, root, token,
        )  # fmt: skip
    return token


async def for_run(ledger: Ledger, number: int, token: UUID) -> tuple[str, bool]:
    async with ledger.as_worker() as worker:
        row = await one(
            worker,
            "SELECT (s.run).run_id, s.created FROM scm.request_for_run($1, $2, 'r', 'svn', '{}') AS s",
            number,
            token,
        )
    return row["run_id"], row["created"]


async def test_a_run_gets_the_same_sync_however_often_it_asks(ledger: Ledger) -> None:
    """By its root, under its own claim; a failed one is made anew."""
    await ledger.repo()
    token = await job_run(ledger, 5, 5)
    first, created = await for_run(ledger, 5, token)
    assert created
    assert await for_run(ledger, 5, token) == (first, False)
    assert (await ledger.run(first))["requested_by_run"] == 5
    with pytest.raises(asyncpg.PostgresError) as caught:
        await for_run(ledger, 5, uuid4())
    assert caught.value.sqlstate == "TN021"
    (held,) = await ledger.claim()
    await ledger.finish(held, "cancel", "AUTH_ERROR")
    token = await job_run(ledger, 6, 5)
    second, created = await for_run(ledger, 6, token)
    assert (created, second != first) == (True, True)
    (held,) = await ledger.claim()
    await ledger.finish(held)
    assert await for_run(ledger, 6, token) == (second, False), "what it wanted is done"


async def test_a_cancelled_run_takes_its_syncs_along(ledger: Ledger) -> None:
    """R001-179"""
    await ledger.repo()
    token = await job_run(ledger, 5, 5)
    run, _ = await for_run(ledger, 5, token)
    async with ledger.as_worker() as worker:
        assert await worker.fetchval("SELECT scm.cancel_for_run(5, $1)", token) == 0, (
            "it was not asked to stop"
        )
        await ledger.admin.execute("UPDATE supervisor.job_run SET cancel_requested_at = now() WHERE id = 5")
        assert await worker.fetchval("SELECT scm.cancel_for_run(5, $1)", token) == 1
    assert (await ledger.run(run))["status"] == "cancelled"
