"""Fixtures: `world` is a fresh database with hands to act, `cli` the commands; `scene` the API over another.

The tests of a module share the app of `scene`, which remembers nothing of them; what is stored is emptied.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.integration.capture.scene import Scene, scene_of
from tests.integration.capture.world import World
from tests.support.command_line import Cli, command_line
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[World]:
    made = await World.open(database)
    yield made
    await made.close()


@pytest.fixture(scope="module")
async def module_scene(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Scene]:
    world = await World.open(module_database.urls)
    with module_place(tmp_path_factory) as place:
        async with scene_of(world, place) as made:
            yield made
    await world.close()


@pytest.fixture
def scene(module_scene: Scene, emptied_database: Urls) -> Scene:
    if module_scene.shelf.exists():
        empty(module_scene.shelf)
    return module_scene


@pytest.fixture
def cli(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(world.urls, monkeypatch, tmp_path)
