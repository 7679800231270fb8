"""This project's contestant, on a database of its own with something to do in it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from supervisor.embedded import Urls
from tests.bench import tables
from tests.bench.arena import Arena
from tests.bench.contestant import Contestant, on_stage
from tests.support.door import TOKEN
from tests.support.ports import free_port

SLOTS = 1000


def environment(urls: Urls) -> dict[str, str]:
    return {
        "TENURE_DATABASE_URL": urls.control,
        "TENURE_WORKER_DATABASE_URL": urls.worker,
        "TENURE_LISTEN_DATABASE_URL": urls.control,
        "TENURE_HTTP_PORT": str(free_port()),
        "TENURE_API_TOKEN": TOKEN,
        "TENURE_DOMAINS": "command",
        "TENURE_SLOTS": str(SLOTS),
        "TENURE_LOG_LEVEL": "warning",
        "TENURE_LOG_FORMAT": "json",
    }


@asynccontextmanager
async def replica(arena: Arena, urls: Urls) -> AsyncIterator[Contestant]:
    given = {"admin": urls.admin, "client": urls.client}
    async with on_stage("tenure", given, servers=[arena.postmaster], environment=environment(urls)) as one:
        yield one


@asynccontextmanager
async def prepared(arena: Arena, *, paused: bool = True) -> AsyncIterator[tuple[Urls, Contestant]]:
    async with arena.tenure() as urls:
        await tables.prepare(urls, paused=paused)
        async with replica(arena, urls) as one:
            yield urls, one
