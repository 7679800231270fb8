"""The worker's part over HTTP: the lease contract's own statements, for owners only."""

import uuid
from pathlib import Path
from typing import Any

import anyio
import asyncpg
import pytest

from actors.dedup.api.worker import SCAN_HASH
from supervisor.embedded import Urls
from supervisor.lease_sql import render
from supervisor.store import Store
from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import Scene, is_problem, scene_of

module_scene, scene = api_scene.module_scene, api_scene.library_scene

CLAIM = "/jobs/scan-hash/claim"
LEASE = ("worker_id", "worker_heartbeat_at", "lease_expires_at")


@pytest.fixture
async def job(scene: Scene) -> str:
    made: str = (await scene.post("/jobs", {"kind": "scan", "library": "photos"})).json()["id"]
    return made


async def claimed(scene: Scene, worker: str = "w1") -> dict[str, Any]:
    answer = await scene.post(CLAIM, {"worker_id": worker})
    assert answer.status_code == 200, answer.text
    return {"worker_id": worker, "claim_id": answer.json()["claim_id"]}


async def row_of(scene: Scene) -> dict[str, Any]:
    return dict(await scene.admin.fetchrow("SELECT * FROM dedup.jobs") or {})


async def test_a_claim_binds_owner_and_lease(scene: Scene, job: str) -> None:
    """R000-17: pending -> running, with owner, heartbeat and lease at once."""
    answer = (await scene.post(CLAIM, {"worker_id": "w1"})).json()
    row = await row_of(scene)
    assert (answer["job"]["id"], answer["job"]["status"], answer["job"]["worker_id"]) == (
        job,
        "running",
        "w1",
    )
    assert str(row["claim_id"]) == answer["claim_id"]
    assert (row["lease_expires_at"] - row["worker_heartbeat_at"]).total_seconds() == answer["lease_seconds"]


async def test_of_many_claims_one_wins(scene: Scene, job: str) -> None:
    """R000-18."""
    codes: list[int] = []

    async def claim(number: int) -> None:
        codes.append((await scene.post(CLAIM, {"worker_id": f"w{number}"})).status_code)

    async with anyio.create_task_group() as tasks:
        for number in range(12):
            tasks.start_soon(claim, number)
    assert sorted(codes) == [200] + [404] * 11


async def test_without_work_there_is_nothing_to_claim(scene: Scene) -> None:
    """R000-26: a thumbnail job is none of a scanner's or hasher's."""
    await scene.post("/jobs", {"kind": "thumbnail", "library": "photos"})
    is_problem(await scene.post(CLAIM, {"worker_id": "w1"}), 404, "NOT_FOUND")


async def test_a_heartbeat_of_the_owner_extends_the_lease(scene: Scene, job: str) -> None:
    """R000-19."""
    owner = await claimed(scene)
    before = await row_of(scene)
    answer = await scene.post(f"/jobs/{job}/heartbeat", {**owner, "processed_items": 7, "progress": 0.5})
    after = await row_of(scene)
    assert (answer.status_code, answer.json()["processed_items"], answer.json()["progress"]) == (200, 7, 0.5)
    assert after["worker_heartbeat_at"] > before["worker_heartbeat_at"]
    assert after["lease_expires_at"] > before["lease_expires_at"]


@pytest.mark.parametrize("end", [None, "completed", "failed"])
@pytest.mark.parametrize("changed", [{"worker_id": "w2"}, {"claim_id": str(uuid.uuid4())}])
async def test_nobody_else_beats_or_finishes(
    scene: Scene, job: str, end: str | None, changed: dict[str, str]
) -> None:
    """R000-20, R000-22: another name or another token is refused, and the row stays as it is."""
    owner = await claimed(scene)
    before = await row_of(scene)
    body = {**owner, **changed}
    if end is None:
        answer = await scene.post(f"/jobs/{job}/heartbeat", body)
    else:
        answer = await scene.post(
            f"/jobs/{job}/finish",
            {**body, "status": end, "error_code": "WORKER_FAILURE" if end == "failed" else None},
        )
    is_problem(answer, 409, "CONFLICT")
    assert await row_of(scene) == before


