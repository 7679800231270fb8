"""Jobs over HTTP: one scan or hash at a time, pages without gap or repeat, and refusals that say why."""

import uuid
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.embedded import Urls
from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import DIGEST, Scene, is_problem, scene_of
from tests.support.door import HOLDER

module_scene, scene = api_scene.module_scene, api_scene.library_scene

SCAN = {"kind": "scan", "library": "photos"}
KEY = f"blake3:{DIGEST.hex()}"


def ended_at(moment: str) -> str:
    return f"""INSERT INTO dedup.jobs (kind, status, created_at)
               SELECT 'hash', 'completed', {moment} FROM generate_series(1, $1::integer) RETURNING id::text"""


async def make(scene: Scene, body: dict[str, Any]) -> dict[str, Any]:
    answer = await scene.post("/jobs", body)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def moved(scene: Scene, job: str, *statuses: str) -> None:
    for status in statuses:
        await scene.admin.execute("UPDATE dedup.jobs SET status = $2 WHERE id = $1::uuid", job, status)


@pytest.mark.parametrize(
    "body",
    [
        SCAN,
        {"kind": "hash", "payload": {"algorithm": "sha256", "mode": "duplicates"}},
        {"kind": "thumbnail", "library": "photos", "payload": {"format": "jpeg", "max_dimension": 64}},
    ],
)
async def test_a_job_is_made_as_it_was_asked_for(scene: Scene, body: dict[str, Any]) -> None:
    """R000-02: what the API writes is in lower case, with the name of who asked."""
    made = await make(scene, body)
    assert (made["kind"], made["status"], made["requested_by"]) == (body["kind"], "pending", HOLDER)
    assert (made["library"], made["payload"]) == (body.get("library"), body.get("payload", {}))
    assert made["dry_run"] is True
    row = await scene.admin.fetchrow("SELECT kind, status FROM dedup.jobs")
    assert tuple(row or ()) == (body["kind"], "pending")
    actor = await scene.admin.fetchval("SELECT actor FROM supervisor.audit WHERE action LIKE 'dedup.%'")
    assert actor == HOLDER


async def test_the_audit_names_the_token_that_asked(emptied_database: Urls, tmp_path: Path) -> None:
    token = "a" * 40
    async with scene_of(emptied_database, tmp_path, api_token=token, http_host="0.0.0.0") as scene:
        scene.http.headers["Authorization"] = f"Bearer {token}"
        (scene.libraries / "photos").mkdir()
        answers = [
            await scene.post("/libraries", {"name": "photos", "path": "photos"}),
            job := await scene.post("/jobs", SCAN),
            await scene.post(f"/jobs/{job.json()['id']}/cancel"),
            await scene.post("/maintenance/wal/checkpoint", {}),
            await scene.post("/thumbs/cleanup/group", {"group_key": KEY, "delay_seconds": 60}),
            await scene.http.delete("/api/v1/libraries/photos"),
        ]
        assert [answer.status_code for answer in answers if answer.is_error] == []
        rows = await scene.admin.fetch("SELECT actor, action FROM supervisor.audit ORDER BY id")
    assert len(rows) >= 5
    assert {row["actor"] for row in rows} == {"TENURE_API_TOKEN"}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"kind": "nothing"},
        {"kind": "SCAN", "library": "photos"},
        {"kind": "scan"},
        {"kind": "scan", "library": None},
        {"kind": "scan", "library": "a b"},
        {"kind": "scan", "library": "a\0"},
        {"kind": "scan", "library": "a\n"},
        {"kind": "scan", "library": "../a"},
        {**SCAN, "payload": []},
        {**SCAN, "payload": {"allow_empty": "yes"}},
        {**SCAN, "payload": {"allow_empty": 1}},
        {**SCAN, "payload": {"unknown": 1}},
        {**SCAN, "dry_run": "false"},
        {**SCAN, "dry_run": 0},
        {**SCAN, "more": 1},
        {"kind": "hash", "payload": {"algorithm": "md5"}},
        {"kind": "hash", "payload": {"mode": "\0"}},
        {"kind": "thumbnail", "library": "photos", "payload": {"max_dimension": True}},
        {"kind": "thumbnail", "library": "photos", "payload": {"max_dimension": "64"}},
        {"kind": "thumbnail", "library": "photos", "payload": {"max_dimension": 2049}},
        {"kind": "delete", "group_key": KEY, "keep": 0},
        {"kind": "delete", "group_key": KEY, "keep": 2**63},
        {"kind": "delete", "group_key": KEY, "keep": True},
        {"kind": "delete", "group_key": KEY, "remove": []},
        {"kind": "delete", "group_key": KEY, "remove": [1.5]},
        {"kind": "delete", "library": "photos"},
        [],
        "scan",
        7,
        None,
    ],
    ids=lambda body: repr(body)[:50],
)
async def test_a_job_that_makes_no_sense_is_refused(scene: Scene, body: Any) -> None:
    is_problem(await scene.post("/jobs", body), 422, "INVALID_INPUT")
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.jobs") == 0


