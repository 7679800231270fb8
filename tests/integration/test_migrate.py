"""`migrate` against real servers: once each, together, refused, and while others work."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import asyncpg
import pytest

import schemas
from schemas import Source
from schemas.migrate import (
    MigrateFailed,
    MigrationChanged,
    SchemaBusy,
    SchemaTooNew,
    SchemaTooOld,
    check,
    migrate,
)
from tests.support.eventually import eventually
from tests.support.place import THING, Place, connected, fingerprint, function, run_sql, value, write_source
from tests.support.slowness import patient


@pytest.mark.parametrize("bare_server", ["embedded", "15", "16", "17"], indirect=True, scope="module")
async def test_a_fresh_cluster_gets_everything(place: Place) -> None:
    lines: list[str] = []
    report = await migrate(place.admin, runtime_urls=place.runtime, report=lines.append)
    assert report.version == schemas.schema_version()
    assert report.applied == tuple(range(1, report.version + 1))
    assert report.functions_replaced
    assert "create database tenure" in lines
    foreign = """
        SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE n.nspname = 'supervisor' AND c.relowner <> 'tenure_owner'::regrole
        UNION ALL SELECT p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
         WHERE n.nspname = 'supervisor'
           AND (p.proowner <> 'tenure_owner'::regrole OR has_function_privilege('public', p.oid, 'EXECUTE'))
        UNION ALL SELECT rolname FROM pg_roles
         WHERE rolname LIKE 'tenure%' AND rolname <> current_user
           AND (rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls)
        UNION ALL SELECT rolname FROM pg_roles WHERE rolname = 'tenure_owner' AND rolcanlogin"""
    async with connected(place.admin) as connection:
        assert await connection.fetch(foreign) == []


async def test_a_second_run_changes_nothing(place: Place) -> None:
    await migrate(place.admin, runtime_urls=place.runtime)
    before = await fingerprint(place.admin)
    lines: list[str] = []
    report = await migrate(place.admin, runtime_urls=place.runtime, report=lines.append)
    assert (report.changed, lines) == (False, [])
    assert await fingerprint(place.admin) == before


@pytest.mark.parametrize("round_", range(3))
async def test_several_at_once_apply_everything_once(place: Place, round_: int) -> None:
    """Replicas that start together, on two databases: nobody fails, nothing is applied twice."""
    calls = [place.in_database(f"base_{number % 2}") for number in range(6)]
    reports = await asyncio.gather(*(migrate(admin, runtime_urls=runtime) for admin, runtime in calls))
    for name in ("base_0", "base_1"):
        here = [report for report in reports if report.database == name]
        assert sorted(number for report in here for number in report.applied) == list(
            range(1, schemas.schema_version() + 1)
        )
        assert sum(report.functions_replaced for report in here) == 1
        admin, runtime = place.in_database(name)
        for url in runtime.values():
            assert await value(url, "SELECT current_database()") == name
        assert not (await migrate(admin, runtime_urls=runtime)).changed


async def test_a_database_newer_than_the_code_is_refused(place: Place, tmp_path: Path) -> None:
    await migrate(
        place.admin,
        runtime_urls=place.runtime,
        source=write_source(tmp_path, {**THING, "0002_more": "SELECT 1;"}),
    )
    before = await fingerprint(place.admin)
    older = write_source(tmp_path, THING, {"f": function("f", "1")})
    with pytest.raises(SchemaTooNew, match="has schema 2, this code knows 1") as caught:
        await migrate(place.admin, runtime_urls={"control": place.url("app")}, source=older)
    assert caught.value.exit_code == 1
    assert caught.value.advice
    assert await fingerprint(place.admin) == before


async def test_a_changed_migration_is_refused(place: Place, tmp_path: Path) -> None:
    await migrate(place.admin, source=write_source(tmp_path, THING))
    before = await fingerprint(place.admin)
    changed = write_source(tmp_path, {"0001_thing": THING["0001_thing"] + "-- more", "0002_b": "SELECT 1;"})
    with pytest.raises(MigrationChanged, match=r"migration 1 \(thing\)"):
        await migrate(place.admin, runtime_urls={"control": place.url("app")}, source=changed)
    assert await fingerprint(place.admin) == before


async def test_a_failing_migration_names_itself_and_keeps_what_came_before(
    place: Place, tmp_path: Path
) -> None:
    broken = {**THING, "0002_broken": "CREATE TABLE supervisor.half (id int); SELECT 1 / 0;"}
    with pytest.raises(MigrateFailed, match=r"migration 2 \(broken\) failed: division by zero"):
        await migrate(place.admin, runtime_urls=place.runtime, source=write_source(tmp_path, broken))
    assert await value(place.admin, "SELECT to_regclass('supervisor.half') IS NULL")
    mended = write_source(tmp_path, {**THING, "0002_broken": "CREATE TABLE supervisor.half (id int);"})
    assert (await migrate(place.admin, runtime_urls=place.runtime, source=mended)).applied == (2,)


async def test_a_migration_that_collides_fails_at_once(place: Place, tmp_path: Path) -> None:
    """A duplicate in a plan is a lost race and repeated; in a file it is the file's fault."""
    twice = {
        **THING,
        "0002_again": "INSERT INTO supervisor.schema_migration (number, name, sha256) VALUES (1, 'x', 'y');",
    }
    async with asyncio.timeout(patient(10)):
        with pytest.raises(MigrateFailed, match="duplicate key"):
            await migrate(place.admin, source=write_source(tmp_path, twice), patience_seconds=3600)


