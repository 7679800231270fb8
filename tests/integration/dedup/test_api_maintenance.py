"""Checkpoints over HTTP: asked for, not more often than the interval, and never truncating unless allowed."""

from typing import Any

import anyio
import pytest

from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import Scene, is_problem
from tests.support.door import HOLDER

module_scene, scene = api_scene.module_scene, api_scene.empty_scene

CHECKPOINT = "/maintenance/wal/checkpoint"


async def test_a_checkpoint_is_queued_with_its_time(scene: Scene) -> None:
    """R000-42: pending, with execute_after; it is the latest then."""
    is_problem(await scene.get(f"{CHECKPOINT}/latest"), 404, "NOT_FOUND")
    body = {"mode": "restart", "reason": "nightly", "execute_after": "2150-01-01T02:00:00+02:00"}
    answer = await scene.post(CHECKPOINT, body)
    made = answer.json()
    assert (answer.status_code, made["status"], made["requested_mode"], made["requested_by"]) == (
        202,
        "pending",
        "restart",
        HOLDER,
    )
    assert made["execute_after"] == "2150-01-01T00:00:00Z"
    assert (await scene.get(f"{CHECKPOINT}/latest")).json() == made


async def test_by_default_it_is_passive_and_now(scene: Scene) -> None:
    """R000-42."""
    made = (await scene.post(CHECKPOINT, {})).json()
    assert (made["requested_mode"], made["reason"]) == ("passive", "")
    assert await scene.admin.fetchval(
        "SELECT execute_after <= clock_timestamp() FROM dedup.wal_maintenance_jobs"
    )


async def test_the_next_one_waits_for_the_interval(scene: Scene) -> None:
    assert (await scene.post(CHECKPOINT, {})).status_code == 202
    is_problem(await scene.post(CHECKPOINT, {}), 429, "QUEUE_FULL")
    await scene.setting("dedup_wal_interval_seconds", "0")
    assert (await scene.post(CHECKPOINT, {})).status_code == 202


async def test_of_many_at_once_one_is_queued(scene: Scene) -> None:
    codes: list[int] = []

    async def ask() -> None:
        codes.append((await scene.post(CHECKPOINT, {})).status_code)

    async with anyio.create_task_group() as tasks:
        for _ in range(10):
            tasks.start_soon(ask)
    assert sorted(codes) == [202] + [429] * 9


async def test_truncating_is_a_matter_of_policy(scene: Scene) -> None:
    answer = await scene.post(CHECKPOINT, {"mode": "truncate"})
    is_problem(answer, 409, "CONFLICT")
    assert "dedup_allow_wal_truncate" in answer.json()["title"]
    await scene.setting("dedup_allow_wal_truncate", "true")
    assert (await scene.post(CHECKPOINT, {"mode": "truncate"})).status_code == 202


@pytest.mark.parametrize(
    "body",
    [
        {"mode": "full"},
        {"mode": "PASSIVE"},
        {"mode": None},
        {"reason": "\0"},
        {"reason": "x" * 2001},
        {"reason": 7},
        {"execute_after": "2150-01-01T02:00:00"},
        {"execute_after": "0001-01-01T00:00:00+14:00"},
        {"execute_after": "9999-12-31T23:59:59-14:00"},
        {"execute_after": "infinity"},
        {"execute_after": 1e300},
        {"execute_after": "x"},
        {"more": 1},
        [],
        None,
    ],
    ids=lambda body: repr(body)[:50],
)
async def test_a_request_that_makes_no_sense_is_refused(scene: Scene, body: Any) -> None:
    """R000-13: other modes do not even reach the database."""
    is_problem(await scene.post(CHECKPOINT, body), 422, "INVALID_INPUT")
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.wal_maintenance_jobs") == 0


async def test_checkpoints_are_counted(scene: Scene) -> None:
    await scene.admin.execute(
        """INSERT INTO dedup.wal_maintenance_jobs (status, finished_at)
           SELECT s, '2026-01-01Z'
             FROM unnest('{pending,running,retryable,failed,completed,completed}'::text[]) s"""
    )
    metrics = (await scene.get("/maintenance/wal/metrics")).json()
    assert metrics.pop("generated_at")
    assert metrics == {
        "pending": 1,
        "running": 1,
        "retryable": 1,
        "failed": 1,
        "completed": 2,
        "latest_completed_at": "2026-01-01T00:00:00Z",
    }
