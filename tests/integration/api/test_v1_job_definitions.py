"""Job definitions over HTTP: made, replaced, paused, triggered, removed."""

from pathlib import Path
from typing import Any

import pytest

from supervisor import operations
from supervisor.embedded import Urls
from supervisor.errors import BadInput, NotFound
from tests.integration.api.conftest import Api
from tests.integration.api.test_v1_fleet import nested
from tests.support.door import HOLDER

SPEC: dict[str, Any] = {"domain": "command", "payload": {"argv": ["true"]}}
PARAMETERS = {"order": {"type": "integer"}}


@pytest.fixture
def api(shared_api: Api) -> Api:
    return shared_api


async def put(api: Api, name: str, spec: Any = None, expect: int = 201) -> Any:
    answer = await api.ask("PUT", f"/job-definitions/{name}", spec or SPEC)
    assert answer.status_code == expect, answer.text
    return answer.json()


async def test_a_job_is_made_and_then_replaced(api: Api) -> None:
    made = await put(
        api, "nightly", {**SPEC, "cron": "30 2 * * *", "timezone": "Europe/Berlin", "priority": 5}
    )
    assert len(made["next_fires"]) == 3
    assert made["next_fires"][0]["local"][11:16] == "02:30"
    again = await put(api, "nightly", SPEC, expect=200)
    assert (again["id"], again["cron"], again["priority"]) == (made["id"], None, 0), "the body is all of it"
    shown = await api.get("/job-definitions/nightly")
    assert (shown["payload"], shown["live"], shown["last_fire_at"]) == ({"argv": ["true"]}, {}, None)
    (first, second) = await api.audited()
    assert first[:4] == (HOLDER, "job.add", "job:nightly", None)
    assert second[:3] == (HOLDER, "job.set", "job:nightly")
    assert (second[3]["priority"], second[4]["priority"]) == (5, 0)


