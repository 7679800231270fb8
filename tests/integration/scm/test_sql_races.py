"""Two hands at once: whatever the order, one lock, one number, one outcome, and batches that are whole."""

import asyncio
import json
from collections import Counter

import asyncpg
import pytest

from tests.integration.scm.ledger import LONG, Connection, Held, Ledger, claim, finish, one, record, revision
from tests.support.eventually import eventually
from tests.support.sessions import connected
from tests.support.slowness import patient


async def waits(ledger: Ledger, connection: Connection) -> None:
    """Until the database itself says that this connection waits for a lock."""
    pid = connection.get_server_pid()

    async def seen() -> bool:
        kind = "SELECT wait_event_type FROM pg_stat_activity WHERE pid = $1"
        assert await ledger.admin.fetchval(kind, pid) == "Lock"
        return True

    await eventually(seen)


async def test_two_claims_at_once_share_one_run_out(ledger: Ledger) -> None:
    """R001-126, R001-182: one repository and source is synced by one worker; the other passes it by."""
    await ledger.repo()
    await ledger.request()
    async with ledger.as_worker() as one, ledger.as_worker() as other:
        async with one.transaction():
            (held,) = await claim(one, "w1")
            assert await asyncio.wait_for(claim(other, "w2"), patient(5)) == []
        assert await claim(other, "w2") == []
    assert (await ledger.run(held.run))["worker_id"] == "w1"


async def test_a_second_open_run_of_a_task_cannot_be_made(ledger: Ledger) -> None:
    """R001-126: the index refuses it, whoever writes."""
    await ledger.repo()
    held = await ledger.begun()
    again = (
        "INSERT INTO scm.sync_runs (run_id, task_id, source_type, status) "
        "SELECT 'other', task_id, source_type, $2 FROM scm.sync_runs WHERE run_id = $1"
    )
    for status in ("pending", "running", "retrying"):
        with pytest.raises(asyncpg.UniqueViolationError):
            await ledger.admin.execute(again, held.run, status)
    await ledger.finish(held)
    await ledger.admin.execute(again, held.run, "pending")


async def test_requests_at_once_get_one_run(ledger: Ledger) -> None:
    """R001-126: whoever comes second gets the open run."""
    await ledger.repo()

    async def request() -> tuple[str, bool]:
        async with connected(ledger.urls.control, **LONG) as control:
            row = await one(
                control, "SELECT (s.run).run_id, s.created FROM scm.request_sync('test', 'r', 'svn') AS s"
            )
            return row["run_id"], row["created"]

    answers = await asyncio.gather(*(request() for _ in range(10)))
    assert len({run for run, _ in answers}) == 1
    assert Counter(created for _, created in answers) == {True: 1, False: 9}


