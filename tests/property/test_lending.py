"""A database that a test gets is as a new one, whatever the test before did to it. pg_dump is the judge."""

import asyncio
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import NamedTuple

import asyncpg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.embedded import Urls
from tests.support.databases import fresh_database
from tests.support.lending import Lender, restore
from tests.support.place import connected, run_sql
from tests.support.server import Server, tools

TABLES = "FROM pg_class WHERE relkind = 'r' AND oid >= 16384"
ROWS = [
    """SELECT supervisor.save_job('test', 'a', '{"domain": "command", "payload": {"argv": []}}', true)""",
    "SELECT supervisor.enqueue('a', '{}')",
    "SELECT supervisor.acquire('w1', 60, 7, 0, 0, 0)",
    "SELECT supervisor.emit('a.type', '{}')",
    "SELECT supervisor.save_setting('test', 'max_assignments', '5')",
    "DELETE FROM supervisor.setting WHERE name = 'max_assignments'",
    "UPDATE supervisor.leader_epoch SET epoch = 70",
    "SELECT dedup.add_library('test', 'photos', 'photos')",
    f"""DO $$ DECLARE t regclass; BEGIN
        FOR t IN SELECT oid {TABLES} LOOP EXECUTE 'DELETE FROM ' || t; END LOOP;
    END $$""",
    "SELECT nextval(seqrelid::regclass) FROM pg_sequence",
    "SELECT setval(seqrelid::regclass, 1000) FROM pg_sequence",
    f"DO $$ BEGIN EXECUTE (SELECT 'TRUNCATE ' || string_agg(oid::regclass::text, ', ') {TABLES}); END $$",
]
OTHERS = [
    "CREATE TABLE supervisor.more (id int)",
    "DROP TABLE supervisor.api_token CASCADE",
    "CREATE OR REPLACE FUNCTION supervisor.fence(p_epoch bigint) RETURNS void LANGUAGE sql AS ''",
    "DROP FUNCTION supervisor.fence(bigint)",
    "ALTER TABLE supervisor.job_run DISABLE TRIGGER ALL",
    "ALTER TABLE supervisor.setting ADD COLUMN note text",
    "ALTER TABLE supervisor.setting DROP COLUMN value",
    "ALTER TABLE supervisor.setting ALTER COLUMN value DROP NOT NULL",
    "ALTER TABLE supervisor.setting SET (fillfactor = 50)",
    "ALTER TABLE supervisor.setting OWNER TO CURRENT_USER",
    "CREATE INDEX ON supervisor.job_run (domain)",
    "GRANT UPDATE ON supervisor.job_run TO tenure_worker",
    "GRANT UPDATE (state) ON supervisor.job_run TO tenure_worker",
    "REVOKE SELECT ON supervisor.setting FROM tenure_control",
    "REVOKE USAGE ON SCHEMA supervisor FROM tenure_worker",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO tenure_worker",
    "COMMENT ON TABLE supervisor.setting IS 'changed'",
    "CREATE SCHEMA elsewhere",
    "CREATE TYPE public.mood AS ENUM ('good')",
    "CREATE EXTENSION pg_trgm",
    "CREATE STATISTICS supervisor.both ON state, domain FROM supervisor.job_run",
    """DO $$ BEGIN EXECUTE (
        SELECT 'ALTER SEQUENCE ' || min(seqrelid::regclass::text) || ' CACHE 2' FROM pg_sequence);
    END $$""",
    "SELECT lo_create(0)",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET work_mem = ''1MB''', current_database()); END $$",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I CONNECTION LIMIT 50', current_database()); END $$",
    "DO $$ BEGIN EXECUTE format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()); END $$",
    "ANALYZE supervisor.setting",  # the last one: reltuples know no transaction
]


async def dump(urls: Urls) -> str:
    """Rows, sequences, schema, rights and settings, without the name."""
    command = [str(tools(Path()) / "pg_dump"), "--create", "--restrict-key=none", "--dbname", urls.admin]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode().replace(urls.admin.rpartition("/")[2].partition("?")[0], "NAME")


class Fresh(NamedTuple):
    """The dump of a new database; a difference is shown by its lines."""

    dumped: str

    def __repr__(self) -> str:
        return "a new database"

    async def difference(self, urls: Urls) -> str:
        dumped = await dump(urls)
        return "\n".join(unified_diff(self.dumped.splitlines(), dumped.splitlines(), n=0, lineterm=""))


async def spoil(urls: Urls, statements: Sequence[str]) -> None:
    """Each of them, or nothing of it where another one is in its way."""
    async with connected(urls.admin, session_replication_role="replica") as connection:
        for statement in statements:
            try:
                await connection.execute(statement)
            except (asyncpg.PostgresSyntaxError, asyncpg.InvalidTextRepresentationError):
                raise
            except asyncpg.PostgresError:
                continue


@pytest.fixture(scope="module")
def fresh(server: Server) -> Fresh:
    async def read() -> Fresh:
        async with fresh_database(server) as urls:
            return Fresh(await dump(urls))

    return asyncio.run(read())


@settings(max_examples=10)
@given(st.lists(st.sampled_from([*ROWS, *OTHERS]), min_size=1, max_size=6))
async def test_whatever_was_done_to_it_the_next_one_is_as_new(
    lender: Lender, fresh: Fresh, statements: list[str]
) -> None:
    async with lender.lend() as urls:
        await spoil(urls, statements)
    async with lender.lend() as again:
        assert await fresh.difference(again) == ""


async def test_every_change_of_schema_rights_settings_or_statistics_is_noticed(lender: Lender) -> None:
    async with lender.lend() as urls, connected(urls.admin) as connection:
        assert lender.original is not None
        assert await restore(connection, lender.original)
        for statement in OTHERS:
            attempt = connection.transaction()
            await attempt.start()
            await connection.execute(statement)
            assert not await restore(connection, lender.original), statement
            await attempt.rollback()


async def test_one_whose_schema_changed_is_not_lent_again(lender: Lender) -> None:
    async with lender.lend() as urls:
        oid = await oid_of(urls)
        await run_sql(urls.admin, OTHERS[0])
    async with lender.lend() as again:
        assert await oid_of(again) != oid


async def test_rows_and_sequences_are_put_right_without_a_new_database(lender: Lender, fresh: Fresh) -> None:
    async with lender.lend() as urls:
        oid = await oid_of(urls)
        async with connected(urls.admin, session_replication_role="replica") as connection:
            for statement in ROWS:
                await connection.execute(statement)
    async with lender.lend() as again:
        assert await oid_of(again) == oid
        assert await fresh.difference(again) == ""


async def test_one_that_is_still_in_use_is_dropped_and_its_user_reaches_nobody_elses(lender: Lender) -> None:
    async with lender.lend() as urls:
        oid = await oid_of(urls)
        left = await asyncpg.connect(urls.admin)
    with pytest.raises((asyncpg.PostgresConnectionError, asyncpg.InterfaceError)):
        await left.execute("SELECT 1")
    async with lender.lend() as again:
        assert await oid_of(again) != oid


async def oid_of(urls: Urls) -> int:
    async with connected(urls.admin) as connection:
        return int(
            await connection.fetchval("SELECT oid FROM pg_database WHERE datname = current_database()")
        )
