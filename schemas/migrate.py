"""Brings a database to the schema of this code: database, roles, rights, numbered migrations, functions.

`migrate` may run at any time, from several places at once, and while replicas of the previous version work:

1. what is there is compared with the files first: a database newer than this code, or a migration whose file
   changed after it was applied, is refused before the first change;
2. roles, database and rights are made as far as they are missing; where this connection may not, nothing is
   changed and the error holds the statements as a script (`schemas.preparation`);
3. each migration runs once, as tenure_owner, in its own transaction together with its row in the ledger;
4. then all functions are created again in one transaction, unless exactly these are there already; what
   their files revoke on leased tables is granted again in it, so that no replica is ever without its rights;
5. then the task types, so that the database knows which arguments the runs of each domain take;
6. then the migrations of installed packages, each package in a namespace of its own under the same rules,
   and the rights on their leased tables, which are what their contracts say, every time.

With a prefix, for tests, all of it is done with the five schemas of the ledger under other names
(`schemas.prefix`); a database that has them under any other name is refused before the first change.

Two migrators take turns, and a transaction that does not get its locks soon gives way to the runtime sessions
(`schemas.connection`); it is repeated until `patience_seconds` are over.

Not guaranteed: a run that fails at migration n leaves 1 to n-1 applied; the next run goes on at n.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import asyncpg

from schemas import SHIPPED, Migration, Source
from schemas.connection import connected, naming, patiently, sql, turn
from schemas.login import BadUrl, gather_logins, parse_url
from schemas.packages import OURS, installed_migrations
from schemas.prefix import OtherNames, prefix_for, under
from schemas.preparation import Preparation
from schemas.report import (
    MigrateFailed,
    MigrateReport,
    MigrationChanged,
    NeedsAdministrator,
    PackageTooNew,
    PackageTooOld,
    SchemaBusy,
    SchemaState,
    SchemaTooNew,
    SchemaTooOld,
)
from schemas.standing import check, compare, verify
from supervisor.errors import BadInput, DatabaseUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from schemas.connection import Connection

__all__ = [
    "MigrateFailed",
    "MigrateReport",
    "MigrationChanged",
    "NeedsAdministrator",
    "OtherNames",
    "PackageTooNew",
    "PackageTooOld",
    "SchemaBusy",
    "SchemaState",
    "SchemaTooNew",
    "SchemaTooOld",
    "check",
    "migrate",
]


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
    task_types: Sequence[Mapping[str, Any]] | None = None,
    prefix: str | None = None,
    patience_seconds: float = 300,
) -> MigrateReport:
    """Make everything that is missing and say what that was; `report` gets each change after its commit.

    `packages` are by default those that are installed; `rights` has the GRANTs of their tables, by table,
    and `task_types` the rows of `supervisor.task_type`; None leaves those that are there.
    `prefix` is for tests only; who lets somebody choose one asks first whether this is a test.
    """
    if packages is None:
        packages = installed_migrations()
    sources, rights = {OURS: source, **packages}, rights or {}
    try:
        logins = gather_logins(runtime_urls or {})
        database = parse_url(admin_url, "migrate").database
    except BadUrl as bad:
        raise BadInput(what=str(bad)) from None
    if database is None:
        raise BadInput(what="the migrate URL names no database")
    if prefix is not None:
        names = prefix_for(source, prefix)
        sources = under(names, sources)
        rights = {table: names.render(statements) for table, statements in rights.items()}
    preparation = Preparation(admin_url, database, logins, sources, report, patience_seconds)
    packages = {namespace: sources[namespace] for namespace in packages}
    work = _Work(preparation, sources[OURS], packages, rights, task_types, report, patience_seconds)
    try:
        return await work.run()
    except asyncpg.PostgresConnectionError as error:
        raise DatabaseUnreachable(what=str(error)) from error
    except asyncpg.PostgresError as error:
        raise MigrateFailed(step="migrate", what=str(error)) from error
    except (OSError, asyncpg.InterfaceError) as error:
        raise DatabaseUnreachable(what=str(error)) from error


@dataclass
class _Work:
    """One run of migrate: what it is told, and what it has done so far."""

    preparation: Preparation
    source: Source
    packages: Mapping[str, Source]
    rights: Mapping[str, str]
    task_types: Sequence[Mapping[str, Any]] | None
    report: Callable[[str], None]
    patience_seconds: float
    applied: list[tuple[str, int]] = field(default_factory=list)

    async def run(self) -> MigrateReport:
        admin_url = self.preparation.admin_url
        try:
            async with connected(admin_url) as connection:
                await verify(connection, self.preparation.sources)
                await self.preparation.make_roles(connection)
                return await self._fill(connection)
        except asyncpg.InvalidCatalogNameError:
            await self.preparation.create_database()
        async with connected(admin_url) as connection:
            return await self._fill(connection)

    async def _fill(self, connection: Connection) -> MigrateReport:
        await self.preparation.settle(connection)
        await self._apply_all(connection, OURS, self.source)
        replaced = await patiently(
            "functions", self.patience_seconds, partial(self._replace_functions, connection)
        )
        declared = await patiently(
            "task types", self.patience_seconds, partial(self._declare_task_types, connection)
        )
        await patiently("partitions", self.patience_seconds, partial(self._make_partitions, connection))
        for namespace, package in self.packages.items():
            await self._apply_all(connection, namespace, package)
        for table, statements in self.rights.items():
            step = f"the rights on {table}"
            await patiently(step, self.patience_seconds, partial(self._grant, connection, step, statements))
        return MigrateReport(
            database=self.preparation.database,
            version=self.source.schema_version(),
            prepared=tuple(self.preparation.done),
            applied=self._numbers(OURS),
            functions_replaced=replaced,
            task_types_declared=declared,
            packages={namespace: self._numbers(namespace) for namespace in self.packages},
        )

    async def _apply_all(self, connection: Connection, namespace: str, source: Source) -> None:
        for migration in source.migrations():
            of = "" if namespace == OURS else f" of {namespace}"
            step = f"migration {migration.number} ({migration.name}){of}"
            once = partial(self._apply, connection, namespace, source, migration, step)
            await patiently(f"migration {migration.number}{of}", self.patience_seconds, once)

    async def _apply(
        self, connection: Connection, namespace: str, source: Source, migration: Migration, step: str
    ) -> None:
        async with turn(connection):
            await connection.execute(sql("become_owner"))
            if migration.number in await compare(connection, namespace, source):
                return
            with naming(step):
                await connection.execute(migration.sql)
            await connection.execute(
                sql("record_migration"), namespace, migration.number, migration.name, migration.sha256
            )
        self.applied.append((namespace, migration.number))
        self.report(f"applied {step}")

    async def _grant(self, connection: Connection, step: str, statements: str) -> None:
        async with turn(connection):
            await connection.execute(sql("become_owner"))
            with naming(step):
                await connection.execute(statements)

    async def _replace_functions(self, connection: Connection) -> bool:
        wanted = (self.source.schema_version(), self.source.functions_sha256())
        async with turn(connection):
            await connection.execute(sql("become_owner"))
            await compare(connection, OURS, self.source)
            row = await connection.fetchrow(sql("read_functions"))
            if row is not None and (row["number"], row["sha256"]) == wanted:
                return False
            with naming("functions"):
                await connection.execute(sql("defer_bodies"))
                for text in self.source.functions():
                    await connection.execute(text)
                for (table,) in await connection.fetch(sql("list_present"), list(self.rights)):
                    await connection.execute(self.rights[table])
                await connection.execute(sql("check_bodies"))
                await connection.fetch(sql("validate_functions"))
            await connection.execute(sql("open_ledger"))
            await connection.execute(sql("record_functions"), *wanted)
        self.report("replaced the functions")
        return True

    async def _declare_task_types(self, connection: Connection) -> bool:
        if self.task_types is None:
            return False
        async with turn(connection):
            await connection.execute(sql("become_owner"))
            with naming("task types"):
                changed = await connection.fetchval(sql("declare_task_types"), json.dumps(self.task_types))
        if changed:
            self.report("declared the task types")
        return bool(changed)

    async def _make_partitions(self, connection: Connection) -> None:
        async with turn(connection):
            await connection.execute(sql("become_owner"))
            if not await connection.fetchval(sql("find_partition_maker")):
                return
            made = await connection.fetchval(sql("make_partitions"))
        if made:
            self.preparation.tell([f"create {made} partitions of the history"])

    def _numbers(self, namespace: str) -> tuple[int, ...]:
        return tuple(number for where, number in self.applied if where == namespace)
