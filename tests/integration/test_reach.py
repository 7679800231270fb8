"""Which of several servers a connection leads to: none that is silent, none that a failover left behind."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest

from schemas import Query, queries
from schemas.hosts import each_host
from supervisor.embedded import Urls
from supervisor.errors import DatabaseUnreachable, OutcomeUnknown
from supervisor.memory import Memory
from supervisor.store import Store, connect
from tests.support.slowness import patient, stretch


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """A host that takes connections and never answers."""

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    yield f"{host}:{port}"
    server.close()


@pytest.mark.parametrize(
    ("url", "alone"),
    [
        ("postgresql://u:p@a:1,b:2/d?x=y", ["postgresql://u:p@a:1/d?x=y", "postgresql://u:p@b:2/d?x=y"]),
        ("postgresql://u:p%40,@[::1],b/d", ["postgresql://u:p%40,@[::1]/d", "postgresql://u:p%40,@b/d"]),
        ("postgresql:///d?host=/run", ["postgresql:///d?host=/run"]),
        ("postgresql://a,b", ["postgresql://a", "postgresql://b"]),
    ],
)
def test_each_host_alone(url: str, alone: list[str]) -> None:
    assert each_host(url) == alone


async def test_a_silent_host_does_not_hide_the_next(
    database: Urls, silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supervisor.store.CONNECT_SECONDS", 3600.0)
    parts = urlsplit(database.control)
    login, _, host = parts.netloc.rpartition("@")
    both = parts._replace(netloc=f"{login}@{silent},{host}").geturl()
    async with asyncio.timeout(patient(5)):
        connection = await connect(both, application_name="test")
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


async def test_a_slow_connection_leaves_the_call_its_time(
    database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names a bound, as an election or a beat does, has it for both together."""

    unit = stretch()

    async def slowly(url: str, **options: Any) -> Any:
        await asyncio.sleep(2 * unit)
        return await connect(url, **options)

    monkeypatch.setattr("supervisor.store.connect", slowly)
    monkeypatch.setattr("supervisor.store.CALL_SECONDS", 3 * unit)
    call = Query("slow", "a test", f"SELECT 1 AS one FROM pg_sleep({1.5 * unit})")
    store = Store(database.control)
    try:
        assert [row["one"] for row in await store.rows(call)] == [1]
    finally:
        await store.close()
    store = Store(database.control)
    with pytest.raises(OutcomeUnknown):
        await store.rows(call, timeout=3 * unit)
    await store.close()


async def test_a_new_connection_asks_for_no_type(database: Urls) -> None:
    """Every array that a statement of ours takes or gives: one query is sent, and none by the driver."""
    named = " ".join(query.sql for query in queries().values())
    kinds = set(re.findall(r"::(\w+)\[\]", named))
    assert kinds >= {"bigint", "uuid", "jsonb", "text"}
    connection = await connect(database.control, application_name="test")
    sent: list[str] = []
    connection.add_query_logger(lambda record: sent.append(record.query))
    try:
        for number, kind in enumerate(sorted(kinds), 1):
            (row,) = await connection.fetch(f"SELECT $1::{kind}[] AS one", [])
            assert row["one"] == []
            await asyncio.sleep(0)  # what is logged is told by the loop
            assert len(sent) == number, f"{kind}: {sent}"
        given = [UUID(int=7)], [1], ['{"a": 1}'], [0.5], [b"x"]
        (row,) = await connection.fetch(
            "SELECT $1::uuid[], $2::bigint[], $3::jsonb[], $4::float8[], $5::bytea[]", *given
        )
        assert tuple(row) == given
    finally:
        await connection.close()


async def test_hosts_that_all_refuse_are_one_clear_error() -> None:
    with pytest.raises(DatabaseUnreachable):
        await connect("postgresql://u:p@127.0.0.1:1,127.0.0.1:2/d", application_name="test")


async def test_a_server_that_a_failover_left_behind_is_not_asked(database: Urls) -> None:
    """H22: neither on a new connection nor on one that was open before the failover was seen."""
    memory = Memory()
    store = Store(database.control, size=1, memory=memory)
    try:
        row = await store.row("read_server")
        assert row is not None
        memory.learn(1, row["system_identifier"], row["timeline"])
        assert await store.row("read_server") == row
        memory.learn(2, row["system_identifier"], row["timeline"] + 1)
        with pytest.raises(DatabaseUnreachable, match="left this server behind"):
            await store.row("read_server")
        memory.learn(3, row["system_identifier"] + 1, 1)
        assert await store.row("read_server") == row, "another system's timelines say nothing"
    finally:
        await store.close()
