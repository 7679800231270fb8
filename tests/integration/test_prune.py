"""What is over goes, whole and in bounded steps; what is live, owed or still referred to stays."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from supervisor.artifacts import AccessDenied
from supervisor.artifacts.local import LocalArtifacts
from supervisor.embedded import Urls
from supervisor.errors import LostTenure, OutcomeUnknown
from supervisor.maker import Maker
from supervisor.metrics import Metrics
from supervisor.retention import ROOTS, Retention
from supervisor.store import Record, Store
from tests.integration.sql.world import STOP_BOUND, Hand, Held, World
from tests.support.slowness import patient

DAY = 86400
HISTORY = (
    "INSERT INTO supervisor.job_run_history "
    "(run_id, root_id, version, to_state, continuation_state, attempt, actor, at)"
)
STAMPS = ("created_at", "started_at", "finished_at", "executor_stopped_at")


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[World]:
    made = World(database)
    try:
        await made.open()
        await made.lead()
        await made.job(max_attempts=3)
        yield made
    finally:
        await made.close()


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    made = Store(database.control)
    yield made
    await made.close()


def retention(world: World, store: Store, root: Path | None = None) -> Retention:
    async def call(query: str, *arguments: Any) -> Sequence[Record]:
        return await store.rows(query, world.epoch, *arguments)

    return Retention(store, call, LocalArtifacts(root) if root else None, Metrics())


async def prune(world: World, limit: int = 1000, hand: Hand | None = None) -> dict[str, int]:
    rows = await (hand or world.control).sql(
        "SELECT * FROM supervisor.prune_step($1, $2)", world.epoch, limit
    )
    return {row["what"]: row["removed"] for row in rows if row["removed"]}


async def age(world: World, run: int, days: float = 31) -> None:
    for stamp in STAMPS:
        await world.shift_run(run, stamp, days * DAY)


async def ended(world: World, days: float = 31, state: str = "SUCCEEDED", **options: Any) -> Held:
    run = await world.run(**options)
    claim = await world.running(run=run)
    await world.worker.finish("w1", claim, state=state)
    await age(world, run, days)
    return claim


async def remains(world: World, run: int) -> dict[str, int]:
    """Rows of each table that know this run."""
    tables = {"job_run": "id", "job_run_history": "run_id", "job_run_log": "run_id", "late_finish": "run_id"}
    return {
        table: await world.admin.value(f"SELECT count(*) FROM supervisor.{table} WHERE {column} = $1", run)
        for table, column in tables.items()
    }


GONE = {"job_run": 0, "job_run_history": 0, "job_run_log": 0, "late_finish": 0}


async def test_a_root_goes_with_all_that_belongs_to_it(world: World) -> None:
    """Retention: runs, history, logs and late finishes, after run_retention_days and not before"""
    old = await ended(world, days=30.01)
    young = await ended(world, days=29.99)
    for claim in (old, young):
        await world.worker.sql(
            "SELECT supervisor.append_log('w1', $1, $2, '{0}', '{stdout}', '{hello}')",
            claim.id,
            claim.claim_id,
        )
        assert await world.worker.finish("w1", claim, state="FAILED") == ["SUPERSEDED"]
    whole = {"job_run": 1, "job_run_history": 4, "job_run_log": 1, "late_finish": 1}
    assert await remains(world, old.id) == whole
    assert await prune(world) == {"roots": 1, "runs": 1}
    assert await remains(world, old.id) == GONE
    assert await remains(world, young.id) == whole
    assert await prune(world) == {}


async def test_the_setting_decides(world: World) -> None:
    run = (await ended(world, days=3)).id
    assert await prune(world) == {}
    await world.control.sql("SELECT supervisor.save_setting('anna', 'run_retention_days', '2')")
    assert await prune(world) == {"roots": 1, "runs": 1}
    assert await remains(world, run) == GONE
    for name, value in (
        ("run_retention_days", "0"),
        ("audit_retention_days", "0.5"),
        ("run_retention_days", '"x"'),
    ):
        with pytest.raises(asyncpg.CheckViolationError):
            await world.control.sql("SELECT supervisor.save_setting('anna', $1, $2)", name, value)


async def chain(world: World, *states: str) -> list[int]:
    """The attempts of one root, each ended as said; the last may be owed or live."""
    run = await world.run()
    runs = [run]
    for n, state in enumerate(states):
        claim = await world.running(run=run)
        await world.worker.finish("w1", claim, state=state, error="E" if state == "FAILED" else None)
        if n < len(states) - 1:
            (run,) = await world.control.next_attempts()
            runs.append(run)
    return runs


async def test_a_root_goes_as_a_whole_or_not_at_all(world: World) -> None:
    """Every attempt, when the newest is old enough"""
    runs = await chain(world, "FAILED", "FAILED", "SUCCEEDED")
    for run in runs[:2]:
        await age(world, run, 99)
    assert await prune(world) == {}
    await age(world, runs[2], 31)
    assert await prune(world, limit=1) == {"roots": 1, "runs": 3}
    for run in runs:
        assert await remains(world, run) == GONE


async def test_what_is_live_or_owed_stays(world: World) -> None:
    """Every live state, an owed retry, a requested one, and an executor that may still be at it"""
    live = await chain(world, "FAILED", "FAILED")
    (newest,) = await world.control.next_attempts()
    owed = await chain(world, "FAILED")
    pending = await world.run()
    assigned = (await world.assigned()).id
    running = (await world.running()).id
    confirming = (await world.confirming("w2")).id
    orphaned = await world.assigned()
    await world.worker.release("w1", orphaned)
    asked = (await ended(world, state="CANCELED")).id
    assert await world.control.request_retry(asked)
    runs = [*owed, *live, newest, pending, assigned, running, confirming, orphaned.id, asked]
    for run in runs:
        for stamp in (*STAMPS, "assigned_at", "not_before"):
            await world.shift_run(run, stamp, 400 * DAY)
    before = {run: await remains(world, run) for run in runs}
    assert await prune(world) == {}
    assert {run: await remains(world, run) for run in runs} == before
    assert all(left["job_run"] for left in before.values())


async def test_an_attempt_that_may_still_run_keeps_its_root(world: World) -> None:
    """Quiesce: ended by the leader, never acknowledged; it goes when its worker has been silent for a day"""
    claim = await world.lost("w1")
    await world.unguarded(f"UPDATE supervisor.job_run SET retry_at = NULL WHERE id = {claim.id}")
    await age(world, claim.id, 99)
    assert (await world.row(claim.id))["executor_stopped_at"] is None
    await world.silence("w1", 0.9 * DAY)
    assert await prune(world) == {}
    await world.silence("w1", 1.1 * DAY)
    # the worker's row is needed until the run is gone
    assert await prune(world) == {"roots": 1, "runs": 1}
    assert await prune(world) == {"workers": 1}


async def test_an_earlier_attempt_that_may_still_run_keeps_its_root(world: World) -> None:
    claim = await world.lost("w1")
    (second,) = await world.control.next_attempts()
    await world.silence("w1", STOP_BOUND + 1)
    assert await world.control.assign(second, "w2") == []
    await world.worker.beat("w2")
    silent = {"w1": await world.seq("w1")}
    assert await world.control.assign(second, "w2", silent=silent) == [second]
    held = await world.held(second)
    await world.worker.start("w2", held)
    await world.worker.finish("w2", await world.held(second))
    for run in (claim.id, second):
        await age(world, run, 99)
    # w1 came back, and has not said that it stopped
    await world.silence("w1", 5)
    assert await prune(world) == {}
    await world.silence("w1", 2 * DAY)
    assert (await prune(world))["runs"] == 2


async def test_workers_go_when_nothing_names_them(world: World) -> None:
    """A worker row is removed only when no live run and no run without executor_stopped_at names it"""
    for worker in ("idle", "gone", "young", "assigned", "running", "unstopped", "stopped"):
        await world.worker.beat(worker)
    await world.assigned("assigned")
    await world.running("running")
    await world.lost("unstopped")
    await world.worker.finish("stopped", await world.running("stopped"))
    await world.worker.leave("gone")
    for worker in ("idle", "gone", "assigned", "running", "unstopped", "stopped"):
        await world.silence(worker, 1.01 * DAY)
    assert (await prune(world))["workers"] == 3
    left = {row["worker_id"] for row in await world.admin.sql("SELECT worker_id FROM supervisor.worker")}
    assert left >= {"young", "assigned", "running", "unstopped"}
    assert not left & {"idle", "gone", "stopped"}
    # a worker that comes back is met as a new one
    await world.worker.beat("idle")
    assert await prune(world) == {}


async def test_an_assignment_and_the_removal_of_its_worker(world: World) -> None:
    """Whoever is first: the assignment keeps the worker, or the worker is gone and nothing is assigned"""
    await world.worker.beat("w1")
    run = await world.run()
    await world.silence("w1", 2 * DAY)
    leader, pruner = await world.hand("control"), await world.hand("control")
    await leader.begin()
    assert await leader.assign(run, "w1") == [run]
    # it waits for nobody
    assert await asyncio.wait_for(prune(world, hand=pruner), patient(5)) == {}
    await leader.commit()
    assert await prune(world) == {}

    await world.worker.beat("w2")
    await world.silence("w2", 2 * DAY)
    second = await world.run()
    await pruner.begin()
    assert await prune(world, hand=pruner) == {"workers": 1}
    assigning = await world.waiting(leader, leader.assign(second, "w2"))
    await pruner.commit()
    assert await assigning == []
    assert await world.state(second) == "PENDING"


async def test_records_of_their_own(world: World) -> None:
    """Processed events, skipped fires and the audit, each after its own time; unprocessed events stay"""
    admin = world.admin
    for days, processed in ((29, True), (31, True), (99, False)):
        await admin.sql(
            "INSERT INTO supervisor.event (type, dedupe_key, created_at, processed_at) "
            "VALUES ('e', $1::text, clock_timestamp() - $2 * interval '1 day', "
            "CASE WHEN $3 THEN clock_timestamp() - $2 * interval '1 day' END)",
            str(days), days, processed,
        )  # fmt: skip
    for days in (89, 91):
        await admin.sql(
            "INSERT INTO supervisor.skipped_fire "
            "(at, job_definition_id, reason, first_instant, last_instant, instants) "
            "VALUES (clock_timestamp() - $1 * interval '1 day', 1, 'MISSED', now(), now(), 1)",
            days,
        )  # fmt: skip
    for days in (364, 366):
        await admin.sql(
            "INSERT INTO supervisor.audit (at, actor, action, target) "
            "VALUES (clock_timestamp() - $1 * interval '1 day', 'anna', 'x', 'y')",
            days,
        )  # fmt: skip
    audits = await admin.value("SELECT count(*) FROM supervisor.audit")
    await ended(world, days=1)
    assert await prune(world) == {"events": 1, "skipped": 1, "audit": 1}
    assert await admin.value("SELECT count(*) FROM supervisor.audit") == audits - 1
    assert [row[0] for row in await admin.sql("SELECT dedupe_key FROM supervisor.event ORDER BY id")] == [
        "29",
        "99",
    ]
    # and what comes after it, even in its own transaction, is refused as ever
    for table in ("audit", "job_run_history", "job_run"):
        await admin.begin()
        await admin.sql("SELECT * FROM supervisor.prune()")
        with pytest.raises(asyncpg.PostgresError, match="only added to"):
            await admin.sql(f"DELETE FROM supervisor.{table}")
        await admin.sql("ROLLBACK")


async def test_what_comes_in_for_a_run_that_is_gone_goes_too(world: World) -> None:
    claim = await ended(world)
    await prune(world)
    await world.admin.sql(
        "INSERT INTO supervisor.late_finish (claim_id, run_id, worker_id, state) "
        "VALUES ($1, $2, 'w1', 'FAILED')",
        claim.claim_id, claim.id,
    )  # fmt: skip
    await world.admin.sql(
        "INSERT INTO supervisor.job_run_log (run_id, seq, stream, body) VALUES ($1, 0, 'stdout', 'x')",
        claim.id,
    )
    assert await prune(world) == {}
    for table in ("late_finish", "job_run_log"):
        await world.admin.sql(f"UPDATE supervisor.{table} SET at = at - interval '31 days'")
    assert await prune(world) == {"late_finishes": 1, "log_lines": 1}


async def test_pruning_never_makes_an_instant_fire_again(world: World, store: Store) -> None:
    """The fired-until watermark: the run of an instant is gone, the instant is not due"""
    await world.job("hourly", cron="0 * * * *")

    async def call(query: str, *arguments: Any) -> Sequence[Record]:
        return await store.rows(query, world.epoch, *arguments)

    async def rewind() -> None:
        await world.admin.sql(
            "UPDATE supervisor.job_definition SET next_fire_at = '-infinity' WHERE name = 'hourly'"
        )

    maker = Maker(store, call)
    await world.admin.sql(
        "UPDATE supervisor.job_definition SET fired_until = fired_until - interval '3 hours' "
        "WHERE name = 'hourly'"
    )
    assert await maker.schedules() == 1
    (row,) = await world.admin.sql(
        "SELECT id, scheduled_for FROM supervisor.job_run WHERE scheduled_for IS NOT NULL"
    )
    claim = await world.running(run=row["id"])
    await world.worker.finish("w1", claim)
    await age(world, row["id"])
    assert (await prune(world))["runs"] == 1
    await rewind()
    assert await maker.schedules() == 0
    assert (
        await world.admin.value("SELECT count(*) FROM supervisor.job_run WHERE scheduled_for IS NOT NULL")
        == 0
    )
    # and a leader that repeats the call it was not answered is refused by the watermark as well
    watermark = await world.admin.value(
        "SELECT fired_until FROM supervisor.job_definition WHERE name = 'hourly'"
    )
    job = await world.admin.value("SELECT id FROM supervisor.job_definition WHERE name = 'hourly'")
    repeated = await world.control.sql(
        "SELECT * FROM supervisor.fire($1, $2, '{0 * * * *}', '{UTC}', $3, $4, $4, '{NULL}', $2, $5, "
        "'{}', '{}', '{}', '{}')",
        world.epoch, [job], [watermark - timedelta(hours=3)], [watermark], [row["scheduled_for"]],
    )  # fmt: skip
    assert repeated == []


async def test_a_key_is_free_again_when_its_run_is_gone(world: World) -> None:
    """An idempotency key protects for as long as its run is kept"""
    claim = await ended(world, key="order-7")
    assert (await world.control.enqueue(key="order-7"))["id"] == claim.id
    await prune(world)
    again = await world.control.enqueue(key="order-7")
    assert (again["created"], again["id"] != claim.id) == (True, True)


@pytest.mark.parametrize("what", ["finish", "next_attempts", "request_retry", "archive"])
async def test_pruning_waits_for_nobody(world: World, what: str) -> None:
    """A root that somebody is at is passed by, and its story goes on"""
    claim = await ended(world, state="FAILED" if what == "next_attempts" else "CANCELED")
    other = await ended(world)
    hand = await world.hand("worker" if what == "finish" else "control")
    await hand.begin()
    if what == "finish":
        assert await hand.finish("w1", claim, state="SUCCEEDED") == ["SUPERSEDED"]
    elif what == "next_attempts":
        assert len(await hand.next_attempts()) == 1
    elif what == "request_retry":
        assert await hand.request_retry(claim.id)
    else:
        await hand.sql("SELECT supervisor.archive_log($1, $2, 'x', 1, 1)", world.epoch, claim.id)
    assert await asyncio.wait_for(prune(world), patient(5)) == {"roots": 1, "runs": 1}
    assert await remains(world, other.id) == GONE
    await hand.commit()
    kept = await remains(world, claim.id)
    assert kept["job_run"] == 1
    if what in ("next_attempts", "request_retry"):
        assert await prune(world) == {}
        assert await remains(world, claim.id) == kept
    else:
        assert await prune(world) == {"roots": 1, "runs": 1}


@pytest.mark.parametrize("what", ["finish", "request_retry", "next_attempts"])
async def test_whoever_comes_while_a_root_goes_finds_it_gone(world: World, what: str) -> None:
    claim = await ended(world, state="CANCELED")
    pruner, hand = await world.hand("control"), await world.hand("worker" if what == "finish" else "control")
    await pruner.begin()
    assert await prune(world, hand=pruner) == {"roots": 1, "runs": 1}
    if what == "finish":
        late = await world.waiting(hand, hand.finish("w1", claim))
        await pruner.commit()
        assert await late == ["SUPERSEDED"]
        return
    if what == "next_attempts":
        await world.admin.sql(
            "INSERT INTO supervisor.retry_request (run_id, actor) VALUES ($1, 'anna')", claim.id
        )
        made = await world.waiting(hand, hand.next_attempts())
        await pruner.commit()
        assert await made == []
    else:
        asked = await world.waiting(hand, hand.request_retry(claim.id))
        await pruner.commit()
        with pytest.raises(asyncpg.PostgresError) as caught:
            await asked
        assert caught.value.sqlstate == "TN020"
    assert await remains(world, claim.id) == GONE
    assert await world.admin.value("SELECT count(*) FROM supervisor.retry_request") == 0


async def test_a_request_between_the_look_and_the_lock(world: World) -> None:
    """The second look, with the locks held, is what keeps a root whose retry was asked for meanwhile"""
    claim = await ended(world, state="CANCELED")
    pruner = await world.hand("control")
    # a gate between the two looks
    await world.admin.sql("CREATE TABLE public.gate (n integer)")
    await world.admin.sql("GRANT ALL ON public.gate TO tenure_owner")
    await world.admin.sql("INSERT INTO public.gate VALUES (1)")
    await world.without_guard(
        "prune_runs", "SELECT array_agg(o.id) INTO locked",
        "PERFORM FROM public.gate FOR UPDATE; SELECT array_agg(o.id) INTO locked",
    )  # fmt: skip
    holder = await world.hand("admin")
    await holder.begin()
    await holder.sql("SELECT FROM public.gate FOR UPDATE")
    pruning = await world.waiting(pruner, prune(world, hand=pruner))
    await world.admin.sql(
        "INSERT INTO supervisor.retry_request (run_id, actor) VALUES ($1, 'anna')", claim.id
    )
    await holder.commit()
    assert await pruning == {}
    assert (await remains(world, claim.id))["job_run"] == 1


async def many(world: World, count: int, days: float = 31) -> None:
    """Roots of three attempts each, ended long ago, with history, logs and references."""
    await world.unguarded(
        f"""
        INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, state, attempt,
            max_attempts, finished_at, finished_by, started_at, executor_stopped_at, retry_at,
            next_attempt_id, log_ref, assigned_worker_id)
        SELECT 1000000 + n * 3 + a, 1000000 + n * 3, 1, 'command', '{{}}',
            CASE a WHEN 2 THEN 'SUCCEEDED' ELSE 'FAILED' END, a + 1, 3, t, 'worker', t, t,
            CASE WHEN a < 2 THEN t END, CASE WHEN a < 2 THEN 1000000 + n * 3 + a + 1 END,
            CASE a WHEN 0 THEN 'local://x@y/' || n END, 'w1'
        FROM generate_series(1, {count}) n, generate_series(0, 2) a,
            LATERAL (SELECT clock_timestamp() - interval '{days} days' - n * interval '1 second' AS t) t
        """
    )
    await world.unguarded(
        f"{HISTORY} SELECT id, root_id, v, state, 'NONE', attempt, 'x', finished_at "
        "FROM supervisor.job_run, generate_series(1, 4) v WHERE id > 1000000"
    )
    await world.admin.sql(
        "INSERT INTO supervisor.job_run_log (run_id, seq, stream, body) "
        "SELECT id, s, 'stdout', 'line' FROM supervisor.job_run, generate_series(0, 1) s WHERE id > 1000000"
    )
    await world.admin.sql("ANALYZE supervisor.job_run, supervisor.job_run_log, supervisor.job_run_history")


async def test_ten_thousand_roots_in_batches(world: World, store: Store, tmp_path: Path) -> None:
    """In bounded steps, each well within a statement's time, while runs go on"""
    await many(world, 10_000)
    duty = retention(world, store, tmp_path / "artifacts")
    kept = (await ended(world, days=1)).id
    slowest = turns = 0
    more = True
    while more:
        before = asyncio.get_running_loop().time()
        more = await duty.prune()
        slowest = max(slowest, int(1000 * (asyncio.get_running_loop().time() - before)))
        turns += 1
        await world.worker.finish("w1", await world.running())
    print(f"{turns} turns, the slowest {slowest} ms")  # noqa: T201  a figure to look at
    assert turns == 10_000 // ROOTS + 1
    assert slowest < 4000
    for table in ("job_run", "job_run_history", "job_run_log"):
        column = "id" if table == "job_run" else "run_id"
        assert (
            await world.admin.value(f"SELECT count(*) FROM supervisor.{table} WHERE {column} > 1000000") == 0
        )
    assert (await remains(world, kept))["job_run"] == 1
    # the archives of their logs are listed for deletion, once each
    assert await world.admin.value("SELECT count(DISTINCT uri) FROM supervisor.discarded_artifact") == 10_000
    assert await world.admin.value("SELECT count(*) FROM supervisor.discarded_artifact") == 10_000


