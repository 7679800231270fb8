"""What a page costs does not grow with the history: its queries go by index, whatever there is."""

from typing import Any

import asyncpg
import pytest

from schemas import queries
from tests.support.scene import Scene

# as much of it within the hour, and as many retries, as make the planner think of reading everything
HISTORY = """INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, state, version,
        attempt, starts, max_attempts, created_at, not_before, started_at, finished_at, finished_by,
        assigned_worker_id, executor_stopped_at, retry_of_id)
    SELECT n, n, 1, 'command', '{}', 'SUCCEEDED', 4, 1, 1, 3, t, t, t, t, 'worker', 'w1', t,
        CASE WHEN n % 5 = 0 THEN n - 1 END
    FROM generate_series(1, 40000) n
    CROSS JOIN LATERAL (SELECT clock_timestamp() - (40000 - n) * interval '0.4 s' AS t) x"""
STEPS = """INSERT INTO supervisor.job_run_history
    (run_id, root_id, version, to_state, continuation_state, attempt, at, actor)
    SELECT r.id, r.id, 4, r.state, 'NONE', 1, r.finished_at, 'worker' FROM supervisor.job_run r"""
LIVE: list[Any] = [
    ["PENDING", "ASSIGNED", "RUNNING", "ORPHANED"],
    "command",
    None,
    None,
    None,
    50,
    False,
    True,
]
CALLS: dict[str, list[Any]] = {
    "see_outcomes": [20_000],
    "see_named_runs": [7, "a-key", 50],
    "see_newest_runs": [["FAILED"], "command", None, ["w1"], None, 50, 20_000],
    "see_live_runs": LIVE,
    "see_reach": [None, 20_000],
    "see_attempts": [7, 60],
    "see_steps": [[7, 8], 600],
    "see_log_tail": [7, 400, 20_000, 98_304],
    "see_last_runs": [20_000, 16],
    "see_late_finishes": [None, None, 50],
    "see_late_runs": [30.0, 20],
    "see_lost_attempts": [50],
    "see_held_runs": [2000],
    "see_live_counts": [],
    "read_why": [[7, 8], 30.0],
    "list_occupants": [[1], 30.0],
    "list_candidates": [],
    "count_ahead": [[7, 8]],
}


@pytest.fixture
async def grown(scene: Scene) -> asyncpg.Connection:
    await scene.job("job")
    await scene.force(HISTORY)
    await scene.force(STEPS)
    await scene.connection.execute("ANALYZE supervisor.job_run, supervisor.job_run_history")
    # the size at which a whole table is read by several processes has nothing to do with it
    await scene.connection.execute("SET max_parallel_workers_per_gather = 0")
    return scene.connection


@pytest.mark.fresh_database
async def test_no_page_reads_the_history_from_end_to_end(grown: asyncpg.Connection) -> None:
    plans = {}
    for name, arguments in CALLS.items():
        plan = await grown.fetch(f"EXPLAIN {queries()[name].sql}", *arguments)
        plans[name] = "\n".join(row[0] for row in plan)
    whole = [f"{name}:\n{plan}" for name, plan in plans.items() if "Seq Scan on job_run " in plan]
    assert not whole, "\n".join(whole)
    assert "Index Scan using job_run_history" in plans["see_steps"]
