"""Runs over HTTP: listed, shown, explained, cancelled and tried again."""

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.jobrun import LIVE, STATES
from supervisor.why import explain
from tests.integration.api.conftest import Api
from tests.support.door import HOLDER

BIG = 2**63


@pytest.fixture
def api(shared_api: Api) -> Api:
    return shared_api


@pytest.fixture
async def led(api: Api) -> Api:
    await api.scene.lead()
    await api.scene.beat()
    await api.scene.job(parameters={"a": {"type": "any"}, "x": {"type": "any"}})
    return api


async def test_runs_come_newest_first_and_page_by_page(led: Api) -> None:
    ids = [await led.scene.enqueue() for _ in range(7)]
    page = await led.get("/runs", limit=3)
    assert [run["id"] for run in page["items"]] == ids[:3:-1]
    newer = await led.scene.enqueue()
    rest = await led.all_of("/runs", limit=3, cursor=page["next"])
    assert [run["id"] for run in rest] == ids[3::-1], "what came meanwhile shifts nothing"
    assert [run["id"] for run in await led.all_of("/runs", limit=2)] == [newer, *reversed(ids)]


async def test_runs_are_found_by_each_filter(led: Api) -> None:
    await led.scene.job("other", domain="scm", payload={"repo": "r", "source": "git"})
    made = {state: await led.scene.run_to(state) for state in STATES}
    other = await led.scene.enqueue("other")

    async def found(**query: Any) -> set[int]:
        return {run["id"] for run in await led.all_of("/runs", limit=3, **query)}

    for state in STATES:
        assert await found(state=state) == {made[state], *([other] if state == "PENDING" else ())}
    assert await found(state=["FAILED", "RUNNING"]) == {made["FAILED"], made["RUNNING"]}
    assert await found(domain="scm") == await found(job="other") == {other}
    assert await found(worker="w1", state=sorted(LIVE)) == {made["ASSIGNED"], made["RUNNING"]}
    assert await found(root=made["FAILED"]) == {made["FAILED"]}
    assert await found(job="other", state="RUNNING") == set()
    created = (await led.get("/runs", state="FAILED"))["items"][0]["created_at"]
    assert made["FAILED"] in await found(since=created)
    assert made["FAILED"] not in await found(until=created)
    assert await found(since=created) | await found(until=created) == {*made.values(), other}
    assert await found(since="2090-01-01T00:00:00Z") == await found(until="1999-01-01T00:00:00Z") == set()