async def test_two_prunes_at_once_share_the_work(world: World) -> None:
    await many(world, 300)
    hands = [await world.hand("control") for _ in range(3)]

    async def all_of_it(hand: Hand) -> int:
        total = 0
        while removed := (await prune(world, 20, hand)).get("roots", 0):
            total += removed
        return total

    counts = await asyncio.gather(*(all_of_it(hand) for hand in hands))
    assert sum(counts) == 300
    assert await world.admin.value("SELECT count(*) FROM supervisor.discarded_artifact") == 300


async def test_archives_are_deleted_after_the_rows(world: World, store: Store, tmp_path: Path) -> None:
    """A crash between the two loses nothing: the list stands, and nothing on it is referred to"""
    root = tmp_path / "artifacts"
    artifacts = LocalArtifacts(root)
    duty = retention(world, store, root)
    claims = [await ended(world) for _ in range(3)]
    for claim in claims:
        await world.worker.sql(
            "SELECT supervisor.append_log('w1', $1, $2, '{0}', '{stdout}', '{hello}')",
            claim.id,
            claim.claim_id,
        )
    await world.admin.sql("UPDATE supervisor.job_run_log SET at = at - interval '31 days'")
    await world.control.sql("SELECT supervisor.save_setting('anna', 'run_retention_days', '40')")
    await duty.run_once()
    refs = [(await world.row(claim.id))["log_ref"] for claim in claims]
    assert all(refs)
    assert not await duty.discard()
    assert len([entry async for entry in artifacts.entries()]) == 3

    await world.control.sql("SELECT supervisor.save_setting('anna', 'run_retention_days', '30')")
    assert await prune(world) == {"roots": 3, "runs": 3}
    # the process ended here; another store's addresses stand first in the list
    await world.admin.sql(
        "INSERT INTO supervisor.discarded_artifact (uri) VALUES ('local://other@host/logs/x')"
    )
    await world.admin.sql(
        "INSERT INTO supervisor.discarded_artifact (uri) VALUES ($1 || 'host/%2e%2e/%2e%2e/etc/passwd')",
        await artifacts.place(),
    )
    assert len([entry async for entry in artifacts.entries()]) == 3
    forgetful = retention(world, store, root)
    forgetful._call = refuse
    with pytest.raises(OutcomeUnknown):
        await forgetful.discard()
    assert [entry async for entry in artifacts.entries()] == []
    await duty.discard()
    left = await world.admin.sql("SELECT uri FROM supervisor.discarded_artifact")
    assert [row["uri"] for row in left] == ["local://other@host/logs/x"]