@pytest.mark.parametrize(("status", "code"), [("completed", None), ("failed", "WORKER_FAILURE")])
async def test_an_ending_clears_the_lease(scene: Scene, job: str, status: str, code: str | None) -> None:
    """R000-21: a terminal status, no lease; the owner stays for the record. Said twice it is the same."""
    owner = await claimed(scene)
    body = {**owner, "status": status, "error_code": code, "error_message": code}
    answers = [await scene.post(f"/jobs/{job}/finish", body) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    row = await row_of(scene)
    assert (row["status"], row["error_code"], row["lease_expires_at"]) == (status, code, None)
    assert (row["worker_id"], row["finished_at"] is not None) == ("w1", True)


async def test_what_was_taken_over_is_not_finished_by_the_first(scene: Scene, job: str) -> None:
    """R000-22, R000-24: the next claim makes a stale job retryable; its old worker is told no."""
    old = await claimed(scene)
    await scene.admin.execute("UPDATE dedup.jobs SET lease_expires_at = now() - interval '1 second'")
    is_problem(await scene.post(CLAIM, {"worker_id": "w2"}), 404, "NOT_FOUND")
    row = await row_of(scene)
    assert (row["status"], row["error_code"], [row[name] for name in LEASE]) == (
        "retryable",
        "LEASE_EXPIRED",
        [None] * 3,
    )
    await scene.post(f"/jobs/{job}/reset")
    new = await claimed(scene, "w2")
    for path, more in (("heartbeat", {}), ("finish", {"status": "completed"})):
        is_problem(await scene.post(f"/jobs/{job}/{path}", {**old, **more}), 409, "CONFLICT")
    assert (await scene.post(f"/jobs/{job}/finish", {**new, "status": "completed"})).status_code == 200


async def test_a_cancelled_job_is_neither_beaten_nor_finished(scene: Scene, job: str) -> None:
    owner = await claimed(scene)
    await scene.post(f"/jobs/{job}/cancel")
    for path, more in (("heartbeat", {}), ("finish", {"status": "completed"})):
        is_problem(await scene.post(f"/jobs/{job}/{path}", {**owner, **more}), 409, "CONFLICT")
    assert (await row_of(scene))["status"] == "cancelled"


@pytest.mark.parametrize(
    "change",
    [
        {"worker_id": ""},
        {"worker_id": "w" * 129},
        {"worker_id": "w\0"},
        {"worker_id": "w 1"},
        {"claim_id": "x"},
        {"progress": 1.1},
        {"progress": -0.1},
        {"progress": True},
        {"progress": "0.5"},
        {"processed_items": -1},
        {"processed_items": 2**63},
        {"processed_items": True},
        {"more": 1},
    ],
    ids=lambda body: repr(body)[:50],
)
async def test_a_heartbeat_that_makes_no_sense_is_refused(
    scene: Scene, job: str, change: dict[str, Any]
) -> None:
    owner = await claimed(scene)
    before = await row_of(scene)
    is_problem(await scene.post(f"/jobs/{job}/heartbeat", {**owner, **change}), 422, "INVALID_INPUT")
    assert await row_of(scene) == before


@pytest.mark.parametrize(
    "change",
    [
        {"status": "running"},
        {"status": "failed"},
        {"status": "completed", "error_code": "X"},
        {"status": "failed", "error_code": "lower case"},
        {"status": "failed", "error_code": "X", "error_message": "\0"},
    ],
    ids=lambda body: repr(body)[:50],
)
async def test_an_ending_that_makes_no_sense_is_refused(
    scene: Scene, job: str, change: dict[str, Any]
) -> None:
    owner = await claimed(scene)
    is_problem(await scene.post(f"/jobs/{job}/finish", {**owner, **change}), 422, "INVALID_INPUT")
    assert (await row_of(scene))["status"] == "running"


async def test_an_unknown_job_is_not_found(scene: Scene) -> None:
    body = {"worker_id": "w1", "claim_id": str(uuid.uuid4())}
    is_problem(await scene.post(f"/jobs/{uuid.uuid4()}/heartbeat", body), 404, "NOT_FOUND")
    is_problem(
        await scene.post(f"/jobs/{uuid.uuid4()}/finish", {**body, "status": "completed"}), 404, "NOT_FOUND"
    )


async def test_a_replica_that_does_not_lend_its_rights_has_no_such_routes(
    emptied_database: Urls, tmp_path: Path
) -> None:
    async with scene_of(emptied_database, tmp_path, lending=False) as scene:
        assert (await scene.post(CLAIM, {"worker_id": "w1"})).status_code == 404
        paths = (await scene.get("/openapi.json")).json()["paths"]
    assert "/api/v1/jobs" in paths
    assert f"/api/v1{CLAIM}" not in paths


async def test_the_rights_of_the_api_do_not_suffice_for_work(
    scene: Scene, job: str, emptied_database: Urls
) -> None:
    """R000-105: who asks does not work. The role of the requests cannot claim, nor touch what was found."""
    store = Store(emptied_database.control, name="test")
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await store.rows(render(SCAN_HASH).claim, "w1", 1, "dedup")
    finally:
        await store.close()
    control = await asyncpg.connect(emptied_database.control)
    try:
        for statement in (
            "UPDATE dedup.library_files SET content_hash = NULL",
            "DELETE FROM dedup.library_files",
            "INSERT INTO dedup.jobs (kind) VALUES ('delete')",
            "UPDATE dedup.jobs SET dry_run = false",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await control.execute(statement)
    finally:
        await control.close()
