"""The figures of syncs, as the alerts know them, from a ledger that was moved by hand."""

from collections.abc import AsyncIterator

import pytest
from prometheus_client import CollectorRegistry

from actors.scm.figures import register
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.scm.ledger import Ledger, revision


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=2)
    yield store
    await store.close()


async def test_the_five_figures(ledger: Ledger, store: Store) -> None:
    """R001-131, R001-132, R001-133, R001-134, R001-135"""
    registry = CollectorRegistry()
    update = register(registry)

    def shown(name: str, repo: int, source: str = "svn") -> float | None:
        return registry.get_sample_value(name, {"repo_id": str(repo), "source_type": source})

    code, other = await ledger.repo("code"), await ledger.repo("other")
    await update(store)
    assert registry.get_sample_value("scm_sync_pending_repos") == 0
    assert shown("scm_sync_lag_seconds", code) is None, "not known is not 0"
    assert shown("scm_cursor_age_seconds", code) is None

    held = await ledger.begun("code")
    await ledger.request("other")
    await update(store)
    assert registry.get_sample_value("scm_sync_pending_repos") == 1, "the other one waits"

    await ledger.begin(held)
    await ledger.record(held, 1, [revision(1)], 1)
    async with ledger.as_worker() as worker:
        await worker.fetch("SELECT scm.note_head($1, $2, '5', '2024-01-01T01:00:01Z')", held.run, held.claim)
    await ledger.finish(held)
    await update(store)
    assert shown("scm_sync_lag_seconds", code) == 3600, "revision 1 was at 00:00:01"
    assert shown("scm_sync_error_rate", code) == 0
    assert (age := shown("scm_cursor_age_seconds", code)) is not None
    assert age >= 0
    assert (took := shown("scm_sync_batch_duration", code)) is not None
    assert took >= 0

    (refused,) = await ledger.claim()
    await ledger.finish(refused, "cancel", "permission_denied")
    await update(store)
    assert shown("scm_sync_error_rate", other) == 1

    await ledger.control.fetch("SELECT scm.remove_repo('test', 'other')")
    await update(store)
    assert shown("scm_sync_error_rate", other) is None, "what is removed is not shown"


async def test_no_label_is_what_somebody_typed(ledger: Ledger, store: Store) -> None:
    registry = CollectorRegistry()
    await ledger.repo("typed-by-somebody")
    await register(registry)(store)
    for metric in registry.collect():
        for sample in metric.samples:
            assert set(sample.labels) <= {"repo_id", "source_type"}
            assert "typed-by-somebody" not in sample.labels.values()
