"""Replicas work on while a migration runs, and at no moment of it are they without their rights."""

import shutil
from pathlib import Path

import pytest

import schemas
from schemas import Source
from schemas.migrate import migrate
from supervisor.embedded import Urls
from supervisor.lease_grants import grant_faults
from supervisor.store import Store
from supervisor.wiring import lease_rights, leases, task_types


class Killed(Exception):
    """The migration ends here, between two of its transactions."""


async def test_a_migration_that_ends_after_the_functions_leaves_every_right(
    database: Urls, tmp_path: Path
) -> None:
    shutil.copytree(Path(schemas.__file__).parent, tmp_path / "schemas")
    (tmp_path / "schemas/functions/99_last.sql").write_text("SELECT 1;")

    def killed(line: str) -> None:
        if line == "replaced the functions":
            raise Killed

    with pytest.raises(Killed):
        await migrate(
            database.admin,
            runtime_urls=database.runtime(),
            report=killed,
            source=Source(tmp_path / "schemas"),
            packages={},
            rights=lease_rights(),
            task_types=task_types(),
        )
    store = Store(database.control, name="test", size=1)
    try:
        assert await grant_faults(store, leases()) == []
    finally:
        await store.close()