async def test_an_unknown_library_is_not_found(scene: Scene) -> None:
    is_problem(await scene.post("/jobs", {"kind": "scan", "library": "nowhere"}), 404, "NOT_FOUND")


async def test_a_second_scan_or_hash_is_a_conflict(scene: Scene) -> None:
    """R000-50, R000-52: one of both kinds at a time; thumbnails are not held up."""
    first = await make(scene, SCAN)
    answer = await scene.post("/jobs", {"kind": "hash"})
    is_problem(answer, 409, "CONFLICT")
    assert first["id"] in answer.json()["title"]
    await make(scene, {"kind": "thumbnail", "library": "photos"})
    await make(scene, {"kind": "thumbnail", "library": "photos"})


async def test_of_many_at_once_one_is_made(scene: Scene) -> None:
    """R000-51: one is created, the others are told of a conflict, and none gets an error of the server."""
    codes: list[int] = []

    async def ask(kind: str) -> None:
        codes.append((await scene.post("/jobs", {"kind": kind, "library": "photos"})).status_code)

    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(ask, ("scan", "hash")[number % 2])
    assert sorted(codes) == [201] + [409] * 19
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.jobs") == 1


async def test_jobs_are_listed_from_the_newest_and_by_id_within_a_moment(scene: Scene) -> None:
    """R000-58: created_at descending, then id descending."""
    for moment in ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", "2026-01-03T00:00:00Z"):
        await scene.admin.fetch(ended_at(f"'{moment}'"), 3)
    listed = [(job["created_at"], job["id"]) for job in await scene.pages("/jobs", limit=2)]
    assert len(listed) == 9
    assert listed == sorted(listed, reverse=True)


async def test_a_page_begins_behind_the_row_its_cursor_names(scene: Scene) -> None:
    """R000-59, R000-60, R000-61, R000-62: 500 jobs of one moment come once each, by the id of the last."""
    moment = "2026-01-01T00:00:00Z"
    made = await scene.admin.fetch(ended_at(f"'{moment}'"), 500)
    first = (await scene.get("/jobs", limit=7)).json()
    assert first["next_cursor"] == first["items"][-1]["id"]
    listed = [job["id"] for job in await scene.pages("/jobs", limit=7)]
    assert len(listed) == len(set(listed)) == 500
    assert sorted(listed) == sorted(row["id"] for row in made)


async def test_what_comes_in_meanwhile_shifts_nothing(scene: Scene) -> None:
    """R000-63: jobs made between two pages neither repeat nor hide one that was there."""
    old = [str(row["id"]) for row in await scene.admin.fetch(ended_at("now()"), 40)]
    listed, cursor = [], None
    while True:
        page = (await scene.get("/jobs", limit=7, cursor=cursor)).json()
        listed += [job["id"] for job in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        await scene.admin.fetch(ended_at("clock_timestamp()"), 5)
    assert listed == sorted(old, reverse=True)


async def test_a_listing_can_be_of_one_kind_and_status(scene: Scene) -> None:
    """R000-61: also when what is listed is chosen, no job comes twice and none is missing."""
    await scene.admin.execute(
        """INSERT INTO dedup.jobs (kind, status) SELECT k, s FROM unnest('{hash,delete}'::text[]) k,
           unnest('{completed,failed}'::text[]) s, generate_series(1, 5)"""
    )
    listed = await scene.pages("/jobs", kind="hash", status="failed", limit=2)
    assert len({job["id"] for job in listed}) == len(listed) == 5
    assert {(job["kind"], job["status"]) for job in listed} == {("hash", "failed")}


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "0",
        "NaN",
        "é",
        "\0",
        "' OR 1=1",
        "a" * 3000,
        str(uuid.UUID(int=1))[:-1],
        "urn:uuid:" + str(uuid.UUID(int=1)),
    ],
)
async def test_what_is_no_cursor_is_refused(scene: Scene, cursor: str) -> None:
    """R000-64: 422, never an error of the server, never the first page."""
    is_problem(await scene.get("/jobs", cursor=cursor), 422, "INVALID_CURSOR")


