"""What every lease contract keeps, whatever its table looks like."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.election import Tenure
from supervisor.leader import Leader, Sight
from supervisor.lease_grants import grant_faults
from supervisor.lease_sql import grants
from supervisor.metrics import Metrics
from supervisor.status import read_status
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.conformance.bench import DOMAIN, OUTCOMES, Bench, Taken
from tests.support.slowness import patient


def needs(bench: Bench, rows: int) -> None:
    if rows > bench.contract.most:
        pytest.skip(f"{bench.lease.table} permits {bench.contract.most} active rows")


def needs_null(bench: Bench, at: str | None) -> None:
    if at is None and bench.contract.always_bound:
        pytest.skip(f"{bench.lease.table} refuses a running row without a heartbeat")


def samples(columns: Mapping[str, str]) -> dict[str, object]:
    return {name: "1" if kind == "text" else 1 for name, kind in columns.items()}


async def test_no_row_is_claimed_twice(bench: Bench) -> None:
    """R000-18, R004-20: claims that race share the rows out."""
    rows = min(60, bench.contract.most)
    await bench.insert(*range(rows))

    async def take_all(owner: str) -> list[Taken]:
        async with bench.connected("worker") as worker:
            mine: list[Taken] = []
            while some := await bench.claim(owner, 3, worker):
                mine += some
            return mine

    shares = await asyncio.gather(*(take_all(f"w{number}") for number in range(6)))
    times = Counter(row.key for share in shares for row in share)
    assert len(times) == rows
    assert set(times.values()) == {1}


async def test_a_claim_does_not_wait_for_another(bench: Bench) -> None:
    """R004-20: rows that somebody is just claiming are passed over."""
    needs(bench, 2)
    await bench.insert(1, 2)
    async with bench.connected("worker") as first, bench.connected("worker") as second:
        async with first.transaction():
            (one,) = await bench.claim("a", 1, first)
            (other,) = await asyncio.wait_for(bench.claim("b", 5, second), patient(5))
        assert one.key != other.key


async def test_a_claim_binds_the_row(bench: Bench) -> None:
    """R000-17, R004-14: state, owner, heartbeat, expiry and token in one statement."""
    await bench.insert(1)
    taken = await bench.claim_one("a")
    lease, row = bench.lease, await bench.row(taken)
    assert (row[lease.state], row[lease.owner], row[lease.token]) == (lease.running, "a", taken.token)
    if lease.expiry is not None:
        length = row[lease.expiry] - row[lease.heartbeat]
        assert length.total_seconds() == pytest.approx(lease.lease_seconds)
    assert await bench.claim("b", 5) == []


@pytest.mark.parametrize("path", ["claim", "recover"])
@pytest.mark.parametrize(
    ("at", "stale"),
    [
        ("now()", True),
        ("now() + interval '1 microsecond'", False),
        ("now() - interval '1 second'", True),
        (None, True),
    ],
)
async def test_stale_at_exactly_now_and_without_an_expiry(
    bench: Bench, path: str, at: str | None, stale: bool
) -> None:
    """R000-16: equality counts as stale, and so does NULL."""
    needs_null(bench, at)
    await bench.insert(1)
    taken = await bench.claim_one("a")
    async with bench.connected("admin", session_replication_role="replica") as admin, admin.transaction():
        await bench.expire(admin, at=at)
        if path == "recover":
            assert len(await admin.fetch(bench.sql.recover.sql, 10)) == (1 if stale else 0)
        else:
            rows = await admin.fetch(bench.sql.claim.sql, "b", 10, DOMAIN)
            stays = bench.lease.stale.state is None
            assert rows[0]["recovered"] == (1 if stale and not stays else 0)
            assert len(bench.taken(rows)) == (1 if stale and stays else 0)
    late = await bench.row(taken)
    assert (late[bench.lease.token] != taken.token) == stale


@pytest.mark.parametrize("at", ["now()", "now() - interval '1 second'", None])
async def test_a_heartbeat_comes_too_late_when_the_row_is_stale(bench: Bench, at: str | None) -> None:
    """The same equality from the owner's side: stale and extendable exclude each other."""
    needs_null(bench, at)
    await bench.insert(1)
    taken = await bench.claim_one("a")
    async with bench.connected("admin") as admin, admin.transaction():
        await admin.execute("SET LOCAL session_replication_role = replica")
        await bench.expire(admin, at=at)
        arguments = bench.arrays(bench.sql.beat, [taken])
        assert await admin.fetch(bench.sql.beat.sql, "a", *arguments) == []


