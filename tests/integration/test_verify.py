"""`tenure verify` on a database: quiet on every good one, also while it moves, and loud on each damage."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import asyncpg
import pytest

from schemas import queries
from supervisor.embedded import Urls
from supervisor.errors import NotFound
from supervisor.store import Canceled, Store
from supervisor.verify import live, recorded
from supervisor.verify.report import Report
from tests.support.command_line import Cli, command_line
from tests.support.scene import Scene, secret_of


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    """Every way a run can go: two leaders, two workers, retries, orphans, cancels, expiries, a schedule."""
    scene = await Scene.open(database)
    try:
        await _play(scene)
        yield scene
    finally:
        await scene.close()


async def _play(scene: Scene) -> None:
    await scene.lead("w1")
    for worker in ("w1", "w2"):
        await scene.beat(worker)
    await scene.job(backoff_seconds=0)
    for state in ("PENDING", "ASSIGNED", "RUNNING", "CONFIRMING", "SUCCEEDED", "ORPHANED"):
        await scene.run_to(state)
    await _retry(scene, await scene.run_to("FAILED"))
    await _reassign(scene)
    await _cancel_queued(scene)
    await _expire(scene)
    await _drop(scene)
    await scene.value("SELECT supervisor.resign($1, 'w1', 'test')", scene.epoch)
    await scene.lead("w2")
    run = await scene.run_to("RUNNING", worker="w2")
    await scene.finish(run)
    await _schedule(scene)


async def _retry(scene: Scene, run: int) -> None:
    """A second attempt, and a third that succeeds."""
    for state in ("TIMED_OUT", "SUCCEEDED"):
        await scene.force("UPDATE supervisor.job_run SET retry_at = now() WHERE id = $1", run)
        (run,) = await scene.next_attempts()
        await scene.assign(run, "w2")
        await scene.start(run)
        await scene.finish(run, state, None if state == "SUCCEEDED" else "TIMEOUT")


async def _reassign(scene: Scene) -> None:
    run = await scene.run_to("ORPHANED")
    await scene.assign(run, "w2")
    await scene.start(run)
    await scene.finish(run)


async def _cancel_queued(scene: Scene) -> None:
    for state in ("PENDING", "ORPHANED"):
        run = await scene.run_to(state)
        await scene.value("SELECT supervisor.request_cancel('test', $1)", run)
        version = await scene.value("SELECT version FROM supervisor.job_run WHERE id = $1", run)
        await scene.value("SELECT supervisor.cancel($1, 'w1', $2, $3, 30)", scene.epoch, [run], [version])


async def _expire(scene: Scene) -> None:
    """Expired by the leader; the worker is silent for D, then the next attempt is given out."""
    await scene.beat("w3", stop_bound=0.2)
    run = await scene.run_to("RUNNING", worker="w3")
    claim, seq = await _token(scene, run, "w3")
    await scene.value("SELECT supervisor.confirm_self('w3', $1, 0.001)", [claim])
    version = await scene.value("SELECT version FROM supervisor.job_run WHERE id = $1", run)
    ended: list[Any] = []
    while not ended:
        ended = await scene.connection.fetch(
            "SELECT id FROM supervisor.expire($1, $2, $3, $4)", scene.epoch, [run], [version], [seq]
        )
    (after,) = await scene.next_attempts()
    given: list[Any] = []
    while not given:
        given = await scene.connection.fetch(
            "SELECT id FROM supervisor.assign($1, $2, '{1}', '{w2}', '{w3}', $3, 0.2)",
            scene.epoch,
            [after],
            [seq],
        )


async def _drop(scene: Scene) -> None:
    """A beat that does not name a running claim ends it."""
    await scene.beat("w4")
    await scene.run_to("RUNNING", worker="w4")
    await scene.value(
        "SELECT listed FROM supervisor.beat('w4', $1, $2, 0, '{}', '{command}', 4, 30, false)",
        secret_of("w4"),
        scene.beats + 1,
    )
    scene.beats += 1


async def _schedule(scene: Scene) -> None:
    """Ten minutes of a schedule, of which two were skipped."""
    await scene.job("minutely", cron="* * * * *")
    await scene.force("UPDATE supervisor.setting SET updated_at = updated_at - interval '1 day'")
    await scene.force(
        "UPDATE supervisor.job_definition SET updated_at = now() - interval '10 minutes',"
        " fired_until = now() - interval '10 minutes' WHERE name = 'minutely'"
    )
    await scene.value(
        """WITH d AS (SELECT * FROM supervisor.job_definition WHERE name = 'minutely'),
           i AS (SELECT generate_series(date_trunc('minute', d.fired_until) + interval '1 minute', now(),
                                        interval '1 minute') AS instant FROM d)
        SELECT count(*) FROM d, LATERAL (SELECT array_agg(instant ORDER BY instant) AS all_of_them FROM i) n,
        LATERAL supervisor.fire($1, ARRAY[d.id], ARRAY[d.cron], ARRAY[d.timezone], ARRAY[d.fired_until],
            ARRAY[now()], ARRAY[now() + interval '1 minute'], ARRAY[NULL::text],
            array_fill(d.id, ARRAY[cardinality(n.all_of_them) - 2]), n.all_of_them[3:], ARRAY[d.id],
            ARRAY[n.all_of_them[1]], ARRAY[n.all_of_them[2]], ARRAY[2])""",
        scene.epoch,
    )


async def _token(scene: Scene, run: int, worker: str) -> tuple[Any, int]:
    claim = await scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
    return claim, await scene.value("SELECT beat_seq FROM supervisor.worker WHERE worker_id = $1", worker)


async def verdict(urls: Urls, **scope: Any) -> Report:
    store = Store(urls.control, name="test", size=1)
    try:
        return await live.check(store, **scope)
    finally:
        await store.close()


def told(report: Report) -> Sequence[str]:
    return [f"{one.property} {one.text} {one.excerpt}" for one in report.findings]


async def test_every_way_a_run_can_go_holds(database: Urls, scene: Scene) -> None:
    """Read as the control role, which has the right to all of it."""
    report = await verdict(database)
    assert told(report) == []
    assert (report.verdict, report.doubts) == ("HOLDS", ())
    assert set(report.properties) == {"K1", "K2", "K3", "K4", "K13", "K15"}
    roots = await scene.value("SELECT count(DISTINCT root_id) FROM supervisor.job_run")
    moves = await scene.value("SELECT count(*) FROM supervisor.job_run_history")
    assert (report.figures["roots"], report.figures["moves"]) == (roots, moves)
    assert (report.figures["epochs"], report.figures["schedules"]) == (2, 1)


FIRED: Final = "(SELECT min(id) FROM supervisor.job_run WHERE scheduled_for IS NOT NULL)"
DONE: Final = "(SELECT min(id) FROM supervisor.job_run WHERE state = 'SUCCEEDED')"
DAMAGE: Final = {
    "the term set ahead": ("K1", "UPDATE supervisor.leader_epoch SET epoch = epoch + 5"),
    "an older epoch taken": (
        "K1",
        "INSERT INTO supervisor.tenure_log (epoch, holder, what) VALUES (0, 'w9', 'ACQUIRED')",
    ),
    "resigned by another": ("K1", "UPDATE supervisor.tenure_log SET holder = 'w9' WHERE what = 'RESIGNED'"),
    "an epoch that nobody took": (
        "K2",
        (
            "UPDATE supervisor.job_run_history SET leader_epoch = 99 WHERE actor = 'leader' AND version = 1"
            f" AND run_id = {FIRED}"
        ),
    ),
    "a deposed leader": (
        "K2",
        (
            "UPDATE supervisor.job_run_history SET leader_epoch = 1 WHERE actor = 'leader' AND version = 1"
            f" AND run_id = {FIRED}"
        ),
    ),
    "a version cut out": (
        "K3",
        f"DELETE FROM supervisor.job_run_history WHERE run_id = {DONE} AND version = 2",
    ),
    "a history cut off": (
        "K3",
        f"DELETE FROM supervisor.job_run_history WHERE run_id = {DONE} AND version > 3",
    ),
    "no history": (
        "K3",
        (
            "DELETE FROM supervisor.job_run_history WHERE run_id IN (SELECT id FROM supervisor.job_run"
            " WHERE state = 'PENDING' AND scheduled_for IS NULL)"
        ),
    ),
    "no run": ("K3", f"DELETE FROM supervisor.job_run WHERE id = {DONE}"),
    "an outcome rewritten": ("K3", f"UPDATE supervisor.job_run SET state = 'FAILED' WHERE id = {DONE}"),
    "a claim rewritten": (
        "K3",
        f"UPDATE supervisor.job_run SET claim_id = gen_random_uuid() WHERE id = {DONE}",
    ),
    "an epoch stamped again": ("K3", f"UPDATE supervisor.job_run SET leader_epoch = 2 WHERE id = {DONE}"),
    "an illegal move": (
        "K3",
        (
            "UPDATE supervisor.job_run_history SET from_state = 'PENDING'"
            f" WHERE run_id = {DONE} AND to_state = 'RUNNING'"
        ),
    ),
    "a move by somebody else": (
        "K3",
        f"UPDATE supervisor.job_run_history SET actor = 'postgres' WHERE run_id = {DONE} AND version = 3",
    ),
    "a start forgotten": (
        "K4",
        "UPDATE supervisor.job_run SET starts = 1 WHERE retry_of_id IS NOT NULL AND state = 'SUCCEEDED'",
    ),
    "a next attempt forgotten": (
        "K4",
        "UPDATE supervisor.job_run SET next_attempt_id = NULL WHERE next_attempt_id IS NOT NULL",
    ),
    "an attempt numbered again": (
        "K4",
        "UPDATE supervisor.job_run_history SET attempt = 7 WHERE from_state = 'ORPHANED'",
    ),
    "an instant that is gone": (
        "K13",
        (
            f"WITH gone AS (DELETE FROM supervisor.job_run WHERE id = {FIRED} RETURNING id)"
            " DELETE FROM supervisor.job_run_history h USING gone WHERE h.run_id = gone.id"
        ),
    ),
    "an instant that is none": (
        "K13",
        (
            "UPDATE supervisor.job_run SET scheduled_for = scheduled_for + interval '17 seconds'"
            f" WHERE id = {FIRED}"
        ),
    ),
    "skipped without a word": ("K13", "DELETE FROM supervisor.skipped_fire"),
    "an attempt while the other may run": (
        "K15",
        "UPDATE supervisor.worker SET stop_bound_seconds = 3600 WHERE worker_id = 'w3'",
    ),
}


class Inside:
    """The store of one open transaction: what is damaged there is seen there, and then it never was."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def rows(self, query: str, *args: Any, **_patience: float) -> Any:
        return await self._connection.fetch(queries()[query].sql, *args)

    async def row(self, query: str, *args: Any, **_patience: float) -> Any:
        return await self._connection.fetchrow(queries()[query].sql, *args)

    async def value(self, query: str, *args: Any, **_patience: float) -> Any:
        return await self._connection.fetchval(queries()[query].sql, *args)


