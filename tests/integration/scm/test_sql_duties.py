"""What the leader does by itself: due tasks, lost runs, old runs; and what the figures say."""

import json
from typing import Any

import asyncpg
import pytest

from tests.integration.scm.ledger import Held, Ledger, commit, instant, one, revision


async def save(ledger: Ledger, repo: str = "r", source: str = "svn", **config: Any) -> None:
    await ledger.control.fetch(
        "SELECT * FROM scm.save_task('t', $1, $2, NULL, NULL, $3)", repo, source, json.dumps(config)
    )


async def shift(ledger: Ledger, table: str, **columns: str) -> None:
    """Move time: columns are SQL expressions."""
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
        await ledger.admin.execute(f"UPDATE scm.{table} SET {changes}")


async def open_runs(ledger: Ledger) -> list[str]:
    rows = await ledger.admin.fetch(
        "SELECT run_id FROM scm.sync_runs WHERE status IN ('pending', 'running', 'retrying')"
    )
    return [row[0] for row in rows]


async def test_a_task_that_says_auto_runs_by_itself(ledger: Ledger) -> None:
    """R001-141, R001-150: by its interval after each end; a manual one never, 0 is never (C-33)."""
    for name in ("auto", "never", "manual"):
        await ledger.repo(name)
    await save(ledger, "auto", auto=True, interval_seconds=600)
    await save(ledger, "never", auto=True, interval_seconds=0)
    await save(ledger, "manual", interval_seconds=600)
    assert await ledger.duty("make_due_runs") == 1
    assert await ledger.duty("make_due_runs") == 0
    (held,) = await ledger.claim()
    assert (await ledger.begin(held))["repo"] == "auto"
    assert (await ledger.task("auto"))["next_run_at"] is None
    await ledger.finish(held)
    task = await ledger.task("auto")
    left = await ledger.admin.fetchval("SELECT extract(epoch FROM $1 - now())::float", task["next_run_at"])
    assert 500 < left <= 600
    assert await ledger.duty("make_due_runs") == 0
    await shift(ledger, "sync_tasks", next_run_at="CASE WHEN next_run_at IS NOT NULL THEN now() END")
    assert await ledger.duty("make_due_runs") == 1


async def test_a_failed_task_is_due_again_and_a_disabled_one_never(ledger: Ledger) -> None:
    """R001-171, R001-173: by its interval; disabled it has no time."""
    await ledger.repo()
    await save(ledger, auto=True, interval_seconds=1)
    await ledger.duty("make_due_runs")
    (held,) = await ledger.claim()
    await ledger.finish(held, "cancel", "AUTH_ERROR")
    assert (await ledger.task())["status"] == "failed"
    await shift(ledger, "sync_tasks", next_run_at="now()")
    assert await ledger.duty("make_due_runs") == 1
    assert (await ledger.task())["status"] == "pending"
    await ledger.control.fetch("SELECT * FROM scm.disable_task('t', 'r', 'svn')")
    assert await open_runs(ledger) == []
    await shift(ledger, "sync_tasks", next_run_at="now()")
    assert await ledger.duty("make_due_runs") == 0


@pytest.mark.parametrize("duty", ["make_due_runs", "recover_runs", "purge_runs", "cancel_for_ended_runs"])
async def test_a_deposed_leader_does_nothing(ledger: Ledger, duty: str) -> None:
    await ledger.duty("make_due_runs")
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetchval(f"SELECT scm.{duty}($1)", ledger.epoch - 1)
    assert caught.value.sqlstate == "TN001"


async def test_a_lease_that_ran_out_fails_the_run_and_another_goes_on(ledger: Ledger) -> None:
    """R001-193: failed with an error text, cursor unmoved, task pending; the next run goes on there."""
    repo = await ledger.repo()
    await ledger.control.fetch("SELECT * FROM scm.request_sync('me', 'r', 'svn', NULL, NULL, 77)")
    (held,) = await ledger.claim()
    await ledger.record(held, 1, [revision(1), revision(2)], 2)
    cursor = await ledger.cursor(repo)
    await ledger.expire()
    assert await ledger.recover() == 1
    row = await ledger.run(held.run)
    assert (row["status"], row["finished_at"] is None, row["watermark_end"]) == ("failed", False, None)
    assert row["error_json"]["code"] == "LEASE_EXPIRED"
    assert row["error_json"]["message"]
    assert (row["claim_id"], row["worker_id"], row["lease_expires_at"]) == (None, None, None)
    assert await ledger.cursor(repo) == cursor
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"]) == ("pending", 0)
    assert await ledger.duty("make_due_runs") == 1
    (again,) = await ledger.claim("w2")
    begun, made = await ledger.begin(again), await ledger.run(again.run)
    assert (begun["watermark"], again.run != held.run) == ("2", True)
    assert (made["requested_by"], made["requested_by_run"], made["losses"]) == ("me", 77, 0)


