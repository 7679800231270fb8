"""What a login may put into the database and Python cannot take: it harms neither replicas nor lists."""

import json
from functools import partial
from pathlib import Path

import asyncpg
import pytest

import schemas
from supervisor.embedded import Urls
from tests.support.command_line import command_line
from tests.support.replicas import Fleet, replicas

HUGE = '{"x": 1e5000}'
FORGED = """
    INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, action, payload, max_attempts)
    SELECT n, n, d.id, d.domain, d.action, d.payload || $1::jsonb, 1
      FROM supervisor.job_definition d, nextval('supervisor.job_run_id') n
     WHERE d.name = 'any' RETURNING id
"""
"""Makes a row as a release left it that did not refuse it."""

LATE = """
    INSERT INTO supervisor.job_run (
        id, root_id, job_definition_id, domain, action, payload, max_attempts, not_before)
    SELECT n, n, d.id, d.domain, d.action, d.payload, 1, $1::text::timestamptz
      FROM supervisor.job_definition d, nextval('supervisor.job_run_id') n
     WHERE d.name = 'any' RETURNING id
"""


async def asked(url: str, sql: str, *arguments: object) -> str:
    """Return what came of it, in one word."""
    connection = await asyncpg.connect(url)
    try:
        await connection.fetch(sql, *arguments)
    except asyncpg.PostgresError as error:
        return error.sqlstate or "error"
    finally:
        await connection.close()
    return "taken"


async def ended(fleet: Fleet, run: int) -> bool:
    return (await fleet.run(run))["state"] in ("SUCCEEDED", "FAILED")


async def wants_anything(fleet: Fleet, **spec: object) -> None:
    spec = {"domain": "command", "parameters": {"x": {"type": "any"}}, "max_attempts": 1, **spec}
    await fleet.define("any", {"argv": ["/bin/true"]}, **spec)