async def test_each_damage_is_found_by_the_property_that_it_breaks(scene: Scene) -> None:
    wrong = {}
    for damage, (name, sql) in DAMAGE.items():
        transaction = scene.connection.transaction()
        await transaction.start()
        await scene.connection.execute("SET LOCAL session_replication_role = replica")
        changed = await scene.connection.execute(sql)
        report = await live.check(Inside(scene.connection))  # type: ignore[arg-type]
        await transaction.rollback()
        assert not changed.endswith(" 0"), damage
        if {one.property for one in report.findings} != {name} or report.verdict != "BROKEN":
            wrong[damage] = told(report)
    assert wrong == {}
    assert {name for name, _ in DAMAGE.values()} == {"K1", "K2", "K3", "K4", "K13", "K15"}


async def test_a_damaged_root_is_found_by_its_own_number_and_since_it_moved(
    database: Urls, scene: Scene
) -> None:
    other, run = await scene.run_to("SUCCEEDED"), await scene.run_to("SUCCEEDED")
    await scene.force("DELETE FROM supervisor.job_run_history WHERE run_id = $1 AND version = 2", run)
    assert (await verdict(database, run=run)).verdict == "BROKEN"
    assert (await verdict(database, run=other)).verdict == "HOLDS"
    now = datetime.now(UTC)
    assert (await verdict(database, since=now - timedelta(hours=1))).verdict == "BROKEN"
    later = await verdict(database, since=now + timedelta(hours=1))
    assert (later.verdict, later.figures["roots"]) == ("HOLDS", 0)
    with pytest.raises(NotFound):
        await verdict(database, run=10**9)


