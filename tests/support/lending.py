"""Lend databases to tests and make them as new again, instead of making and dropping one for each.

A returned database gets the rows and sequences of a new one. That takes 10 ms; a new one takes 100 ms and
a checkpoint that all tests wait for. A database is dropped instead if its schema, rights, settings or
statistics differ from those of a new one, or if another connection is still open. Counters, dead rows and
transaction ids are not restored: a test that depends on them has the marker `fresh_database`.

The lender keeps a connection to each of its databases, because the catalog caches of a new connection
would cost more than the rest. So all its methods run in one event loop, that of the test session. Sessions
that tests gave back (tests/support/sessions.py) stay open too.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from typing import Final, NamedTuple

import asyncpg

from supervisor.embedded import Urls
from tests.support import sessions
from tests.support.databases import create, drop
from tests.support.server import Server
from tests.support.slowness import Allowance

Connection = asyncpg.Connection
Record = asyncpg.Record
LEAVE_SECONDS: Final = 1.0
"""A server process ends a moment after the connection that it served."""
LARGE_BYTES: Final = 262_144
"""Deleting leaves dead rows behind and is ten times as quick as truncating."""
OPTIONS: Final = {
    "application_name": "lender",
    "lock_timeout": "2s",  # a prepared transaction, say
    "session_replication_role": "replica",  # no trigger has a say in this
}

CATALOGS: Final = (
    "pg_aggregate", "pg_am", "pg_attrdef", "pg_attribute", "pg_cast", "pg_collation", "pg_constraint",
    "pg_default_acl", "pg_depend", "pg_description", "pg_enum", "pg_event_trigger", "pg_extension",
    "pg_index", "pg_inherits", "pg_init_privs", "pg_largeobject_metadata", "pg_namespace", "pg_operator",
    "pg_partitioned_table", "pg_policy", "pg_proc", "pg_publication", "pg_range", "pg_rewrite", "pg_seclabel",
    "pg_sequence", "pg_statistic_ext", "pg_trigger", "pg_ts_config", "pg_type",
)  # fmt: skip
_COUNTS = " UNION ALL ".join(
    f"SELECT '{name}', count(*)::text, coalesce(max(xmin::text::bigint), 0)::text FROM pg_catalog.{name}"
    for name in CATALOGS
)
# A clone has the transaction ids of its template. Truncating a table changes that of its row in pg_class.
# A table that was analyzed has reltuples, and plans of its own.
SCHEMA: Final = f"""
    {_COUNTS}
    UNION ALL
    SELECT 'pg_class', count(*)::text, md5(string_agg(concat_ws(
        ' ', oid, relname, relnamespace, reltype, relowner, relam, reltablespace, relpersistence, relkind,
        relchecks, relhasrules, relhastriggers, relrowsecurity, relforcerowsecurity, relreplident,
        relispartition, relacl, reloptions, relpartbound,
        CASE relkind WHEN 'r' THEN reltuples END), ';' ORDER BY oid))
    FROM pg_catalog.pg_class WHERE oid >= 16384
    UNION ALL
    SELECT 'pg_database', concat_ws(' ', datdba, datacl, datallowconn, datconnlimit), (
        SELECT string_agg(concat_ws(' ', setrole, setconfig), ';' ORDER BY setrole)
        FROM pg_catalog.pg_db_role_setting s WHERE s.setdatabase = d.oid)
    FROM pg_catalog.pg_database d WHERE datname = current_database()
