"""One database a project: made and migrated by its key, under [db], beside OpenMemory, and with a prefix."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from actors.scm.leases import SYNC
from schemas import SHIPPED, schema_version
from schemas.migrate import OtherNames, check, migrate
from schemas.prefix import SCHEMAS, prefix_for
from supervisor.embedded import USERS, Urls
from supervisor.lease_sql import render
from supervisor.project import database_for_test, in_database
from tests.support import databases
from tests.support.command_line import Cli, command_line
from tests.support.place import connected, run_sql, value
from tests.support.server import Server

NAMES = "SELECT array_agg(nspname::text ORDER BY nspname) FROM pg_namespace WHERE nspname ~ $1"
FIVE = f"({'|'.join(SCHEMAS)})$"
EXISTS = "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)"
DB_TABLE = """[db]
project_key = '{key}'
host = '127.0.0.1'
port = {port}
user = '{user}'
password = '''{password}'''
admin_user = '{admin}'
admin_password = '{admin_password}'
"""


@pytest.fixture(autouse=True)
def testing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PROJECT_KEY", "POSTGRES_DB"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ENGRAM_TESTING", "1")


@pytest.fixture
async def key(server: Server) -> AsyncIterator[str]:
    """The name of a database that is not there, and is not there afterwards."""
    name = database_for_test("proj_a", uuid4().hex[:12])
    yield name
    await databases.drop(server, name)


@pytest.fixture
def cli(server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """On this server, in a database that nobody has made."""
    urls = server.urls("proj_none")
    run = command_line(urls, monkeypatch, tmp_path)
    monkeypatch.setenv("TENURE_MIGRATE_DATABASE_URL", urls.admin)
    return run


async def exists(server: Server, name: str) -> bool:
    return bool(await value(server.urls("postgres").admin, EXISTS, name))


async def fingerprint(url: str) -> list[list[asyncpg.Record]]:
    """What stands in this database's own catalogs; those of the cluster change under other tests."""
    async with connected(url) as connection:
        return [
            await connection.fetch(f"SELECT xmin, ctid FROM pg_{name} ORDER BY ctid")
            for name in ("namespace", "class", "proc", "constraint", "trigger", "default_acl")
        ]


async def names(url: str) -> object:
    return await value(url, NAMES, FIVE)


async def test_a_project_gets_its_database(cli: Cli, server: Server, key: str) -> None:
    """R001-051, R001-058, R001-059: KEY on the same server is made, with all five schemas, once"""
    made = (await cli("migrate", "--project-key", key, "--json")).json()
    assert (made["database"], made["version"], made["changed"]) == (key, schema_version(), True)
    assert f"create database {key}" in made["prepared"]
    assert await names(server.urls(key).admin) == sorted(SCHEMAS)
    for url in (server.urls(key).control, server.urls(key).worker):
        assert await value(url, "SHOW lock_timeout") == "2s"
    assert "was already" in (await cli("migrate", "--project-key", key)).out
    assert not await exists(server, "proj_none"), "the database of the URL is another's"