async def test_what_retention_removed_is_not_missed(database: Urls, scene: Scene) -> None:
    await scene.force(
        "UPDATE supervisor.job_run SET finished_at = now() - interval '40 days'"
        " WHERE state IN ('SUCCEEDED', 'CANCELED')"
    )
    await scene.force("UPDATE supervisor.worker SET heartbeat_at = now() - interval '9 days'")
    await scene.force("UPDATE supervisor.skipped_fire SET at = now() - interval '400 days'")
    before = (await verdict(database)).figures["roots"]
    await scene.value("SELECT count(*) FROM supervisor.prune()")
    report = await verdict(database, since=datetime.now(UTC) - timedelta(minutes=5))
    assert told(report) == []
    assert report.figures["roots"] < before


async def test_a_schedule_is_judged_as_far_back_as_retention_keeps_it(database: Urls, scene: Scene) -> None:
    """What ran longer ago may be gone, by the present setting or by one that was in force before it."""
    await scene.force(
        "WITH gone AS (DELETE FROM supervisor.job_run WHERE scheduled_for IS NOT NULL RETURNING id)"
        " DELETE FROM supervisor.job_run_history h USING gone WHERE h.run_id = gone.id"
    )
    assert (await verdict(database)).properties["K13"] == "BROKEN"
    await scene.value("SELECT supervisor.save_setting('test', 'run_retention_days', '20')")
    assert (await verdict(database)).verdict == "HOLDS"


