"""What migrations stand on: the roles, the database, its settings, the rights in it, and the ledger.

Each is a *plan*: a query of `bootstrap/` that lists the statements still missing. They are carried out in one
transaction; where this connection may not, nothing is changed and the error holds all of them as a script.
Roles belong to the cluster, where no lock reaches: losing that race is an error of a known kind, and the plan
is made anew.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import asyncpg

from schemas.connection import carry_out, connected, is_refused, patiently, sql, turn
from schemas.login import RUNTIME_ROLES, Login, scram_verifier
from schemas.report import MigrateFailed, NeedsAdministrator
from schemas.standing import compare_all, read_standing

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

    from schemas import Source
    from schemas.connection import Connection

_GROUPS = list(RUNTIME_ROLES.values())


@dataclass
class Preparation:
    """What one run of migrate is told about it, and in words what it has done so far."""

    admin_url: str
    database: str
    logins: tuple[Login, ...]
    sources: Mapping[str, Source]
    report: Callable[[str], None]
    patience_seconds: float
    done: list[str] = field(default_factory=list)

    async def create_database(self) -> None:
        async def once() -> None:
            plan = await connection.fetch(sql("plan_creation"), self.database)
            self.tell(await carry_out(connection, plan))

        async with connected(self.admin_url, elsewhere=True) as connection:
            if not (await read_standing(connection))["may_create_database"]:
                raise await self._needs_administrator(connection)
            await self.make_roles(connection)
            await patiently("create database", self.patience_seconds, once)

    async def make_roles(self, connection: Connection) -> None:
        async def once() -> None:
            logins = await self._described_logins(connection)
            async with turn(connection):
                plan = await connection.fetch(sql("plan_roles"), _GROUPS, logins)
                done = await carry_out(connection, plan)
            self.tell(done)

        await self._entitled("roles", connection, once)

    async def settle(self, connection: Connection) -> None:
        """Settings and rights in the database, then the ledger, as far as they are missing."""

        async def once() -> None:
            logins = _described(self.logins)
            async with turn(connection):
                plan = await connection.fetch(sql("plan_settings"), self.database, logins)
                plan += await connection.fetch(sql("plan_database"), _GROUPS)
                done = await carry_out(connection, plan)
                await connection.execute(sql("become_owner"))
                done += await carry_out(connection, await connection.fetch(sql("plan_ledger"), _GROUPS))
                await compare_all(connection, self.sources)
            self.tell(done)

        await self._entitled("rights", connection, once)

    async def _entitled(self, step: str, connection: Connection, once: Callable[[], Awaitable[None]]) -> None:
        try:
            await patiently(step, self.patience_seconds, once)
        except asyncpg.InsufficientPrivilegeError as error:
            needed = await self._needs_administrator(connection)
            if not needed.facts["sql"]:
                raise MigrateFailed(step=step, what=str(error)) from error
            raise needed from None

    async def _needs_administrator(self, connection: Connection) -> NeedsAdministrator:
        """The whole script at once: whoever may not make roles often may not do the rest."""
        standing = await read_standing(connection)
        logins = await self._described_logins(connection)
        plan = await connection.fetch(sql("plan_roles"), _GROUPS, logins)
        plan += await connection.fetch(sql("plan_creation"), self.database)
        plan += await connection.fetch(sql("plan_settings"), self.database, logins)
        if standing["database"] == self.database and not standing["owns_database"]:
            plan += await connection.fetch(sql("plan_database"), _GROUPS)
        script = "\n".join(f"{row['statement']};" for row in plan)
        return NeedsAdministrator(user=standing["name"], database=standing["database"], sql=script)

    async def _described_logins(self, connection: Connection) -> str:
        """The logins for plan_roles; only our own roles' passwords are tried, no other role's is ever set."""
        ours = [login.name for login in self.logins if login.name in _GROUPS]
        existing = {row["name"] for row in await connection.fetch(sql("list_logins"), ours)}
        refused = {
            login.name
            for login in self.logins
            if login.name in existing and await is_refused(self.admin_url, login)
        }
        return _described(self.logins, refused)

    def tell(self, done: Sequence[str]) -> None:
        self.done += done
        for what in done:
            self.report(what)


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
