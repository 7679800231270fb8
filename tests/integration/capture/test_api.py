"""The routes of the domain: what comes in is checked, what goes out is what the database says."""

from uuid import uuid4

import pytest

from tests.integration.capture.pictures import DAY, picture
from tests.integration.capture.scene import Scene
from tests.integration.capture.world import DAY as DATE
from tests.integration.dedup.api_scene import is_problem
from tests.support.door import HOLDER

FIRST, SECOND = (
    '{"entries": [{"start": "08:00", "end": "12:00", "title": "Pottery", "location": null}]}',
    (
        '{"entries": [{"start": "08:30", "end": "12:00", "title": "Pottery", "location": null}, '
        '{"start": "13:00", "end": null, "title": "Dentist", "location": "Main St"}]}'
    ),
)


async def test_a_submission_is_a_session_with_its_pictures_in_order(scene: Scene) -> None:
    """R004-28: in the order in which they came; their names say nothing."""
    one, two = picture(*DAY), picture(DAY[0])
    answer = await scene.submit(one, two)
    assert answer.status_code == 201, answer.text
    session = answer.json()
    assert (session["state"], session["error"], session["version"]) == ("pending", None, None)
    assert (session["user_id"], session["images"]) == (7, 2)
    assert len(scene.artifacts()) == 2
    for number, content in ((1, one), (2, two)):
        shown = await scene.get(f"/capture/sessions/{session['session_id']}/images/{number}")
        assert (shown.content, shown.headers["content-type"]) == (content, "image/png")
    assert is_problem(
        await scene.get(f"/capture/sessions/{session['session_id']}/images/3"), 404, "NOT_FOUND"
    )


async def test_sent_again_under_its_id_it_is_the_same_session(scene: Scene) -> None:
    session, content = uuid4(), picture(*DAY)
    answers = [await scene.submit(content, session_id=session) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 200]
    assert answers[0].json() == answers[1].json()
    assert len(scene.artifacts()) == 1, "what was put a second time is gone"
    other = await scene.submit(content, content, session_id=session)
    assert is_problem(other, 409, "CONFLICT")
    assert is_problem(await scene.submit(content, user=8, session_id=session), 409, "CONFLICT")
    assert len(scene.artifacts()) == 1


@pytest.mark.parametrize(
    ("content", "fields", "status", "code"),
    [
        (b"", {}, 422, "INVALID_INPUT"),
        (b"%PDF-1.7 hello", {}, 422, "INVALID_INPUT"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", {}, 422, "INVALID_INPUT"),
        (picture(), {"user": "seven"}, 422, "INVALID_INPUT"),
        (picture(), {"user": 2**63}, 422, "INVALID_INPUT"),
        (picture(), {"session_id": "x"}, 422, "INVALID_INPUT"),
        (picture(), {"colour": "red"}, 422, "INVALID_INPUT"),
    ],
)
async def test_what_is_no_submission_leaves_nothing(
    scene: Scene, content: bytes, fields: dict[str, object], status: int, code: str
) -> None:
    assert is_problem(await scene.submit(content, **fields), status, code)
    assert is_problem(await scene.submit(picture(), content, **fields), status, code)
    assert scene.artifacts() == []
    assert (await scene.get("/capture/sessions")).json()["items"] == []


async def test_pictures_are_bounded_in_number_and_size(scene: Scene) -> None:
    assert is_problem(await scene.submit(), 422, "INVALID_INPUT")
    set_ = "SELECT supervisor.save_setting('test', $1, $2::text::jsonb)"
    await scene.world.control.fetchval(set_, "capture_max_images", "2")
    assert is_problem(await scene.submit(*[picture()] * 3), 422, "INVALID_INPUT")
    await scene.world.control.fetchval(set_, "capture_max_bytes", "1000")
    assert is_problem(await scene.submit(picture(*DAY)), 413, "TOO_LARGE")
    assert is_problem(await scene.submit(b"\x89PNG\r\n\x1a\n" + bytes(400_000)), 413, "TOO_LARGE")
    assert scene.artifacts() == []


async def test_sessions_are_listed_by_key(scene: Scene) -> None:
    made = [(await scene.submit(picture(), user=user)).json()["session_id"] for user in (7, 8, 7)]
    first = (await scene.get("/capture/sessions", limit=2)).json()
    assert [item["session_id"] for item in first["items"]] == [made[2], made[1]]
    rest = (await scene.get("/capture/sessions", limit=2, cursor=first["next"])).json()
    assert ([item["session_id"] for item in rest["items"]], rest["next"]) == ([made[0]], None)
    mine = (await scene.get("/capture/sessions", user=8, state="pending")).json()["items"]
    assert [item["session_id"] for item in mine] == [made[1]]
    assert (await scene.get("/capture/sessions", cursor="AAAA")).status_code == 422


async def test_an_operator_refuses_what_still_waits(scene: Scene) -> None:
    """R004-05, C-68: with a reason and an audit row; what is being read is its worker's."""
    session = (await scene.submit(picture())).json()["session_id"]
    path = f"/api/v1/capture/sessions/{session}/refuse"
    assert (await scene.http.post(path, json={"reason": " "})).status_code == 422
    answer = await scene.http.post(path, json={"reason": "the wrong person"})
    assert (answer.json()["state"], answer.json()["error"]) == ("failed", "the wrong person")
    [audit] = await scene.world.admin.fetch("SELECT * FROM supervisor.audit WHERE action = 'capture.refuse'")
    assert (audit["actor"], audit["target"]) == (HOLDER, f"capture:{session}")
    assert is_problem(await scene.http.post(path, json={"reason": "again"}), 409, "CONFLICT")
    nobody = await scene.http.post(f"/api/v1/capture/sessions/{uuid4()}/refuse", json={"reason": "x"})
    assert is_problem(nobody, 404, "NOT_FOUND")


async def test_a_day_its_versions_and_what_changed(scene: Scene) -> None:
    world = scene.world
    await world.version(payload=FIRST, hash_="a1")
    await world.version(payload=SECOND, hash_="a2")
    day = (await scene.get(f"/schedules/7/{DATE}")).json()
    assert (day["version"], day["current_version"], len(day["payload"]["entries"])) == (2, 2, 2)
    assert (await scene.get(f"/schedules/7/{DATE}", version=1)).json()["payload_hash"] == "a1"
    listed = (await scene.get(f"/schedules/7/{DATE}/versions", limit=1)).json()
    assert [(item["version"], item["entries"]) for item in listed["items"]] == [(2, 2)]
    rest = (await scene.get(f"/schedules/7/{DATE}/versions", limit=1, cursor=listed["next"])).json()
    assert ([item["version"] for item in rest["items"]], rest["next"]) == ([1], None)
    changes = (await scene.get(f"/schedules/7/{DATE}/differences")).json()
    assert (changes["from_version"], changes["to_version"]) == (1, 2)
    assert [entry["title"] for entry in changes["added"]] == ["Dentist"]
    [moved] = changes["changed"]
    assert (moved["before"]["start"], moved["after"]["start"], changes["removed"]) == ("08:00", "08:30", [])
    days = (await scene.get("/schedules/7")).json()
    assert days == {"items": [{"schedule_date": str(DATE), "current_version": 2}], "next": None}
    for path in ("/schedules/8/2026-11-16", f"/schedules/7/{DATE}?version=9", "/schedules/7/2026-01-01"):
        assert is_problem(await scene.http.get(f"/api/v1{path}"), 404, "NOT_FOUND")
    assert is_problem(await scene.get("/schedules/7/monday"), 422, "INVALID_INPUT")
