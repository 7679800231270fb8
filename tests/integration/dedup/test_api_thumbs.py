"""Thumbnails over HTTP: admitted under a capacity, served out of their directory and from nowhere else."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest

from supervisor.embedded import Urls
from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import DIGEST, Scene, is_problem
from tests.support.door import HOLDER
from tests.support.eventually import eventually
from tests.support.sessions import connected
from tests.support.slowness import patient

module_scene, scene = api_scene.module_scene, api_scene.library_scene

PICTURE = b"the bytes of a small picture"
KEY = f"blake3:{DIGEST.hex()}"


async def asked(scene: Scene, **more: Any) -> dict[str, Any]:
    """A thumbnail that is queued."""
    (file,) = await scene.files("photos", [f"{await scene.admin.fetchval('SELECT random()')}.jpg"])
    answer = await scene.post("/thumbs/request", {"file_id": file, **more})
    assert answer.status_code == 202, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def ready(scene: Scene, content: bytes = PICTURE, **more: Any) -> tuple[str, Path]:
    """A thumbnail that is made, and its file."""
    key: str = (await asked(scene, **more))["thumb_key"]
    await scene.admin.execute("UPDATE dedup.thumbnails SET status = 'running' WHERE thumb_key = $1", key)
    relpath = await scene.admin.fetchval(
        """UPDATE dedup.thumbnails SET status = 'ready', bytes_size = $2
            WHERE thumb_key = $1 RETURNING output_relpath""",
        key,
        len(content),
    )
    file = scene.thumbs / relpath
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return key, file


async def failed(scene: Scene, key: str, retry_after: str) -> None:
    for change in (
        "status = 'running'",
        f"status = 'failed', error_code = 'THUMB_DECODE_FAILED', {retry_after}",
    ):
        await scene.admin.execute(f"UPDATE dedup.thumbnails SET {change} WHERE thumb_key = $1", key)


async def test_a_thumbnail_is_queued_once(scene: Scene) -> None:
    """R000-27: 202 while it is to be made; asked again it is the same, and there is one row."""
    (file,) = await scene.files("photos", ["a.jpg"])
    answers = [await scene.post("/thumbs/request", {"file_id": file}) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    made = answers[0].json()
    assert (made["status"], made["format"], made["max_dimension"], made["group_key"]) == (
        "pending",
        "webp",
        256,
        KEY,
    )
    assert made["content_url"] is None
    assert (await scene.get(f"/thumbs/{made['thumb_key']}")).json() == made


async def test_one_that_is_there_is_answered_with_200(scene: Scene) -> None:
    key, _ = await ready(scene)
    file = (await scene.get(f"/thumbs/{key}")).json()["file_id"]
    answer = await scene.post("/thumbs/request", {"file_id": file})
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")
    assert (await scene.http.get(answer.json()["content_url"])).content == PICTURE


async def test_the_capacity_holds_however_many_ask_at_once(scene: Scene) -> None:
    """R000-27, R000-28: of 40 at once 10 are queued, 30 get 429, and the queue never has more than 10."""
    await scene.setting("dedup_thumbnail_capacity", "10")
    files = await scene.files("photos", [f"{number}.jpg" for number in range(40)])
    codes: Counter[int] = Counter()

    async def ask(file: int) -> None:
        codes[(await scene.post("/thumbs/request", {"file_id": file})).status_code] += 1

    async with anyio.create_task_group() as tasks:
        for file in files:
            tasks.start_soon(ask, file)
    assert codes == {202: 10, 429: 30}
    assert (await scene.get("/thumbs/metrics")).json()["queue_depth"] == 10


async def test_a_request_waits_for_the_one_before_it(scene: Scene, emptied_database: Urls) -> None:
    """R000-27: who counts before the other has committed would take the same last place."""
    await scene.setting("dedup_thumbnail_capacity", "1")
    first, second = await scene.files("photos", ["a.jpg", "b.jpg"])
    answers = []

    async def ask() -> None:
        answers.append(await scene.post("/thumbs/request", {"file_id": second}))

    async def is_waiting_or_answered() -> bool:
        waiting = """SELECT count(*) FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                      WHERE d.datname = current_database() AND l.locktype = 'advisory' AND NOT l.granted"""
        return bool(answers or await scene.admin.fetchval(waiting))

    async with (
        connected(emptied_database.admin) as other,
        anyio.create_task_group() as tasks,
        other.transaction(),
    ):
        await other.execute("SELECT dedup.request_thumbnail($1, 'webp', 256)", first)
        tasks.start_soon(ask)
        await eventually(is_waiting_or_answered)
    is_problem(answers[0], 429, "QUEUE_FULL")


async def test_a_full_queue_is_told_and_what_is_in_it_is_shown(scene: Scene) -> None:
    """R000-28: the surplus is refused; what was queued before is still the answer."""
    made = await asked(scene)
    await scene.setting("dedup_thumbnail_capacity", "1")
    (other,) = await scene.files("photos", ["z.jpg"])
    is_problem(await scene.post("/thumbs/request", {"file_id": other}), 429, "QUEUE_FULL")
    assert (await scene.post("/thumbs/request", {"file_id": made["file_id"]})).status_code == 202


async def test_a_failed_one_is_shown_until_its_time_has_come(scene: Scene) -> None:
    """R000-34, R000-35: before retry_after it stays as it is; behind it the request queues it again."""
    made = await asked(scene)
    await failed(scene, made["thumb_key"], "retry_after = now() + interval '1 hour'")
    before = (await scene.get(f"/thumbs/{made['thumb_key']}")).json()
    answer = await scene.post("/thumbs/request", {"file_id": made["file_id"]})
    assert answer.json() == before
    assert (before["status"], before["error_code"]) == ("failed", "THUMB_DECODE_FAILED")
    await scene.admin.execute("UPDATE dedup.thumbnails SET retry_after = now()")
    answer = await scene.post("/thumbs/request", {"file_id": made["file_id"]})
    assert (answer.status_code, answer.json()["status"]) == (202, "pending")


@pytest.mark.parametrize(
    "change",
    [
        {"file_id": 0},
        {"file_id": -1},
        {"file_id": 2**63},
        {"file_id": True},
        {"file_id": "1"},
        {"file_id": 1.5},
        {"file_id": None},
        {"format": "png"},
        {"format": "JPEG"},
        {"max_dimension": 15},
        {"max_dimension": 2049},
        {"max_dimension": 2**40},
        {"max_dimension": True},
        {"more": 1},
    ],
    ids=repr,
)
async def test_a_request_that_makes_no_sense_is_refused(scene: Scene, change: dict[str, Any]) -> None:
    (file,) = await scene.files("photos", ["a.jpg"])
    is_problem(await scene.post("/thumbs/request", {"file_id": file, **change}), 422, "INVALID_INPUT")
    assert await scene.admin.fetchval("SELECT count(*) FROM dedup.thumbnails") == 0


async def test_a_file_that_is_no_picture_or_not_there_is_refused(scene: Scene) -> None:
    (text, gone) = await scene.files("photos", ["a.txt", "b.jpg"])
    await scene.admin.execute("UPDATE dedup.library_files SET is_missing = true WHERE id = $1", gone)
    is_problem(await scene.post("/thumbs/request", {"file_id": text}), 422, "INVALID_INPUT")
    is_problem(await scene.post("/thumbs/request", {"file_id": gone}), 404, "NOT_FOUND")
    is_problem(await scene.post("/thumbs/request", {"file_id": 2**63 - 1}), 404, "NOT_FOUND")


@pytest.mark.parametrize(("form", "media_type"), [("jpeg", "image/jpeg"), ("webp", "image/webp")])
async def test_a_picture_is_served_to_be_kept(scene: Scene, form: str, media_type: str) -> None:
    key, _ = await ready(scene, format=form)
    url = f"/thumbs/{key}/content"
    answer = await scene.get(url)
    assert (answer.status_code, answer.content) == (200, PICTURE)
    assert answer.headers["content-type"] == media_type
    assert answer.headers["etag"] == f'"{key}"'
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    head = await scene.http.head(f"/api/v1{url}")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(PICTURE))
    assert head.headers["etag"] == answer.headers["etag"]


@pytest.mark.parametrize(
    ("known", "status"),
    [('"{}"', 304), ('W/"{}"', 304), ('"x", "{}"', 304), ("*", 304), ('"x"', 200), ("{}", 200), ("", 200)],
)
async def test_who_has_it_gets_it_not_again(scene: Scene, known: str, status: int) -> None:
    key, _ = await ready(scene)
    headers = {"If-None-Match": known.format(key)}
    answer = await scene.http.get(f"/api/v1/thumbs/{key}/content", headers=headers)
    assert (answer.status_code, answer.headers["etag"]) == (status, f'"{key}"')
    assert answer.content == (b"" if status == 304 else PICTURE)


async def test_what_is_not_ready_has_no_picture(scene: Scene) -> None:
    made = await asked(scene)
    url = f"/thumbs/{made['thumb_key']}/content"
    is_problem(await scene.get(url), 404, "NOT_READY")
    await failed(scene, made["thumb_key"], "retry_after = now()")
    is_problem(await scene.get(url), 404, "NOT_READY")
    is_problem(await scene.get(f"/thumbs/{'0' * 64}/content"), 404, "NOT_FOUND")
    is_problem(await scene.get(f"/thumbs/{'0' * 64}"), 404, "NOT_FOUND")


@pytest.mark.parametrize("key", ["x", "0" * 63, "0" * 65, "A" * 64, "..%2f..%2fetc%2fpasswd", "%00" * 64])
async def test_a_key_that_is_none_is_refused(scene: Scene, key: str) -> None:
    for path in (f"/thumbs/{key}", f"/thumbs/{key}/content"):
        answer = await scene.get(path)
        assert answer.status_code in {404, 422}, answer.text
        assert answer.headers["content-type"] == "application/problem+json"


async def test_a_file_that_is_gone_or_another_is_not_served(scene: Scene) -> None:
    key, file = await ready(scene)
    file.write_bytes(PICTURE[:-1])
    is_problem(await scene.get(f"/thumbs/{key}/content"), 404, "FILE_CHANGED")
    file.unlink()
    is_problem(await scene.get(f"/thumbs/{key}/content"), 404, "NOT_FOUND")
    file.parent.rmdir()
    is_problem(await scene.get(f"/thumbs/{key}/content"), 404, "NOT_FOUND")
    os.rename(scene.thumbs, scene.thumbs.with_name("away"))  # noqa: PTH104  as any tool would
    is_problem(await scene.get(f"/thumbs/{key}/content"), 404, "NOT_FOUND")


@pytest.mark.parametrize("what", ["file", "directory", "pipe"])
async def test_no_link_and_no_pipe_is_served(scene: Scene, tmp_path: Path, what: str) -> None:
    """R000-101: whatever stands in the thumbnails' directory, nothing outside of it is read."""
    key, file = await ready(scene)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / file.name).write_bytes(PICTURE)
    file.unlink()
    if what == "file":
        file.symlink_to(outside / file.name)
    elif what == "directory":
        file.parent.rmdir()
        file.parent.symlink_to(outside)
    else:
        os.mkfifo(file)
    with anyio.fail_after(patient(10)):
        answer = await scene.get(f"/thumbs/{key}/content")
    is_problem(answer, 404, "SPECIAL_FILE" if what == "pipe" else "ESCAPES_LIBRARY")


