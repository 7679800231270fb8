"""Brings a database to the schema of this code: database, roles, rights, numbered migrations, functions.

`migrate` may run at any time, from several places at once, and while replicas of the previous version work:

1. what is there is compared with the files first: a database newer than this code, or a migration whose file
   changed after it was applied, is refused before the first change;
2. roles, database and rights are *plans*: queries (`bootstrap/`) that list the statements still missing. They
   are carried out in one transaction; where this connection may not, nothing is changed and the error holds
   them as a script;
3. each migration runs once, as tenure_owner, in its own transaction together with its row in the ledger;
4. then all functions are created again in one transaction, unless exactly these are there already;
5. then the migrations of installed packages, each package in a namespace of its own under the same rules,
   and the rights on their leased tables, which are what their contracts say, every time.

Each transaction holds one advisory lock of this database, so two migrators take turns. No lock is waited for
longer than lock_timeout; then the transaction gives way to the runtime sessions and is repeated until
`patience_seconds` are over. Roles belong to the cluster, where no lock reaches: losing that race is an error
of a known kind, and the plan is made anew.

Not guaranteed: a run that fails at migration n leaves 1 to n-1 applied; the next run goes on at n.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

import anyio
import asyncpg

from schemas import SHIPPED, Migration, Source, bootstrap
from schemas.login import RUNTIME_ROLES, BadUrl, Login, gather_logins, parse_url, scram_verifier
from schemas.packages import OURS, installed_migrations
from schemas.report import (
    MigrateFailed,
    MigrateReport,
    MigrationChanged,
    NeedsAdministrator,
    PackageState,
    PackageTooNew,
    PackageTooOld,
    SchemaBusy,
    SchemaState,
    SchemaTooNew,
    SchemaTooOld,
)
from supervisor.errors import BadInput, DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence

    from asyncpg import Record

    Connection = asyncpg.Connection[Record]

T = TypeVar("T")

__all__ = [
    "MigrateFailed",
    "MigrateReport",
    "MigrationChanged",
    "NeedsAdministrator",
    "PackageTooNew",
    "PackageTooOld",
    "SchemaBusy",
    "SchemaState",
    "SchemaTooNew",
    "SchemaTooOld",
    "check",
    "migrate",
]

_SESSION_SETTINGS = {
    "application_name": "tenure migrate",
    "search_path": "pg_catalog",
    "lock_timeout": "2s",
    "statement_timeout": "0",
    "idle_in_transaction_session_timeout": "60s",
    "synchronous_commit": "on",
    "client_min_messages": "warning",
}
_CONNECT_SECONDS = 10
_GROUPS = list(RUNTIME_ROLES.values())
# Somebody else was in the way; the same transaction works later.
_TRANSIENT = (asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError, asyncpg.SerializationError)
# Another migrator of the cluster made it after our plan; a new plan does not list it any more.
_OVERTAKEN = (asyncpg.DuplicateDatabaseError, asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError)


def _silent(_line: str) -> None:
    return


async def migrate(
    admin_url: str,
    *,
    runtime_urls: Mapping[str, str] | None = None,
    report: Callable[[str], None] = _silent,
    source: Source = SHIPPED,
    packages: Mapping[str, Source] | None = None,
    rights: Mapping[str, str] | None = None,
    patience_seconds: float = 300,
) -> MigrateReport:
    """Make everything that is missing and say what that was; `report` gets each change after its commit.

    `packages` are by default those that are installed; `rights` has the GRANTs of their tables, by table.
    """
    if packages is None:
        packages = installed_migrations()
    try:
        logins = gather_logins(runtime_urls or {})
        database = parse_url(admin_url, "migrate").database
    except BadUrl as bad:
        raise BadInput(what=str(bad)) from None
    if database is None:
        raise BadInput(what="the migrate URL names no database")
    work = _Work(admin_url, database, logins, source, packages, rights or {}, report, patience_seconds)
    try:
        return await work.run()
    except asyncpg.PostgresConnectionError as error:
        raise DatabaseUnreachable(what=str(error)) from error
    except asyncpg.PostgresError as error:
        raise MigrateFailed(step="migrate", what=str(error)) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise DatabaseUnreachable(what=str(error)) from error


async def check(
    url: str, *, source: Source = SHIPPED, packages: Mapping[str, Source] | None = None
) -> SchemaState:
    """How the schema stands to this code, for the replicas' roles; a missing database has schema 0."""
    none = SchemaState(current=0, expected=source.schema_version(), functions_equal=False)
    if packages is None:
        packages = installed_migrations()
    try:
        async with _connected(url) as connection:
            applied = await connection.fetch(_sql("read_namespaces"))
            functions = await connection.fetchrow(_sql("read_functions"))
    except (asyncpg.InvalidCatalogNameError, asyncpg.InvalidSchemaNameError, asyncpg.UndefinedTableError):
        return none
    except asyncpg.PostgresError as error:
        raise MigrateFailed(step="reading the schema's version", what=str(error)) from error
    reached = {row["namespace"]: row["number"] for row in applied}
    return SchemaState(
        current=reached.get(OURS, 0),
        expected=none.expected,
        functions_equal=functions is not None and functions["sha256"] == source.functions_sha256(),
        packages=tuple(
            PackageState(namespace, reached.get(namespace, 0), package.schema_version())
            for namespace, package in packages.items()
        ),
    )