async def test_a_cursor_whose_job_is_gone_is_refused(scene: Scene) -> None:
    """R000-64: nobody knows where its page would begin."""
    for _ in range(2):
        await scene.admin.fetch(ended_at("now()"), 2)
    cursor = (await scene.get("/jobs", limit=1)).json()["next_cursor"]
    assert (await scene.get("/jobs", cursor=cursor)).status_code == 200
    await scene.admin.execute("DELETE FROM dedup.jobs WHERE id = $1::uuid", cursor)
    is_problem(await scene.get("/jobs", cursor=cursor), 422, "INVALID_CURSOR")


@pytest.mark.parametrize(
    "query",
    [
        {"limit": 0},
        {"limit": 201},
        {"limit": -1},
        {"limit": "x"},
        {"limit": 2**64},
        {"kind": "x"},
        {"status": "PENDING"},
    ],
)
async def test_a_listing_has_bounds(scene: Scene, query: dict[str, Any]) -> None:
    is_problem(await scene.get("/jobs", **query), 422, "INVALID_INPUT")


async def test_a_job_shows_its_moves_and_not_its_token(scene: Scene) -> None:
    """R000-104: who moved it, when and why."""
    job = (await make(scene, SCAN))["id"]
    await scene.admin.execute(
        "UPDATE dedup.jobs SET status = 'running', worker_id = 'w7', claim_id = gen_random_uuid()",
    )
    assert (await scene.post(f"/jobs/{job}/cancel")).status_code == 200
    shown = (await scene.get(f"/jobs/{job}")).json()
    moves = [(move["from_status"], move["to_status"], move["worker_id"]) for move in shown["moves"]]
    assert moves == [(None, "pending", None), ("pending", "running", "w7"), ("running", "cancelled", "w7")]
    assert (shown["error_code"], shown["error_message"]) == ("CANCELLED", "cancelled by TENURE_API_TOKEN")
    token = await scene.admin.fetchval("SELECT claim_id::text FROM dedup.jobs")
    for answer in (await scene.get(f"/jobs/{job}"), await scene.get("/jobs")):
        assert token not in answer.text


async def test_a_job_that_is_not_there_is_not_found(scene: Scene) -> None:
    nobody = uuid.uuid4()
    for answer in (
        await scene.get(f"/jobs/{nobody}"),
        await scene.post(f"/jobs/{nobody}/cancel"),
        await scene.post(f"/jobs/{nobody}/reset"),
    ):
        is_problem(answer, 404, "NOT_FOUND")
    for path in ("/jobs/7", "/jobs/%00", f"/jobs/{nobody}0"):
        is_problem(await scene.get(path), 422, "INVALID_INPUT")


async def test_what_has_ended_is_not_cancelled(scene: Scene) -> None:
    job = (await make(scene, SCAN))["id"]
    assert (await scene.post(f"/jobs/{job}/cancel")).json()["status"] == "cancelled"
    is_problem(await scene.post(f"/jobs/{job}/cancel"), 409, "CONFLICT")
    await make(scene, SCAN)


async def test_only_a_retryable_job_is_reset_and_not_beside_another(scene: Scene) -> None:
    """R000-50: a job that is tried again is active again, so it waits for the other."""
    job = (await make(scene, SCAN))["id"]
    is_problem(await scene.post(f"/jobs/{job}/reset"), 409, "CONFLICT")
    await moved(scene, job, "running", "retryable")
    other = (await make(scene, SCAN))["id"]
    is_problem(await scene.post(f"/jobs/{job}/reset"), 409, "CONFLICT")
    await scene.post(f"/jobs/{other}/cancel")
    answer = await scene.post(f"/jobs/{job}/reset")
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")