async def test_a_run_is_shown_as_the_command_line_shows_it(
    led: Api, emptied_database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from tests.support.command_line import command_line

    run = await led.scene.run_to("FAILED")
    [second] = await led.scene.next_attempts()
    shown = await led.get(f"/runs/{run}")
    assert [step["to_state"] for step in shown["history"]] == ["PENDING", "ASSIGNED", "RUNNING", "FAILED"]
    assert [(one["id"], one["attempt"], one["state"]) for one in shown.pop("attempts")] == [
        (run, 1, "FAILED"),
        (second, 2, "PENDING"),
    ]
    tenure = command_line(emptied_database, monkeypatch, tmp_path)
    assert shown == (await tenure("run", "show", str(run), "--json")).json()


async def test_why_is_the_reason_of_the_command_line(led: Api) -> None:
    run = await led.scene.enqueue()
    await led.post("/domains/command/pause")
    shown = await led.get(f"/runs/{run}/why")
    assert shown["reason"] == "DOMAIN_PAUSED"
    found = await explain(led.replica.store, run, Settings().timings)
    assert shown.keys() == found.answer().keys()


async def test_what_an_application_stored_is_handed_on_whatever_it_is(led: Api) -> None:
    """JSON deeper than a reader can follow, and text that would break out of a page or a log."""
    deep = '{"a":' * 3000 + "1" + "}" * 3000
    await led.scene.connection.execute("SELECT supervisor.enqueue('job', $1::text::jsonb)", deep)
    hostile = {"x": "</script>\u2028\x1b[31m'\"\\"}
    run = await led.scene.value(
        "SELECT id FROM supervisor.enqueue('job', $1::text::jsonb)", json.dumps(hostile)
    )
    assert (await led.get(f"/runs/{run}"))["payload"]["x"] == hostile["x"]
    answer = await led.ask("GET", f"/runs/{run - 1}")
    assert answer.status_code == 200
    assert '{"a": ' * 100 in answer.text


async def test_cancelling_and_trying_again_are_audited(led: Api) -> None:
    pending, failed = await led.scene.enqueue(), await led.scene.run_to("FAILED")
    await led.scene.force("UPDATE supervisor.job_run SET retry_at = NULL WHERE id = $1", failed)
    assert await led.post(f"/runs/{pending}/cancel") == {"id": pending, "state": "PENDING", "requested": True}
    assert (await led.post(f"/runs/{pending}/cancel"))["requested"] is False
    assert await led.post(f"/runs/{failed}/retry") == {"id": failed, "requested": True}
    assert [entry[:3] for entry in await led.audited()] == [
        (HOLDER, "run.cancel", f"run:{pending}"),
        (HOLDER, "run.retry", f"run:{failed}"),
    ]
    assert "has ended as FAILED" in await led.refused(409, "POST", f"/runs/{failed}/cancel")
    assert f"run {pending} is PENDING" in await led.refused(409, "POST", f"/runs/{pending}/retry")


async def test_many_at_once_are_each_for_itself(led: Api) -> None:
    pending, failed, running = [await led.scene.run_to(state) for state in ("PENDING", "FAILED", "RUNNING")]
    outcome = await led.post("/runs/cancel", {"ids": [pending, failed, 999999, running, pending]})
    assert [(one["id"], one["outcome"]) for one in outcome["items"]] == [
        (pending, "requested"),
        (failed, "refused"),
        (999999, "not_found"),
        (running, "requested"),
    ]
    assert "has ended as FAILED" in outcome["items"][1]["what"]
    outcome = await led.post("/runs/retry", {"ids": [failed, running]})
    assert [one["outcome"] for one in outcome["items"]] == ["requested", "refused"]
    audited = [(action, target) for _, action, target, _, _ in await led.audited()]
    assert audited == [
        ("run.cancel", f"run:{pending}"),
        ("run.cancel", f"run:{running}"),
        ("run.retry", f"run:{failed}"),
    ]


REFUSED: list[tuple[int, str, dict[str, Any]]] = [
    (422, "/runs", {"limit": 0}),
    (422, "/runs", {"limit": 201}),
    (400, "/runs", {"cursor": "?"}),
    (400, "/runs", {"cursor": "bm9wZQ"}),
    (400, "/runs", {"cursor": "WyIxIl0"}),
    (422, "/runs", {"cursor": "x" * 2000}),
    (422, "/runs", {"state": "RUNING"}),
    (422, "/runs", {"root": BIG}),
    (422, "/runs", {"since": "0001-01-01T00:00:00+14:00"}),
    (422, "/runs", {"since": "2030-01-01T00:00:00"}),
    (422, "/runs", {"worker": "a\0b"}),
    (404, "/runs", {"job": "nobody"}),
    (422, "/runs/0", {}),
    (422, f"/runs/{BIG}", {}),
    (404, f"/runs/{BIG - 1}", {}),
    (404, "/runs/7/why", {}),
    (404, "/runs/7/logs", {}),
    (404, "/runs/7/logs", {"follow": "true"}),
]
BULKS: list[Any] = [
    None,
    {},
    {"ids": []},
    {"ids": ["1"]},
    {"ids": [0]},
    {"ids": [BIG]},
    {"ids": [1] * 501},
    [1],
]


async def test_what_cannot_be_is_refused(api: Api) -> None:
    for status, path, query in REFUSED:
        text = await api.refused(status, "GET", path, **query)
        assert status != 400 or "`next` of the page before" in text, "a cursor is refused as one"
    for body in BULKS:
        await api.refused(422, "POST", "/runs/cancel", body)
    assert await api.audited() == []


async def test_a_log_is_read_page_by_page(led: Api) -> None:
    run = await led.scene.run_to("RUNNING")
    await write_log(led, run, [f"line {n}\n" for n in range(5)])
    page = await led.get(f"/runs/{run}/logs", limit=2)
    assert [line["body"] for line in page["items"]] == ["line 0\n", "line 1\n"]
    rest = await led.all_of(f"/runs/{run}/logs", limit=2, cursor=page["next"])
    assert [line["seq"] for line in rest] == [2, 3, 4]


async def test_a_page_of_a_log_is_bounded_in_bytes(led: Api) -> None:
    run = await led.scene.run_to("RUNNING")
    await write_log(led, run, ["x" * 700_000, "y" * 700_000, "z"])
    page = await led.get(f"/runs/{run}/logs")
    assert [line["body"][0] for line in page["items"]] == ["x"]
    assert [
        line["body"][0] for line in (await led.get(f"/runs/{run}/logs", cursor=page["next"]))["items"]
    ] == [
        "y",
        "z",
    ]


async def test_a_log_that_left_the_database_is_read_where_it_is(led: Api) -> None:
    from supervisor.archive import Archive
    from supervisor.artifacts.local import LocalArtifacts

    run = await led.scene.run_to("RUNNING")
    await write_log(led, run, ["old\n", "older\n"])
    await led.scene.finish(run)
    place = led.replica.settings.state_dir / "artifacts"

    async def call(query: str, *args: Any) -> Any:
        return await led.replica.store.rows(query, led.scene.epoch, *args)

    finished_at = await led.scene.value("SELECT finished_at FROM supervisor.job_run WHERE id = $1", run)
    await Archive(led.replica.store, call, LocalArtifacts(place)).move(run, finished_at)
    assert await led.scene.value("SELECT count(*) FROM supervisor.job_run_log WHERE run_id = $1", run) == 0
    assert [line["body"] for line in await led.all_of(f"/runs/{run}/logs", limit=1)] == ["old\n", "older\n"]
    for file in place.rglob("*.gz"):
        file.unlink()
    assert "cannot be read here" in await led.refused(409, "GET", f"/runs/{run}/logs")


async def write_log(api: Api, run: int, lines: list[str], first: int = 0) -> None:
    row = await api.scene.connection.fetchrow(
        "SELECT assigned_worker_id, claim_id FROM supervisor.job_run WHERE id = $1", run
    )
    assert row is not None
    streams, numbers = ["stdout"] * len(lines), list(range(first, first + len(lines)))
    await api.scene.value(
        "SELECT supervisor.append_log($1, $2, $3, $4, $5, $6)", row[0], run, row[1], numbers, streams, lines
    )