@dataclass
class _Work:
    """One run of migrate: what it is told, and what it has done so far."""

    admin_url: str
    database: str
    logins: tuple[Login, ...]
    source: Source
    packages: Mapping[str, Source]
    rights: Mapping[str, str]
    report: Callable[[str], None]
    patience_seconds: float
    prepared: list[str] = field(default_factory=list)
    applied: list[tuple[str, int]] = field(default_factory=list)

    async def run(self) -> MigrateReport:
        try:
            async with _connected(self.admin_url) as connection:
                await self._verify(connection)
                await self._make_roles(connection)
                return await self._fill(connection)
        except asyncpg.InvalidCatalogNameError:
            await self._create_database()
        async with _connected(self.admin_url) as connection:
            return await self._fill(connection)

    async def _create_database(self) -> None:
        async def once() -> None:
            plan = await connection.fetch(_sql("plan_creation"), self.database)
            self._tell(await _carry_out(connection, plan))

        async with _connected(self.admin_url, elsewhere=True) as connection:
            if not (await _standing(connection))["may_create_database"]:
                raise await self._needs_administrator(connection)
            await self._make_roles(connection)
            await self._patiently("create database", once)

    async def _make_roles(self, connection: Connection) -> None:
        async def once() -> None:
            logins = await self._described_logins(connection)
            async with _turn(connection):
                plan = await connection.fetch(_sql("plan_roles"), _GROUPS, logins)
                done = await _carry_out(connection, plan)
            self._tell(done)

        await self._entitled("roles", connection, once)

    async def _fill(self, connection: Connection) -> MigrateReport:
        await self._entitled("rights", connection, lambda: self._settle(connection))
        await self._apply_all(connection, OURS, self.source)
        replaced = await self._patiently("functions", lambda: self._replace_functions(connection))
        await self._patiently("partitions", lambda: self._make_partitions(connection))
        for namespace, package in self.packages.items():
            await self._apply_all(connection, namespace, package)
        for table, statements in self.rights.items():
            step = f"the rights on {table}"
            await self._patiently(step, partial(self._grant, connection, step, statements))
        return MigrateReport(
            database=self.database,
            version=self.source.schema_version(),
            prepared=tuple(self.prepared),
            applied=self._numbers(OURS),
            functions_replaced=replaced,
            packages={namespace: self._numbers(namespace) for namespace in self.packages},
        )

    async def _settle(self, connection: Connection) -> None:
        """Settings and rights in the database, then the ledger, as far as they are missing."""
        logins = _described(self.logins)
        async with _turn(connection):
            plan = await connection.fetch(_sql("plan_settings"), self.database, logins)
            plan += await connection.fetch(_sql("plan_database"), _GROUPS)
            done = await _carry_out(connection, plan)
            await connection.execute(_sql("become_owner"))
            done += await _carry_out(connection, await connection.fetch(_sql("plan_ledger"), _GROUPS))
            await self._compare_all(connection)
        self._tell(done)

    async def _apply_all(self, connection: Connection, namespace: str, source: Source) -> None:
        for migration in source.migrations():
            of = "" if namespace == OURS else f" of {namespace}"
            step = f"migration {migration.number} ({migration.name}){of}"
            once = partial(self._apply, connection, namespace, source, migration, step)
            await self._patiently(f"migration {migration.number}{of}", once)

    async def _apply(
        self, connection: Connection, namespace: str, source: Source, migration: Migration, step: str
    ) -> None:
        async with _turn(connection):
            await connection.execute(_sql("become_owner"))
            if migration.number in await _compare(connection, namespace, source):
                return
            with _naming(step):
                await connection.execute(migration.sql)
            await connection.execute(
                _sql("record_migration"), namespace, migration.number, migration.name, migration.sha256
            )
        self.applied.append((namespace, migration.number))
        self.report(f"applied {step}")

    async def _grant(self, connection: Connection, step: str, statements: str) -> None:
        async with _turn(connection):
            await connection.execute(_sql("become_owner"))
            with _naming(step):
                await connection.execute(statements)

    async def _replace_functions(self, connection: Connection) -> bool:
        wanted = (self.source.schema_version(), self.source.functions_sha256())
        async with _turn(connection):
            await connection.execute(_sql("become_owner"))
            await _compare(connection, OURS, self.source)
            row = await connection.fetchrow(_sql("read_functions"))
            if row is not None and (row["number"], row["sha256"]) == wanted:
                return False
            with _naming("functions"):
                await connection.execute(_sql("defer_bodies"))
                for text in self.source.functions():
                    await connection.execute(text)
                await connection.execute(_sql("check_bodies"))
                await connection.fetch(_sql("validate_functions"))
            await connection.execute(_sql("open_ledger"))
            await connection.execute(_sql("record_functions"), *wanted)
        self.report("replaced the functions")
        return True

    async def _make_partitions(self, connection: Connection) -> None:
        async with _turn(connection):
            await connection.execute(_sql("become_owner"))
            if not await connection.fetchval(_sql("find_partition_maker")):
                return
            made = await connection.fetchval(_sql("make_partitions"))
        if made:
            self._tell([f"create {made} partitions of the history"])

    async def _verify(self, connection: Connection) -> None:
        """The comparison before the first change; who may not look yet is compared in each transaction."""
        standing = await _standing(connection)
        if standing["has_ledger"] and standing["may_own"]:
            async with connection.transaction(readonly=True):
                await connection.execute(_sql("become_owner"))
                await self._compare_all(connection)

    async def _compare_all(self, connection: Connection) -> None:
        for namespace, source in {OURS: self.source, **self.packages}.items():
            await _compare(connection, namespace, source)

    def _numbers(self, namespace: str) -> tuple[int, ...]:
        return tuple(number for where, number in self.applied if where == namespace)

    async def _entitled(self, step: str, connection: Connection, once: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._patiently(step, once)
        except asyncpg.InsufficientPrivilegeError as error:
            needed = await self._needs_administrator(connection)
            if not needed.facts["sql"]:
                raise MigrateFailed(step=step, what=str(error)) from error
            raise needed from None

    async def _needs_administrator(self, connection: Connection) -> NeedsAdministrator:
        """The whole script at once: whoever may not make roles often may not do the rest."""
        standing = await _standing(connection)
        logins = await self._described_logins(connection)
        plan = await connection.fetch(_sql("plan_roles"), _GROUPS, logins)
        plan += await connection.fetch(_sql("plan_creation"), self.database)
        plan += await connection.fetch(_sql("plan_settings"), self.database, logins)
        if standing["database"] == self.database and not standing["owns_database"]:
            plan += await connection.fetch(_sql("plan_database"), _GROUPS)
        script = "\n".join(f"{row['statement']};" for row in plan)
        return NeedsAdministrator(user=standing["name"], database=standing["database"], sql=script)

    async def _described_logins(self, connection: Connection) -> str:
        """The logins for plan_roles; only our own roles' passwords are tried, no other role's is ever set."""
        ours = [login.name for login in self.logins if login.name in _GROUPS]
        existing = {row["name"] for row in await connection.fetch(_sql("list_logins"), ours)}
        refused = {
            login.name
            for login in self.logins
            if login.name in existing and await _is_refused(self.admin_url, login)
        }
        return _described(self.logins, refused)

    async def _patiently(self, step: str, once: Callable[[], Awaitable[T]]) -> T:
        give_up_at = anyio.current_time() + self.patience_seconds
        for attempt in count(1):
            try:
                return await once()
            except asyncpg.PostgresError as error:
                if not _is_worth_repeating(error):
                    raise
                if anyio.current_time() > give_up_at:
                    raise SchemaBusy(step=step, seconds=self.patience_seconds, what=str(error)) from error
            # Long enough that whoever queued behind our lock request gets its turn.
            await anyio.sleep(min(0.1 * attempt, 1))
        raise AssertionError("count() does not end")

    def _tell(self, done: Sequence[str]) -> None:
        self.prepared += done
        for what in done:
            self.report(what)


async def _compare(connection: Connection, namespace: str, source: Source) -> set[int]:
    """The numbers applied already; raises where they are not the first ones of this source."""
    known = {migration.number: migration.sha256 for migration in source.migrations()}
    rows = await connection.fetch(_sql("read_applied"), namespace)
    for row in rows:
        if row["number"] not in known:
            facts = {"current": rows[-1]["number"], "expected": source.schema_version()}
            raise SchemaTooNew(**facts) if namespace == OURS else PackageTooNew(namespace=namespace, **facts)
        if row["sha256"] != known[row["number"]]:
            raise MigrationChanged(number=row["number"], name=row["name"], namespace=namespace)
    return {row["number"] for row in rows}


async def _carry_out(connection: Connection, plan: Sequence[Record]) -> list[str]:
    able = [row for row in plan if row["able"]]
    for row in able:
        await connection.execute(row["statement"])
    return list(dict.fromkeys(row["what"] for row in able))


async def _standing(connection: Connection) -> Record:
    row = await connection.fetchrow(_sql("read_standing"))
    assert row is not None  # noqa: S101 - every session has a user
    return row


async def _is_refused(admin_url: str, login: Login) -> bool:
    """Whether the server says no to this password; any other trouble is no reason to set a new one."""
    if login.password is None:
        return False
    try:
        connection = await asyncpg.connect(
            admin_url, user=login.name, password=login.password, timeout=_CONNECT_SECONDS
        )
    except asyncpg.InvalidPasswordError:
        return True
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return False
    await connection.close(timeout=_CONNECT_SECONDS)
    return False


def _described(logins: Sequence[Login], refused: Collection[str] = ()) -> str:
    return json.dumps(
        [
            {
                "name": login.name,
                "groups": login.groups,
                "verifier": scram_verifier(login.password) if login.password else None,
                "refused": login.name in refused,
            }
            for login in logins
        ]
    )


async def _open(url: str, database: str | None = None) -> Connection:
    try:
        return await asyncpg.connect(
            url, database=database, timeout=_CONNECT_SECONDS, server_settings=_SESSION_SETTINGS
        )
    except asyncpg.InvalidCatalogNameError:
        raise
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise DatabaseUnreachable(what=str(error) or type(error).__name__) from error


@asynccontextmanager
async def _connected(url: str, *, elsewhere: bool = False) -> AsyncIterator[Connection]:
    """To the database of the URL, or `elsewhere`: to one that is there, to create ours from."""
    try:
        connection = await _open(url, "postgres" if elsewhere else None)
    except asyncpg.InvalidCatalogNameError:
        if not elsewhere:
            raise
        connection = await _open(url, "template1")
    try:
        yield connection
    finally:
        with anyio.CancelScope(shield=True):
            await connection.close(timeout=_CONNECT_SECONDS)


@asynccontextmanager
async def _turn(connection: Connection) -> AsyncIterator[None]:
    """A transaction that no other migrator of this database runs beside."""
    async with connection.transaction():
        await connection.execute(_sql("take_turn"))
        yield


@contextmanager
def _naming(step: str) -> Iterator[None]:
    """An error in a file says which; one that is not the file's fault passes, to be repeated."""
    try:
        yield
    except asyncpg.PostgresError as error:
        if _is_transient(error):
            raise
        raise MigrateFailed(step=step, what=str(error)) from error


def _is_transient(error: asyncpg.PostgresError) -> bool:
    # Two sessions wrote one catalog row: the server has no code of its own for that, and never translates it.
    return isinstance(error, _TRANSIENT) or "tuple concurrently" in str(error)


def _is_worth_repeating(error: asyncpg.PostgresError) -> bool:
    return _is_transient(error) or isinstance(error, _OVERTAKEN)


def _sql(name: str) -> str:
    return bootstrap()[name].sql
