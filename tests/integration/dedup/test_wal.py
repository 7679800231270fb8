"""Checkpoints of the write-ahead log: what the server really did, who is in the way, and what is lacking.

A server of their own: a base backup and a checkpoint are the whole cluster's.
"""

import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from actors.dedup import WAL
from supervisor.claim_loop import ClaimLoop
from supervisor.embedded import Urls
from supervisor.embedded_home import binaries
from supervisor.store import Store
from tests.support.databases import fresh_database
from tests.support.eventually import eventually
from tests.support.row_work import at_work
from tests.support.server import Server, own_root, start_server
from tests.support.sessions import connected, value

REDO = "SELECT redo_lsn::text FROM pg_control_checkpoint()"
AHEAD = "SELECT pg_wal_lsn_diff((SELECT redo_lsn FROM pg_control_checkpoint()), $1::text::pg_lsn)::bigint"
ENDED = {"completed", "failed", "retryable"}


@dataclass
class Log:
    urls: Urls

    async def ask(self, query: str, *arguments: object) -> Any:
        return await value(self.urls.admin, query, *arguments)

    async def request(self, mode: str = "passive") -> int:
        job: int = await self.ask("SELECT id FROM dedup.request_checkpoint('test', $1, 'a test', NULL)", mode)
        return job

    async def row(self, job: int) -> Mapping[str, Any]:
        async with connected(self.urls.admin) as admin:
            (row,) = await admin.fetch("SELECT * FROM dedup.wal_maintenance_jobs WHERE id = $1", job)
            return dict(row)

    async def ended(self, job: int) -> Mapping[str, Any]:
        async def row() -> Mapping[str, Any]:
            found = await self.row(job)
            assert found["status"] in ENDED
            return found

        return await eventually(row, timeout=30, what="the checkpoint ends")

    async def carried_out(self, job: int, **more: Any) -> Mapping[str, Any]:
        async with self.work(**more):
            return await self.ended(job)

    def work(self, **more: Any) -> AbstractAsyncContextManager[ClaimLoop]:
        return at_work(self.urls, WAL, **more)

    async def switch(self, setting: str, text: str) -> None:
        await self.ask("UPDATE supervisor.setting SET value = $2::text::jsonb WHERE name = $1", setting, text)


@pytest.fixture(scope="module")
def quiet_server() -> Iterator[Server]:
    cluster, server = start_server(own_root(), {"checkpoint_timeout": "1h", "autovacuum": "off"})
    yield server
    cluster.stop()


@pytest.fixture
async def log(quiet_server: Server) -> AsyncIterator[Log]:
    async with fresh_database(quiet_server) as urls:
        made = Log(urls)
        await made.switch("dedup_wal_interval_seconds", "0")
        yield made


async def segment(log: Log) -> Any:
    return await log.ask("SELECT pg_walfile_name(pg_current_wal_insert_lsn())")


async def test_passive_is_a_checkpoint_with_real_figures(log: Log) -> None:
    """R000-42, R000-43, R000-45, R000-47, M-01: the redo position moves on, by as many pages as are told."""
    await log.ask("CHECKPOINT")
    redo, name = await log.ask(REDO), await segment(log)
    await log.ask("CREATE TABLE public.bulk AS SELECT g, repeat('x', 500) FROM generate_series(1, 3000) g")
    job = await log.request()
    made = await log.row(job)
    assert (made["status"], made["requested_mode"], made["checkpoint_busy"]) == ("pending", "passive", None)
    row = await log.carried_out(job)
    assert (row["status"], row["error_code"], row["checkpoint_busy"]) == ("completed", None, 0)
    assert (row["lease_expires_at"], row["worker_id"]) == (None, "me")
    pages = await log.ask(AHEAD, redo) / 8192
    assert pages > 150
    assert pages - 1 <= row["checkpointed_frames"] <= pages + 1
    # what stood in the log before it, and at most the few pages of the claim itself more
    assert 150 < row["checkpoint_log_frames"] <= row["checkpointed_frames"] + 1
    assert await segment(log) == name


