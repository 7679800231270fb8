"""What `make run` shows of this domain."""

import shutil
from pathlib import Path

import pytest

from actors.scm.sample import COMMITS, sample
from supervisor.config import Settings
from supervisor.store import Store
from tests.integration.scm.ledger import Ledger
from tests.integration.scm.syncing import Syncs, syncing

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="not installed: git")


async def done(ledger: Ledger, state: Path) -> None:
    store = Store(ledger.urls.control, name="sample", size=1)
    try:
        await sample(store, Settings(state_dir=state))
    finally:
        await store.close()


async def synced(ledger: Ledger, syncs: Syncs) -> None:
    outcome, row = await syncs.attempt(repo="sample")
    assert row["status"] == "completed", outcome


async def test_a_repository_to_look_at(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is synced as any other, with its diffs; done again it adds nothing."""
    monkeypatch.setenv("TENURE_ARTIFACTS_DIR", str(tmp_path / "artifacts"))
    for _ in range(2):
        await done(ledger, tmp_path / "state")
    assert await ledger.count("scm.repos") == await ledger.count("scm.sync_runs") == 1
    async with syncing(ledger, tmp_path, monkeypatch) as syncs:
        await synced(ledger, syncs)
    assert await ledger.count("scm.git_commits") == len(COMMITS)
    assert await ledger.count("scm.patch_blobs") == len(COMMITS)
    await done(ledger, tmp_path / "state")
    assert await ledger.count("scm.sync_runs") == 1


async def test_without_a_place_for_artifacts_it_has_no_diffs(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TENURE_ARTIFACTS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    await done(ledger, tmp_path / "state")
    async with syncing(ledger, tmp_path, monkeypatch) as syncs:
        await synced(ledger, syncs)
    assert (await ledger.count("scm.git_commits"), await ledger.count("scm.patch_blobs")) == (len(COMMITS), 0)


async def test_without_git_there_is_none(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.scm.sample.shutil.which", lambda _: None)
    await done(ledger, tmp_path / "state")
    assert await ledger.count("scm.repos") == 0
    assert not (tmp_path / "state").exists()