async def test_run_ids_are_unique_from_twenty_connections(ledger: Ledger) -> None:
    """R001-123: `sync-<date>-<number>`; the first of a day waits for nobody, and no number comes twice."""
    ask = "SELECT scm.new_run_id() FROM generate_series(1, 25)"

    async def draw() -> list[str]:
        async with connected(ledger.urls.admin, **LONG) as admin:
            return [row[0] for row in await admin.fetch(ask)]

    drawn = [name for names in await asyncio.gather(*(draw() for _ in range(20))) for name in names]
    assert len(set(drawn)) == len(drawn) == 500
    day = await ledger.admin.fetchval("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    numbers = sorted(int(name.removeprefix(f"sync-{day}-")) for name in drawn)
    assert numbers[0] >= 1
    assert all(len(name.rpartition("-")[2]) >= 3 for name in drawn)


async def test_a_smaller_number_than_the_days_first_is_drawn_again(ledger: Ledger) -> None:
    """R001-123: the day's base may come from somebody who drew later."""
    drawn = await ledger.admin.fetchval("SELECT nextval('scm.run_number')")
    await ledger.admin.execute(
        "INSERT INTO scm.run_days VALUES ((now() AT TIME ZONE 'UTC')::date, $1)", drawn + 1
    )
    first = await ledger.admin.fetchval("SELECT scm.new_run_id()")
    assert first.endswith("-001")
    assert (await ledger.admin.fetchval("SELECT scm.new_run_id()")).endswith("-002")


async def test_a_killed_batch_leaves_nothing(ledger: Ledger) -> None:
    """R001-184, R001-185: the backend dies between the facts and the commit: neither facts nor cursor."""
    repo = await ledger.repo()
    held = await ledger.begun()
    assert await ledger.record(held, 1, [revision(1)], 1) == (1, 0, 0, True)
    worker = await asyncpg.connect(ledger.urls.worker)
    transaction = worker.transaction()
    await transaction.start()
    await record(worker, held, 2, [revision(2)], 2)
    await ledger.admin.execute("SELECT pg_terminate_backend($1)", worker.get_server_pid())
    await eventually(worker.is_closed)
    assert await ledger.count("scm.svn_revisions") == 1
    assert (await ledger.cursor(repo) or {})["watermark"] == 1
    assert (await ledger.run(held.run))["stats_json"]["fetched"] == 1
    assert await ledger.record(held, 2, [revision(2)], 2) == (1, 0, 0, True)


async def test_a_batch_that_cannot_be_written_moves_no_cursor(ledger: Ledger) -> None:
    """R001-116, R001-184: one bad fact, or an address with a scheme, and all of the batch is refused."""
    repo = await ledger.repo()
    held = await ledger.begun()
    bad = [
        revision(2, is_bulk=True),
        revision(2, patch={"uri": "s3://bucket/r2.diff", "sha256": "a" * 64, "size_bytes": 1}),
        revision(2, patch={"uri": "scm/1/svn/r2.diff", "sha256": "short", "size_bytes": 1}),
    ]
    for fact in bad:
        with pytest.raises(asyncpg.CheckViolationError):
            await ledger.record(held, 1, [revision(1), fact], 2)
    assert await ledger.count("scm.svn_revisions") == 0
    assert await ledger.cursor(repo) is None
    assert (await ledger.run(held.run))["batches"] == 0


@pytest.mark.parametrize("first", ["finish", "recover"])
async def test_recovery_and_finish_at_once(ledger: Ledger, first: str) -> None:
    """R001-192, R001-193: whoever has the row decides; the other changes nothing."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.expire()
    async with ledger.as_worker() as worker:
        if first == "finish":
            async with worker.transaction():
                assert await finish(worker, held) == "RECORDED"
                assert await ledger.recover() == 0, "a row in use is passed over"
            assert (await ledger.run(held.run))["status"] == "completed"
            assert await ledger.recover() == 0
        else:
            async with ledger.control.transaction():
                assert await ledger.recover() == 1
                late = asyncio.create_task(finish(worker, held))
                await waits(ledger, worker)
            assert await late == "SUPERSEDED"
            assert (await ledger.run(held.run))["status"] == "failed"


async def test_a_batch_waits_for_the_decision_on_its_run(ledger: Ledger) -> None:
    """R001-184: a cancel that is not committed yet holds the batch back; then all of it is undone."""
    repo = await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as worker:
        async with ledger.control.transaction():
            await ledger.control.fetch("SELECT * FROM scm.cancel_sync('test', $1)", held.run)
            late = asyncio.create_task(record(worker, held, 1, [revision(1)], 1))
            await waits(ledger, worker)
        with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
            await late
    assert await ledger.count("scm.svn_revisions") == 0
    assert await ledger.cursor(repo) is None


async def test_a_batch_repeated_while_its_first_copy_is_on_its_way(ledger: Ledger) -> None:
    """R001-184, R001-194: nothing is counted twice, neither is told new."""
    await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as one, ledger.as_worker() as other:
        async with one.transaction():
            assert await record(one, held, 1, [revision(1)], 1) == (1, 0, 0, True)
            again = asyncio.create_task(record(other, held, 1, [revision(1)], 1))
            await waits(ledger, other)
        assert await again == (0, 0, 0, False)
    stats = (await ledger.run(held.run))["stats_json"]
    assert (stats["fetched"], stats["inserted"], stats["batches"]) == (1, 1, 1)
    assert (
        await ledger.admin.fetchval("SELECT count(*) FROM logbook.events WHERE event_type = 'scm.sync.batch'")
        == 1
    )


@pytest.mark.parametrize("first", ["claim", "disable"])
async def test_disabling_and_claiming_at_once(ledger: Ledger, first: str) -> None:
    """R001-171: no deadlock; in the end the task is disabled and nothing of it is open."""
    await ledger.repo()
    await ledger.request()
    disable = "SELECT * FROM scm.disable_task('test', 'r', 'svn')"
    async with ledger.as_worker() as worker, connected(ledger.urls.control, **LONG) as control:
        if first == "claim":
            async with worker.transaction():
                assert len(await claim(worker, "w1")) == 1
                off = asyncio.create_task(control.fetch(disable))
                await waits(ledger, control)
            await off
        else:
            async with control.transaction():
                await control.fetch(disable)
                assert await claim(worker, "w1") == []
    assert (await ledger.task())["status"] == "disabled"
    open_runs = "SELECT count(*) FROM scm.sync_runs WHERE status IN ('pending', 'running', 'retrying')"
    assert await ledger.admin.fetchval(open_runs) == 0


async def test_a_claim_passes_by_what_is_being_disabled(ledger: Ledger) -> None:
    """R001-171, R001-182: the run is locked before its task, so that neither waits for the other."""
    await ledger.repo()
    await ledger.request()
    async with ledger.as_worker() as worker, connected(ledger.urls.control, **LONG) as control:
        async with ledger.admin.transaction():
            await ledger.admin.execute("SELECT FROM scm.sync_tasks FOR UPDATE")
            off = asyncio.create_task(control.fetch("SELECT * FROM scm.disable_task('test', 'r', 'svn')"))
            async with connected(ledger.urls.admin) as other:
                pid = control.get_server_pid()
                kind = "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1"
                await eventually(lambda: other.fetchval(kind, pid))
            assert await asyncio.wait_for(claim(worker, "w1"), patient(5)) == []
        await off
    assert (await ledger.task())["status"] == "disabled"


async def test_many_hands_keep_every_promise(ledger: Ledger) -> None:
    """R001-125, R001-126: repositories go in parallel, each with its own cursor; no error, no run lost."""
    repos = [await ledger.repo(f"r{number}") for number in range(6)]
    for number in range(6):
        await ledger.request(f"r{number}")

    async def work(owner: str) -> int:
        done = 0
        async with ledger.as_worker() as worker:
            while some := await claim(worker, owner, 2):
                for held in some:
                    await record(worker, held, 1, [revision(1), revision(2)], 2)
                    assert await finish(worker, held) == "RECORDED"
                    done += 1
        return done

    assert sum(await asyncio.gather(*(work(f"w{number}") for number in range(4)))) == 6
    for repo in repos:
        assert (await ledger.cursor(repo) or {})["watermark"] == 2
    assert await ledger.count("scm.svn_revisions") == 12


async def test_what_a_fact_is_never_leaves_json(ledger: Ledger) -> None:
    """Text that would end a statement is text."""
    await ledger.repo()
    held = await ledger.begun()
    nasty = "'); DROP TABLE scm.repos; --\\ \" {} $$ \x01"
    await ledger.record(held, 1, [revision(1, message=nasty, author=nasty)], 1)
    row = await one(ledger.admin, "SELECT message, author_raw FROM scm.svn_revisions")
    assert (row["message"], row["author_raw"]) == (nasty, nasty)
    assert json.loads(json.dumps(nasty)) == nasty


async def test_a_stranger_records_nothing(ledger: Ledger) -> None:
    """R001-126: another token, or another's run."""
    await ledger.repo()
    await ledger.repo("s")
    one, other = await ledger.begun(), await ledger.begun("s", owner="w2")
    with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
        await ledger.record(Held(one.run, other.claim, "w2"), 1, [revision(1)], 1)
    with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
        await ledger.begin(Held(one.run, other.claim, "w2"))
    await ledger.expire()
    with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
        await ledger.record(one, 1, [revision(1)], 1)
