"""Two figures that alerts are made of, from a real database: expired leases, an unsafe server."""

from collections.abc import AsyncIterator

import anyio
import pytest

from actors.dedup.leases import CLEANUP, WAL
from supervisor.config import Timings
from supervisor.control import show_figures
from supervisor.election import Election, Tenure
from supervisor.embedded import Urls
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.status import read_figures
from supervisor.store import Store
from supervisor.wakeups import Wakeups
from tests.support.eventually import eventually
from tests.support.place import run_sql

ABANDONED = """INSERT INTO dedup.wal_maintenance_jobs (status, worker_id, claim_id, lease_expires_at)
               SELECT 'running', 'gone', gen_random_uuid(), clock_timestamp() - interval '1 minute'
               FROM generate_series(1, 2)"""
LEFT_BEHIND = "DELETE FROM dedup.wal_maintenance_jobs"
UNGUARDED = "SET session_replication_role = replica"
ACQUIRE = "supervisor.acquire(text, double precision, double precision, bigint, bigint, integer)"


@pytest.fixture
async def store(database: Urls) -> AsyncIterator[Store]:
    store = Store(database.control, name="test", size=2)
    yield store
    await store.close()


async def test_expired_leases_are_shown_by_table(database: Urls, store: Store) -> None:
    metrics = Metrics()

    async def shown() -> tuple[float | None, float | None]:
        show_figures(metrics, await read_figures(store, [WAL, CLEANUP]))
        wal, cleanup = (
            metrics.registry.get_sample_value("tenure_leases_expired", {"table": lease.table})
            for lease in (WAL, CLEANUP)
        )
        return wal, cleanup

    assert await shown() == (0, 0)
    await run_sql(database.admin, UNGUARDED, ABANDONED)
    assert await shown() == (2, 0)
    await run_sql(database.admin, UNGUARDED, LEFT_BEHIND)
    assert await shown() == (0, 0)


async def test_a_refused_tenure_is_shown_until_one_is_given_out(database: Urls, store: Store) -> None:
    """H19: the replica keeps asking, and says all the while that the database is unsafe."""
    metrics, wakeups = Metrics(), Wakeups("me")
    election = Election(store, "me", Timings(), Memory(), wakeups, metrics)

    def figures() -> tuple[float | None, float | None]:
        wakeups.hint("leader")
        value = metrics.registry.get_sample_value
        return value("tenure_unsafe_server"), value("tenure_leader")

    async def lead(_tenure: Tenure) -> None:
        await anyio.sleep_forever()

    assert figures() == (0, 0)
    await run_sql(database.admin, f"ALTER FUNCTION {ACQUIRE} SET synchronous_commit = off")
    async with anyio.create_task_group() as group:
        group.start_soon(election.run, lead)
        await eventually(lambda: figures() == (1, 0), what="a refusal that is shown")
        await run_sql(database.admin, f"ALTER FUNCTION {ACQUIRE} RESET synchronous_commit")
        await eventually(lambda: figures() == (0, 1), what="a leader of a safe database")
        group.cancel_scope.cancel()