async def test_names_without_a_schema_are_refused(place: Place, tmp_path: Path) -> None:
    with pytest.raises(MigrateFailed, match="permission denied"):
        await migrate(place.admin, source=write_source(tmp_path, {"0001_a": "CREATE TABLE astray (id int);"}))


async def test_functions_are_created_again_when_they_changed(place: Place, tmp_path: Path) -> None:
    async def migrated(migrations: Mapping[str, str], functions: Mapping[str, str]) -> bool:
        source = write_source(tmp_path, migrations, functions)
        return (await migrate(place.admin, source=source)).functions_replaced

    # `a` calls `b` of a later file.
    assert await migrated(THING, {"a": function("a", "supervisor.b()"), "b": function("b", "1")})
    assert await value(place.admin, "SELECT supervisor.a()") == 1
    assert not await migrated(THING, {"a": function("a", "supervisor.b()"), "b": function("b", "1")})
    changed = {"a": function("a", "supervisor.b()"), "b": function("b", "2")}
    assert await migrated(THING, changed)
    assert await value(place.admin, "SELECT supervisor.a()") == 2
    # The same files after a migration that took one away.
    assert await migrated({**THING, "0002_drop": "DROP FUNCTION supervisor.b();"}, changed)
    assert await value(place.admin, "SELECT supervisor.a()") == 2


@pytest.mark.parametrize(
    "body",
    [
        "LANGUAGE sql AS $$ SELECT supervisor.nowhere() $$",
        "LANGUAGE plpgsql AS $$ BEGIN RETURN 1 $$",
    ],
)
async def test_a_function_that_cannot_work_is_refused(place: Place, tmp_path: Path, body: str) -> None:
    await migrate(place.admin, source=write_source(tmp_path, THING, {"a": function("a", "1")}))
    bad = {"a": function("a", "2"), "b": f"CREATE OR REPLACE FUNCTION supervisor.b() RETURNS int {body};"}
    with pytest.raises(MigrateFailed, match="functions failed"):
        await migrate(place.admin, source=write_source(tmp_path, THING, bad))
    assert await value(place.admin, "SELECT supervisor.a()") == 1
    assert not (await check(place.admin, source=Source(tmp_path))).functions_equal


