"""Roles, rights and passwords that `migrate` makes, and what it does where it may not make them."""

import asyncio

import asyncpg
import pytest

import schemas
from schemas.migrate import NeedsAdministrator, check, migrate
from supervisor.errors import BadInput, DatabaseUnreachable
from tests.support.eventually import eventually
from tests.support.place import RUNTIME, Place, connected, fingerprint, run_script, run_sql, value


async def test_runtime_sessions_are_bounded(place: Place) -> None:
    await migrate(place.admin, runtime_urls=place.runtime)
    for key, url in place.runtime.items():
        async with connected(url) as connection:
            settings = {name: await connection.fetchval(f"SHOW {name}") for name in (
                "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout",
                "synchronous_commit", "search_path",
            )}  # fmt: skip
        assert settings == {
            "statement_timeout": "0" if key == "maintenance" else "5s",
            "lock_timeout": "2s",
            "idle_in_transaction_session_timeout": "5s",
            "synchronous_commit": "on",
            "search_path": "pg_catalog",
        }
    # Roles are the cluster's: elsewhere these limits would surprise somebody.
    assert await value(place.server.urls("postgres").control, "SHOW statement_timeout") == "0"


async def test_nobody_else_gets_in_and_nobody_makes_objects(place: Place) -> None:
    await migrate(place.admin, runtime_urls=place.runtime)
    await run_sql(place.admin, "CREATE ROLE stranger LOGIN PASSWORD 'pw'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="permission denied for database"):
        await value(place.url("stranger"), "SELECT 1")
    for url in place.runtime.values():
        for statement in (
            "CREATE TABLE public.t (id int)",
            "CREATE TABLE supervisor.t (id int)",
            "CREATE SCHEMA s",
            "CREATE TEMPORARY TABLE t (id int)",
            "DELETE FROM supervisor.schema_migration",
            "SET ROLE tenure_owner",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await run_sql(url, statement)
    await run_sql(place.runtime["maintenance"], "CHECKPOINT")
    await run_sql(
        place.runtime["maintenance"], "SELECT pg_switch_wal(), redo_lsn FROM pg_control_checkpoint()"
    )
    for key in ("control", "worker", "console", "client"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await run_sql(place.runtime[key], "SELECT pg_switch_wal()")


async def test_a_later_function_is_not_for_everybody(place: Place) -> None:
    await migrate(place.admin, runtime_urls=place.runtime)
    async with connected(place.admin) as connection, connection.transaction():
        await connection.execute("SET LOCAL ROLE tenure_owner")
        await connection.execute("CREATE FUNCTION supervisor.later() RETURNS int LANGUAGE sql AS 'SELECT 1'")
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await value(place.runtime["control"], "SELECT supervisor.later()")


@pytest.mark.parametrize(
    ("before", "meanwhile"),
    [
        ("SELECT 1", "CREATE ROLE tenure_client NOLOGIN"),
        ("CREATE ROLE tenure_client NOLOGIN", "ALTER ROLE tenure_client VALID UNTIL 'infinity'"),
    ],
)
async def test_a_role_that_another_session_writes_is_no_failure(
    place: Place, before: str, meanwhile: str
) -> None:
    """A lost race for a shared catalog row: a unique violation, and `tuple concurrently updated`."""
    waiting = """SELECT count(*) FROM pg_stat_activity
                  WHERE application_name = 'tenure migrate' AND wait_event_type = 'Lock'"""
    await run_sql(place.system, before, "CREATE DATABASE tenure")
    async with connected(place.system) as other:
        transaction = other.transaction()
        await transaction.start()
        await other.execute(meanwhile)
        task = asyncio.create_task(migrate(place.admin, runtime_urls=place.runtime))
        await eventually(lambda: value(place.system, waiting), what="migrate waits for the role")
        await transaction.commit()
        await task
    assert await value(place.runtime["client"], "SELECT 1") == 1


async def test_without_the_right_to_make_roles_the_administrator_gets_the_sql(place: Place) -> None:
    await run_sql(place.system, "CREATE ROLE ops LOGIN PASSWORD 'pw'", "CREATE DATABASE tenure OWNER ops")
    runtime = {**place.runtime, "control": place.url("app", password="app-secret")}
    before = await fingerprint(place.admin)
    with pytest.raises(NeedsAdministrator) as caught:
        await migrate(place.url("ops"), runtime_urls=runtime)
    assert await fingerprint(place.admin) == before
    assert "ops may not" in str(caught.value)
    assert "CREATE ROLE tenure_owner NOLOGIN;" in str(caught.value)
    assert caught.value.exit_code == 1
    for secret in ("app-secret", *place.server.passwords.values()):
        assert secret not in str(caught.value)

    await run_script(place.admin, caught.value.facts["sql"])
    report = await migrate(place.url("ops"), runtime_urls=runtime)
    assert report.version == schemas.schema_version()
    for url in runtime.values():
        assert await value(url, "SHOW lock_timeout") == "2s"
    assert not (await migrate(place.url("ops"), runtime_urls=runtime)).changed


async def test_without_any_right_the_script_makes_the_database_too(place: Place) -> None:
    await run_sql(place.system, "CREATE ROLE ops LOGIN PASSWORD 'pw'")
    before = await fingerprint(place.system)
    with pytest.raises(NeedsAdministrator) as caught:
        await migrate(place.url("ops"), runtime_urls=place.runtime)
    assert await fingerprint(place.system) == before
    await run_script(place.system, caught.value.facts["sql"])
    assert (await migrate(place.url("ops"), runtime_urls=place.runtime)).applied


async def test_in_a_database_of_somebody_else_the_script_has_the_rights_on_it(place: Place) -> None:
    await run_sql(place.system, "CREATE ROLE ops LOGIN PASSWORD 'pw'", "CREATE DATABASE tenure")
    with pytest.raises(NeedsAdministrator, match="GRANT CREATE ON DATABASE tenure TO tenure_owner") as caught:
        await migrate(place.url("ops"), runtime_urls=place.runtime)
    await run_script(place.admin, caught.value.facts["sql"])
    assert (await migrate(place.url("ops"), runtime_urls=place.runtime)).applied


async def test_the_right_to_make_roles_and_databases_is_enough(place: Place) -> None:
    await run_sql(place.system, "CREATE ROLE ops LOGIN CREATEROLE CREATEDB PASSWORD 'pw'")
    report = await migrate(place.url("ops"), runtime_urls=place.runtime)
    assert report.applied
    assert await value(place.runtime["worker"], "SELECT 1") == 1
    assert not (await migrate(place.url("ops"), runtime_urls=place.runtime)).changed
    # The administrator comes later and adds what only he may: nobody is nagged for it meanwhile.
    assert (await migrate(place.admin, runtime_urls=place.runtime)).prepared in (
        ("grant pg_switch_wal() to tenure_maintenance",),
        ("grant pg_checkpoint to tenure_maintenance", "grant pg_switch_wal() to tenure_maintenance"),
    )
    assert not (await migrate(place.admin, runtime_urls=place.runtime)).changed


async def test_one_url_for_everything_works(place: Place) -> None:
    await run_sql(place.system, "CREATE ROLE ops LOGIN CREATEROLE CREATEDB PASSWORD 'pw'")
    url = place.url("ops")
    await migrate(url, runtime_urls=dict.fromkeys(RUNTIME, url))
    assert await value(url, "SHOW statement_timeout") == "0"
    assert (await check(url)).standing == "equal"
    assert await value(url, "SELECT has_function_privilege('supervisor.server_identity()', 'EXECUTE')")


async def test_a_login_of_its_own_joins_its_groups(place: Place) -> None:
    runtime = {"control": place.url("app"), "worker": place.url("app"), "console": place.url("web x")}
    await migrate(place.admin, runtime_urls=runtime)
    groups = "SELECT array_agg(g) FROM unnest($1::text[]) g WHERE pg_has_role(g, 'USAGE')"
    every = [f"tenure_{key}" for key in RUNTIME]
    assert await value(place.url("app"), groups, every) == ["tenure_control", "tenure_worker"]
    assert await value(place.url("web x"), groups, every) == ["tenure_console"]
    assert not await value(
        place.admin, "SELECT bool_or(rolcanlogin) FROM pg_roles WHERE rolname = ANY ($1)", every
    )


async def test_a_password_is_set_only_when_it_does_not_work(place: Place) -> None:
    stored = "SELECT array_agg(rolpassword) FROM pg_authid WHERE rolname IN ('tenure_worker', 'app')"
    await migrate(
        place.admin, runtime_urls={"worker": place.url("tenure_worker"), "control": place.url("app")}
    )
    first = await value(place.admin, stored)
    await migrate(
        place.admin, runtime_urls={"worker": place.url("tenure_worker"), "control": place.url("app")}
    )
    assert await value(place.admin, stored) == first
    # Our own role gets the new password; a role that is not ours keeps its own, whatever the URL says.
    new = {"worker": place.url("tenure_worker", password="new"), "control": place.url("app", password="typo")}
    await migrate(place.admin, runtime_urls=new)
    assert await value(new["worker"], "SELECT 1") == 1
    assert await value(place.url("app"), "SELECT 1") == 1


async def test_a_password_of_any_letters_works(place: Place) -> None:
    for password in ("caf\u00e9 \u2168", "a\u00a0b\u00ad", "'\"\\; --", "p@ss/w#rd?%"):
        url = place.url("tenure_worker", password=password)
        await migrate(place.admin, runtime_urls={"worker": url})
        assert await value(url, "SELECT 1") == 1


async def test_no_password_reaches_the_server_in_clear(place: Place) -> None:
    """With log_statement=all the log has every text that pg_stat_activity showed, and the parameters."""
    secret = "S3cr3t-of-the-worker"
    begin = place.log.stat().st_size
    await migrate(
        place.admin,
        runtime_urls={
            "worker": place.url("tenure_worker", password=secret),
            "control": place.url("app", password=secret),
        },
    )
    with place.log.open() as log:
        log.seek(begin)
        text = log.read()
    assert "ALTER ROLE tenure_worker LOGIN PASSWORD 'SCRAM-SHA-256$" in text
    assert "CREATE ROLE app LOGIN PASSWORD 'SCRAM-SHA-256$" in text
    assert secret not in text


async def test_no_password_in_an_error(place: Place) -> None:
    for url, error in (
        (place.url("nobody", password="s3cret"), DatabaseUnreachable),
        ("postgresql://u:s3cret@127.0.0.1:1/tenure", DatabaseUnreachable),
        ("postgresql://u:s3cret#x@127.0.0.1/tenure", BadInput),
        ("postgresql://u:s3cret@127.0.0.1", BadInput),
    ):
        with pytest.raises(error) as caught:
            await migrate(url)
        assert "s3cret" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"
    with pytest.raises(DatabaseUnreachable) as unreachable:
        await check("postgresql://u:s3cret@127.0.0.1:1/tenure")
    assert unreachable.value.exit_code == 3