"""
WRITTEN: Final = """
    SELECT n.nspname AS schema, c.relname AS name, pg_relation_size(c.oid) AS size
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relkind = 'r' AND c.oid >= 16384 AND pg_relation_size(c.oid) > 0 ORDER BY c.oid"""
SEQUENCES: Final = """
    SELECT seqrelid::regclass::text AS name, pg_sequence_last_value(seqrelid) AS last, seqstart AS start
    FROM pg_catalog.pg_sequence ORDER BY seqrelid"""
OTHERS: Final = """
    SELECT count(*) FROM pg_catalog.pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
      AND pid <> ALL ($1::int[])"""
RESET: Final = """
    SELECT setval(name::regclass, coalesce(last, start), last IS NOT NULL)
    FROM unnest($1::text[], $2::bigint[], $3::bigint[]) AS wanted (name, last, start)"""


class Table(NamedTuple):
    schema: str
    name: str

    def __str__(self) -> str:
        return f'"{self.schema}"."{self.name}"'


class Seed(NamedTuple):
    """The rows that the migrations put into a table: what COPY says, and their digest."""

    rows: bytes
    digest: str


@dataclass(frozen=True)
class Original:
    """A database as the migrations left it."""

    schema: Sequence[Record]
    sequences: Sequence[Record]
    seeds: Mapping[Table, Seed]


@dataclass
class Lent:
    name: str
    connection: Connection

    async def is_left(self) -> bool:
        """Return whether all other connections were closed."""
        allowance = Allowance(LEAVE_SECONDS)
        while await self.connection.fetchval(OTHERS, sessions.idle_in(self.name)):
            if allowance.used_up():
                return False
            await asyncio.sleep(0.002)
        return True


@dataclass(frozen=True)
class Shared:
    urls: Urls
    connection: Connection
    original: Original

    async def empty(self) -> None:
        assert await restore(self.connection, self.original), "a test of the module changed the schema"


@dataclass
class Lender:
    """The databases of one test process."""

    server: Server
    # not in what hypothesis prints, which is what the class is made of
    idle: list[Lent] = field(default_factory=list, init=False)
    original: Original | None = field(default=None, init=False)

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[Urls]:
        """A migrated database with nothing in it but what the migrations put there."""
        lent = self.idle.pop() if self.idle else await self._make()
        try:
            yield self.server.urls(lent.name)
        finally:
            if await self._is_as_new(lent):
                self.idle.append(lent)
            else:
                await self._drop(lent)

    @asynccontextmanager
    async def lend_to_module(self) -> AsyncIterator["Shared"]:
        """Lend a database that a module's tests share: emptied before each, while connections stay open."""
        async with self.lend() as urls:
            connection = await asyncpg.connect(urls.admin, server_settings=OPTIONS)
            assert self.original is not None
            yield Shared(urls, connection, self.original)
            await connection.close()

    async def close(self) -> None:
        while self.idle:
            await self._drop(self.idle.pop())

    async def _make(self) -> Lent:
        name = await create(self.server)
        connection = await asyncpg.connect(self.server.urls(name).admin, server_settings=OPTIONS)
        if self.original is None:
            self.original = await read_original(connection)
        return Lent(name, connection)

    async def _is_as_new(self, lent: Lent) -> bool:
        assert self.original is not None
        try:
            return await lent.is_left() and await restore(lent.connection, self.original)
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
            return False  # whatever is wrong with it, nobody gets it

    async def _drop(self, lent: Lent) -> None:
        lent.connection.terminate()
        await drop(self.server, lent.name)


async def read_original(connection: Connection) -> Original:
    tables = list(await written(connection))
    found = await digests(connection, tables)
    return Original(
        await connection.fetch(SCHEMA),
        await connection.fetch(SEQUENCES),
        {table: Seed(await _rows(connection, table), found[table]) for table in tables},
    )


async def restore(connection: Connection, original: Original) -> bool:
    """Make the database the original again; return False and change nothing if its schema differs."""
    if await connection.fetch(SCHEMA) != original.schema:
        return False
    strewn = {
        table: size for table, size in (await written(connection)).items() if table not in original.seeds
    }
    if large := [str(table) for table, size in strewn.items() if size > LARGE_BYTES]:
        await connection.execute(f"TRUNCATE {', '.join(large)} CASCADE")
    if strewn:
        await connection.execute(";".join(f"DELETE FROM ONLY {table}" for table in strewn))
    found = await digests(connection, list(original.seeds))
    for table, seed in original.seeds.items():
        if seed.digest != found[table]:
            await connection.execute(f"DELETE FROM {table}")
            await connection.copy_to_table(
                table.name, schema_name=table.schema, source=BytesIO(seed.rows), format="binary"
            )
    if await connection.fetch(SEQUENCES) != original.sequences:
        await connection.execute(RESET, *zip(*original.sequences, strict=True))
    return True


async def written(connection: Connection) -> dict[Table, int]:
    """Return the size of each table that has rows, or had some since it was last truncated."""
    return {Table(schema, name): size for schema, name, size in await connection.fetch(WRITTEN)}


async def _rows(connection: Connection, table: Table) -> bytes:
    rows = BytesIO()
    await connection.copy_from_table(table.name, schema_name=table.schema, output=rows, format="binary")
    return rows.getvalue()


async def digests(connection: Connection, tables: Sequence[Table]) -> dict[Table, str]:
    if not tables:
        return {}
    digest = "SELECT coalesce(md5(string_agg(t::text, ';' ORDER BY t::text)), '') FROM {} t"
    found = await connection.fetchrow("SELECT " + ", ".join(f"({digest.format(table)})" for table in tables))
    return dict(zip(tables, found or (), strict=True))