@pytest.mark.slow
async def test_a_number_that_python_cannot_read_ends_its_run_and_no_replica(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(database, tmp_path, count=1) as fleet:
        await fleet.leader()
        await wants_anything(fleet)
        event = {"type": "object"}
        await fleet.define("hears", {"argv": ["/bin/true"]}, event_type="x.y", parameters={"event": event})
        answers = [
            await asked(database.client, "SELECT FROM supervisor.enqueue('any', $1::jsonb)", HUGE),
            await asked(database.client, "SELECT FROM supervisor.emit('x.y', $1::jsonb)", HUGE),
        ]
        huge = int(await fleet.value(FORGED, HUGE))
        deep = int(await fleet.value(FORGED, json.dumps({"x": 1}).replace("1", "[" * 3000 + "]" * 3000)))
        await fleet.rows("INSERT INTO supervisor.event (type, payload) VALUES ('x.y', $1::jsonb)", HUGE)
        good = int(await fleet.value("SELECT id FROM supervisor.enqueue('any', '{\"x\": 1}')"))
        for run in (huge, deep, good):
            await fleet.until(partial(ended, fleet, run), within=20, what="the run to end")

        async def heard() -> bool:
            rows = await fleet.rows(
                """SELECT r.error_code FROM supervisor.job_run r JOIN supervisor.job_definition d
                       ON d.id = r.job_definition_id AND d.name = 'hears' WHERE r.finished_at IS NOT NULL"""
            )
            return bool(rows) and {row["error_code"] for row in rows} == {"UNREADABLE"}

        await fleet.until(heard, within=20, what="the run of the event to end")
        assert [(await fleet.run(run))["error_code"] for run in (huge, deep, good)] == [
            "UNREADABLE", "UNREADABLE", None,
        ]  # fmt: skip
        assert all(member.alive for member in fleet.members)
        assert answers == ["TN022", "TN022"]

        (member,) = fleet.members
        for path in ("/runs", "/events", "/jobs/any", f"/runs/{huge}", f"/runs/{deep}", "/api/v1/runs",
                     f"/api/v1/runs/{huge}", f"/api/v1/runs/{deep}", "/api/v1/events"):  # fmt: skip
            answer = await member.replica.get(path)
            assert answer.status_code == 200, (path, answer.text[:2000])

        cli = command_line(database, monkeypatch, tmp_path)
        for command in (
            ("run", "show", str(huge)),
            ("run", "show", str(deep), "--json"),
            ("run", "show", str(huge), "--json"),
            ("run", "list", "--json"),
            ("event", "list", "--json"),
        ):
            assert (await cli(*command)).code == 0, command


BEAT = "SELECT FROM supervisor.beat('evil', gen_random_uuid(), 1, 0, '{}', $1::text::text[], $2, $3, false)"
WORKER = """
    INSERT INTO supervisor.worker (worker_id, domains, slots, heartbeat_at, stop_bound_seconds, secret)
    VALUES ($1, $2::text::text[], $3, clock_timestamp(), $4, gen_random_uuid())
"""
EVIL: list[tuple[str | None, int, float]] = [
    ("{{a,b},{c,d}}", 1, 30.0),
    ("{NULL,none}", 1, 30.0),
    ("[2:3]={a,b}", 1, 30.0),
    ('{"a b"}', 1, 30.0),
    ('{""}', 1, 30.0),
    ('{"<b>"}', 1, 30.0),
    ("{" + "a" * 64 + "}", 1, 30.0),
    ("{" + ",".join(f"d{number}" for number in range(65)) + "}", 1, 30.0),
    (None, 1, 30.0),
    ("{command}", -1, 30.0),
    ("{command}", 2**31 - 1, 30.0),
    ("{command}", 1, 0.0),
    ("{command}", 1, 1e300),
    ("{command}", 1, float("nan")),
    ("{command}", 1, float("inf")),
]


@pytest.mark.slow
async def test_no_beat_of_a_stranger_stops_the_leader_or_the_pages(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(database, tmp_path, count=1) as fleet:
        leader = await fleet.leader()
        answers = [await asked(database.worker, BEAT, *told) for told in EVIL]
        await fleet.define("good", fleet.effects.command(0.1))
        runs = await fleet.trigger("good", 3)
        await fleet.until(lambda: fleet.succeeded(runs), within=20, what="the runs to succeed")
        for path in ("/", "/workers", "/domains", "/metrics", "/api/v1/workers", "/status"):
            answer = await leader.replica.get(path)
            assert answer.status_code == 200, (path, answer.text[:2000])
        cli = command_line(database, monkeypatch, tmp_path)
        assert (await cli("worker", "list")).code == 0
        assert answers == ["TN022"] * len(EVIL)


async def test_a_worker_confirms_itself_for_a_time_that_ends(database: Urls) -> None:
    sql = "SELECT supervisor.confirm_self('me', '{}', $1)"
    answers = [await asked(database.worker, sql, seconds) for seconds in (1e12, float("nan"), -1.0, 30.0)]
    assert answers == ["TN022", "TN022", "TN022", "taken"]


async def test_the_table_takes_no_such_worker_by_any_other_way(database: Urls) -> None:
    """The function of an older release, put back in the middle of a rollout."""
    for told in EVIL:
        assert (await asked(database.admin, WORKER, "evil", *told)).startswith("23"), told


async def test_the_migration_corrects_the_workers_that_are_there(database: Urls) -> None:
    """The table of the release before had no such constraints, and took them."""
    migration = (Path(schemas.__file__).parent / "migrations/0028_plain_values.sql").read_text()
    connection = await asyncpg.connect(database.admin)
    try:
        await connection.execute(
            "ALTER TABLE supervisor.worker DROP CONSTRAINT worker_domains, DROP CONSTRAINT worker_slots,"
            " DROP CONSTRAINT worker_stop_bound"
        )
        for number, (domains, slots, bound) in enumerate(EVIL):
            if domains is not None and slots >= 0 and bound != 0:
                await connection.execute(WORKER, f"w{number}", domains, slots, bound)
        await connection.execute(WORKER, "good", "{command,scm}", 8, 30.0)
        await connection.execute(
            """SELECT FROM supervisor.save_job(
                   'test', 'any', '{"domain": "command", "payload": {"argv": ["x"]}}', true)"""
        )
        for when in ("200000-01-01", "4713-01-01 BC", "2030-01-01 00:00+00"):
            await connection.fetch(LATE, when)
        await connection.execute(migration)
        due = await connection.fetch("SELECT not_before FROM supervisor.job_run ORDER BY id")
        rows = await connection.fetch("SELECT * FROM supervisor.worker ORDER BY worker_id")
    finally:
        await connection.close()
    workers = {row["worker_id"]: (row["domains"], row["slots"], row["stop_bound_seconds"]) for row in rows}
    assert workers["good"] == (["command", "scm"], 8, 30.0)
    assert [row["not_before"].year for row in due] == [9999, 1, 2030]
    assert workers["w0"] == (["a", "b", "c", "d"], 1, 30.0)
    assert workers["w1"] == (["none"], 1, 30.0)
    assert workers["w5"] == ([], 1, 30.0)
    assert len(workers["w7"][0]) == 64
    assert workers["w10"] == (["command"], 10000, 30.0)
    assert {workers[name][2] for name in ("w12", "w13", "w14")} == {3600.0}


@pytest.mark.slow
@pytest.mark.parametrize("when", ["200000-01-01", "4713-01-01 BC"])
async def test_a_time_that_no_calendar_has_takes_no_list_away(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """A run of an older release that nothing has corrected, and a row of a domain."""
    async with replicas(database, tmp_path, count=1) as fleet:
        leader = await fleet.leader()
        await wants_anything(fleet)
        sql = "SELECT FROM supervisor.enqueue('any', '{}', NULL, $1::text::timestamptz)"
        answer = await asked(database.client, sql, when)
        run = int(await fleet.value(LATE, when))
        await fleet.rows("SELECT FROM dedup.add_library('test', 'l', 'l')")
        await fleet.rows(
            """INSERT INTO dedup.jobs (kind, library_id, payload, requested_by, created_at)
               SELECT 'scan', id, '{}', 'test', $1::text::timestamptz FROM dedup.library_roots""",
            when,
        )
        paths = ["/", "/runs", "/late", "/jobs/any", f"/runs/{run}", "/api/v1/runs"]
        for path in (*paths, f"/api/v1/runs/{run}", "/api/v1/jobs"):
            seen = await leader.replica.get(path)
            assert seen.status_code == 200, (path, seen.text[:3000])
        cli = command_line(database, monkeypatch, tmp_path)
        for command in (("run", "list"), ("run", "show", str(run)), ("run", "why", str(run))):
            told = await cli(*command)
            assert told.code == 0, (command, told.err)
        assert answer == "TN022"
        assert leader.alive
