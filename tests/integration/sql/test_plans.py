"""Calls stay flat while history grows, whatever the statistics say: rule 18.

The proof is the server's own count, not a plan: after each call over 20,000 ended runs nothing has read the
table as a whole, and only a few index entries were read.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.integration.sql.world import STOP_BOUND, Hand, Held, World
from tests.support.sessions import connected

pytestmark = pytest.mark.fresh_database  # plans depend on how rows are stored

ENDED, ENTRIES = 20_000, 600

INDEXES = {
    "job_run_attempt": "UNIQUE (root_id, attempt)",
    "job_run_one_live": "UNIQUE (root_id) live",
    "job_run_one_success": "UNIQUE (root_id) SUCCEEDED",
    "job_run_key": "UNIQUE (idempotency_key)",
    "job_run_slot": "UNIQUE (job_definition_id, scheduled_for)",
    "job_run_created": "(created_at)",
    "job_run_state_scheduled": "(state, scheduled_for) live",
    "job_run_worker_state": "(assigned_worker_id, state, id) live",
    "job_run_due": "(domain, priority DESC, not_before, id) due",
    "job_run_retry": "(retry_at) owed",
    "event_unprocessed": "(processed_at, created_at)",
    "event_dedupe": "UNIQUE (dedupe_key)",
}


async def test_the_indexes_of_the_design_are_there(world: World) -> None:
    """R003-31, R003-32, R003-33, R003-34, R003-35, R003-36"""
    rows = await world.admin.sql(
        "SELECT c.relname AS name, pg_get_indexdef(i.indexrelid) AS text, i.indisunique AS one, "
        "pg_get_expr(i.indpred, i.indrelid) AS filter FROM pg_index i JOIN pg_class c ON c.oid = "
        "i.indexrelid "
        "WHERE i.indisvalid AND c.relnamespace = 'supervisor'::regnamespace"
    )
    found = {row["name"]: row for row in rows}
    for name, meaning in INDEXES.items():
        columns = meaning[meaning.index("(") : meaning.index(")") + 1]
        assert columns in found[name]["text"], found[name]["text"]
        assert found[name]["one"] is meaning.startswith("UNIQUE")
        kind = meaning.rsplit(")", maxsplit=1)[1].strip()
        words = {"live": "RUNNING", "due": "ORPHANED", "owed": "next_attempt_id IS NULL"}.get(kind, kind)
        assert words in (found[name]["filter"] or ""), found[name]
        if kind in {"live", "due"}:
            assert "FAILED" not in found[name]["filter"]


async def fill(world: World, job: str, first: int) -> None:
    """Ended runs of a job, straight into the table."""
    await world.unguarded(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, "
        "state, version, "
        "starts, assigned_worker_id, claim_id, assigned_epoch, leader_epoch, assigned_at, started_at, "
        "start_beat_no, "
        "finished_at, finished_by, executor_stopped_at, created_at, scheduled_for, idempotency_key, "
        "not_before) "
        "SELECT n, n, d.id, 'command', '{}', 3, (ARRAY['SUCCEEDED', 'FAILED', 'CANCELED'])[1 + n % 3], 4, 1, "
        "'w' || n % 3, "
        "gen_random_uuid(), 1, 1, t, t, 1, t, 'worker', t, t, t, 'old ' || n, t FROM "
        "supervisor.job_definition d, "
        f"generate_series({first}, {first + ENDED // 2 - 1}) n, "
        "LATERAL (SELECT now() - make_interval(secs => n) AS t) AS past "
        f"WHERE d.name = '{job}'"
    )


@pytest.fixture(params=["never analyzed", "analyzed when empty", "analyzed"])
async def full(world: World, request: pytest.FixtureRequest) -> World:
    """A large history, the statistics in one of three states, and a little live work."""
    await world.job("bounded", concurrency=3, concurrency_policy="forbid")
    await world.admin.sql("ALTER TABLE supervisor.job_run SET (autovacuum_enabled = false)")
    if request.param == "analyzed when empty":
        await world.admin.sql("ANALYZE supervisor.job_run")
    await fill(world, "work", 1_000_000)
    await fill(world, "bounded", 2_000_000)
    if request.param == "analyzed":
        await world.admin.sql("ANALYZE supervisor.job_run")
    return world


async def reads(world: World, *hands: Hand) -> tuple[int, int]:
    """How often job_run was read as a whole, and how many entries of its indexes were read."""
    for hand in hands:
        await hand.sql("SELECT pg_stat_force_next_flush()")
    row = await world.admin.one(
        "SELECT (SELECT seq_scan FROM pg_stat_user_tables WHERE relid = 'supervisor.job_run'::regclass) AS "
        "whole, "
        "(SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relid = 'supervisor.job_run'::regclass) "
        "AS entries"
    )
    return row["whole"], int(row["entries"])


@dataclass(frozen=True)
class Scene:
    """A little live work beside the history."""

    world: World
    due: list[int]
    running: list[Held]
    queued: Held

    async def leader(self, name: str, *arguments: Any) -> None:
        slots = ", ".join(f"${n + 2}" for n in range(len(arguments)))
        await self.world.control.sql(
            f"SELECT FROM supervisor.{name}($1, {slots})", self.world.epoch, *arguments
        )

    async def decide(self, name: str, *arguments: Any) -> None:
        """A call of the leader over what is due."""
        await self.leader(name, self.due, [1] * len(self.due), *arguments)

    async def log(self) -> None:
        statement = "SELECT supervisor.append_log('w1', $1, $2, '{0}', '{log}', '{x}')"
        await self.world.worker.sql(statement, self.running[0].id, self.running[0].claim_id)


CALLS: dict[str, Callable[[Scene], Awaitable[Any]]] = {
    "assigned": lambda s: s.world.worker.assigned("w1"),
    "start": lambda s: s.world.worker.start("w1", s.queued),
    "beat": lambda s: s.world.worker.beat("w1", *s.running),
    "confirm_self": lambda s: s.world.worker.confirm_self("w1", *s.running),
    "append_log": lambda s: s.log(),
    "release": lambda s: s.world.worker.release("w1", s.queued),
    "finish": lambda s: s.world.worker.finish("w1", *s.running, state="FAILED", error="X"),
    "read_workers": lambda s: s.world.control.sql("SELECT * FROM supervisor.read_workers()"),
    "read_ended": lambda s: s.world.control.sql("SELECT * FROM supervisor.read_ended(now())"),
    "read_due": lambda s: s.world.control.read_due(silent={"w1": 1}),
    "read_due, behind": lambda s: s.world.control.read_due(after=s.due[0]),
    "read_attention": lambda s: s.world.control.sql("SELECT * FROM supervisor.read_attention(7)"),
    "assign": lambda s: s.decide("assign", ["w1"] * len(s.due), ["w1"], [1], STOP_BOUND),
    "orphan": lambda s: s.decide("orphan", ["w1"], [1], 1.5),
    "confirm": lambda s: s.leader("confirm", ["w1"], [1], 1.5, STOP_BOUND, 0.5),
    "expire": lambda s: s.decide("expire", [None] * len(s.due)),
    "time_out": lambda s: s.decide("time_out", STOP_BOUND),
    "cancel": lambda s: s.leader("cancel", "l1", s.due, [1] * len(s.due), STOP_BOUND),
    "exhaust": lambda s: s.leader("exhaust", "l1", s.due, [1] * len(s.due)),
    "next_attempts": lambda s: s.leader("next_attempts", 100),
    "process_events": lambda s: s.leader("process_events", 100),
    "enqueue": lambda s: s.world.control.enqueue(key="again"),
    "enqueue bounded": lambda s: enqueue_bounded(s.world),
    "leave": lambda s: s.world.worker.leave("w1"),
}


async def enqueue_bounded(world: World) -> None:
    """Counts what is live of the job; ends it again so that the next call counts too."""
    run = int((await world.control.enqueue("bounded"))["id"])
    await world.control.request_cancel(run)
    await world.control.cancel(run)


async def test_no_call_reads_the_history(full: World) -> None:
    """R003-37, rule 18: seven times each, so that cached plans are met too."""
    scene = Scene(
        full,
        running=[await full.running() for _ in range(3)],
        queued=await full.assigned(),
        due=[await full.run() for _ in range(5)] + [await full.run("bounded")],
    )
    expensive = {}
    for name, call in CALLS.items():
        before = await reads(full, full.control, full.worker, full.admin)
        for _ in range(7):
            await call(scene)
        after = await reads(full, full.control, full.worker)
        whole, entries = after[0] - before[0], (after[1] - before[1]) // 7
        if whole or entries > ENTRIES:
            expensive[name] = {"sequential scans": whole, "index entries": entries}
    assert expensive == {}


async def test_what_one_worker_holds_is_not_sought_among_what_all_hold(world: World) -> None:
    """After a quiet hour every index of live runs is empty by the statistics, and one as good as another."""
    await fill(world, "work", 1_000_000)
    await world.admin.sql("VACUUM ANALYZE supervisor.job_run")
    await world.unguarded(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts, "
        "state, assigned_worker_id, claim_id, assigned_epoch, assigned_at) "
        "SELECT n, n, d.id, 'command', '{}', 3, 'ASSIGNED', 'other', gen_random_uuid(), 1, now() "
        "FROM supervisor.job_definition d, generate_series(3000000, 3002000) n WHERE d.name = 'work'"
    )
    scene = Scene(world, [await world.run()], [await world.running("w1")], await world.assigned("w1"))
    expensive = {}
    for name in ("assigned", "start", "beat", "assign", "finish"):
        before = await reads(world, world.control, world.worker, world.admin)
        await CALLS[name](scene)
        after = await reads(world, world.control, world.worker)
        if (entries := after[1] - before[1]) > ENTRIES:
            expensive[name] = entries
    assert expensive == {}


async def test_switched_off_plans_are_not_compiled(world: World) -> None:
    """Before PostgreSQL 18 a switched-off plan costs so much that JIT compiles each call, for seconds."""
    rows = await world.admin.sql(
        "SELECT p.oid::regprocedure::text AS name FROM pg_proc p "
        "WHERE p.pronamespace = 'supervisor'::regnamespace "
        "AND p.proconfig::text LIKE '%enable_%=off%' AND NOT 'jit=off' = ANY (p.proconfig)"
    )
    assert [row["name"] for row in rows] == []


async def test_the_history_of_many_moves_is_not_joined_row_by_row(world: World) -> None:
    """The plan of a connection's first move, of one run, is kept: a nested loop would stay for thousands."""
    run = await world.run()
    async with connected(world.urls.admin) as fresh:
        said: list[str] = []
        fresh.add_log_listener(lambda _connection, message: said.append(str(message)))
        await fresh.execute(
            "LOAD 'auto_explain'; SET auto_explain.log_min_duration = 0; "
            "SET auto_explain.log_nested_statements = on; SET client_min_messages = log; "
            f"UPDATE supervisor.job_run SET cancel_requested_at = now() WHERE id = {run}"
        )
    plans = [text for text in said if "moved_to" in text]
    assert plans
    assert all("Hash Join" in text and "Nested Loop" not in text for text in plans)


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (
            "SELECT id FROM supervisor.job_run WHERE state = 'PENDING' AND scheduled_for <= now()",
            "job_run_state_scheduled",
        ),
        (
            (
                "SELECT id FROM supervisor.job_run WHERE domain = 'command' "
                "AND state IN ('PENDING', 'ORPHANED') "
                "ORDER BY priority DESC, not_before, id LIMIT 10"
            ),
            "job_run_due",
        ),
        (
            (
                "SELECT id FROM supervisor.job_run WHERE assigned_worker_id = 'w1' AND state IN ('ASSIGNED', "
                "'RUNNING')"
            ),
            "job_run_worker_state",
        ),
        ("SELECT id FROM supervisor.job_run ORDER BY created_at DESC LIMIT 20", "job_run_created"),
        (
            "SELECT id FROM supervisor.event WHERE processed_at IS NULL ORDER BY created_at LIMIT 100",
            "event_unprocessed",
        ),
    ],
)
@pytest.mark.parametrize("full", ["never analyzed"], indirect=True)
async def test_the_questions_of_the_seed_find_their_index(full: World, query: str, index: str) -> None:
    """R003-37: due runs, runs of a worker, unprocessed events, recent history."""
    await full.admin.sql(
        "INSERT INTO supervisor.event (type, processed_at) SELECT 'x', now() FROM generate_series(1, 5000)"
    )
    plan = "\n".join(row[0] for row in await full.admin.sql(f"EXPLAIN {query}"))
    assert f" using {index} " in plan or f" on {index} " in plan, plan
