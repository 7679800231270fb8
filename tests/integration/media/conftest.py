"""Fixtures: `world` is a fresh database with hands to act, `scene` the API over it, `cli` the commands."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.integration.media.api_scene import Scene, scene_of
from tests.integration.media.world import World
from tests.support.command_line import Cli, command_line


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[World]:
    made = await World.open(database)
    yield made
    await made.close()


@pytest.fixture
async def scene(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Scene]:
    monkeypatch.chdir(tmp_path)
    async with scene_of(world, tmp_path) as scene:
        yield scene


@pytest.fixture
def cli(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(world.urls, monkeypatch, tmp_path)
