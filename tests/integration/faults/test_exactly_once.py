"""A thousand runs at once over three replicas: each executed exactly once."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.replicas import replicas

Record = Callable[[str, object], None]


@pytest.mark.slow
async def test_a_thousand_runs_are_each_executed_once_and_shared_by_all(
    database: Urls, tmp_path: Path, record_property: Record
) -> None:
    async with replicas(database, tmp_path, TENURE_SLOTS="16") as fleet:
        await fleet.define("touch", fleet.effects.short_command())
        began = time.monotonic()
        runs = await fleet.trigger("touch", 1000)
        await fleet.until(lambda: fleet.succeeded(runs), within=90, what="all 1000", interval=0.5)
        record_property("seconds for 1000 runs", round(time.monotonic() - began, 2))

        executions = fleet.effects.executions().values()
        assert sorted(one.run_id for one in executions) == sorted(runs)
        assert all(one.begins == 1 and one.ended and one.attempt == 1 for one in executions)
        shares = await fleet.rows(
            "SELECT assigned_worker_id, count(*) AS runs FROM supervisor.job_run GROUP BY 1"
        )
        record_property("runs by replica", sorted(row["runs"] for row in shares))
        assert {row["assigned_worker_id"] for row in shares} == {one.worker_id for one in fleet.members}
        assert min(row["runs"] for row in shares) > 100, "the work was not shared"
        assert len(await fleet.epochs()) == 1
