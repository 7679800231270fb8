"""Runs that come by themselves: schedules, events, and the policies that hold them back."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest

from supervisor import maker
from supervisor.errors import LostTenure
from supervisor.maker import Maker
from supervisor.store import Store
from tests.integration.sql.world import CONFIRM_AFTER, World

Make = Callable[..., Maker]


@pytest.fixture
async def make(world: World) -> AsyncIterator[Make]:
    """A maker under the current epoch, or under another."""
    stores: list[Store] = []

    def made(epoch: int | None = None) -> Maker:
        store = Store(world.urls.control, name="test/maker", size=2)
        stores.append(store)
        term = world.epoch if epoch is None else epoch

        async def call(query: str, *args: Any) -> Any:
            return await store.rows(query, term, *args)

        return Maker(store, call)

    yield made
    for store in stores:
        await store.close()


async def schedule(world: World, name: str, cron: str, since: datetime, **spec: Any) -> int:
    """A schedule whose watermark stands at `since`."""
    await world.job(name, cron=cron, payload={"argv": ["true"]}, **spec)
    await world.unguarded(
        f"UPDATE supervisor.job_definition SET fired_until = '{since.isoformat()}' WHERE name = '{name}'"
    )
    return int(await world.admin.value("SELECT id FROM supervisor.job_definition WHERE name = $1", name))


async def fired(world: World, job: int) -> list[datetime]:
    rows = await world.admin.sql(
        "SELECT scheduled_for FROM supervisor.job_run WHERE job_definition_id = $1 ORDER BY scheduled_for",
        job,
    )
    return [row["scheduled_for"] for row in rows]


async def test_a_schedule_fires_each_instant_once_and_says_when_next(world: World, make: Make) -> None:
    """R003-24, R003-25: one row a (definition, instant), under the key time:<definition>:<instant>."""
    now = await world.instant()
    job = await schedule(world, "cron", "* * * * *", now - timedelta(minutes=3), missed="all")
    assert await make().schedules() == 3
    assert await make().schedules() == 0
    instants = await fired(world, job)
    assert len(set(instants)) == 3
    row = await world.admin.sql("SELECT * FROM supervisor.job_run WHERE job_definition_id = $1", job)
    assert {r["idempotency_key"] for r in row} == {f"time:{job}:{i:%Y-%m-%dT%H:%M:%SZ}" for i in instants}
    assert {r["not_before"] for r in row} == set(instants)
    following = await world.admin.value(
        "SELECT next_fire_at FROM supervisor.job_definition WHERE id = $1", job
    )
    assert following == instants[-1] + timedelta(minutes=1)


@pytest.mark.parametrize(("policy", "runs", "skipped"), [("skip", 0, 5), ("latest", 1, 4), ("all", 2, 3)])
async def test_missed_instants_by_policy_and_what_was_skipped_is_recorded(
    world: World, make: Make, policy: str, runs: int, skipped: int
) -> None:
    # hourly at a minute that is long over, so that nothing is on time
    minute = ((await world.instant()) - timedelta(minutes=10)).minute
    since = (await world.instant()) - timedelta(hours=5)
    job = await schedule(world, "cron", f"{minute} * * * *", since, missed=policy, missed_limit=2)
    assert await make().schedules() == runs
    assert len(await fired(world, job)) == runs
    row = await world.admin.sql("SELECT * FROM supervisor.skipped_fire WHERE job_definition_id = $1", job)
    assert [(r["reason"], r["instants"]) for r in row] == [("MISSED", skipped)]


async def test_a_take_over_at_a_hundred_instants_fires_each_once(world: World) -> None:
    """R003-26: at every instant the leadership changes, and both leaders have decided to fire it."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    job = await schedule(world, "cron", "* * * * *", begin, missed="all")
    stores = [Store(world.urls.control, name=f"test/{n}", size=1) for n in range(2)]
    refused = 0
    for minute in range(1, 101):
        old = world.epoch
        row = dict((await stores[0].rows("read_schedules", 10))[0])
        at = begin + timedelta(minutes=minute, seconds=0.2)
        decided = [({**row, "at": at}, *maker._decide({**row, "at": at}))]  # type: ignore[arg-type]
        columns = maker._columns(decided)  # type: ignore[arg-type]
        new = await world.lead(f"l{minute}")
        answers = await asyncio.gather(
            stores[0].rows("fire_schedules", old, *columns),
            stores[1].rows("fire_schedules", new, *columns),
            return_exceptions=True,
        )
        refused += sum(isinstance(answer, LostTenure) for answer in answers)
        await world.unguarded("UPDATE supervisor.job_definition SET next_fire_at = '-infinity'")
    for store in stores:
        await store.close()
    assert refused == 100
    assert await fired(world, job) == [begin + timedelta(minutes=n) for n in range(1, 101)]