async def test_functions_are_replaced_under_a_running_call(place: Place, tmp_path: Path) -> None:
    slow = """CREATE OR REPLACE FUNCTION supervisor.slow() RETURNS int LANGUAGE plpgsql
              AS $$ BEGIN PERFORM pg_sleep(60); RETURN {}; END $$;"""
    await migrate(place.admin, source=write_source(tmp_path, THING, {"slow": slow.format(1)}))
    async with connected(place.admin, application_name="replica") as replica:
        call = asyncio.create_task(replica.execute("SELECT supervisor.slow()"))
        sleeping = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        await eventually(lambda: value(place.admin, sleeping))
        report = await migrate(place.admin, source=write_source(tmp_path, THING, {"slow": slow.format(2)}))
        assert report.functions_replaced
        assert not call.done()
        await value(place.admin, "SELECT pg_cancel_backend($1)", replica.get_server_pid())
        with pytest.raises(asyncpg.QueryCanceledError):
            await call


async def test_a_migration_gives_way_to_a_long_transaction_and_its_successors(
    place: Place, tmp_path: Path
) -> None:
    """Whoever queues behind the migration's lock request waits for lock_timeout at most."""
    await migrate(place.admin, runtime_urls=place.runtime, source=write_source(tmp_path, THING))
    alter = {**THING, "0002_alter": "ALTER TABLE supervisor.thing ADD COLUMN more int;"}
    waiting = """SELECT count(*) FROM pg_locks
                  WHERE NOT granted AND relation = 'supervisor.thing'::regclass"""
    async with connected(place.admin) as reader, connected(place.admin) as successor:
        transaction = reader.transaction()
        await transaction.start()
        await reader.execute("SELECT FROM supervisor.thing")
        task = asyncio.create_task(
            migrate(place.admin, runtime_urls=place.runtime, source=write_source(tmp_path, alter))
        )
        await eventually(lambda: value(place.admin, waiting), what="the migration asks for its lock")
        async with asyncio.timeout(patient(4)):
            await successor.execute("SELECT FROM supervisor.thing")
        assert not task.done()
        await transaction.commit()
    assert (await task).applied == (2,)


async def test_patience_ends(place: Place, tmp_path: Path) -> None:
    await migrate(place.admin, source=write_source(tmp_path, THING))
    alter = write_source(
        tmp_path, {**THING, "0002_alter": "ALTER TABLE supervisor.thing ADD COLUMN more int;"}
    )
    async with connected(place.admin) as reader, reader.transaction():
        await reader.execute("SELECT FROM supervisor.thing")
        with pytest.raises(SchemaBusy, match="migration 2 did not get its locks"):
            await migrate(place.admin, source=alter, patience_seconds=0)
    assert (await migrate(place.admin, source=alter)).applied == (2,)


async def test_check_tells_old_equal_and_new(place: Place, tmp_path: Path) -> None:
    state = await check(place.admin)
    assert (state.current, state.standing) == (0, "old")
    await run_sql(place.system, "CREATE DATABASE tenure")
    state = await check(place.admin)
    assert (state.current, state.standing) == (0, "old")
    with pytest.raises(SchemaTooOld) as caught:
        state.refuse_old()
    assert "tenure migrate" in caught.value.advice

    await migrate(place.admin, runtime_urls=place.runtime)
    for key in ("control", "worker", "console"):
        state = await check(place.runtime[key])
        assert (state.standing, state.functions_equal) == ("equal", True)
        state.refuse_old()
    (await check(place.runtime["control"], source=write_source(tmp_path, {}))).refuse_old()
    state = await check(place.runtime["control"], source=write_source(tmp_path, {}))
    assert (state.current, state.expected, state.standing) == (schemas.schema_version(), 0, "new")


async def test_every_shipped_query_fits_the_schema(place: Place) -> None:
    await migrate(place.admin, runtime_urls=place.runtime)
    async with connected(place.admin, search_path="pg_catalog") as connection:
        for query in {**schemas.queries(), **schemas.bootstrap()}.values():
            await connection.prepare(query.sql)
