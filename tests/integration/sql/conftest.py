"""Fixtures: `world` is a fresh database with a leader, a job and hands to act with."""

from collections.abc import AsyncIterator

import pytest

from supervisor.embedded import Urls
from tests.integration.sql.world import World


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[World]:
    """A leader leads, and there is a job named `work`."""
    made = World(database)
    try:
        await made.open()
        await made.lead()
        await made.job()
        yield made
    finally:
        await made.close()