@pytest.mark.parametrize("relpath", ["../../outside", "/etc/passwd", "a/../../outside", "", "."])
async def test_a_row_that_points_outside_is_not_followed(scene: Scene, relpath: str) -> None:
    """R000-101: also of what the database says only what lies beneath is opened."""
    key, _ = await ready(scene)
    (scene.thumbs.parent.parent / "outside").write_bytes(PICTURE)
    async with scene.admin.transaction():
        await scene.admin.execute("SET LOCAL session_replication_role = replica")  # the guard is not asked
        await scene.admin.execute("UPDATE dedup.thumbnails SET output_relpath = $1", relpath)
    answer = await scene.get(f"/thumbs/{key}/content")
    assert answer.status_code == 404, answer.text
    assert PICTURE not in answer.content


async def test_the_queue_is_counted(scene: Scene) -> None:
    metrics = (await scene.get("/thumbs/metrics")).json()
    assert {
        name: value for name, value in metrics.items() if name not in {"generated_at", "capacity"}
    } == dict.fromkeys(
        (
            "queue_depth",
            "queue_pending",
            "queue_running",
            "retry_backlog",
            "retry_ready",
            "cleanup_pending",
            "cleanup_running",
            "cleanup_overdue",
            "cleanup_max_lag_seconds",
        ),
        0,
    )
    made = [await asked(scene) for _ in range(4)]
    await scene.admin.execute(
        "UPDATE dedup.thumbnails SET status = 'running' WHERE thumb_key = $1", made[0]["thumb_key"]
    )
    await failed(scene, made[1]["thumb_key"], "retry_after = now()")
    await failed(scene, made[2]["thumb_key"], "retry_after = now() + interval '1 hour'")
    await scene.post("/thumbs/cleanup/group", {"group_key": KEY, "delay_seconds": 0})
    await scene.post("/thumbs/cleanup/group", {"group_key": "file:7"})
    metrics = (await scene.get("/thumbs/metrics")).json()
    assert [metrics[name] for name in ("queue_depth", "queue_pending", "queue_running", "capacity")] == [
        2,
        1,
        1,
        50000,
    ]
    assert (metrics["retry_backlog"], metrics["retry_ready"]) == (2, 1)
    assert [metrics[f"cleanup_{name}"] for name in ("pending", "running", "overdue")] == [2, 0, 1]
    assert metrics["cleanup_max_lag_seconds"] > 0


