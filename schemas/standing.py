"""How a database stands to this code: its ledger beside the files of this code and of the packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg

from schemas import SHIPPED, Source
from schemas.connection import looking, sql
from schemas.packages import OURS, installed_migrations
from schemas.prefix import OtherNames, identity_of
from schemas.report import (
    MigrateFailed,
    MigrationChanged,
    PackageState,
    PackageTooNew,
    SchemaState,
    SchemaTooNew,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from asyncpg import Record

    from schemas.connection import Connection


async def check(
    url: str, *, source: Source = SHIPPED, packages: Mapping[str, Source] | None = None
) -> SchemaState:
    """How the schema stands to this code, for the replicas' roles; a missing database has schema 0."""
    none = SchemaState(current=0, expected=source.schema_version(), functions_equal=False)
    if packages is None:
        packages = installed_migrations()
    try:
        async with looking(url) as connection:
            await compare_names(connection, source)
            applied = await connection.fetch(sql("read_namespaces"))
            functions = await connection.fetchrow(sql("read_functions"))
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


async def verify(connection: Connection, sources: Mapping[str, Source]) -> None:
    """The comparison before the first change; who may not look yet is compared in each transaction."""
    await compare_names(connection, sources[OURS])
    standing = await read_standing(connection)
    if standing["has_ledger"] and standing["may_own"]:
        async with connection.transaction(readonly=True):
            await connection.execute(sql("become_owner"))
            await compare_all(connection, sources)


async def compare_all(connection: Connection, sources: Mapping[str, Source]) -> None:
    for namespace, source in sources.items():
        await compare(connection, namespace, source)


async def compare(connection: Connection, namespace: str, source: Source) -> set[int]:
    """The numbers applied already; raises where they are not the first ones of this source."""
    if namespace == OURS:
        await compare_names(connection, source)
    known = {migration.number: migration.sha256 for migration in source.migrations()}
    rows = await connection.fetch(sql("read_applied"), namespace)
    for row in rows:
        if row["number"] not in known:
            facts = {"current": rows[-1]["number"], "expected": source.schema_version()}
            raise SchemaTooNew(**facts) if namespace == OURS else PackageTooNew(namespace=namespace, **facts)
        if row["sha256"] != known[row["number"]]:
            raise MigrationChanged(number=row["number"], name=row["name"], namespace=namespace)
    return {row["number"] for row in rows}


async def compare_names(connection: Connection, source: Source) -> None:
    """What the schemas are called is itself the record of it: plain, or under one prefix."""
    there = [row["name"] for row in await connection.fetch(sql("list_identities"))]
    wanted = identity_of(source)
    if there and wanted not in there:
        raise OtherNames(there=", ".join(there), wanted=wanted)


async def read_standing(connection: Connection) -> Record:
    row = await connection.fetchrow(sql("read_standing"))
    assert row is not None  # noqa: S101 - every session has a user
    return row