async def test_restart_begins_a_new_segment(log: Log) -> None:
    """R000-45, M-01"""
    redo, name = await log.ask(REDO), await segment(log)
    row = await log.carried_out(await log.request("restart"))
    assert (row["status"], row["error_message"]) == ("completed", None)
    assert await log.ask(AHEAD, redo) > 0
    assert await segment(log) > name


async def test_truncate_vacuums_the_queues_where_it_is_allowed(log: Log) -> None:
    """R000-42, R000-45, M-01: off by default, at the request and again when it is carried out."""
    await log.switch("dedup_allow_wal_truncate", "true")
    job, other = await log.request("truncate"), await log.request("truncate")
    await log.ask("INSERT INTO dedup.jobs (kind) SELECT 'delete' FROM generate_series(1, 50)")
    await log.ask("DELETE FROM dedup.jobs")
    name = await segment(log)
    vacuumed = "SELECT bool_and(pg_stat_get_vacuum_count(x::regclass) > 0) FROM unnest($1::text[]) x"
    tables = [f"dedup.{name}" for name in ("jobs", "library_files", "thumbnails", "thumbnail_cleanup_jobs",
                                           "wal_maintenance_jobs")]  # fmt: skip
    assert not await log.ask(vacuumed, tables)
    await log.ask("UPDATE dedup.wal_maintenance_jobs SET execute_after = 'infinity' WHERE id = $1", other)
    row = await log.carried_out(job)
    if await log.ask("SELECT current_setting('server_version_num')::int >= 170000"):
        assert (row["status"], row["error_message"]) == ("completed", None)
        await eventually(lambda: log.ask(vacuumed, tables), what="the statistics arrive")
        assert await log.ask("SELECT pg_relation_size('dedup.jobs')") == 0
    else:
        # before 17 only an owner may: the rest was done, and what was not is told
        assert (row["status"], row["error_code"]) == ("failed", "WAL_CHECKPOINT_FAILED")
        assert "not vacuumed: dedup.jobs" in row["error_message"]
    assert await segment(log) > name

    await log.switch("dedup_allow_wal_truncate", "false")
    await log.ask("UPDATE dedup.wal_maintenance_jobs SET execute_after = now() WHERE id = $1", other)
    redo = await log.ask(REDO)
    row = await log.carried_out(other)
    assert (row["status"], row["error_code"]) == ("failed", "WAL_CHECKPOINT_FAILED")
    assert "dedup_allow_wal_truncate" in row["error_message"]
    assert await log.ask(REDO) == redo


async def test_a_table_that_may_not_be_vacuumed_is_named(log: Log) -> None:
    """R000-47: VACUUM itself would pass over it with a warning."""
    await log.switch("dedup_allow_wal_truncate", "true")
    if await log.ask("SELECT current_setting('server_version_num')::int >= 170000"):
        await log.ask("REVOKE MAINTAIN ON dedup.thumbnails FROM tenure_maintenance")
    row = await log.carried_out(await log.request("truncate"))
    assert (row["status"], row["error_code"]) == ("failed", "WAL_CHECKPOINT_FAILED")
    assert "dedup.thumbnails" in row["error_message"]


