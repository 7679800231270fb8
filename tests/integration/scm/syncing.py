"""Syncs in this process, as a replica's worker does them. Not a test."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.scm import sync
from actors.scm.config import of_section
from supervisor import Claim, Done, Outcome
from supervisor.actor import Place
from supervisor.artifacts import Artifacts
from supervisor.artifacts.local import LocalArtifacts
from supervisor.clock import boottime
from supervisor.config import Settings
from supervisor.store import Store
from tests.integration.scm.ledger import Ledger


class Tools:
    """Those of a claim that is never lost."""

    kill_seconds = 2.0
    equipment = None

    def __init__(self, place: Place) -> None:
        self.place = place

    async def log(self, stream: str, data: bytes) -> None:
        pass

    def stop_deadline(self) -> float:
        return boottime() + 60

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        pass

    def progress(self, **columns: Any) -> None:
        pass


class Syncs:
    def __init__(self, ledger: Ledger, place: Place) -> None:
        self.ledger, self.place = ledger, place

    @property
    def artifacts(self) -> Artifacts:
        assert self.place.artifacts is not None
        return self.place.artifacts

    async def run(self, mode: str | None = None, **span: str) -> dict[str, Any]:
        """One that is done; the run's row."""
        outcome, row = await self.attempt(mode=mode, span=span or None)
        assert outcome == Done()
        return row

    async def attempt(
        self,
        source: str = "git",
        mode: str | None = None,
        span: dict[str, str] | None = None,
        repo: str = "code",
    ) -> tuple[Outcome, dict[str, Any]]:
        """One as it may end, finished as it says."""
        await self.ledger.request(repo, source, mode, span)
        (held,) = await self.ledger.claim()
        claim = Claim(0, 0, 1, 0, held.claim, "scm", None, {}, None, held.run)
        outcome = await sync.handle(claim, Tools(self.place))
        how = "done" if isinstance(outcome, Done) else "cancel"
        assert await self.ledger.finish(held, how) == "RECORDED"
        return outcome, await self.ledger.run(held.run)


@asynccontextmanager
async def syncing(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **config: Any
) -> AsyncIterator[Syncs]:
    """With this configuration, and a store of artifacts of the test's own."""
    monkeypatch.setattr(sync, "sync_config", lambda: of_section(config))
    store = Store(ledger.urls.worker)
    artifacts = LocalArtifacts(tmp_path / "artifacts")
    yield Syncs(ledger, Place("w1", Settings(state_dir=tmp_path / "state"), store, store, artifacts))
    await store.close()
