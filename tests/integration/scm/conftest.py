"""Fixtures: `ledger` is a fresh database with hands that sync into it."""

from collections.abc import AsyncIterator

import pytest

from supervisor.embedded import Urls
from tests.integration.scm.ledger import Ledger, opened


@pytest.fixture
async def ledger(database: Urls) -> AsyncIterator[Ledger]:
    async with opened(database) as made:
        yield made