async def test_the_status_counts_what_is_held_and_what_ran_out(bench: Bench) -> None:
    held = min(2, bench.contract.most)
    await bench.insert(*range(min(3, bench.contract.most)))
    store = Store(bench.urls.control, name="test/status", size=1)
    try:
        table = bench.lease.table

        async def counted() -> dict[str, int]:
            found: dict[str, int] = (await read_status(store, [bench.lease]))["leases"][table]
            return found

        assert await counted() == {"held": 0, "expired": 0}
        await bench.claim("a", held)
        assert await counted() == {"held": held, "expired": 0}
        await bench.expire()
        assert await counted() == {"held": 0, "expired": held}
    finally:
        await store.close()


async def test_the_leader_recovers_what_nobody_claims(bench: Bench) -> None:
    await bench.insert(*range(min(2, bench.contract.most)))
    await bench.claim("a", 2)
    store = Store(bench.urls.control, name="test/leader", size=1)
    try:
        tenure = Tenure(1, "l1", boottime() + 60, 0)
        leader = Leader(store, tenure, Timings(), Wakeups("l1"), Metrics(), leases=[bench.lease])
        await leader.recover_rows(Sight([], [], 0))
        assert await bench.recover() == 0
        await bench.expire()
        await leader.recover_rows(Sight([], [], 0))
        assert await bench.recover() == 0, "nothing was left for a second recovery"
    finally:
        await store.close()


async def test_a_late_owner_is_refused_after_recovery(bench: Bench) -> None:
    """R000-22, R000-23, R004-19: the control plane's recovery ends the claim."""
    await bench.insert(1)
    taken = await bench.claim_one("a")
    await bench.expire()
    assert await bench.recover() == 1
    recovered = await bench.row(taken)
    assert bench.is_stale_to_others(recovered)
    assert await bench.beat("a", taken) == []
    for how in bench.sql.finish:
        assert await bench.finish("a", taken, how=how) == ["SUPERSEDED"]
    assert await bench.row(taken) == recovered
    assert await bench.recover() == 0


async def test_a_late_owner_is_refused_after_another_claim(bench: Bench) -> None:
    """R000-22, R004-19, R004-46: the row belongs to the newer token, also of the same owner."""
    await bench.insert(1)
    old = await bench.claim_one("a")
    await bench.expire()
    if bench.lease.stale.state is not None:
        assert await bench.recover() == 1
        await bench.make_claimable()
    new = await bench.claim_one("a")
    bound = await bench.row(new)
    assert await bench.beat("a", old) == []
    assert await bench.finish("a", old) == ["SUPERSEDED"]
    if bench.sql.release is not None:
        assert await bench.release("a", old) == []
    assert await bench.row(new) == bound
    assert await bench.finish("a", new) == ["RECORDED"]


async def test_recovery_is_the_same_by_either_way(bench: Bench) -> None:
    """R000-24, R000-25: claim and control plane leave the row alike, with the contract's error."""
    lease = bench.lease
    if lease.stale.state is None:
        pytest.skip("its stale rows are taken over where they are")
    images = []
    for number in (1, 2):
        await bench.insert(number)
        taken = await bench.claim_one("a")
        await bench.expire()
        before = await bench.row(taken)
        if number == 1:
            assert await bench.recover() == 1
        else:
            async with bench.connected("worker") as worker:
                (answer,) = await worker.fetch(bench.sql.claim.sql, "b", 0, DOMAIN)
            assert answer["recovered"] == 1
        row = await bench.row(taken)
        assert bench.is_stale_to_others(row)
        changed = {name: value for name, value in row.items() if value != before[name]}
        images.append(
            {name: bool(value) if isinstance(value, datetime) else value for name, value in changed.items()}
        )
        await bench.retire(taken)
    assert images[0] == images[1]
    written = {name: lease.stale.writes[name].name for name in lease.stale.writes}
    for name, write in written.items():
        if write in {"CODE", "MESSAGE"}:
            assert images[0][name] == (lease.stale_code if write == "CODE" else lease.stale_message)