async def test_a_lost_backfill_is_made_again_as_it_was(ledger: Ledger) -> None:
    """R001-129, R001-193"""
    await ledger.repo()
    await ledger.request(mode="backfill", span={"from": 3, "to": 5})
    await ledger.claim()
    await ledger.expire()
    await ledger.recover()
    await ledger.duty("make_due_runs")
    (held,) = await ledger.claim()
    begun = await ledger.begin(held)
    assert (begun["mode"], json.loads(begun["range"])) == ("backfill", {"from": 3, "to": 5})


async def lose(ledger: Ledger, *, with_batch: bool) -> Held:
    (held,) = await ledger.claim()
    if with_batch:
        await ledger.record(held, 1, [], None)
    await ledger.expire()
    assert await ledger.recover() == 1
    return held


async def test_what_takes_its_worker_along_each_time_is_given_up(ledger: Ledger) -> None:
    """R001-174: at the threshold, when nothing was written in between; progress is no such loss."""
    await ledger.control.fetch("SELECT supervisor.save_setting('t', 'scm_failure_threshold', '3')")
    await ledger.repo()
    await ledger.request()
    for with_batch in (True, True, True, True, False, False):
        await lose(ledger, with_batch=with_batch)
        assert (await ledger.task())["status"] == "pending"
        assert await ledger.duty("make_due_runs") == 1
    await lose(ledger, with_batch=False)
    task = await ledger.task()
    assert (task["status"], task["consecutive_failures"], task["next_run_at"]) == ("failed", 1, None)
    assert await ledger.duty("make_due_runs") == 0


@pytest.mark.parametrize(
    ("started", "seen", "lease", "lost"),
    [
        ("now() - interval '2 hours'", "now() - interval '10 minutes'", "NULL", True),
        ("now() - interval '2 hours'", None, "NULL", True),
        ("now() - interval '2 hours'", "now() - interval '1 minute'", "NULL", False),
        ("now() - interval '50 minutes'", "now() - interval '10 minutes'", "NULL", False),
        ("now() - interval '2 hours'", "now() - interval '10 minutes'", "now() + interval '1 minute'", False),
    ],
)
async def test_a_run_without_a_lease_is_recovered_by_its_worker_s_silence(
    ledger: Ledger, started: str, seen: str | None, lease: str, lost: bool
) -> None:
    """R001-192, R001-193: running for more than an hour, and its worker not heard of for five minutes."""
    await ledger.repo()
    held = await ledger.begun()
    if seen is not None:
        await ledger.admin.execute(
            "INSERT INTO supervisor.worker "
            "(worker_id, domains, slots, heartbeat_at, stop_bound_seconds, secret) "
            f"VALUES ('w1', '{{scm}}', 1, {seen}, 30, gen_random_uuid())"
        )
    await shift(ledger, "sync_runs", started_at=started, lease_expires_at=lease)
    assert await ledger.duty("recover_runs") == int(lost)
    row, task = await ledger.run(held.run), await ledger.task()
    if lost:
        assert (row["status"], row["error_json"]["code"], row["claim_id"]) == ("failed", "WORKER_LOST", None)
        assert (task["status"], row["finished_at"] is None) == ("pending", False)
        assert await ledger.finish(held) == "SUPERSEDED"
    else:
        assert (row["status"], task["status"]) == ("running", "running")


async def test_both_intervals_are_settings(ledger: Ledger) -> None:
    """R001-192"""
    await ledger.repo()
    await ledger.begun()
    await shift(ledger, "sync_runs", started_at="now() - interval '20 seconds'", lease_expires_at="NULL")
    await ledger.admin.execute(
        "INSERT INTO supervisor.worker (worker_id, domains, slots, heartbeat_at, stop_bound_seconds, secret) "
        "VALUES ('w1', '{scm}', 1, now() - interval '10 seconds', 30, gen_random_uuid())"
    )
    assert await ledger.duty("recover_runs") == 0
    await ledger.control.fetch("SELECT supervisor.save_setting('t', 'scm_stale_run_seconds', '10')")
    assert await ledger.duty("recover_runs") == 0
    await ledger.control.fetch("SELECT supervisor.save_setting('t', 'scm_stale_worker_seconds', '5')")
    assert await ledger.duty("recover_runs") == 1


