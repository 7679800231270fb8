"""What `tenure up --sample` shows of media; and done again, it adds nothing."""

from pathlib import Path

import pytest

from actors.media import DOMAIN
from supervisor.config import load_settings
from supervisor.store import Store
from tests.integration.media.world import World


async def test_the_sample_is_made_once(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(world.urls.control, name="sample", size=2)
    assert DOMAIN.sample is not None
    try:
        await DOMAIN.sample(store, load_settings(state_dir=tmp_path))
        before = await world.tables()
        await DOMAIN.sample(store, load_settings(state_dir=tmp_path))
    finally:
        await store.close()
    assert await world.tables() == before
    assert sorted(await world.refs()) == [("1", "cover", 0), ("1", "gallery", 0), ("1", "gallery", 1)]
    files = [path for path in (tmp_path / "artifacts" / "media").rglob("*") if path.is_file()]
    assert len(files) == 3