async def test_two_looks_at_once_fire_once(world: World, make: Make) -> None:
    """R003-26: the watermark is compared in the call: the slower look does nothing."""
    now = await world.instant()
    job = await schedule(world, "cron", "* * * * *", now - timedelta(minutes=4), missed="all")
    made = await asyncio.gather(*(make().schedules() for _ in range(4)))
    assert sorted(made) == [0, 0, 0, 4]
    assert len(await fired(world, job)) == 4


async def test_pruning_never_makes_an_instant_fire_again(world: World, make: Make) -> None:
    now = await world.instant()
    job = await schedule(world, "cron", "* * * * *", now - timedelta(minutes=2), missed="all")
    await make().schedules()
    await world.unguarded("DELETE FROM supervisor.job_run")
    await world.unguarded("UPDATE supervisor.job_definition SET next_fire_at = '-infinity'")
    assert await make().schedules() == 0
    assert await fired(world, job) == []


async def test_a_bad_schedule_is_marked_and_stops_nobody(world: World, make: Make) -> None:
    now = await world.instant()
    good = await schedule(world, "good", "* * * * *", now - timedelta(minutes=1))
    bad = await schedule(world, "bad", "not a cron", now - timedelta(minutes=1))
    assert await make().schedules() == 1
    assert len(await fired(world, good)) == 1
    error = await world.admin.value("SELECT schedule_error FROM supervisor.job_definition WHERE id = $1", bad)
    assert error
    assert await make().schedules() == 0


async def test_a_disabled_schedule_rests_and_does_not_make_up_for_it(world: World, make: Make) -> None:
    now = await world.instant()
    job = await schedule(world, "cron", "* * * * *", now - timedelta(minutes=3), missed="all", enabled=False)
    assert await make().schedules() == 0
    await world.control.sql(
        "SELECT supervisor.save_job('anna', 'cron', $1, false)", json.dumps({"enabled": True})
    )
    assert await make().schedules() == 0
    assert await fired(world, job) == []


async def test_a_thousand_schedules_fire_in_one_call(world: World, make: Make) -> None:
    now = await world.instant()
    await world.admin.sql(
        "INSERT INTO supervisor.job_definition (name, domain, cron, fired_until, missed) "
        "SELECT 'many/' || n, 'command', '* * * * *', $1, 'all' FROM generate_series(1, 1000) n",
        now - timedelta(minutes=1),
    )
    assert await make().schedules() == 1000
    per_job = await world.admin.sql("SELECT count(*) FROM supervisor.job_run GROUP BY job_definition_id")
    assert Counter(row["count"] for row in per_job) == {1: 1000}


async def test_an_event_starts_every_job_that_waits_for_it(world: World, make: Make) -> None:
    for name in ("one", "two"):
        await world.job(name, event_type="order.paid", payload={"argv": ["true"]})
    await world.job("other", event_type="order.lost", payload={"argv": ["true"]})
    await world.control.sql("SELECT * FROM supervisor.emit('order.paid', '{\"order\": 7}')")
    assert await make().events() == 2
    assert await make().events() == 0
    rows = await world.admin.sql(
        "SELECT d.name, r.payload FROM supervisor.job_run r JOIN supervisor.job_definition d "
        "ON d.id = r.job_definition_id ORDER BY d.name"
    )
    assert [row["name"] for row in rows] == ["one", "two"]
    event = json.loads(rows[0]["payload"])["event"]
    assert (event["type"], event["payload"]) == ("order.paid", {"order": 7})


async def test_an_event_posted_twice_is_processed_once(world: World, make: Make) -> None:
    """R003-36, R003-38: the dedupe key, also when both come at once."""
    await world.job("one", event_type="tick", payload={"argv": ["true"]})
    hands = [await world.hand("client") for _ in range(5)]
    answers = await asyncio.gather(
        *(hand.sql("SELECT * FROM supervisor.emit('tick', '{}', 'k1')") for hand in hands)
    )
    assert len({rows[0]["id"] for rows in answers}) == 1
    assert sum(rows[0]["created"] for rows in answers) == 1
    assert await make().events() == 1


async def test_two_leaders_process_an_event_once(world: World, make: Make) -> None:
    await world.job("one", event_type="tick", payload={"argv": ["true"]})
    for n in range(20):
        await world.control.sql("SELECT * FROM supervisor.emit('tick', '{}', $1)", f"k{n}")
    made = await asyncio.gather(*(make().events() for _ in range(3)))
    # what one of them had locked and could not process is left for the next look
    assert sum(made) + await make().events() == 20
    assert await world.admin.value("SELECT count(*) FROM supervisor.job_run") == 20
    old = world.epoch
    await world.lead("l2")
    with pytest.raises(LostTenure):
        await make(old).events()


