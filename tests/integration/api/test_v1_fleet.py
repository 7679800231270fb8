"""Workers, leadership, events, settings, domains, audit and evidence over HTTP."""

from typing import Any

import pytest

from tests.integration.api.conftest import Api
from tests.support.door import HOLDER
from tests.support.scene import secret_of


@pytest.fixture
def api(shared_api: Api) -> Api:
    return shared_api


def nested(levels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(levels):
        found = {"a": found}
    return found


async def test_workers_are_listed_and_drained(api: Api) -> None:
    await api.scene.lead()
    for worker in ("w2", "w1", "w3"):
        await api.scene.beat(worker)
    await api.scene.leave("w3")
    await api.scene.job()
    await api.scene.run_to("RUNNING", worker="w1")
    listed = await api.all_of("/workers", limit=1)
    assert [(worker["worker_id"], worker["claims"]) for worker in listed] == [("w1", 1), ("w2", 0)]
    assert "secret" not in listed[0]
    await api.scene.force(
        "UPDATE supervisor.worker SET heartbeat_at = heartbeat_at - interval '1 min' WHERE worker_id = 'w1'"
    )
    told = [(worker["state"], worker["contact"]) for worker in await api.all_of("/workers")]
    assert told == [("active", "silent"), ("active", "heard")]
    assert [worker["worker_id"] for worker in await api.all_of("/workers", all=True)] == ["w1", "w2", "w3"]
    assert await api.post("/workers/w2/drain") == {"worker_id": "w2", "state": "active", "requested": True}
    assert (await api.post("/workers/w2/drain"))["requested"] is False
    assert (await api.all_of("/workers"))[1]["drain_requested_at"] is not None
    assert await api.audited() == [
        (HOLDER, "worker.drain", "worker:w2", {"state": "active"}, {"drain_requested": True})
    ]
    assert "is gone" in await api.refused(409, "POST", "/workers/w3/drain")
    await api.refused(404, "POST", "/workers/w9/drain")
    await api.refused(422, "POST", f"/workers/{'w' * 201}/drain")
    await api.refused(422, "POST", "/workers/%00/drain")


async def test_leadership_is_told_with_its_gaps(api: Api) -> None:
    nobody = await api.get("/leadership")
    assert (nobody["current"]["live"], nobody["items"]) == (False, [])
    await api.refused(409, "POST", "/leadership/resign")
    await api.scene.lead("w1")
    await api.scene.value("SELECT supervisor.resign($1, 'w1', 'drain')", api.scene.epoch)
    await api.scene.lead("w2")
    await api.scene.force("UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()")
    await api.scene.lead("w3")
    shown = await api.get("/leadership")
    assert (shown["current"]["worker_id"], shown["current"]["live"]) == ("w3", True)
    facts = [
        (one["epoch"], one["holder"], one["ended"], one["gap_seconds"] is not None) for one in shown["items"]
    ]
    assert facts == [(3, "w3", "LEADS", False), (2, "w2", "EXPIRED", True), (1, "w1", "RESIGNED", False)]
    assert [one["gap_at_most_seconds"] is not None for one in shown["items"]] == [True, False, False]
    assert [one["last_renewed_at"] is not None for one in shown["items"]] == [False, True, False]
    first = shown["items"][2]
    assert (first["reason"], first["resigned_at"] <= first["succeeded_at"]) == ("drain", True)
    assert shown["items"][1]["succeeded_at"] == shown["items"][0]["acquired_at"]
    assert [one["epoch"] for one in await api.all_of("/leadership", limit=1)] == [3, 2, 1]
    assert await api.post("/leadership/resign") == {"epoch": 3, "worker_id": "w3"}
    assert (await api.get("/leadership"))["current"]["resigning"] is True
    assert (await api.audited())[0][:4] == (HOLDER, "leader.resign", "epoch:3", {"holder": "w3"})


async def test_events_are_emitted_once_a_key_and_listed(api: Api) -> None:
    body = {"type": "order.paid", "payload": {"n": 1}, "dedupe_key": "k"}
    made = await api.post("/events", body, expect=201)
    assert await api.post("/events", body, expect=200) == {"id": made["id"], "created": False}
    await api.post("/events", {"type": "upload"}, expect=201)
    listed = await api.all_of("/events", limit=1)
    assert [(event["type"], event["payload"]) for event in listed] == [
        ("upload", {}),
        ("order.paid", {"n": 1}),
    ]
    assert [event["type"] for event in await api.all_of("/events", type="order.paid")] == ["order.paid"]
    assert (await api.audited())[0][:3] == (HOLDER, "event.emit", f"event:{made['id']}")
    for status, wrong in [
        (422, {}),
        (400, {"type": "!"}),
        (422, {"type": "x" * 201}),
        (422, {"type": "a", "payload": []}),
        (422, {"type": "a", "dedupe_key": ""}),
        (400, {"type": "a", "payload": {"x": "y" * 70_000}}),
        (422, {"type": "a", "more": 1}),
        (400, {"type": "a", "payload": nested(150)}),
    ]:
        await api.refused(status, "POST", "/events", wrong)


async def test_settings_are_listed_and_changed_within_their_bounds(api: Api) -> None:
    settings = {one["name"]: one for one in await api.all_of("/settings", limit=3)}
    assert (settings["reassign_after_seconds"]["value"], settings["reassign_after_seconds"]["most"]) == (
        60,
        86400,
    )
    path = "/settings/reassign_after_seconds"
    answer = await api.ask("PUT", path, {"value": 90.5})
    assert answer.json() == {"name": "reassign_after_seconds", "value": 90.5, "was": 60}
    assert await api.audited() == [(HOLDER, "setting.set", "setting:reassign_after_seconds", 60, 90.5)]
    wrong: list[Any] = [{"value": 0}, {"value": 1e300}, {"value": True}, {"value": -1}]
    for body in wrong:
        assert "reassign_after_seconds" in await api.refused(400, "PUT", path, body)
    for body in [{"value": "90"}, {"value": None}, {}, {"value": [1]}, [1], None]:
        await api.refused(422, "PUT", path, body)
    await api.refused(404, "PUT", "/settings/nothing", {"value": 1})
    infinite = await api.http.put(
        f"/api/v1{path}", content=b'{"value": NaN}', headers={"Content-Type": "application/json"}
    )
    assert infinite.status_code == 422
    assert len(await api.audited()) == 1


async def test_domains_are_paused_and_resumed(api: Api) -> None:
    assert "command" in {one["domain"] for one in await api.all_of("/domains", limit=2)}
    assert await api.post("/domains/command/pause") == {"domain": "command", "paused": True, "changed": True}
    assert (await api.post("/domains/command/pause"))["changed"] is False
    [paused] = [one for one in await api.all_of("/domains") if one["paused_at"]]
    assert (paused["domain"], paused["paused_by"]) == ("command", HOLDER)
    assert (await api.post("/domains/command/resume"))["changed"] is True
    assert await api.audited() == [
        (HOLDER, "domain.pause", "domain:command", {"paused": False}, {"paused": True}),
        (HOLDER, "domain.resume", "domain:command", {"paused": True}, {"paused": False}),
    ]
    await api.refused(404, "POST", "/domains/nowhere/pause")
    await api.refused(422, "POST", "/domains/%00/pause")


async def test_the_audit_is_listed_by_who_what_and_target(api: Api) -> None:
    await api.ask("PUT", "/settings/max_assignments", {"value": 30})
    await api.post("/domains/command/pause")
    await api.scene.job("job")
    entries = await api.all_of("/audit", limit=1)
    assert [entry["action"] for entry in entries] == ["job.add", "domain.pause", "setting.set"]
    assert (entries[2]["before"], entries[2]["after"]) == (20, 30)
    assert [entry["action"] for entry in await api.all_of("/audit", actor="test")] == ["job.add"]
    assert len(await api.all_of("/audit", target="domain:command")) == 1
    assert len(await api.all_of("/audit", action="setting.set", actor=HOLDER)) == 1
    assert await api.all_of("/audit", actor="nobody") == []
    await api.refused(422, "GET", "/audit", actor="\0")


async def test_late_finishes_and_orphans_are_listed(api: Api) -> None:
    await api.scene.lead()
    await api.scene.beat()
    await api.scene.job(max_attempts=1)
    runs = [await api.scene.run_to("RUNNING") for _ in range(3)]
    claims = {}
    for run in runs:
        claims[run] = await api.scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
        await api.scene.finish(run, "FAILED", "EXIT_1")
        answer = await api.scene.value(
            "SELECT answer FROM supervisor.finish("
            "'w9', $1, $2, $3, '{SUCCEEDED}', '{NULL}', '{NULL}', '{NULL}', '{NULL}')",
            [run],
            [claims[run]],
            [api.scene.epoch],
        )
        assert answer != "RECORDED"
    late = await api.all_of("/late-finishes", limit=1)
    assert [(one["run_id"], one["worker_id"], one["state"]) for one in late] == [
        (run, "w9", "SUCCEEDED") for run in reversed(runs)
    ]
    orphan = await api.scene.run_to("ORPHANED")
    [listed] = await api.all_of("/orphans", limit=1)
    assert (listed["run_id"], listed["worker_id"], listed["state"]) == (orphan, "w1", "ORPHANED")
    for path in (
        "/late-finishes",
        "/orphans",
        "/workers",
        "/leadership",
        "/events",
        "/settings",
        "/audit",
        "/domains",
    ):
        await api.refused(400, "GET", path, cursor="bm9wZQ")
        await api.refused(422, "GET", path, limit=1000)
    assert secret_of("w1").hex not in str(await api.all_of("/workers"))