async def test_stale_rows_come_after_fresh_ones(bench: Bench) -> None:
    """R004-13: where stale rows stay for another owner, fresh ones are preferred, even younger ones."""
    needs(bench, 2)
    if bench.lease.stale.state is not None:
        pytest.skip("its stale rows go back into the queue")
    await bench.insert(1)
    old = await bench.claim_one("a")
    await bench.expire()
    await bench.insert(2)
    assert (await bench.claim_one("b")).key != old.key
    assert (await bench.claim_one("b")).key == old.key


async def test_a_heartbeat_extends_only_what_is_the_owners(bench: Bench) -> None:
    """R000-19, R000-20, R004-15, R004-16: owner and token must both be right."""
    lease = bench.lease
    await bench.insert(1)
    taken = await bench.claim_one("a")
    await bench.expire(at=f"now() + interval '{lease.lease_seconds / 2:g} seconds'")
    before = await bench.row(taken)
    assert await bench.beat("b", taken) == []
    assert await bench.beat("a", Taken(taken.key, uuid4())) == []
    assert await bench.row(taken) == before
    assert await bench.beat("a", taken) == [taken.token]
    after = await bench.row(taken)
    column = lease.expiry or lease.heartbeat
    assert after[column] > before[column]
    assert {name for name in after if after[name] != before[name]} <= lease.written("beat")


async def test_a_heartbeat_lists_the_living_and_leaves_out_the_lost(bench: Bench) -> None:
    needs(bench, 2)
    await bench.insert(1, 2)
    kept, lost = await bench.claim("a", 2)
    assert await bench.finish("a", lost) == ["RECORDED"]
    assert await bench.beat("a", lost, kept) == [kept.token]


@pytest.mark.parametrize("how", OUTCOMES)
async def test_an_outcome_is_recorded_once(bench: Bench, how: str) -> None:
    """R000-21, R004-17, R004-18: recorded once; repeated it changes nothing, elsewhere it is refused."""
    lease = bench.lease
    if how not in lease.paths:
        pytest.skip(f"{lease.table} has no way to {how}")
    await bench.insert(1)
    taken = await bench.claim_one("a")
    before = await bench.row(taken)
    assert await bench.finish("b", taken, how=how) == ["SUPERSEDED"]
    assert await bench.row(taken) == before
    assert await bench.finish("a", taken, how=how) == ["RECORDED"]
    recorded = await bench.row(taken)
    assert recorded[lease.state] == bench.contract.settled.get(how, lease.paths[how].state)
    assert lease.expiry is None or recorded[lease.expiry] is None
    changed = {name for name in recorded if recorded[name] != before[name]}
    assert changed <= lease.written(how) | bench.contract.derived
    for again in bench.sql.finish:
        assert await bench.finish("a", taken, how=again) == ["ALREADY"]
    assert await bench.row(taken) == recorded
    assert await bench.beat("a", taken) == []


async def test_each_of_a_batch_gets_its_own_answer(bench: Bench) -> None:
    needs(bench, 3)
    await bench.insert(1, 2, 3)
    one, two, three = await bench.claim("a", 3)
    assert await bench.finish("a", two) == ["RECORDED"]
    strange = Taken(three.key, uuid4())
    assert await bench.finish("a", one, two, strange) == ["RECORDED", "ALREADY", "SUPERSEDED"]


async def test_an_outcome_fills_its_columns_and_leaves_the_others(bench: Bench) -> None:
    columns = bench.lease.done.sets
    if not columns:
        pytest.skip("an outcome fills no column of this table")
    await bench.insert(1)
    taken = await bench.claim_one("a")
    before = await bench.row(taken)
    values = samples(columns)
    assert await bench.finish("a", taken, values=values) == ["RECORDED"]
    row = await bench.row(taken)
    assert {name: row[name] for name in columns} == values
    await bench.insert(2)
    other = await bench.claim_one("a")
    assert await bench.finish("a", other) == ["RECORDED"]
    unset = await bench.row(other)
    assert [unset[name] for name in columns] == [before[name] for name in columns]