async def test_a_cleanup_is_scheduled_once(scene: Scene) -> None:
    """R000-36: pending, with the time from which on it may be done; asked again it is the same one."""
    answers = [
        await scene.post("/thumbs/cleanup/group", {"group_key": KEY, "delay_seconds": 60}) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert answers[0].json() == answers[1].json()
    row = await scene.admin.fetchrow(
        """SELECT status, requested_by, execute_after - created_at BETWEEN '59 s' AND '61 s'
             FROM dedup.thumbnail_cleanup_jobs"""
    )
    assert tuple(row or ()) == ("pending", HOLDER, True)


@pytest.mark.parametrize("delay", [-1, 31_536_001, True, "60", 1e300])
async def test_a_delay_has_bounds(scene: Scene, delay: Any) -> None:
    is_problem(
        await scene.post("/thumbs/cleanup/group", {"group_key": KEY, "delay_seconds": delay}),
        422,
        "INVALID_INPUT",
    )


@pytest.mark.parametrize("key", ["", KEY[:-1], "file:0", "file:x", f"{KEY}\0", f"md5:{'0' * 64}"])
async def test_a_cleanup_of_no_group_is_refused(scene: Scene, key: str) -> None:
    """R000-72."""
    is_problem(await scene.post("/thumbs/cleanup/group", {"group_key": key}), 422, "INVALID_GROUP_KEY")