async def test_a_long_statement_is_asked_for_in_parts(
    database: Urls, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A login with a short statement_timeout still gets its answer."""
    original, sizes = Store.rows, []

    async def rows(self: Store, query: Any, *args: Any, **more: Any) -> Any:
        if query == "read_histories":
            sizes.append(len(args[0]))
            if len(args[0]) > 4:
                raise Canceled(name=query, what="statement timeout")
        return await original(self, query, *args, **more)

    monkeypatch.setattr(Store, "rows", rows)
    report = await verdict(database)
    roots = await scene.value("SELECT count(DISTINCT root_id) FROM supervisor.job_run")
    assert (report.verdict, report.figures["roots"]) == ("HOLDS", roots)
    assert max(sizes) > 4


MOVES: Final = 40


async def _live_on(urls: Urls, worker: str, turns: int) -> None:
    """A worker that takes, runs, fails and retries, under whoever leads."""
    scene = await Scene.open(urls)
    try:
        await scene.beat(worker)
        for turn in range(turns):
            with suppress(asyncpg.PostgresError, AssertionError, ValueError):
                scene.epoch = await scene.value("SELECT epoch FROM supervisor.leader_epoch")
                run = await scene.run_to("RUNNING", worker=worker)
                await scene.beat(worker)
                await scene.finish(
                    run, "FAILED" if turn % 3 else "SUCCEEDED", "EXIT_1" if turn % 3 else None, 0
                )
                for again in await scene.next_attempts():
                    await scene.assign(again, worker)
                    await scene.start(again)
                    await scene.finish(again)
    finally:
        await scene.close()


async def _change_leaders(urls: Urls, until: asyncio.Event) -> None:
    scene = await Scene.open(urls)
    try:
        while not until.is_set():
            epoch = await scene.value("SELECT epoch FROM supervisor.leader_epoch")
            holder = await scene.value("SELECT holder FROM supervisor.leader_epoch")
            await scene.value("SELECT supervisor.resign($1, $2, 'test')", epoch, holder)
            await scene.lead("w1")
            await scene.value("SELECT roots FROM supervisor.prune_runs(clock_timestamp(), 2)")
            await asyncio.sleep(0.02)
    finally:
        await scene.close()


async def test_a_database_that_moves_gives_no_false_alarm(database: Urls, scene: Scene) -> None:
    """Two workers, a change of leaders and retention, all at it while the checker reads again and again."""
    done = asyncio.Event()
    await scene.force("DELETE FROM supervisor.job_definition WHERE name = 'minutely'")
    looks, epochs = 0, 0.0
    async with asyncio.TaskGroup() as group:
        leaders = group.create_task(_change_leaders(database, done))
        workers = [group.create_task(_live_on(database, name, MOVES)) for name in ("m1", "m2")]
        while looks < 4 or epochs <= 5 or not all(worker.done() for worker in workers):
            report = await verdict(database)
            assert told(report) == []
            looks, epochs = looks + 1, report.figures["epochs"]
        done.set()
        await leaders


async def _record(scene: Scene, directory: Path) -> None:
    """As a test writes a history down, the database's part of it."""
    (directory / "database").mkdir()
    clock = {"boottime": time.clock_gettime(time.CLOCK_BOOTTIME), "wall": time.time()}
    (directory / "clock.json").write_text(json.dumps(clock))
    for table in (
        "tenure_log",
        "job_run",
        "job_run_history",
        "late_finish",
        "worker",
        "leader_epoch",
        "job_definition",
        "skipped_fire",
    ):
        rows = await scene.connection.fetch(f"SELECT row_to_json(t)::text FROM supervisor.{table} t")
        (directory / f"database/{table}.jsonl").write_text("".join(f"{row[0]}\n" for row in rows))
    told_of = {
        "timings": {"D": 0.2},
        "expects": ["leader_change", "confirming", "reassigned"],
        "without": ["calls", "effects", "sink"],
    }
    (directory / "scenario.json").write_text(json.dumps(told_of))


async def test_a_recorded_database_is_judged_as_the_live_one(scene: Scene, tmp_path: Path) -> None:
    await _record(scene, tmp_path)
    report = recorded.check(tmp_path)
    assert told(report) == []
    wanted = ("K1", "K2", "K3", "K4", "K13", "K15", "K17")
    assert {report.properties[name] for name in wanted} == {"HOLDS"}
    assert report.properties["K8"] == "INCONCLUSIVE", "it was not recorded"
    log = tmp_path / "database/tenure_log.jsonl"
    log.write_text(log.read_text().replace('"holder":"w2"', '"holder":"w9"'))
    assert recorded.check(tmp_path).properties["K1"] == "BROKEN"


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


async def test_the_command_says_what_holds_and_what_it_cannot_tell(
    cli: Cli, scene: Scene, tmp_path: Path
) -> None:
    answer = (await cli("verify", "--json", "--since", "2h")).json()
    assert (answer["ok"], answer["verdict"], answer["findings"]) == (True, "HOLDS", [])
    assert set(answer["unchecked"]) == {
        "K5",
        "K6",
        "K7",
        "K8",
        "K9",
        "K10",
        "K11",
        "K12",
        "K14",
        "K16",
        "K17",
    }
    assert "needs a recorded history" in (await cli("verify")).out
    await scene.force(f"DELETE FROM supervisor.job_run_history WHERE run_id = {DONE} AND version = 2")
    broken = await cli("verify", "--json")
    assert broken.code == 1
    assert [one["property"] for one in json.loads(broken.out)["findings"]] == ["K3"]
    shown = await cli("verify", "--root", str(await scene.value(f"SELECT {DONE}")))
    assert (shown.code, "version 2 is missing" in shown.out) == (1, True)
    assert (await cli("verify", "--root", "999999")).code == 5
    assert (await cli("verify", "--since", "yesterday")).code == 2
    assert (await cli("verify", "--history", str(tmp_path / "none"))).code == 2
    assert (await cli("verify", "--history", str(tmp_path), "--root", "1")).code == 2
    recorded_too = await cli("verify", "--history", str(tmp_path), "--json")
    assert (recorded_too.code, json.loads(recorded_too.out)["verdict"]) == (1, "INCONCLUSIVE")
