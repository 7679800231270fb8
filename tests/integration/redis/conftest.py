"""Fixtures: a real Redis, and listeners on it."""

from collections.abc import Iterator

import pytest

from tests.support.redis import RedisServer


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server
