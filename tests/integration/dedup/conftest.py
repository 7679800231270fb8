"""Fixtures: `world` is a fresh database with a leader, a library `photos` and hands to act with."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from supervisor.embedded import Urls
from tests.integration.dedup.sql_world import DedupWorld


@asynccontextmanager
async def world_of(urls: Urls) -> AsyncIterator[DedupWorld]:
    made = DedupWorld(urls)
    try:
        await made.set_up()
        yield made
    finally:
        await made.close()


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[DedupWorld]:
    async with world_of(database) as made:
        yield made
