"""A real PostgreSQL whose functions read a made-up clock.

Every function and default of the schema `supervisor` that reads the clock, draws a number or asks which
server it is gets the simulation's answer instead; nothing else of them changes. Statements run one at a time,
each at its moment of made-up time, on an ordinary event loop inside of the simulated one (a thread of its own
would cost more than the statements do).
"""

import asyncio
import re
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, TypeVar

import asyncpg

from supervisor.embedded import Urls
from tests.support.databases import fresh_database
from tests.support.server import Server

T = TypeVar("T")

BASE: Final = datetime(2031, 3, 4, 5, 6, 40, tzinfo=UTC)
ROLES: Final = ("control", "worker", "maintenance", "admin")
SETTINGS: Final = {"statement_timeout": "0", "lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
TABLES: Final = (
    "leader_epoch", "leader_lease", "tenure_log", "worker", "job_definition", "job_run", "job_run_history",
    "job_run_log", "late_finish", "retry_request", "audit", "skipped_fire", "event", "domain_pause",
)  # fmt: skip
SWAPS: Final = (
    (r"\b(clock_timestamp|statement_timestamp|transaction_timestamp|now)\(\)", "sim.now()"),
    (r"\bgen_random_uuid\(\)", "sim.uuid()"),
    (r"(?<![\w.])random\(\)", "sim.draw()"),
)
PREPARE: Final = """
CREATE SCHEMA sim;
CREATE SEQUENCE sim.drawn;
CREATE TABLE sim.server (system_identifier bigint NOT NULL, timeline integer NOT NULL);
INSERT INTO sim.server VALUES (7000, 1);
CREATE FUNCTION sim.now() RETURNS timestamptz LANGUAGE sql VOLATILE
    RETURN pg_catalog.current_setting('sim.now')::timestamptz;
CREATE FUNCTION sim.at(value anyelement, instant text) RETURNS anyelement LANGUAGE plpgsql VOLATILE AS
    'BEGIN PERFORM pg_catalog.set_config(''sim.now'', instant, false); RETURN value; END';
CREATE FUNCTION sim.uuid() RETURNS uuid LANGUAGE sql VOLATILE SECURITY DEFINER
    RETURN pg_catalog.md5('uuid' || pg_catalog.nextval('sim.drawn'))::uuid;
CREATE FUNCTION sim.draw() RETURNS double precision LANGUAGE sql VOLATILE SECURITY DEFINER
    RETURN (('x' || left(pg_catalog.md5('draw' || pg_catalog.nextval('sim.drawn')), 8))::bit(32)::bigint
            / 4294967296.0)::double precision;
CREATE OR REPLACE FUNCTION supervisor.server_identity(OUT system_identifier bigint, OUT timeline integer)
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    AS 'SELECT s.system_identifier, s.timeline FROM sim.server s';
GRANT USAGE ON SCHEMA sim TO PUBLIC;
GRANT SELECT ON sim.server TO PUBLIC;
"""
FUNCTIONS: Final = """
SELECT p.proname, pg_get_functiondef(p.oid) AS source FROM pg_proc p
WHERE p.pronamespace = 'supervisor'::regnamespace AND p.prokind = 'f' ORDER BY p.oid"""
DEFAULTS: Final = """
SELECT format('ALTER TABLE %s ALTER COLUMN %I SET DEFAULT sim.now()', d.adrelid::regclass, a.attname)
    AS change
FROM pg_attrdef d JOIN pg_class c ON c.oid = d.adrelid
JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
WHERE c.relnamespace = 'supervisor'::regnamespace
  AND pg_get_expr(d.adbin, d.adrelid) ~ 'clock_timestamp|now'"""
# rows must lie where the same statements put them before
STILL: Final = """
SELECT format('ALTER TABLE %s SET (autovacuum_enabled = off)', c.oid::regclass) AS change FROM pg_class c
WHERE c.relnamespace = 'supervisor'::regnamespace AND c.relkind = 'r'"""


def instant(seconds: float) -> datetime:
    return BASE + timedelta(microseconds=round(seconds * 1e6))


@dataclass
class Answer:
    rows: Sequence[asyncpg.Record]
    said: list[str] = field(default_factory=list)
    """What the statement notified."""


class Database:
    """Opened once, used by many simulations, each on connections and empty tables of its own."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._loop = asyncio.new_event_loop()
        self._context = fresh_database(server)
        self._connections: dict[str, asyncpg.Connection] = {}
        self._said: list[str] = []
        self._changed: set[str] = set()
        self.sources: dict[str, str] = {}
        self.urls: Urls = self._do(self._open())

    def close(self) -> None:
        self._do(self._disconnect())
        self._do(self._context.__aexit__(None, None, None))
        self._loop.close()

    def reset(self, changed: Mapping[str, str]) -> None:
        """Empty tables, fresh connections, and the functions as they are but for those `changed`."""
        self._do(self._reset(changed))

    def run(self, role: str, now: datetime, sql: str, *args: Any) -> Answer:
        """One statement, alone; what the server raises is raised here."""
        return self._do(self._run(role, now, sql, args))

    def role_of(self, url: str) -> str:
        return next(role for role in ROLES if getattr(self.urls, role) == url)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        outer = asyncio._get_running_loop()
        asyncio._set_running_loop(None)
        try:
            return self._loop.run_until_complete(work)
        finally:
            asyncio._set_running_loop(outer)

    async def _open(self) -> Urls:
        urls = await self._context.__aenter__()
        admin = await asyncpg.connect(urls.admin)
        try:
            await admin.execute(PREPARE)
            for row in await admin.fetch(FUNCTIONS):
                if (made_up := _made_up(row["source"])) != row["source"]:
                    await admin.execute(made_up)
                self.sources[row["proname"]] = made_up
            await admin.execute("SELECT set_config('sim.now', $1, false)", str(BASE))
            await admin.execute("SELECT supervisor.make_partitions(3)")
            for change in [*await admin.fetch(DEFAULTS), *await admin.fetch(STILL)]:
                await admin.execute(change["change"])
        finally:
            await admin.close()
        return urls

    async def _reset(self, changed: Mapping[str, str]) -> None:
        await self._disconnect()
        for role in ROLES:
            url = getattr(self.urls, role)
            connection = await asyncpg.connect(url, server_settings=SETTINGS)
            await connection.add_listener("tenure", self._heard)
            self._connections[role] = connection
        admin = self._connections["admin"]
        await admin.execute("SET session_replication_role = replica")
        tables = ", ".join(f"supervisor.{name}" for name in TABLES)
        await admin.execute(f"TRUNCATE {tables} RESTART IDENTITY")
        await admin.execute("INSERT INTO supervisor.leader_epoch DEFAULT VALUES")
        await admin.execute("INSERT INTO supervisor.leader_lease DEFAULT VALUES")
        await admin.execute("ALTER SEQUENCE supervisor.job_run_id RESTART; ALTER SEQUENCE sim.drawn RESTART")
        await admin.execute("UPDATE sim.server SET timeline = 1; DROP SCHEMA IF EXISTS sim_past CASCADE")
        await admin.execute("SET session_replication_role = origin")
        for name in sorted(self._changed | set(changed)):
            await admin.execute(changed.get(name, self.sources[name]))
        self._changed = set(changed)

    async def _run(self, role: str, now: datetime, sql: str, args: Sequence[Any]) -> Answer:
        connection = self._connections[role]
        self._said.clear()
        if (timed := _timed(sql)) is not None:
            rows = await connection.fetch(timed, *args, now.isoformat())
        else:
            await connection.execute(f"SET sim.now = '{now.isoformat()}'")
            rows = await connection.fetch(sql, *args)
        await asyncio.sleep(0)
        return Answer(rows, list(self._said))

    def _heard(self, connection: Any, pid: int, _channel: str, payload: object) -> None:
        """A session hears its own words together with the answer, those of others at any time."""
        if connection.get_server_pid() == pid:
            self._said.append(str(payload))

    async def _disconnect(self) -> None:
        while self._connections:
            await self._connections.popitem()[1].close()


@contextmanager
def opened(server: Server) -> Iterator[Database]:
    database = Database(server)
    try:
        yield database
    finally:
        database.close()


@cache
def _timed(sql: str) -> str | None:
    """The same call, and on the way to it the clock is set: an argument is computed before the call.

    None where there is no such argument; one trip to the server is a good part of what a statement costs.
    """
    if not (found := _FIRST_ARGUMENT.search(sql)):
        return None
    last = max(int(number) for number in re.findall(r"\$(\d+)", sql)) + 1
    value = f"sim.at({found['value']}, ${last}::text)"
    return sql[: found.start("value")] + value + sql[found.end("value") :]


_FIRST_ARGUMENT: Final = re.compile(r"supervisor\.\w+\((?P<value>\$1::\w+(\[\])?)")


def _made_up(source: str) -> str:
    if "FUNCTION supervisor.server_identity" in source:
        return source
    for pattern, stand_in in SWAPS:
        source = re.sub(pattern, stand_in, source)
    return source