async def test_a_release_gives_the_row_back(bench: Bench) -> None:
    """A released row is anybody's at once, and its old owner's no more."""
    if bench.sql.release is None:
        pytest.skip("its rows wait until their lease is over")
    await bench.insert(1)
    taken = await bench.claim_one("a")
    assert await bench.release("b", taken) == []
    assert await bench.release("a", taken) == [taken.token]
    assert await bench.release("a", taken) == []
    assert await bench.finish("a", taken) == ["SUPERSEDED"]
    assert await bench.beat("a", taken) == []
    again = await bench.claim_one("b")
    assert again.key == taken.key
    assert again.token != taken.token


async def test_what_a_lost_answer_claimed_is_given_back(bench: Bench) -> None:
    """Rows of this owner under tokens it never heard of are nobody's work; others' rows stay."""
    needs(bench, 3)
    if bench.sql.release_unheld is None:
        pytest.skip("its rows wait until their lease is over")
    await bench.insert(1, 2, 3)
    held, unheard = await bench.claim("a", 2)
    other = await bench.claim_one("b")
    async with bench.connected("worker") as worker:
        back = await worker.fetch(bench.sql.release_unheld.sql, "a", [held.token])
    assert [tuple(row.values()) for row in back] == [unheard.key]
    assert await bench.beat("a", held) == [held.token]
    assert await bench.beat("b", other) == [other.token]
    assert (await bench.claim_one("c")).key == unheard.key


async def test_the_order_is_kept(bench: Bench) -> None:
    needs(bench, 6)
    await bench.insert(5, 3, 1, 4, 2, 6)
    one = await bench.claim_one("a")
    rest = await bench.claim("a", 10)
    numbers = [await bench.place(row) for row in (one, *rest)]
    assert numbers == sorted(numbers)


async def test_only_its_own_rows_are_claimed_and_recovered(bench: Bench) -> None:
    """R000-26, R000-37: rows of other kinds, not yet due, or set aside stay as they are."""
    async with bench.connected("admin") as admin:
        for statement in bench.contract.others:
            await admin.execute(statement)
        before = await admin.fetch(f"SELECT * FROM {bench.lease.table} ORDER BY {', '.join(bench.lease.key)}")
    assert before, "the contract names no such row"
    assert await bench.claim("a", 100) == []
    assert await bench.recover() == 0
    async with bench.connected("admin") as admin:
        after = await admin.fetch(f"SELECT * FROM {bench.lease.table} ORDER BY {', '.join(bench.lease.key)}")
    assert after == before


async def test_a_claim_takes_no_more_than_asked(bench: Bench) -> None:
    """R004-21, and under plans that would evaluate the selection again and again (H26)."""
    needs(bench, 30)
    await bench.insert(*range(30))
    assert len(await bench.claim("a", 7)) == 7
    assert await bench.claim("a", 0) == []
    plans = (
        "hashjoin",
        "mergejoin",
        "material",
        "indexscan",
        "indexonlyscan",
        "bitmapscan",
        "tidscan",
        "hashagg",
    )
    for plan in plans:
        async with bench.connected("worker", **{f"enable_{plan}": "off"}) as worker:
            assert len(await bench.claim("a", 2, worker)) == 2
    off = {f"enable_{plan}": "off" for plan in plans}
    async with bench.connected("worker", **off) as worker:
        assert len(await bench.claim("a", 3, worker)) == 3


async def test_a_paused_domain_claims_nothing(bench: Bench) -> None:
    """What is held goes on; stale rows are recovered all the same."""
    needs(bench, 2)
    await bench.insert(1, 2)
    held = await bench.claim_one("a")
    async with bench.connected("control") as control:
        await control.fetch("SELECT supervisor.pause_domain('test', $1, true)", DOMAIN)
        assert await bench.claim("b", 5) == []
        assert await bench.finish("a", held) == ["RECORDED"]
        await control.fetch("SELECT supervisor.pause_domain('test', $1, false)", DOMAIN)
    assert len(await bench.claim("b", 5)) == 1