async def test_without_the_right_to_make_it_the_sql_is_printed(
    cli: Cli, server: Server, database: Urls, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-058: as without a project"""
    monkeypatch.setenv("TENURE_MIGRATE_DATABASE_URL", database.client)
    answer = await cli("migrate", "--project-key", key)
    assert answer.code == 1
    assert f"CREATE DATABASE {key} OWNER tenure_client" in answer.out
    assert "superuser" in answer.err
    assert not await exists(server, key)


async def test_two_that_make_the_same_database(server: Server, key: str) -> None:
    """R001-058: each migration is applied by one of them, and none fails"""
    urls = Urls(**{role: in_database(url, key) for role, url in vars(server.urls("other")).items()})
    reports = await asyncio.gather(
        *(migrate(urls.admin, runtime_urls={"control": urls.control}) for _ in range(3))
    )
    assert sorted(number for report in reports for number in report.applied) == list(
        range(1, schema_version() + 1)
    )
    assert sum(f"create database {key}" in report.prepared for report in reports) == 1


async def test_the_parts_of_an_address(
    cli: Cli, server: Server, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-052, R001-053, R001-058: [db] alone is enough, whatever letters the login has"""
    for name in ("TENURE_DATABASE_URL", "TENURE_WORKER_DATABASE_URL", "TENURE_MIGRATE_DATABASE_URL"):
        monkeypatch.delenv(name)
    user, password = f"u@{uuid4().hex[:8]}/:", 'p@ss/w#rd?% "x"'
    (tmp_path / "tenure.toml").write_text(
        DB_TABLE.format(
            key=key, port=server.port, user=user, password=password,
            admin=USERS["admin"], admin_password=server.passwords["admin"],
        )
    )  # fmt: skip
    try:
        done = await cli("migrate")
        assert (done.code, f"{key} is now at schema" in done.out) == (0, True), done.err
        assert password not in done.out + done.err
        assert server.passwords["admin"] not in done.out + done.err
        assert (await cli("status")).code == 0
        shown = (await cli("migrate", "--print-openmemory-env", "--with-password", "--json")).json()
        login = {name.removeprefix("OM_PG_").lower(): shown[name] for name in shown}
        connection = await asyncpg.connect(
            host=login["host"], port=int(login["port"]), user=login["user"], password=login["password"],
            database=login["db"],
        )  # fmt: skip
        assert await connection.fetchval("SELECT current_user::text") == user
        await connection.close()
    finally:
        await databases.drop(server, key)
        await databases.run_as_admin(server, [f'DROP ROLE IF EXISTS "{user}"'])


async def test_openmemory_is_left_as_it_is(cli: Cli, server: Server, key: str) -> None:
    """R001-060: schema, tables, rights and rows are the same after each run; the ledger is not in public"""
    admin = server.urls(key).admin
    await databases.run_as_admin(server, [f"CREATE DATABASE {key}"])
    await run_sql(
        admin,
        "CREATE SCHEMA openmemory",
        "GRANT USAGE ON SCHEMA openmemory TO PUBLIC",
        "CREATE TABLE openmemory.openmemory_memories (id bigint PRIMARY KEY, content text NOT NULL)",
        "CREATE TABLE openmemory.openmemory_vectors (id bigint REFERENCES openmemory.openmemory_memories)",
        "GRANT SELECT, INSERT ON openmemory.openmemory_memories TO PUBLIC",
        "CREATE FUNCTION openmemory.touch() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "INSERT INTO openmemory.openmemory_memories SELECT n, 'memory' FROM generate_series(1, 50) AS n",
        "INSERT INTO openmemory.openmemory_vectors VALUES (7)",
    )
    before = await openmemory(admin)
    for _ in range(2):
        assert (await cli("migrate", "--project-key", key)).code == 0
        assert await openmemory(admin) == before
    # media has its tables there; nothing else does
    left = (
        "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relname !~ '^media_'"
    )
    assert await value(admin, left) == 0


async def openmemory(url: str) -> list[list[asyncpg.Record]]:
    """Every row of it and every catalog row about it, with the transaction that wrote it."""
    here = "namespace = 'openmemory'::regnamespace ORDER BY oid"
    async with connected(url) as connection:
        return [
            await connection.fetch(query)
            for query in (
                "SELECT xmin, ctid, * FROM openmemory.openmemory_memories ORDER BY id",
                "SELECT xmin, ctid, * FROM openmemory.openmemory_vectors ORDER BY id",
                "SELECT xmin, oid, nspowner, nspacl::text FROM pg_namespace WHERE nspname = 'openmemory'",
                f"SELECT xmin, oid, relname, relacl::text FROM pg_class WHERE rel{here}",
                f"SELECT xmin, oid, proname, proacl::text FROM pg_proc WHERE pro{here}",
                f"SELECT xmin, oid, conname FROM pg_constraint WHERE con{here}",
            )
        ]


async def test_each_test_has_a_database_of_its_own(server: Server) -> None:
    """R001-057: made for it, at an address of its own, and dropped afterwards"""
    async with databases.fresh_database(server) as one, databases.fresh_database(server) as other:
        await run_sql(one.admin, "CREATE TABLE supervisor.mine (id int)")
        found = [
            await value(url.admin, "SELECT to_regclass('supervisor.mine')::text") for url in (one, other)
        ]
        assert found == ["supervisor.mine", None]
        made = [url.control.rpartition("/")[2] for url in (one, other)]
        assert len({one.control, other.control}) == 2
    assert [await exists(server, name) for name in made] == [False, False]


async def test_a_prefix_is_refused_in_production(
    cli: Cli, server: Server, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-061: exit 2, and no database was made"""
    monkeypatch.delenv("ENGRAM_TESTING")
    answer = await cli("migrate", "--schema-prefix", "ci")
    assert (answer.code, "ENGRAM_TESTING=1" in answer.err) == (2, True)
    assert not await exists(server, "proj_none")


async def test_the_schemas_under_a_prefix(cli: Cli, server: Server, key: str) -> None:
    """R001-062: <prefix>_identity and the others, and no other names, later either"""
    admin = server.urls(key).admin
    asked = ("migrate", "--project-key", key)
    assert (await cli(*asked, "--schema-prefix", "ci", "--json")).json()["schema_prefix"] == "ci"
    assert await names(admin) == sorted(f"ci_{name}" for name in SCHEMAS)
    await works_under_a_prefix(server.urls(key))
    before = await fingerprint(admin)
    for other in ((), ("--schema-prefix", "ci2")):
        answer = await cli(*asked, *other)
        assert (answer.code, "named as in ci_identity" in answer.err) == (4, True), answer
    with pytest.raises(OtherNames, match="ci_identity, and identity is asked for"):
        await check(server.urls(key).control)
    assert await fingerprint(admin) == before
    assert "was already" in (await cli(*asked, "--schema-prefix", "ci")).out


async def works_under_a_prefix(urls: Urls) -> None:
    """An item, a synced revision with its evidence, and the views, by the runtime roles and their rights."""
    ci = prefix_for(SHIPPED, "ci")
    async with connected(urls.admin) as admin:
        bodies = await admin.fetch("SELECT prosrc FROM pg_proc WHERE proowner = 'tenure_owner'::regrole")
        plain = {name for row in bodies for name in re.findall(rf"(?<!\w){FIVE[:-1]}\.(\w+)", row["prosrc"])}
        assert {".".join(name) for name in plain} & ci.created == set()
    revision = {"rev": 7, "author": "alice", "ts": "2024-01-01T00:00:07Z", "message": "m", "meta": {}}
    patch = {"uri": "scm/1/svn/r7.diff", "sha256": "a" * 64, "size_bytes": 12}
    async with connected(urls.control) as control, connected(urls.worker) as worker:
        item = await control.fetchval("SELECT ci_logbook.add_item('note', 'first', 'open', 'proj', '{}')")
        await control.execute("SELECT ci_logbook.add_event($1, 'note.done', 'done', '{}')", item)
        await control.execute(
            "SELECT ci_scm.add_repo('test', 'r', 'svn', 'svn://svn.example/r', 'proj', NULL, '{}')"
        )
        await control.execute("SELECT ci_scm.request_sync('test', 'r', 'svn')")
        (row,) = await worker.fetch(ci.render(render(SYNC).claim.sql), "w1", 10, "scm")
        run, claim = row["c0"], row["c1"]
        await worker.execute("SELECT ci_scm.begin_sync($1, $2)", run, claim)
        facts = json.dumps([{**revision, "patch": patch}])
        answer = await worker.fetchrow(
            "SELECT * FROM ci_scm.record_svn($1, $2, 1, $3, '7')", run, claim, facts
        )
        assert answer is not None
        assert (answer["inserted"], answer["is_new"]) == (1, True)
        assert await control.fetchval("SELECT source_id FROM ci_scm.svn_revisions") == "svn:1:7"
        shown = await control.fetchrow(
            "SELECT title, status, events FROM ci_logbook.index WHERE item_id = $1", item
        )
        assert shown is not None
        assert tuple(shown) == ("first", "done", 1)
        assert await control.fetchval("SELECT uri FROM ci_logbook.manifest") == patch["uri"]
        assert await control.fetchval("SELECT run_id FROM ci_scm.sync_locks") == run
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await worker.execute("INSERT INTO ci_logbook.items (item_type) VALUES ('x')")


async def test_plain_names_stay_plain(cli: Cli, database: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    """R001-062: a database with the schemas is not given them again under a prefix"""
    monkeypatch.setenv("TENURE_MIGRATE_DATABASE_URL", database.admin)
    before = await fingerprint(database.admin)
    answer = await cli("migrate", "--schema-prefix", "ci")
    assert (answer.code, "named as in identity, and ci_identity is asked for" in answer.err) == (4, True)
    assert await fingerprint(database.admin) == before


async def test_a_race_of_names_has_one_winner(server: Server, key: str) -> None:
    """R001-062: with a prefix and without, at the same time: one of them ends, complete, and never both"""
    urls = server.urls(key)
    done = await asyncio.gather(
        *(migrate(urls.admin, prefix=prefix) for prefix in (None, "ci")), return_exceptions=True
    )
    lost = [isinstance(one, OtherNames) for one in done]
    assert sorted(lost) == [False, True], done
    assert await names(urls.admin) == sorted(("ci_" if lost[0] else "") + name for name in SCHEMAS)
    assert not (await migrate(urls.admin, prefix="ci" if lost[0] else None)).changed