async def test_an_event_in_an_aborted_transaction_never_was(world: World) -> None:
    hand = await world.hand("client")
    await hand.begin()
    await hand.sql("SELECT * FROM supervisor.emit('tick')")
    await hand.rollback()
    assert await world.admin.value("SELECT count(*) FROM supervisor.event") == 0


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("'a b', '{}'", "type"),
        ("'', '{}'", "type"),
        ("NULL, '{}'", "type"),
        ("'tick', '[1]'", "object"),
        ("'tick', jsonb_build_object('a', repeat('secret', 20000))", "120009 bytes"),
        ("'tick', '{}', ''", "key"),
        ("'tick', '{}', repeat('k', 201)", "key"),
    ],
)
async def test_bad_events_are_refused_in_our_words(world: World, bad: str, words: str) -> None:
    """The refusal of a constraint would show the whole row."""
    client = await world.hand("client")
    with pytest.raises(asyncpg.PostgresError, match=words) as refused:
        await client.sql(f"SELECT * FROM supervisor.emit({bad})")
    assert (refused.value.sqlstate, refused.value.detail) == ("TN022", None)
    assert await world.admin.value("SELECT count(*) FROM supervisor.event") == 0


async def test_forbid_makes_none_while_one_is_live_or_may_still_run(world: World) -> None:
    """R003-47: live, owed, or not certainly stopped."""
    await world.job("alone", concurrency=1, concurrency_policy="forbid", max_attempts=1)
    claim = await world.running("w1", "alone")
    with pytest.raises(asyncpg.PostgresError, match="forbids"):
        await world.run("alone")
    await world.silence("w1", CONFIRM_AFTER + 1)
    assert await world.control.confirm({"w1": await world.seq("w1")})
    await world.shift_run(claim.id, "continuation_check_deadline_at", 60)
    assert await world.control.expire(claim.id, seqs=[None])
    # it has ended for the database, but its executor may not have stopped
    with pytest.raises(asyncpg.PostgresError, match="forbids"):
        await world.run("alone")
    await world.worker.finish("w1", claim)
    assert await world.run("alone")


async def test_forbid_holds_against_two_at_once(world: World) -> None:
    await world.job("alone", concurrency=1, concurrency_policy="forbid")
    first, second = await world.hand("client"), await world.hand("client")
    await first.begin()
    await first.enqueue("alone")
    waiting = await world.waiting(second, second.enqueue("alone"))
    await first.commit()
    with pytest.raises(asyncpg.PostgresError, match="forbids"):
        await waiting


async def test_a_forbidden_instant_is_recorded(world: World, make: Make) -> None:
    now = await world.instant()
    job = await schedule(
        world,
        "alone",
        "* * * * *",
        now - timedelta(minutes=2),
        missed="all",
        concurrency=1,
        concurrency_policy="forbid",
    )
    assert await make().schedules() == 1
    row = await world.admin.sql(
        "SELECT reason FROM supervisor.skipped_fire WHERE job_definition_id = $1", job
    )
    assert [r["reason"] for r in row] == ["FORBID"]


async def test_replace_cancels_the_oldest_and_the_new_one_waits_for_it_to_stop(world: World) -> None:
    await world.job("latest", concurrency=1, concurrency_policy="replace")
    old = await world.running("w1", "latest")
    new = await world.run("latest")
    assert (await world.row(old.id))["cancel_requested_at"] is not None
    assert await world.control.assign(new, "w1") == []
    beat = await world.worker.beat("w1", old)
    assert beat["cancels"] == [old.claim_id]
    await world.worker.finish("w1", old, state="CANCELED")
    assert await world.control.assign(new, "w1") == [new]


async def test_a_paused_domain_gets_nothing(world: World) -> None:
    run = await world.run()
    await world.worker.beat("w1")
    assert await world.control.value("SELECT supervisor.pause_domain('anna', 'command', true)")
    assert await world.control.read_due() == []
    assert await world.control.assign(run, "w1") == []
    assert await world.control.value("SELECT supervisor.pause_domain('anna', 'command', false)")
    assert await world.control.read_due() == [run]
    actions = await world.admin.sql("SELECT action, target FROM supervisor.audit WHERE action LIKE 'domain%'")
    assert [(row["action"], row["target"]) for row in actions] == [
        ("domain.pause", "domain:command"),
        ("domain.resume", "domain:command"),
    ]


async def test_a_look_that_was_overtaken_fires_and_records_nothing(world: World) -> None:
    """The watermark the instants were computed from is compared, whatever became of the runs since."""
    now = await world.instant()
    minute = (now - timedelta(minutes=10)).minute
    job = await schedule(world, "cron", f"{minute} * * * *", now - timedelta(hours=5), missed="latest")
    store = Store(world.urls.control, name="test/maker", size=1)
    try:
        row = (await store.rows("read_schedules", 10))[0]
        columns = maker._columns([(row, *maker._decide(row))])
        assert len(await store.rows("fire_schedules", world.epoch, *columns)) == 1
        await world.unguarded("DELETE FROM supervisor.job_run")
        assert await store.rows("fire_schedules", world.epoch, *columns) == []
    finally:
        await store.close()
    assert await fired(world, job) == []
    assert await world.admin.value("SELECT count(*) FROM supervisor.skipped_fire") == 1