async def test_a_job_is_shown_as_the_command_line_shows_it(
    api: Api, emptied_database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.support.command_line import command_line

    await put(api, "nightly", {**SPEC, "cron": "30 2 * * *", "timezone": "Europe/Berlin"})
    tenure = command_line(emptied_database, monkeypatch, tmp_path)
    assert (
        await api.get("/job-definitions/nightly") == (await tenure("job", "show", "nightly", "--json")).json()
    )


async def test_a_paused_job_stays_paused_when_it_is_replaced(api: Api) -> None:
    await put(api, "a")
    answer = await api.ask("PATCH", "/job-definitions/a", {"enabled": False})
    assert (answer.status_code, answer.json()["enabled"]) == (200, False)
    assert (await put(api, "a", {**SPEC, "priority": 1}, expect=200))["enabled"] is False
    assert (await put(api, "a", {**SPEC, "enabled": True}, expect=200))["enabled"] is True


async def test_jobs_are_listed_by_name_page_by_page(api: Api) -> None:
    for name in ("c", "a", "b/of:two", "d"):
        await put(api, name)
    await api.ask("PATCH", "/job-definitions/d", {"enabled": False})
    assert [job["name"] for job in await api.all_of("/job-definitions", limit=1)] == [
        "a",
        "b/of:two",
        "c",
        "d",
    ]
    assert [job["name"] for job in await api.all_of("/job-definitions", enabled=False)] == ["d"]
    assert await api.all_of("/job-definitions", domain="scm") == []
    await api.scene.enqueue("a")
    [first, *_] = await api.all_of("/job-definitions")
    assert (first["live"], first["skipped"], first["next_fire_at"]) == (1, 0, None)


async def test_a_name_with_slashes_is_a_name(api: Api) -> None:
    await put(api, "team/trigger")
    assert (await api.get("/job-definitions/team/trigger"))["name"] == "team/trigger"
    made = await api.post("/job-definitions/team/trigger/trigger", expect=201)
    assert made["job"] == "team/trigger"


async def test_many_are_triggered_by_one_call_or_none(api: Api) -> None:
    await put(api, "job", {**SPEC, "parameters": PARAMETERS})
    path, good = "/job-definitions/job/trigger-many", {"payload": {"order": 1}, "idempotency_key": "k"}
    made = await api.post(path, {"runs": [good, {}], "priority": 7}, expect=201)
    assert (made["job"], made["created"], made["existing"], len(made["ids"])) == ("job", 2, [], 2)
    assert (await api.get(f"/runs/{made['ids'][0]}"))["priority"] == 7
    again = await api.post(path, {"runs": [good]}, expect=200)
    assert (again["ids"], again["created"], again["existing"]) == (made["ids"][:1], 0, made["ids"][:1])
    for runs, code in (([], 422), ([{"payload": []}], 422), ([{}, {"payload": {"argv": ["id"]}}], 400)):
        await api.refused(code, "POST", path, {"runs": runs})
    await api.refused(409, "POST", path, {"runs": [{}, {**good, "payload": {"order": 2}}]})
    await api.refused(404, "POST", "/job-definitions/nothing/trigger-many", {"runs": [{}]})
    triggered = [entry[4] for entry in await api.audited() if entry[1] == "job.trigger"]
    first, last = made["ids"]
    assert sorted(triggered, key=str) == sorted(
        [
            {"runs": 2, "created": 2, "first": first, "last": last},
            {"runs": 1, "created": 0, "first": first, "last": first},
        ],
        key=str,
    )


async def test_a_trigger_makes_one_run_a_key(api: Api) -> None:
    await put(api, "job", {**SPEC, "parameters": PARAMETERS})
    body = {
        "payload": {"order": 1},
        "idempotency_key": "k",
        "priority": 7,
        "not_before": "2090-01-01T00:00:00Z",
    }
    made = await api.post("/job-definitions/job/trigger", body, expect=201)
    again = await api.post("/job-definitions/job/trigger", body, expect=200)
    assert (made["created"], again["created"], made["id"]) == (True, False, again["id"])
    run = await api.get(f"/runs/{made['id']}")
    assert (run["payload"], run["priority"], run["not_before"][:4]) == (
        {**SPEC["payload"], "order": 1},
        7,
        "2090",
    )
    by_header = await api.http.post("/api/v1/job-definitions/job/trigger", headers={"Idempotency-Key": "h"})
    same = await api.http.post("/api/v1/job-definitions/job/trigger", json={"idempotency_key": "h"})
    assert (by_header.status_code, same.status_code, same.json()["id"]) == (201, 200, by_header.json()["id"])
    two = await api.http.post(
        "/api/v1/job-definitions/job/trigger", json={"idempotency_key": "a"}, headers={"Idempotency-Key": "b"}
    )
    assert (two.status_code, "differ" in two.text) == (400, True)
    other = {"idempotency_key": "k", "payload": {"order": 2}}
    assert "with another job or payload" in await api.refused(
        409, "POST", "/job-definitions/job/trigger", other
    )
    triggered = [entry for entry in await api.audited() if entry[1] == "job.trigger"]
    assert triggered[0][0] == HOLDER
    assert triggered[0][4] == {"id": made["id"], "state": "PENDING", "created": True}


async def test_a_job_is_removed_when_nothing_of_it_is_left_to_do(api: Api) -> None:
    await put(api, "job")
    await api.post("/job-definitions/job/trigger", expect=201)
    assert "have not ended" in await api.refused(409, "DELETE", "/job-definitions/job")
    await put(api, "idle")
    answer = await api.ask("DELETE", "/job-definitions/idle")
    assert (answer.status_code, answer.json()["removed"]) == (200, True)
    await api.refused(404, "GET", "/job-definitions/idle")
    assert (await api.audited())[-1][1:3] == ("job.remove", "job:idle")


REFUSED: list[tuple[int, str, str, Any]] = [
    (422, "PUT", "a", None),
    (422, "PUT", "a", []),
    (400, "PUT", "a", {}),
    (400, "PUT", "-a", SPEC),
    (400, "PUT", "a%20b", SPEC),
    (422, "PUT", "a" * 201, SPEC),
    (400, "PUT", "a", {**SPEC, "unknown": 1}),
    (400, "PUT", "a", {**SPEC, "domain": "nowhere"}),
    (400, "PUT", "a", {**SPEC, "payload": {"argv": "true"}}),
    (400, "PUT", "a", {**SPEC, "payload": nested(150)}),
    (400, "PUT", "a", {**SPEC, "payload": {"argv": ["a\0b"]}}),
    (400, "PUT", "a", {**SPEC, "payload": {"argv": ["x" * 300_000]}}),
    (400, "PUT", "a", {**SPEC, "cron": "never"}),
    (400, "PUT", "a", {**SPEC, "parameters": {"x": {"type": "int"}}}),
    (400, "PUT", "a", {**SPEC, "parameters": []}),
    (400, "PUT", "a", {**SPEC, "cron": "* * * * *", "timezone": "Mars/Base"}),
    (400, "PUT", "a", {**SPEC, "timezone": "UTC"}),
    (400, "PUT", "a", {**SPEC, "max_attempts": 0}),
    (400, "PUT", "a", {**SPEC, "max_attempts": "3"}),
    (400, "PUT", "a", {**SPEC, "event": "!"}),
    (404, "PATCH", "a", {"enabled": True}),
    (422, "PATCH", "job", {"enabled": "yes"}),
    (422, "PATCH", "job", {"enabled": True, "priority": 3}),
    (404, "DELETE", "a", None),
    (404, "GET", "a", None),
    (422, "GET", "a%00", None),
    (404, "POST", "a/trigger", None),
    (400, "POST", "job/trigger", {"payload": {"argv": 7}}),
    (400, "POST", "job/trigger", {"payload": nested(150)}),
    (422, "POST", "job/trigger", {"payload": []}),
    (422, "POST", "job/trigger", {"idempotency_key": ""}),
    (422, "POST", "job/trigger", {"idempotency_key": "x" * 201}),
    (400, "POST", "job/trigger", {"idempotency_key": "retry:7"}),
    (422, "POST", "job/trigger", {"not_before": "9999-12-31T23:59:59-14:00"}),
    (422, "POST", "job/trigger", {"priority": 10**7}),
]


async def test_what_cannot_be_is_refused_and_changes_nothing(api: Api) -> None:
    await put(api, "job")
    before = await api.audited()
    for status, method, path, body in REFUSED:
        await api.refused(status, method, f"/job-definitions/{path}", body)
    assert await api.audited() == before
    assert [job["name"] for job in await api.all_of("/job-definitions")] == ["job"]
    lone = await api.http.put(
        "/api/v1/job-definitions/job",
        content=b'{"domain": "command", "payload": {"argv": ["\\ud800"]}}',
        headers={"Content-Type": "application/json"},
    )
    assert lone.status_code == 400, lone.text


async def test_a_fault_says_what_to_write_instead(api: Api) -> None:
    text = await api.refused(400, "PUT", "/job-definitions/a", {**SPEC, "missed": "never", "cron": "x"})
    assert "must be one of skip, latest, all" in text
    text = await api.refused(400, "PUT", "/job-definitions/a", {"domain": "commando"})
    assert "known are" in text


async def test_the_same_operation_is_there_for_the_console(api: Api) -> None:
    """Every action takes the name of who acts, and says in a value what it did."""
    store = api.replica.store
    saved = await operations.save_job(store, "ada", "job", SPEC, may_name_programs=True)
    made = await operations.trigger(store, "ada", "job")
    asked = await operations.cancel(store, "ada", made.id)
    assert (saved.created, made.created, asked.requested) == (True, True, True)
    assert {entry[0] for entry in await api.audited()} == {"ada"}
    with pytest.raises(NotFound):
        await operations.trigger(store, "ada", "nobody")
    with pytest.raises(BadInput):
        await operations.cancel_many(store, "ada", range(1, 502))
