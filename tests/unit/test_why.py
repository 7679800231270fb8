"""Why a run does not run: one reason for each thing that can hold it up, in the order of the leader."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from supervisor.config import Timings
from supervisor.why import Candidate, Facts, Reason, decide

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
EARLIER = NOW - timedelta(seconds=30)
COMMAND = ("command",)
FREE = Candidate("w1", "active", COMMAND, slots=4, held={"command": 1}, silent_seconds=0.5)

READY: dict[str, Any] = {
    "id": 7,
    "state": "PENDING",
    "attempt": 1,
    "starts": 0,
    "max_attempts": 3,
    "not_before": EARLIER,
    "scheduled_for": None,
    "cancel_requested_at": None,
    "cancel_requested_by": None,
    "continuation_state": "NONE",
    "continuation_reason": None,
    "continuation_check_deadline_at": None,
    "assigned_worker_id": None,
    "assigned_at": None,
    "of_older_timeline": None,
    "started_at": None,
    "times_out_at": None,
    "finished_at": None,
    "finished_by": None,
    "error_code": None,
    "error_message": None,
    "retry_at": None,
    "next_attempt_id": None,
    "next_state": None,
    "next_not_before": None,
    "retry_of_id": None,
    "domain": "command",
    "retry_requested": False,
    "job": "backup",
    "job_enabled": True,
    "job_removed_at": None,
    "job_disabled_at": None,
    "job_disabled_by": None,
    "domain_paused_at": None,
    "domain_paused_by": None,
    "concurrency": None,
    "quarantine_until": None,
    "leader": "w1",
    "leader_since": NOW - timedelta(hours=1),
    "last_leader": "w1",
    "lease_expires_at": LATER,
    "reassign_after_seconds": 60.0,
    "worker_heard_at": None,
    "worker_state": None,
    "before_id": None,
    "before_worker_id": None,
    "before_stops_at": None,
    "now": NOW,
}


def reason(**changes: Any) -> Reason:
    names = ("occupants", "occupied", "candidates", "ahead")
    facts = {name: changes.pop(name) for name in names if name in changes}
    assert changes.keys() <= READY.keys()
    return decide(Facts({**READY, **changes}, **{"candidates": [FREE], **facts}), Timings())


def replica(name: str, state: str, held: int, silent: float, domains: tuple[str, ...] = COMMAND) -> Candidate:
    return Candidate(name, state, domains, 4, {"command": held} if held else {}, silent)


def test_nothing_holds_it_up() -> None:
    found = reason(ahead=2)
    assert found.code == "IN_LINE"
    assert found.evidence == {"ahead": 2, "free_slots": 3, "leader": "w1"}
    assert "1000+ runs" in reason(ahead=1000).sentence


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cancel_requested_at": NOW}, "CANCEL_REQUESTED"),
        ({"not_before": LATER}, "NOT_DUE"),
        ({"not_before": LATER, "retry_of_id": 6}, "RETRY_BACKOFF"),
        ({"job_enabled": False}, "JOB_DISABLED"),
        ({"domain_paused_at": EARLIER}, "DOMAIN_PAUSED"),
        ({"leader": None}, "NO_LEADER"),
        ({"leader": None, "lease_expires_at": None, "last_leader": None}, "NO_LEADER"),
        ({"quarantine_until": LATER}, "QUARANTINE"),
        ({"before_id": 6, "before_worker_id": "w9", "before_stops_at": LATER}, "AWAITING_QUIESCE"),
        ({"concurrency": 2, "occupants": [4, 5], "occupied": 2}, "CONCURRENCY_LIMIT"),
        ({"concurrency": 500, "occupants": list(range(100)), "occupied": 500}, "CONCURRENCY_LIMIT"),
        ({"candidates": []}, "NO_REPLICA"),
        ({"candidates": [replica("w1", "draining", 0, 0.1)]}, "NO_REPLICA"),
        ({"candidates": [replica("w1", "active", 0, 9.0)]}, "NO_REPLICA"),
        ({"candidates": [replica("w1", "active", 0, 0.1, ("scm",))]}, "NO_REPLICA"),
        ({"candidates": [replica("w1", "active", 4, 0.1)]}, "NO_FREE_SLOT"),
    ],
)
@pytest.mark.parametrize("state", ["PENDING", "ORPHANED"])
def test_each_obstacle_of_a_queued_run(state: str, changes: dict[str, Any], code: str) -> None:
    found = reason(state=state, **changes)
    assert found.code == code
    assert found.sentence
    assert found.next


def test_what_is_over_or_has_room_does_not_count() -> None:
    found = reason(
        quarantine_until=EARLIER,
        concurrency=2,
        occupants=[4],
        occupied=1,
        candidates=[FREE, replica("w3", "active", 4, 0.1), replica("w4", "active", 9, 0.1)],
    )
    assert found.code == "IN_LINE"
    assert found.evidence["free_slots"] == 3


def test_an_attempt_that_has_stopped_holds_up_nothing() -> None:
    stopped = {"before_id": 6, "before_worker_id": "w9", "before_stops_at": EARLIER}
    assert reason(**stopped).code == "IN_LINE"
    taken = reason(**stopped, concurrency=1, occupants=[36], occupied=1)
    assert (taken.code, taken.evidence) == ("CONCURRENCY_LIMIT", {"runs": [36]})


def test_the_first_obstacle_is_the_one_that_is_told() -> None:
    everything = {
        "not_before": LATER,
        "job_enabled": False,
        "domain_paused_at": EARLIER,
        "leader": None,
        "quarantine_until": LATER,
        "before_id": 6,
        "before_stops_at": LATER,
        "concurrency": 1,
        "occupants": [4],
        "occupied": 1,
        "candidates": [],
    }
    order = []
    for name, cured in [
        ("not_before", EARLIER),
        ("job_enabled", True),
        ("domain_paused_at", None),
        ("leader", "w1"),
        ("quarantine_until", None),
        ("before_id", None),
        ("occupied", 0),
        ("candidates", [FREE]),
    ]:
        order.append(reason(**everything).code)
        everything[name] = cured
    assert order == [
        "NOT_DUE",
        "JOB_DISABLED",
        "DOMAIN_PAUSED",
        "NO_LEADER",
        "QUARANTINE",
        "AWAITING_QUIESCE",
        "CONCURRENCY_LIMIT",
        "NO_REPLICA",
    ]


def test_until_when_and_because_of_whom() -> None:
    assert reason(not_before=LATER).until == LATER
    quiesce = reason(before_id=6, before_worker_id="w9", before_stops_at=LATER)
    assert (quiesce.until, quiesce.evidence) == (LATER, {"run_id": 6, "worker_id": "w9"})
    assert reason(concurrency=2, occupants=[4, 5], occupied=2).evidence == {"runs": [4, 5]}
    gone = reason(leader=None, lease_expires_at=EARLIER, last_leader="w9")
    assert gone.evidence == {"since": EARLIER, "last_leader": "w9"}
    # a lease that is not over, but of a server that this one is not any more: since when is not known
    assert reason(leader=None, lease_expires_at=LATER, last_leader="w9").evidence == {"last_leader": "w9"}
    paused = reason(domain_paused_at=EARLIER, domain_paused_by="cli:ann")
    assert paused.evidence == {"since": EARLIER, "by": "cli:ann"}
    assert (paused.sentence.endswith("by cli:ann"), paused.next) == (True, "`tenure domain resume command`")
    assert reason(job_enabled=False).evidence == {}, "nobody is named where the audit names nobody"


def test_who_takes_the_slots_and_who_is_there_instead() -> None:
    full = reason(candidates=[Candidate("w1", "active", COMMAND, 4, {"dedup": 3, "command": 1}, 0.1)])
    assert full.evidence == {"replicas": {"w1": "4/4"}, "runs": {"dedup": 3, "command": 1}, "ahead": 0}
    assert "taken by 4 runs: 3 of dedup, 1 of command" in full.sentence
    nobody = reason(
        candidates=[replica("w1", "draining", 0, 0.1), replica("w2", "active", 0, 0.1, ("dedup", "scm"))]
    )
    assert nobody.evidence == {"replicas": {"w1": "draining"}, "live": {"w2": ["dedup", "scm"]}}
    assert "work for dedup, scm" in nobody.sentence
    assert "TENURE_DOMAINS=command" in nobody.next
    assert "none is there at all" in reason(candidates=[]).sentence


def test_assigned_waits_for_its_worker_or_for_another() -> None:
    given = {
        "state": "ASSIGNED",
        "assigned_worker_id": "w1",
        "assigned_at": EARLIER,
        "worker_state": "active",
        "worker_heard_at": NOW,
    }
    waits = reason(**given)
    assert (waits.code, waits.evidence["waits_for"]) == ("AWAITING_START", "w1")
    silent = reason(**{**given, "worker_heard_at": NOW - timedelta(seconds=9)})
    assert (silent.code, silent.until) == ("WORKER_SILENT", EARLIER + timedelta(seconds=60))
    assert reason(**{**given, "worker_state": None, "worker_heard_at": None}).code == "WORKER_SILENT"
    assert reason(**{**given, "worker_state": "gone"}).code == "WORKER_SILENT"
    assert reason(**given, cancel_requested_at=NOW).code == "CANCEL_REQUESTED"
    moved = reason(**given, of_older_timeline=True, quarantine_until=LATER)
    assert (moved.code, moved.until) == ("ASSIGNED_BEFORE_FAILOVER", LATER)


def test_running() -> None:
    running = {"state": "RUNNING", "assigned_worker_id": "w1", "started_at": EARLIER, "worker_heard_at": NOW}
    found = reason(**running)
    assert (found.code, found.evidence["heard_at"]) == ("RUNNING", NOW)
    cancelled = reason(**running, cancel_requested_at=NOW, cancel_requested_by="cli:ann")
    assert (cancelled.code, cancelled.until) == ("CANCELLING", NOW + timedelta(seconds=30))
    assert cancelled.evidence["waits_for"] == "w1"
    confirming = {
        "continuation_state": "CONFIRMING",
        "continuation_reason": "SILENT",
        "continuation_check_deadline_at": LATER,
    }
    found = reason(**running, **confirming)
    assert (found.code, found.until) == ("CONFIRMING", LATER)
    assert "TIMED_OUT" in found.sentence
    assert "cancelled" in reason(**running, **confirming, cancel_requested_at=NOW).sentence
    # a new leader believes no silence that it has not watched itself
    assert reason(**running, **confirming, leader_since=NOW).until == NOW + timedelta(seconds=30)
    later = NOW + timedelta(seconds=12)
    assert reason(**running, **confirming, leader_since=later).until == later + timedelta(seconds=30)
    leaderless = reason(**running, **confirming, leader=None)
    assert (leaderless.code, leaderless.until) == ("CONFIRMING", None)
    assert "nobody leads" in leaderless.sentence
    # a worker that sees no leader stops by itself
    alone = {**confirming, "continuation_reason": "NO_LEADER"}
    assert reason(**running, **alone, leader=None).until == LATER


def test_a_cancel_waits_for_a_leader() -> None:
    asked = {"cancel_requested_at": NOW, "cancel_requested_by": "cli:ann"}
    assert reason(**asked).evidence["waits_for"] == "w1"
    found = reason(**asked, leader=None, lease_expires_at=EARLIER)
    assert "nobody leads" in found.sentence
    assert found.evidence["since"] == EARLIER


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"])
def test_ended(state: str) -> None:
    ended = reason(state=state, finished_at=EARLIER, error_code="EXIT_1")
    assert (ended.code, ended.evidence) == ("ENDED", {"finished_at": EARLIER, "error_code": "EXIT_1"})
    assert state in ended.sentence
    assert ("tenure run retry 7" in ended.next) == (state != "SUCCEEDED")
    followed = reason(state=state, next_attempt_id=8, retry_at=NOW)
    assert (followed.evidence["next_attempt_id"], followed.next) == (8, "`tenure run why 8`")
    assert followed.until is None
    waits = reason(state=state, next_attempt_id=8, next_state="PENDING", next_not_before=LATER)
    assert (waits.code, waits.until, waits.until_when) == ("ENDED", LATER, "due")
    for moved in ({"next_state": "PENDING", "next_not_before": EARLIER}, {"next_state": "CANCELED"}):
        assert (
            reason(**{"state": state, "next_attempt_id": 8, "next_not_before": LATER, **moved}).until is None
        )
    owed = reason(state=state, retry_at=LATER)
    assert (owed.code, owed.until, owed.until_when) == ("NEXT_ATTEMPT_OWED", LATER, "due")
    assert reason(state=state, retry_requested=True).code == "NEXT_ATTEMPT_OWED"
    assert "nobody leads" in reason(state=state, retry_at=LATER, leader=None).sentence