@pytest.mark.parametrize("lease", ["NULL", "now()"])
async def test_what_nobody_works_on_is_taken_back(scene: Scene, lease: str) -> None:
    """R000-16, R000-23, R000-25: without a lease or at its end; the fields are emptied, the reason told."""
    job = (await make(scene, SCAN))["id"]
    await scene.admin.execute(
        f"""UPDATE dedup.jobs SET status = 'running', worker_id = 'w', worker_heartbeat_at = now(),
                   lease_expires_at = {lease}, claim_id = gen_random_uuid()"""
    )
    assert (await scene.post("/jobs/recover-stale")).json() == {"recovered": [job]}
    shown = (await scene.get(f"/jobs/{job}")).json()
    assert (shown["status"], shown["error_code"]) == ("retryable", "LEASE_EXPIRED")
    assert [shown[name] for name in ("worker_id", "worker_heartbeat_at", "lease_expires_at")] == [None] * 3
    assert await scene.admin.fetchval("SELECT claim_id FROM dedup.jobs") is None
    assert (await scene.post("/jobs/recover-stale")).json() == {"recovered": []}


async def test_what_is_worked_on_and_other_kinds_are_left(scene: Scene) -> None:
    """R000-16, R000-26: a lease that runs is none of its business, nor is a stale job of another kind."""
    await make(scene, SCAN)
    await make(scene, {"kind": "thumbnail", "library": "photos"})
    await scene.admin.execute(
        """UPDATE dedup.jobs SET status = 'running', worker_id = 'w',
                  lease_expires_at = CASE kind WHEN 'scan' THEN now() + interval '1 hour' END"""
    )
    assert (await scene.post("/jobs/recover-stale")).json() == {"recovered": []}
    assert {job["status"] for job in await scene.pages("/jobs")} == {"running"}


async def test_a_deletion_is_of_a_group_and_a_dry_run(scene: Scene) -> None:
    ids = await scene.files("photos", ["a", "b", "c"])
    made = await make(scene, {"kind": "delete", "group_key": KEY.upper().replace("BLAKE3", "blake3")})
    assert (made["dry_run"], made["total_items"]) == (True, 2)
    assert made["payload"] == {"group_key": KEY, "keep": ids[0], "remove": ids[1:]}
    made = await make(scene, {"kind": "delete", "group_key": KEY, "keep": ids[2], "remove": [ids[0]]})
    assert (made["payload"]["keep"], made["payload"]["remove"]) == (ids[2], [ids[0]])


async def test_a_deletion_that_cannot_be_is_refused(scene: Scene) -> None:
    """R000-72: also here a malformed key is a mistake of the client."""
    ids = await scene.files("photos", ["a", "b"])
    (other,) = await scene.files("photos", ["x"], digest=b"\1" * 32)
    for keep, remove in ((ids[0], [ids[0]]), (other, None), (ids[0], [other]), (ids[0], [ids[1], 2**63 - 1])):
        body = {"kind": "delete", "group_key": KEY, "keep": keep, "remove": remove}
        is_problem(await scene.post("/jobs", body), 422, "INVALID_INPUT")
    for key in ("", KEY[:-1], f"{KEY}\0", KEY.replace("blake3", "md5")):
        is_problem(await scene.post("/jobs", {"kind": "delete", "group_key": key}), 422, "INVALID_GROUP_KEY")
    lone = f"blake3:{'01' * 32}"
    is_problem(await scene.post("/jobs", {"kind": "delete", "group_key": lone}), 404, "NOT_FOUND")


async def test_real_deletion_is_a_matter_of_policy(scene: Scene) -> None:
    await scene.files("photos", ["a", "b"])
    body = {"kind": "delete", "group_key": KEY, "dry_run": False}
    answer = await scene.post("/jobs", body)
    is_problem(answer, 409, "CONFLICT")
    assert "dedup_allow_real_delete" in answer.json()["title"]
    await scene.setting("dedup_allow_real_delete", "true")
    assert (await make(scene, body))["dry_run"] is False
