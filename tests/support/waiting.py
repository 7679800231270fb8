"""Waits until a connection waits for another one's lock."""

import asyncpg

from tests.support.eventually import eventually


async def blocked(
    by: "asyncpg.Connection[asyncpg.Record]", who: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    holder, waiter = by.get_server_pid(), who.get_server_pid()

    async def waits() -> bool:
        return holder in await by.fetchval("SELECT pg_blocking_pids($1)", waiter)

    await eventually(waits)
