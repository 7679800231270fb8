"""Listings stay flat while history grows: over 100,000 runs no page reads or sorts a table as a whole."""

import json
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest

from schemas import queries
from supervisor.api.v1.paging import BIGINT, LATEST, SCAN_ROWS
from tests.integration.api.conftest import Api, api_of

RUNS = 100_000
NOW = datetime.now(UTC)
FILL = f"""
INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, state, version,
    starts, assigned_worker_id, claim_id, assigned_epoch, leader_epoch, assigned_at, started_at,
    start_beat_no, finished_at, finished_by, executor_stopped_at, created_at, not_before)
SELECT n, n, d.id, 'command', '{{}}', 3, CASE WHEN n % 50000 = 7 THEN 'FAILED' ELSE 'SUCCEEDED' END, 4,
    1, 'w' || n % 3, gen_random_uuid(), 1, 1, t, t, 1, t, 'worker', t, t, t
FROM supervisor.job_definition d, generate_series(1, {RUNS}) n,
    LATERAL (SELECT now() - make_interval(secs => ({RUNS} - n) * 20) AS t) AS past WHERE d.name = 'job';
INSERT INTO supervisor.job_run_history (run_id, root_id, version, from_state, to_state, continuation_state,
    attempt, at, actor)
SELECT n, n, 4, 'RUNNING', 'SUCCEEDED', 'NONE', 1, now() - make_interval(secs => (40000 - n) * 20), 'w'
FROM generate_series(1, 40000) n;
INSERT INTO supervisor.event (type) SELECT 'tick' FROM generate_series(1, 25000);
INSERT INTO supervisor.audit (actor, action, target) SELECT 'a', 'b', 'c' FROM generate_series(1, 25000);
INSERT INTO supervisor.late_finish (claim_id, at, run_id, worker_id, state)
SELECT gen_random_uuid(), now() - make_interval(secs => n), n, 'w', 'FAILED' FROM generate_series(1, 5000) n;
INSERT INTO supervisor.tenure_log (epoch, holder, what)
SELECT n, 'w', 'ACQUIRED' FROM generate_series(2, 5000) n;
"""
LARGE = {"job_run", "job_run_history", "event", "audit", "late_finish", "tenure_log"}
RUN_ARGS: tuple[Any, ...] = (BIGINT, 0, SCAN_ROWS, 51)
STATEMENTS: dict[str, tuple[Any, ...]] = {
    "find_recent_runs": (*RUN_ARGS, ["FAILED"], None, None, None, None, None),
    "find_live_runs": (*RUN_ARGS, ["PENDING", "RUNNING"], None, None, None, None, None),
    "find_root_runs": (*RUN_ARGS, None, None, None, None, None, None, 77),
    "find_walk_end": (BIGINT, 0, SCAN_ROWS),
    "find_runs_bounds": (NOW, NOW),
    "read_runs_listed": (list(range(50, 100)),),
    "list_attempts": (77,),
    "list_jobs_page": ("", 51, None, None),
    "list_tenures_page": (BIGINT, 51),
    "list_events_page": (BIGINT, 51, SCAN_ROWS, "rare"),
    "find_events_end": (BIGINT, SCAN_ROWS),
    "list_audit_page": (BIGINT, 51, SCAN_ROWS, "rare", None, None),
    "find_audit_end": (BIGINT, SCAN_ROWS),
    "list_late_finishes": (LATEST, UUID(int=0), "", 51),
    "list_orphanings": (LATEST, BIGINT, 0, 51, SCAN_ROWS),
    "find_history_end": (LATEST, BIGINT, 0, SCAN_ROWS),
    "read_moves": (NOW, 1000),
}


@pytest.fixture(scope="module")
async def full(server: Any, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    from tests.support.databases import fresh_database

    async with fresh_database(server) as urls, api_of(urls, tmp_path_factory.mktemp("api")) as api:
        await api.scene.lead()
        await api.scene.beat()
        await api.scene.job()
        await api.scene.force(FILL)
        await api.scene.value("SELECT setval('supervisor.job_run_id', $1)", RUNS)
        await api.scene.connection.execute("ANALYZE")
        yield api


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_no_page_reads_or_sorts_a_whole_table(full: Api, mode: str) -> None:
    """Prepared, as the driver sends it, with either kind of plan that the server may take."""
    connection: asyncpg.Connection = full.scene.connection
    await connection.execute(f"SET plan_cache_mode = {mode}")
    for name, arguments in STATEMENTS.items():
        await connection.execute(f"PREPARE {mode}_{name} AS {queries()[name].sql}")
        given = ", ".join(map(literal, arguments))
        text = await connection.fetchval(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE {mode}_{name} ({given})")
        for node in nodes(json.loads(text)[0]["Plan"]):
            check(name, node)
    await connection.execute("RESET plan_cache_mode")


def literal(value: Any) -> str:
    if value is None or isinstance(value, int):
        return "NULL" if value is None else str(value)
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(literal, value))}]"
    return f"'{value}'"


def check(name: str, node: dict[str, Any]) -> None:
    rows = node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
    kind, table = node["Node Type"], str(node.get("Relation Name", ""))
    is_large = table in LARGE or table.startswith("job_run_history")
    assert not (kind == "Seq Scan" and is_large and rows > 100), (name, node)
    assert not (kind == "Sort" and rows > 1000), (name, node)
    assert rows <= SCAN_ROWS + 1000, (name, node)


async def test_a_rare_run_is_found_page_by_page_and_its_pages_end(full: Api) -> None:
    first = await full.get("/runs", state="FAILED", limit=5)
    assert (first["items"], first["next"] is not None) == ([], True), "it looked as far as a page may"
    assert [run["id"] for run in await full.all_of("/runs", state="FAILED", limit=5)] == [50007, 7]
    assert await full.all_of("/runs", worker="nobody") == []


async def test_a_time_is_found_without_the_walk_to_it(full: Api) -> None:
    when = await full.scene.value("SELECT created_at FROM supervisor.job_run WHERE id = 50007")
    page = await full.get("/runs", state="FAILED", until="2090-01-01T00:00:00Z", since=when.isoformat())
    assert page["items"] == [], "too far from the end for one page"
    later = await full.scene.value("SELECT created_at FROM supervisor.job_run WHERE id = 50100")
    page = await full.get("/runs", state="FAILED", since=when.isoformat(), until=later.isoformat())
    assert ([run["id"] for run in page["items"]], page["next"]) == ([50007], None)


async def test_one_live_run_under_a_long_history_is_found_at_once(full: Api) -> None:
    await full.scene.force(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts) "
        "SELECT 0, 0, id, 'command', '{}', 3 FROM supervisor.job_definition WHERE name = 'job'"
    )
    page = await full.get("/runs", state="PENDING")
    assert ([run["id"] for run in page["items"]], page["next"]) == ([0], None)