async def test_the_worker_writes_its_columns_and_no_others(bench: Bench) -> None:
    """R000-80 to R000-97: the whitelist is what the database permits."""
    await bench.insert(1)
    lease = bench.lease
    columns = list(await bench.row(await bench.claim_one("a")))
    refused = []
    for column in columns:
        async with bench.connected("worker") as worker:
            try:
                await worker.execute(f"UPDATE {lease.table} SET {column} = {column}")
            except asyncpg.InsufficientPrivilegeError:
                refused.append(column)
            except asyncpg.GeneratedAlwaysError:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await worker.execute(f"UPDATE {lease.table} SET {column} = DEFAULT")
                refused.append(column)
    assert set(columns) - set(refused) == lease.writable()
    assert refused, "a table whose every column may be written protects nothing"


async def test_the_worker_inserts_and_deletes_only_by_right(bench: Bench) -> None:
    async with bench.connected("worker") as worker:
        for right, statement in (
            ("INSERT", f"INSERT INTO {bench.lease.table} DEFAULT VALUES"),
            ("DELETE", f"DELETE FROM {bench.lease.table} WHERE false"),
            ("TRUNCATE", f"TRUNCATE {bench.lease.table}"),
        ):
            if right not in bench.lease.rights:
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await worker.execute(statement)


async def test_rights_that_differ_are_named(bench: Bench) -> None:
    """Both ways: a column too many and a column too few."""
    lease = bench.lease
    beyond = next(iter(lease.key))
    short = lease.token
    siblings = bench.siblings()
    store = Store(bench.urls.control, name="test")
    try:
        assert await grant_faults(store, siblings) == []
        async with bench.connected("admin") as admin:
            await admin.execute("SET ROLE tenure_owner")
            await admin.execute(f"GRANT UPDATE ({beyond}) ON {lease.table} TO tenure_worker")
            await admin.execute(f"REVOKE UPDATE ({short}) ON {lease.table} FROM tenure_worker")
            await admin.execute(f"GRANT TRUNCATE ON {lease.table} TO tenure_worker")
        assert await grant_faults(store, siblings) == [
            f"tenure_worker may write {lease.table}.{beyond}",
            f"tenure_worker may not write {lease.table}.{short}",
            f"tenure_worker has truncate on {lease.table}",
        ]
    finally:
        await store.close()
        async with bench.connected("admin") as admin:
            await admin.execute("SET ROLE tenure_owner")
            await admin.execute(grants(*siblings))
            await admin.execute(f"REVOKE TRUNCATE ON {lease.table} FROM tenure_worker")


@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
async def test_the_past_is_not_read(bench: Bench, mode: str) -> None:
    """Every statement stays flat while finished rows pile up, with no statistics at all."""
    async with bench.connected("admin") as admin:
        await admin.execute(f"ALTER TABLE {bench.lease.table} SET (autovacuum_enabled = false)")
        # what an autovacuum may have gathered while other tests used the table
        await admin.execute("DELETE FROM pg_statistic WHERE starelid = $1::text::regclass", bench.lease.table)
        await admin.execute(bench.contract.finished, 20_000)
    await bench.insert(*range(min(50, bench.contract.most)))
    taken = await bench.claim("a", 20)
    done = bench.sql.finish["done"]
    plans: dict[str, tuple[str, list[Any]]] = {
        "claim": (bench.sql.claim.sql, ["a", 20, DOMAIN]),
        "recover": (bench.sql.recover.sql, [20]),
        "beat": (bench.sql.beat.sql, ["a", *bench.arrays(bench.sql.beat, taken)]),
        "finish": (done.sql, ["a", *bench.arrays(done, taken)]),
    }
    async with bench.connected("admin", plan_cache_mode=mode) as admin:
        for name, (sql, arguments) in plans.items():
            explained = await admin.fetch(f"EXPLAIN {sql}", *arguments)
            text = "\n".join(line for (line,) in explained)
            table = bench.lease.table.partition(".")[2]
            assert f"Seq Scan on {table}" not in text, f"{name} reads the whole table:\n{text}"