async def refuse(query: str, *_arguments: Any) -> Sequence[Record]:
    raise OutcomeUnknown(name=query, what="cut off")


async def test_an_archive_that_cannot_be_deleted_stays_listed(
    world: World, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifacts = LocalArtifacts(tmp_path)
    for key in ("logs/a", "logs/b"):
        uri = (await artifacts.put(key, b"x")).uri
        await world.admin.sql("INSERT INTO supervisor.discarded_artifact (uri) VALUES ($1)", uri)
    real = LocalArtifacts.delete

    async def delete(self: LocalArtifacts, key: str, **options: Any) -> bool:
        if key == "logs/a":
            raise AccessDenied(path=key, what="no")
        return await real(self, key, **options)

    monkeypatch.setattr(LocalArtifacts, "delete", delete)
    with pytest.raises(AccessDenied):
        await retention(world, store, tmp_path).discard()
    (left,) = await world.admin.sql("SELECT uri FROM supervisor.discarded_artifact")
    assert left["uri"].endswith("/logs/a")
    assert [entry.key async for entry in artifacts.entries()] == ["logs/a"]


async def test_empty_months_are_dropped(world: World) -> None:
    """Whole old partitions, when they are empty and nobody is at the table; the others stay"""
    admin = world.admin
    for month, first, last in (
        ("202001", "2020-01-01", "2020-02-01"),
        ("202002", "2020-02-01", "2020-03-01"),
    ):
        await admin.sql(
            f"CREATE TABLE supervisor.job_run_history_{month} PARTITION OF supervisor.job_run_history "
            f"FOR VALUES FROM ('{first} 00:00+00') TO ('{last} 00:00+00')"
        )
        await admin.sql(f"ALTER TABLE supervisor.job_run_history_{month} OWNER TO tenure_owner")
    await world.unguarded(f"{HISTORY} VALUES (1, 1, 1, 'PENDING', 'NONE', 1, 'x', '2020-02-07')")

    async def months() -> set[str]:
        rows = await admin.sql("SELECT inhrelid::regclass::text FROM pg_inherits "
                               "WHERE inhparent = 'supervisor.job_run_history'::regclass")  # fmt: skip
        return {row[0].removeprefix("supervisor.job_run_history_") for row in rows}

    async def drop() -> int:
        return int(await world.control.value("SELECT supervisor.drop_partitions($1)", world.epoch))

    before = await months()
    busy = await world.hand("control")
    await busy.begin()
    await busy.enqueue()
    assert await asyncio.wait_for(drop(), patient(2)) == 0
    await busy.commit()
    assert await drop() == 1
    assert await months() == before - {"202001"}
    assert await drop() == 0
    await world.unguarded("DELETE FROM supervisor.job_run_history WHERE at < '2021-01-01'")
    assert await drop() == 1
    assert await months() == before - {"202001", "202002"}


async def test_a_deposed_leader_prunes_nothing(world: World, store: Store, tmp_path: Path) -> None:
    """P4: every step is fenced, and the loss ends the duty"""
    run = (await ended(world)).id
    epoch = world.epoch
    await world.lead("l2")

    async def stale(query: str, *arguments: Any) -> Sequence[Record]:
        return await store.rows(query, epoch, *arguments)

    duty = Retention(store, stale, LocalArtifacts(tmp_path), Metrics())
    with pytest.raises(LostTenure):
        await duty.run_once()
    for statement in (
        "SELECT * FROM supervisor.prune_step($1, 10)",
        "SELECT supervisor.drop_partitions($1)",
        "SELECT supervisor.forget_discarded($1, '{1}')",
        "SELECT supervisor.archive_log($1, 1, 'x', 1, 1)",
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await world.control.sql(statement, epoch)
        assert caught.value.sqlstate == "TN001"
    assert (await remains(world, run))["job_run"] == 1


async def test_one_duty_that_fails_leaves_the_others(world: World, store: Store, tmp_path: Path) -> None:
    run = (await ended(world)).id
    await world.worker.sql("SELECT supervisor.append_log('w1', $1, $2, '{0}', '{stdout}', '{x}')", run,
                           (await world.held(run)).claim_id)  # fmt: skip
    await world.admin.sql("UPDATE supervisor.job_run_log SET at = at - interval '31 days'")
    await world.control.sql("SELECT supervisor.save_setting('anna', 'run_retention_days', '31.5')")
    (tmp_path / "file").write_bytes(b"")
    duty = retention(world, store, tmp_path / "file")
    await duty.run_once()
    assert (await remains(world, run))["job_run_log"] == 1
    errors = duty._metrics.duty_errors.labels("archive")._value.get()
    assert errors == 1
    await world.control.sql("SELECT supervisor.save_setting('anna', 'run_retention_days', '30')")
    await duty.run_once()
    assert await remains(world, run) == GONE


async def test_a_step_that_takes_too_long_is_tried_smaller(world: World, store: Store) -> None:
    duty = retention(world, store)
    asked: list[int] = []
    real = duty._call

    async def slow(query: str, *arguments: Any) -> Sequence[Record]:
        asked.append(arguments[0])
        if arguments[0] > 100:
            raise OutcomeUnknown(name=query, what="no answer")
        return await real(query, *arguments)

    duty._call = slow
    for _ in range(3):
        with pytest.raises(OutcomeUnknown):
            await duty.prune()
    await duty.prune()
    assert asked == [500, 250, 125, 62]


@pytest.mark.parametrize("role", ["control", "worker", "maintenance", "console", "client"])
async def test_pruning_is_the_owners(world: World, role: str) -> None:
    """No runtime role may call the unfenced functions; the fenced steps are the leader's alone"""
    run = (await ended(world)).id
    hand = await world.hand(role)
    owners = [
        "prune()",
        "prune_runs(now(), 10)",
        "prune_workers(now(), 10)",
        "prune_records(10)",
        "kept_since('x')",
    ]
    leaders = [
        f"prune_step({world.epoch}, 10)",
        f"drop_partitions({world.epoch})",
        f"forget_discarded({world.epoch}, '{{}}')",
    ]
    for call in owners + (leaders if role != "control" else []):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await hand.sql(f"SELECT * FROM supervisor.{call}")
    # and the switch that retention uses opens nothing to who has no right
    await hand.sql("SELECT set_config('tenure.retention', 'on', false)")
    for table in (
        "job_run",
        "job_run_history",
        "audit",
        "late_finish",
        "job_run_log",
        "event",
        "discarded_artifact",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await hand.sql(f"DELETE FROM supervisor.{table}")
    assert (await remains(world, run))["job_run"] == 1


async def test_the_owner_prunes_by_hand(world: World) -> None:
    """`SELECT * FROM supervisor.prune()`, within bounds"""
    run = (await ended(world)).id
    for limit in ("0", "10001", "NULL"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await world.admin.sql(f"SELECT * FROM supervisor.prune({limit})")
        assert caught.value.sqlstate == "TN022"
    await world.admin.sql("SELECT * FROM supervisor.prune()")
    assert await remains(world, run) == GONE


async def test_the_oldest_are_found_by_their_index(world: World) -> None:
    """DESIGN 18: the cost of a step is that of what it removes"""
    await many(world, 20_000, days=1)
    old = (await ended(world)).id
    hand = await world.hand("admin")
    counters = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
        "WHERE relname IN ('job_run', 'job_run_log') OR relname LIKE 'job_run_history%'"
    )
    for one in (hand, world.worker, world.control, world.admin):  # what was read to fill them is counted
        await one.sql("SELECT pg_stat_force_next_flush()")
    before = await world.admin.value(counters)
    await hand.sql("SELECT * FROM supervisor.prune(500)")
    await hand.sql("SELECT pg_stat_force_next_flush()")
    after = await world.admin.value(counters)
    assert await remains(world, old) == GONE
    assert after - before < 60
