"""Why a run does not run: one reason for each thing that can hold it up, in the order of the leader."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from supervisor.why import Candidate, Facts, why

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)
LATER = NOW + timedelta(seconds=30)
EARLIER = NOW - timedelta(seconds=30)
FREE = Candidate("w1", "active", slots=4, held=1, silent_seconds=0.5)

READY: dict[str, Any] = {
    "id": 7,
    "state": "PENDING",
    "attempt": 1,
    "starts": 0,
    "max_attempts": 3,
    "not_before": EARLIER,
    "cancel_requested_at": None,
    "continuation_state": "NONE",
    "continuation_reason": None,
    "continuation_check_deadline_at": None,
    "assigned_worker_id": None,
    "assigned_at": None,
    "started_at": None,
    "finished_at": None,
    "error_code": None,
    "error_message": None,
    "retry_at": None,
    "next_attempt_id": None,
    "retry_of_id": None,
    "domain": "command",
    "retry_requested": False,
    "job": "backup",
    "job_enabled": True,
    "domain_paused_at": None,
    "concurrency": None,
    "quarantine_until": None,
    "leader": "w1",
    "lease_expires_at": LATER,
    "reassign_after_seconds": 60.0,
    "worker_silent_seconds": None,
    "worker_state": None,
    "before_id": None,
    "before_worker_id": None,
    "before_stops_at": None,
    "now": NOW,
}


def reason(**changes: Any) -> Any:
    facts = {name: changes.pop(name) for name in ("occupants", "candidates", "ahead") if name in changes}
    assert changes.keys() <= READY.keys()
    return why(Facts({**READY, **changes}, **{"candidates": [FREE], **facts}), confirm_after_seconds=9)


def test_nothing_holds_it_up() -> None:
    found = reason(ahead=2)
    assert found.code == "IN_LINE"
    assert found.evidence == {"ahead": 2, "free_slots": 3, "leader": "w1"}


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"cancel_requested_at": NOW}, "CANCEL_REQUESTED"),
        ({"not_before": LATER}, "NOT_DUE"),
        ({"not_before": LATER, "retry_of_id": 6}, "RETRY_BACKOFF"),
        ({"job_enabled": False}, "JOB_DISABLED"),
        ({"domain_paused_at": EARLIER}, "DOMAIN_PAUSED"),
        ({"leader": None, "lease_expires_at": EARLIER}, "NO_LEADER"),
        ({"leader": None, "lease_expires_at": None}, "NO_LEADER"),
        ({"leader": "w1", "lease_expires_at": EARLIER}, "NO_LEADER"),
        ({"quarantine_until": LATER}, "QUARANTINE"),
        ({"before_id": 6, "before_worker_id": "w9", "before_stops_at": LATER}, "AWAITING_QUIESCE"),
        ({"concurrency": 2, "occupants": [4, 5]}, "CONCURRENCY_LIMIT"),
        ({"candidates": []}, "NO_REPLICA"),
        ({"candidates": [Candidate("w1", "draining", 4, 0, 0.1)]}, "NO_REPLICA"),
        ({"candidates": [Candidate("w1", "active", 4, 0, 9.0)]}, "NO_REPLICA"),
        ({"candidates": [Candidate("w1", "active", 4, 4, 0.1)]}, "NO_FREE_SLOT"),
    ],
)
@pytest.mark.parametrize("state", ["PENDING", "ORPHANED"])
def test_each_obstacle_of_a_queued_run(state: str, changes: dict[str, Any], code: str) -> None:
    assert reason(state=state, **changes).code == code


def test_what_is_over_or_has_room_does_not_count() -> None:
    found = reason(
        quarantine_until=EARLIER,
        concurrency=2,
        occupants=[4],
        candidates=[FREE, Candidate("w2", "gone", 4, 0, 0.1), Candidate("w3", "active", 4, 4, 0.1)],
    )
    assert found.code == "IN_LINE"


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
        ("occupants", []),
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
    assert reason(concurrency=2, occupants=[4, 5]).evidence == {"runs": [4, 5]}
    assert reason(leader=None, lease_expires_at=EARLIER).evidence == {"since": EARLIER}


def test_assigned_waits_for_its_worker_or_for_another() -> None:
    given = {
        "state": "ASSIGNED",
        "assigned_worker_id": "w1",
        "assigned_at": EARLIER,
        "worker_state": "active",
    }
    assert reason(**given, worker_silent_seconds=1.0).code == "AWAITING_START"
    silent = reason(**given, worker_silent_seconds=9.0)
    assert (silent.code, silent.until) == ("WORKER_SILENT", EARLIER + timedelta(seconds=60))
    assert reason(**{**given, "worker_state": None}).code == "WORKER_SILENT"
    assert reason(**{**given, "worker_state": "gone"}, worker_silent_seconds=1.0).code == "WORKER_SILENT"
    assert reason(**given, worker_silent_seconds=1.0, cancel_requested_at=NOW).code == "CANCEL_REQUESTED"


def test_running() -> None:
    running = {"state": "RUNNING", "assigned_worker_id": "w1", "started_at": EARLIER}
    assert reason(**running).code == "RUNNING"
    assert reason(**running, cancel_requested_at=NOW).code == "CANCELLING"
    confirming = reason(
        **running,
        continuation_state="CONFIRMING",
        continuation_reason="SILENT",
        continuation_check_deadline_at=LATER,
    )
    assert (confirming.code, confirming.until) == ("CONFIRMING", LATER)


@pytest.mark.parametrize("state", ["SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"])
def test_ended(state: str) -> None:
    ended = reason(state=state, finished_at=EARLIER, error_code="EXIT_1")
    assert (ended.code, ended.evidence) == ("ENDED", {"finished_at": EARLIER, "error_code": "EXIT_1"})
    assert state in ended.text
    assert reason(state=state, next_attempt_id=8, retry_at=NOW).evidence["next_attempt_id"] == 8
    owed = reason(state=state, retry_at=LATER)
    assert (owed.code, owed.until) == ("NEXT_ATTEMPT_OWED", LATER)
    assert reason(state=state, retry_requested=True).code == "NEXT_ATTEMPT_OWED"
