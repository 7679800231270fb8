"""The states of tasks and runs: exactly the moves of the protocol, each written down, and what follows."""

from itertools import product

import asyncpg
import pytest

from actors.scm.leases import of_source
from supervisor.lease_sql import render
from tests.integration.scm.ledger import Held, Ledger, release, revision

RUN = ("pending", "running", "completed", "failed", "retrying", "exhausted", "cancelled")
RUN_MOVES = {
    ("pending", "running"),
    ("running", "completed"),
    ("running", "failed"),
    ("running", "pending"),
    ("failed", "retrying"),
    ("failed", "exhausted"),
    ("retrying", "running"),
    ("retrying", "failed"),
    ("pending", "cancelled"),
    ("running", "cancelled"),
    ("retrying", "cancelled"),
    ("failed", "cancelled"),
}
TASK = ("disabled", "pending", "running", "failed")
TASK_MOVES = {
    ("disabled", "pending"),
    ("pending", "running"),
    ("running", "pending"),
    ("running", "failed"),
    ("failed", "pending"),
    ("pending", "disabled"),
    ("running", "disabled"),
    ("failed", "disabled"),
}
ENDED = ("completed", "exhausted", "cancelled")


async def insert_run(ledger: Ledger, status: str, *, final: bool = False) -> None:
    await ledger.admin.execute(
        "INSERT INTO scm.sync_runs (run_id, task_id, source_type, status, attempts, finished_at) "
        "SELECT 'x', task_id, source_type, $1, 1, CASE WHEN $2 THEN now() END FROM scm.sync_tasks",
        status,
        final or status in ENDED,
    )


async def passes(ledger: Ledger, statement: str, status: str) -> bool:
    try:
        await ledger.admin.execute(statement, status)
    except asyncpg.PostgresError as error:
        if error.sqlstate not in {"TN010", "TN011"}:
            raise
        return False
    return True


async def test_exactly_the_moves_of_a_run_pass(ledger: Ledger) -> None:
    """R001-175 to R001-178, R001-180: over the whole matrix, whoever writes."""
    await ledger.repo()
    found = set()
    for before, after in product(RUN, RUN):
        if before != after:
            transaction = ledger.admin.transaction()
            await transaction.start()
            await insert_run(ledger, before)
            if await passes(ledger, "UPDATE scm.sync_runs SET status = $1 WHERE run_id = 'x'", after):
                found.add((before, after))
            await transaction.rollback()
    assert found == RUN_MOVES