async def test_it_is_busy_while_another_runs_under_a_live_lease(log: Log) -> None:
    """R000-43, R000-44, R000-46, R000-94: retryable, with the figures and who it is; a stale one is not."""
    other, job = await log.request(), await log.request()
    await log.ask(
        """UPDATE dedup.wal_maintenance_jobs SET status = 'running', worker_id = 'somebody',
                  started_at = now(), claim_id = gen_random_uuid(), lease_expires_at = now() + interval '1 h'
            WHERE id = $1""",
        other,
    )
    redo = await log.ask(REDO)
    row = await log.carried_out(job)
    assert (row["status"], row["error_code"]) == ("retryable", "WAL_CHECKPOINT_BUSY")
    assert row["error_message"] == f"checkpoint {other} is being carried out by somebody"
    assert (row["checkpoint_busy"], row["checkpointed_frames"], row["retry_count"]) == (1, 0, 1)
    assert row["checkpoint_log_frames"] >= 0
    assert await log.ask(
        """SELECT retry_after - finished_at BETWEEN interval '60 seconds' AND interval '121 seconds'
             FROM dedup.wal_maintenance_jobs WHERE id = $1""",
        job,
    )
    assert await log.ask(REDO) == redo

    await log.ask(
        "UPDATE dedup.wal_maintenance_jobs SET lease_expires_at = now() - interval '1 s' WHERE id = $1", other
    )
    await log.ask("UPDATE dedup.wal_maintenance_jobs SET retry_after = now() WHERE id = $1", job)

    async def completed() -> bool:
        assert (await log.row(job))["status"] == "completed"
        return True

    async with log.work():
        await eventually(completed, timeout=20)
    stale = await log.row(other)
    assert (stale["status"], stale["error_code"], stale["retry_count"]) == ("retryable", "LEASE_EXPIRED", 1)
    assert stale["retry_after"] is not None
    assert (await log.row(job))["checkpoint_busy"] == 0


async def test_it_is_busy_while_a_base_backup_runs(log: Log) -> None:
    """R000-46, M-01: a real one, slowed down."""
    running = "SELECT count(*) FROM pg_stat_progress_basebackup"
    root = own_root()
    chosen = os.environ.get("TENURE_TEST_PG_BIN")
    tool = (Path(chosen) if chosen else binaries(root, None)) / "pg_basebackup"
    slowly = ["--max-rate=32k", "--checkpoint=fast", "--wal-method=none"]
    backup = subprocess.Popen(
        [tool, "-D", root / "backup", "-d", log.urls.admin, *slowly],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await eventually(lambda: log.ask(running), timeout=30, what="the backup begins")
        row = await log.carried_out(await log.request())
        assert (row["status"], row["error_code"]) == ("retryable", "WAL_CHECKPOINT_BUSY")
        assert "a base backup is running" in row["error_message"]
        assert row["checkpoint_busy"] == 1
    finally:
        backup.kill()
        backup.wait()

    async def gone() -> bool:
        return not await log.ask(running)

    await eventually(gone, timeout=30, what="the backup is over")
    assert (await log.carried_out(await log.request()))["status"] == "completed"


@pytest.mark.parametrize("mode", ["passive", "restart"])
async def test_without_a_login_for_upkeep_it_names_the_setting(log: Log, mode: str) -> None:
    """R000-47, R000-95: with one URL the worker's own login is used, which may not."""
    redo = await log.ask(REDO)
    row = await log.carried_out(await log.request(mode), maintenance=log.urls.worker)
    assert (row["status"], row["error_code"]) == ("failed", "WAL_CHECKPOINT_FAILED")
    assert "tenure_worker lacks CHECKPOINT" in row["error_message"]
    assert "TENURE_MAINTENANCE_DATABASE_URL" in row["error_message"]
    assert ("pg_switch_wal" in row["error_message"]) == (mode == "restart")
    assert row["checkpoint_busy"] is None
    assert await log.ask(REDO) == redo


async def test_what_the_server_refuses_is_a_failure(log: Log) -> None:
    """R000-47, R000-95: not repeated, and told; also where the database of upkeep does not answer."""
    nowhere = log.urls.maintenance.rsplit("/", 1)[0] + "/not_there"
    row = await log.carried_out(await log.request(), maintenance=nowhere)
    assert (row["status"], row["error_code"]) == ("failed", "WAL_CHECKPOINT_FAILED")
    assert "not_there" in row["error_message"]


async def test_the_role_of_upkeep_reads_no_table(log: Log) -> None:
    """R000-96: it may checkpoint, switch and vacuum; a row is none of its business."""
    store = Store(log.urls.maintenance)
    try:
        with pytest.raises(Exception, match="permission denied"):
            await store.rows("find_checkpoint_worker", 1)
    finally:
        await store.close()