async def test_old_runs_go_but_the_newest_success_stays(ledger: Ledger) -> None:
    """R001-157: with their moves; a lost cursor is still rebuilt (C-34)."""
    await ledger.repo()
    for number in (1, 2, 3):
        held = await ledger.begun()
        await ledger.record(held, 1, [revision(number)], number)
        await ledger.finish(held)
    kept = (await ledger.task())["last_run_id"]
    await ledger.finish(await ledger.begun(), "cancel", "AUTH_ERROR")
    assert await ledger.duty("purge_runs") == 0
    await shift(ledger, "sync_runs", finished_at="finished_at - interval '91 days'")
    waiting, _ = await ledger.request()
    assert await ledger.duty("purge_runs") == 3
    rows = await ledger.admin.fetch("SELECT run_id FROM scm.sync_runs ORDER BY run_id")
    assert [row[0] for row in rows] == [kept, waiting]
    moves = await ledger.admin.fetch("SELECT DISTINCT run_id FROM scm.sync_run_moves ORDER BY run_id")
    assert [row[0] for row in moves] == [kept, waiting]
    assert await ledger.duty("purge_runs") == 0
    await ledger.admin.execute("DELETE FROM logbook.kv")
    (held,) = await ledger.claim()
    assert (await ledger.begin(held))["watermark"] == "3"
    assert await ledger.admin.fetchval("SELECT count(*) FROM logbook.events") > 10, "the ledger keeps all"


async def metrics(ledger: Ledger, repo: str = "r") -> asyncpg.Record:
    row = await one(ledger.control, "SELECT * FROM scm.read_metrics() WHERE repo = $1", repo)
    assert row is not None
    return row


async def test_the_lag_is_what_the_source_is_ahead(ledger: Ledger) -> None:
    """R001-131: HEAD minus cursor, in time; 0 when all of it is here."""
    await ledger.repo()
    await ledger.repo("g", "git")
    one, other = await ledger.begun(), await ledger.begun("g", "git", "w2")
    assert (await metrics(ledger))["lag_seconds"] is None
    async with ledger.as_worker() as worker:
        await worker.execute("SELECT scm.note_head($1, $2, '50', '2024-01-01T01:00:00Z')", one.run, one.claim)
        await worker.execute("SELECT scm.note_head($1, $2, $3, $4::text::timestamptz)",
                             other.run, other.claim,
                             json.dumps(instant(600)), instant(600))  # fmt: skip
    await ledger.record(one, 1, [revision(30)], 30)
    await ledger.record(other, 1, [commit(60)], instant(60), kind="git")
    assert (await metrics(ledger))["lag_seconds"] == 3600 - 30
    assert (await metrics(ledger, "g"))["lag_seconds"] == 540
    await ledger.record(one, 2, [revision(50)], 50)
    assert (await metrics(ledger))["lag_seconds"] == 0


async def test_the_other_figures(ledger: Ledger) -> None:
    """R001-132, R001-133, R001-134, R001-135: durations, share of failures, who waits, age of the cursor."""
    await ledger.repo()
    assert tuple(await metrics(ledger))[5:11] == (None, False, False, 0, 0, 0)
    for how in ("done", "cancel", "done", "done"):
        held = await ledger.begun()
        await ledger.record(held, 1, [revision(1)], 1)
        await ledger.finish(held, how, None if how == "done" else "AUTH_ERROR")
    found = await metrics(ledger)
    assert (found["runs"], found["failed_runs"], found["error_rate"], found["is_pending"]) == (
        4,
        1,
        0.25,
        False,
    )
    assert found["last_duration_seconds"] >= found["last_batch_seconds"] >= 0
    await ledger.admin.execute("UPDATE logbook.kv SET updated_at = now() - interval '2 days'")
    assert (await metrics(ledger))["cursor_age_seconds"] == pytest.approx(2 * 86400, abs=60)
    await ledger.request()
    found = await metrics(ledger)
    assert (found["is_pending"], found["is_late"]) == (True, False)
    await shift(ledger, "sync_runs", created_at="created_at - interval '2 hours'")
    assert (await metrics(ledger))["is_late"]
    (held,) = await ledger.claim()
    assert not (await metrics(ledger))["is_pending"]
    await ledger.finish(held)
    assert (await metrics(ledger))["cursor_age_seconds"] < 3600, "a look that found nothing is a look"
    await ledger.control.fetch("SELECT supervisor.save_setting('t', 'scm_error_rate_runs', '2')")
    assert (await metrics(ledger))["error_rate"] == 0


async def test_syncs_of_a_cancelled_run_are_cancelled(ledger: Ledger) -> None:
    """Where no handler was there to do it."""
    await ledger.repo()
    await ledger.control.fetch("SELECT * FROM scm.request_sync('me', 'r', 'svn', NULL, NULL, 77)")
    job = "INSERT INTO supervisor.job_definition (name, domain) VALUES ('j', 'scm') RETURNING id"
    made = await ledger.admin.fetchval(job)
    await ledger.admin.execute(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts) "
        "VALUES (77, 77, $1, 'scm', '{}', 3)", made
    )  # fmt: skip
    assert await ledger.duty("cancel_for_ended_runs") == 0
    async with ledger.admin.transaction():
        await ledger.admin.execute("SET LOCAL session_replication_role = replica")
        await ledger.admin.execute(
            "UPDATE supervisor.job_run SET state = 'CANCELED', finished_at = now(), finished_by = 'leader'"
        )
    assert await ledger.duty("cancel_for_ended_runs") == 1
    assert await open_runs(ledger) == []