@pytest.mark.parametrize("status", [*ENDED, "failed"])
async def test_what_has_ended_never_changes(ledger: Ledger, status: str) -> None:
    """R001-180: also a failed run that is final (C-20), in no column."""
    await ledger.repo()
    await insert_run(ledger, status, final=True)
    for change in ("status = 'running'", "stats_json = '{\"x\": 1}'", "finished_at = NULL", "attempts = 9"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.admin.execute(f"UPDATE scm.sync_runs SET {change} WHERE run_id = 'x'")
        assert caught.value.sqlstate == "TN010"


async def test_what_a_run_is_never_changes(ledger: Ledger) -> None:
    await ledger.repo()
    held = await ledger.begun()
    changes = ("run_id = 'y'", "mode = 'backfill'", "config_json = '{\"a\": 1}'", "watermark_start = '7'",
               "priority = 9", "range_json = '{\"from\": 1}'", "requested_by_run = 4",
               "source_type = 'git'")  # fmt: skip
    for change in changes:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.admin.execute(f"UPDATE scm.sync_runs SET {change} WHERE run_id = $1", held.run)
        assert caught.value.sqlstate == "TN013", change


async def test_exactly_the_moves_of_a_task_pass(ledger: Ledger) -> None:
    """R001-170 to R001-174: over the whole matrix, whoever writes."""
    await ledger.repo()
    found = set()
    for before, after in product(TASK, TASK):
        if before != after:
            transaction = ledger.admin.transaction()
            await transaction.start()
            await ledger.admin.execute("SET LOCAL session_replication_role = replica")
            await ledger.admin.execute("UPDATE scm.sync_tasks SET status = $1", before)
            await ledger.admin.execute("SET LOCAL session_replication_role = origin")
            if await passes(ledger, "UPDATE scm.sync_tasks SET status = $1", after):
                found.add((before, after))
            await transaction.rollback()
    assert found == TASK_MOVES


@pytest.mark.parametrize(("table", "column"), [("sync_tasks", "status"), ("sync_runs", "status")])
async def test_a_state_outside_the_table_is_refused(ledger: Ledger, table: str, column: str) -> None:
    """R001-170, R001-175"""
    await ledger.repo()
    await ledger.request()
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        with pytest.raises(asyncpg.CheckViolationError):
            await ledger.admin.execute(f"UPDATE scm.{table} SET {column} = 'done'")


async def test_the_task_follows_a_run_that_completes(ledger: Ledger) -> None:
    """R001-124, R001-146, R001-147, R001-172, R001-176: and the run is a whole record of what was done."""
    await ledger.repo()
    run, _ = await ledger.request()
    assert (await ledger.task())["status"] == "pending"
    before = await ledger.run(run)
    assert (before["watermark_end"], before["finished_at"], before["started_at"] is None) == (
        None,
        None,
        False,
    )
    (held,) = await ledger.claim()
    assert (await ledger.task())["status"] == "running"
    await ledger.record(held, 1, [revision(1), revision(2)], 2)
    await ledger.record(held, 2, [revision(2), revision(3)], 3)
    assert (await ledger.run(run))["watermark_end"] is None
    assert await ledger.finish(held) == "RECORDED"
    task, done = await ledger.task(), await ledger.run(run)
    assert (task["status"], task["last_run_id"], task["consecutive_failures"]) == ("pending", run, 0)
    assert (done["status"], done["watermark_start"], done["watermark_end"]) == ("completed", None, 3)
    stats = done["stats_json"]
    assert stats["fetched"] == stats["inserted"] + stats["updated"] + stats["skipped"] == 4
    assert (stats["inserted"], stats["skipped"], stats["batches"]) == (3, 1, 2)
    elapsed = (done["finished_at"] - done["started_at"]).total_seconds() * 1000
    assert stats["duration_ms"] == pytest.approx(elapsed, abs=1)
    assert await ledger.moves(run) == ["pending", "running", "completed"]


async def test_a_run_without_a_batch_has_all_its_figures(ledger: Ledger) -> None:
    """R001-147"""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.finish(held)
    stats = (await ledger.run(held.run))["stats_json"]
    assert {"fetched", "inserted", "updated", "skipped", "duration_ms", "batches"} == set(stats)
    assert (await ledger.run(held.run))["watermark_end"] is None


async def test_figures_that_do_not_add_up_are_refused(ledger: Ledger) -> None:
    """R001-147"""
    await ledger.repo()
    held = await ledger.begun()
    wrong = '{"fetched": 3, "inserted": 1, "updated": 1, "skipped": 0}'
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute(
            "UPDATE scm.sync_runs SET stats_json = $2 WHERE run_id = $1", held.run, wrong
        )


async def test_a_failure_is_retried_and_then_used_up(ledger: Ledger) -> None:
    """R001-177, R001-178, R001-186, R001-187: retry_count more attempts, `retrying` in between."""
    await ledger.repo()
    await ledger.control.fetch(
        "SELECT * FROM scm.save_task('t', 'r', 'svn', NULL, NULL, '{\"retry_count\": 2}')"
    )
    run, _ = await ledger.request()
    for attempt in (1, 2, 3):
        (held,) = await ledger.claim()
        row = await ledger.run(run)
        assert (row["attempts"], row["max_attempts"]) == (attempt, 3)
        assert await ledger.finish(held, "retry", "TIMEOUT", 0.0) == "RECORDED"
        row = await ledger.run(run)
        assert row["error_json"] == {"code": "TIMEOUT", "message": "it failed", "attempt": attempt}
        if attempt < 3:
            assert (row["status"], row["finished_at"]) == ("retrying", None)
            assert (await ledger.task())["status"] == "pending"
    row = await ledger.run(run)
    assert (row["status"], row["retry_after"], row["watermark_end"]) == ("exhausted", None, None)
    assert row["finished_at"] is not None
    again = ["failed", "retrying", "running"]
    assert await ledger.moves(run) == ["pending", "running", *again, *again, "failed", "exhausted"]
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"]) == ("failed", 1)
    assert await ledger.claim() == []


async def test_a_retry_waits_for_its_time(ledger: Ledger) -> None:
    """R001-186: the delay is the worker's word; a run that waits is not claimed."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.finish(held, "retry", "TIMEOUT", 3600.0)
    row = await ledger.run(held.run)
    assert row["status"] == "retrying"
    left = await ledger.admin.fetchval("SELECT extract(epoch FROM $1 - now())::float", row["retry_after"])
    assert 3500 < left <= 3600
    assert await ledger.claim() == []
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        await ledger.admin.execute("UPDATE scm.sync_runs SET retry_after = now()")
    (again,) = await ledger.claim()
    assert (again.run, again.claim != held.claim) == (held.run, True)
    assert (await ledger.run(held.run))["started_at"] == row["started_at"], "the run began once"


async def test_an_error_that_nothing_heals_is_final(ledger: Ledger) -> None:
    """R001-188: configuration or permission: failed, no retry, the task failed."""
    await ledger.repo()
    held = await ledger.begun()
    assert await ledger.finish(held, "cancel", "AUTH_ERROR") == "RECORDED"
    row, task = await ledger.run(held.run), await ledger.task()
    assert (row["status"], row["finished_at"] is None, row["error_json"]["code"]) == (
        "failed",
        False,
        "AUTH_ERROR",
    )
    assert (task["status"], task["consecutive_failures"]) == ("failed", 1)
    assert await ledger.moves(held.run) == ["pending", "running", "failed"]
    assert await ledger.claim() == []


async def test_a_manual_request_takes_a_failed_task_up_again(ledger: Ledger) -> None:
    """R001-173: failed -> pending; a success forgets the failures."""
    await ledger.repo()
    await ledger.finish(await ledger.begun(), "cancel", "AUTH_ERROR")
    _, created = await ledger.request()
    assert created
    assert (await ledger.task())["status"] == "pending"
    (held,) = await ledger.claim()
    await ledger.finish(held)
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"]) == ("pending", 0)


async def test_a_task_that_fails_again_and_again_is_disabled(ledger: Ledger) -> None:
    """R001-174: at the threshold (C-38), with its schedule; enabling begins anew."""
    await ledger.repo()
    await ledger.control.fetch("SELECT * FROM scm.save_task('t', 'r', 'svn', '0 * * * *', NULL, NULL)")
    await ledger.control.fetch("SELECT supervisor.save_setting('t', 'scm_failure_threshold', '2')")
    await ledger.finish(await ledger.begun(), "cancel", "AUTH_ERROR")
    assert (await ledger.task())["status"] == "failed"
    enabled = "SELECT enabled FROM supervisor.job_definition WHERE name = 'scm/r/svn'"
    assert await ledger.admin.fetchval(enabled)
    await ledger.finish(await ledger.begun(), "cancel", "AUTH_ERROR")
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"]) == ("disabled", 2)
    assert not await ledger.admin.fetchval(enabled)
    with pytest.raises(asyncpg.PostgresError, match="is disabled"):
        await ledger.request()
    await ledger.control.fetch("SELECT * FROM scm.enable_task('t', 'r', 'svn')")
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"]) == ("pending", 0)
    assert await ledger.admin.fetchval(enabled)


async def test_a_manual_cancel_ends_a_run(ledger: Ledger) -> None:
    """R001-179: waiting, running or retrying; its worker's word comes too late, the task can go on."""
    await ledger.repo()
    cancel = "SELECT status FROM scm.cancel_sync('test', $1)"
    run, _ = await ledger.request()
    assert await ledger.control.fetchval(cancel, run) == "cancelled"
    held = await ledger.begun()
    assert await ledger.control.fetchval(cancel, held.run) == "cancelled"
    assert (await ledger.task())["status"] == "pending"
    assert await ledger.finish(held) == "ALREADY"
    assert (await ledger.run(held.run))["status"] == "cancelled"
    held = await ledger.begun()
    await ledger.finish(held, "retry", "TIMEOUT")
    assert await ledger.control.fetchval(cancel, held.run) == "cancelled"
    with pytest.raises(asyncpg.PostgresError, match="has ended as cancelled"):
        await ledger.control.fetchval(cancel, held.run)
    audits = "SELECT count(*) FROM supervisor.audit WHERE action = 'sync.cancel' AND actor = 'test'"
    assert await ledger.admin.fetchval(audits) == 3


async def test_a_drained_worker_gives_back_what_it_has_not_begun(ledger: Ledger) -> None:
    """Nothing was written: the run is as if never claimed."""
    await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as worker:
        assert await release(worker, held) == 1
    row = await ledger.run(held.run)
    assert (row["status"], row["attempts"], row["worker_id"], row["claim_id"]) == ("pending", 0, None, None)
    assert (await ledger.task())["status"] == "pending"
    assert await ledger.moves(held.run) == ["pending", "running", "pending"]


async def test_a_drained_worker_gives_back_what_it_has_begun(ledger: Ledger) -> None:
    """Something was written: it goes on elsewhere as a retry, due at once, that costs no attempt."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.record(held, 1, [revision(1)], 1)
    async with ledger.as_worker() as worker:
        assert await release(worker, held) == 1
    row = await ledger.run(held.run)
    assert (row["status"], row["attempts"], row["error_code"]) == ("retrying", 0, "DRAINED")
    assert await ledger.moves(held.run) == ["pending", "running", "failed", "retrying"]
    (again,) = await ledger.claim("w2")
    begun = await ledger.begin(again)
    assert (again.run, begun["watermark"], begun["batches"]) == (held.run, "1", 1)
    await ledger.record(again, 2, [revision(2)], 2)
    await ledger.finish(again)
    done = await ledger.run(held.run)
    assert (done["status"], done["error_json"], done["stats_json"]["fetched"]) == ("completed", None, 2)


async def test_moves_are_only_added_to(ledger: Ledger) -> None:
    """R001-124"""
    await ledger.repo()
    await ledger.request()
    for change in (
        "UPDATE scm.sync_run_moves SET to_status = 'x'",
        "DELETE FROM scm.sync_run_moves",
        "TRUNCATE scm.sync_run_moves",
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.admin.execute(change)
        assert caught.value.sqlstate == "TN014"


async def test_larger_priorities_come_first(ledger: Ledger) -> None:
    """R001-140"""
    for name, priority in (("low", 0), ("high", 9), ("mid", 5)):
        await ledger.repo(name)
        await ledger.control.fetch(
            "SELECT * FROM scm.save_task('t', $1, 'svn', NULL, $2, NULL)", name, priority
        )
        await ledger.request(name)
    order = []
    for _ in range(3):
        (held,) = await ledger.claim(rows=1)
        order.append((await ledger.begin(held))["repo"])
    assert order == ["high", "mid", "low"]


async def test_a_row_moved_by_hand_does_not_stop_the_claims(ledger: Ledger) -> None:
    """A task whose state was forced takes the step that is missing."""
    await ledger.repo()
    await ledger.request()
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        await ledger.admin.execute("UPDATE scm.sync_tasks SET status = 'failed'")
    (held,) = await ledger.claim()
    assert isinstance(held, Held)
    assert (await ledger.task())["status"] == "running"


async def test_workers_of_one_source_take_its_runs_only(ledger: Ledger) -> None:
    """R001-125: pools by source_type; a lost run of another source is left to its own pool."""
    await ledger.repo()
    await ledger.repo("g", "git")
    await ledger.begun()
    await ledger.expire()
    await ledger.request("g", "git")
    async with ledger.as_worker() as worker:
        rows = await worker.fetch(render(of_source("git")).claim.sql, "w2", 10, "scm")
    (taken,) = rows
    assert (taken["recovered"], taken["c4"]) == (0, "git")
