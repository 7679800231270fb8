"""Why is this run not running? One reason, the first that holds, with the evidence for it.

Pure: facts in, reason out. The order is the leader's own: what would have to change first stands first. A run
that is running, or has ended, is told so.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from supervisor.jobrun import TERMINAL


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that works for the run's domain."""

    worker_id: str
    state: str
    slots: int
    held: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class Facts:
    """`run` is a row of `read_why`; occupants are the runs that take the job's concurrency."""

    run: Mapping[str, Any]
    occupants: Sequence[int] = ()
    candidates: Sequence[Candidate] = ()
    ahead: int = 0


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    text: str
    until: datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)


def why(facts: Facts, confirm_after_seconds: float) -> Reason:
    run = facts.run
    if run["state"] in TERMINAL:
        return _ended(run)
    if run["state"] == "RUNNING":
        return _running(run)
    if run["cancel_requested_at"] is not None:
        return Reason("CANCEL_REQUESTED", "it is being cancelled; the leader ends it with its next tick",
                      evidence={"cancel_requested_at": run["cancel_requested_at"]})  # fmt: skip
    if run["state"] == "ASSIGNED":
        return _assigned(run, confirm_after_seconds)
    return _queued(facts, confirm_after_seconds)


def _ended(run: Mapping[str, Any]) -> Reason:
    evidence = {
        name: run[name] for name in ("finished_at", "error_code", "error_message") if run[name] is not None
    }
    if run["next_attempt_id"] is not None:
        text = f"it ended as {run['state']}; run {run['next_attempt_id']} is the next attempt"
        return Reason("ENDED", text, evidence={**evidence, "next_attempt_id": run["next_attempt_id"]})
    if run["retry_at"] is not None or run["retry_requested"]:
        text = f"it ended as {run['state']}, and the leader has yet to make the next attempt"
        return Reason("NEXT_ATTEMPT_OWED", text, run["retry_at"], evidence)
    return Reason("ENDED", f"it ended as {run['state']}, and no further attempt is owed", None, evidence)


def _running(run: Mapping[str, Any]) -> Reason:
    evidence = {"worker_id": run["assigned_worker_id"], "started_at": run["started_at"]}
    if run["continuation_state"] == "CONFIRMING":
        whose = (
            "its worker is silent" if run["continuation_reason"] == "SILENT" else "its worker sees no leader"
        )
        text = f"it is running as far as anybody knows: {whose}, and has until the deadline to be heard"
        return Reason("CONFIRMING", text, run["continuation_check_deadline_at"], evidence)
    if run["cancel_requested_at"] is not None:
        return Reason("CANCELLING", "it is running, and its worker is being told to stop", None,
                      {**evidence, "cancel_requested_at": run["cancel_requested_at"]})  # fmt: skip
    return Reason("RUNNING", "it is running", None, evidence)


def _assigned(run: Mapping[str, Any], confirm_after_seconds: float) -> Reason:
    worker, silent = run["assigned_worker_id"], run["worker_silent_seconds"]
    evidence = {"worker_id": worker, "assigned_at": run["assigned_at"], "worker_silent_seconds": silent}
    if run["worker_state"] in (None, "gone") or silent >= confirm_after_seconds:
        due = run["assigned_at"] + timedelta(seconds=run["reassign_after_seconds"])
        text = f"it was given to {worker}, which is not heard any more; then it goes to another replica"
        return Reason("WORKER_SILENT", text, due, evidence)
    return Reason("AWAITING_START", f"it was given to {worker}, which has not started it yet", None, evidence)


def _queued(facts: Facts, confirm_after_seconds: float) -> Reason:
    run, now = facts.run, facts.run["now"]
    if run["not_before"] > now:
        if run["retry_of_id"] is not None:
            return Reason("RETRY_BACKOFF", f"it waits out the back-off after run {run['retry_of_id']}",
                          run["not_before"], {"retry_of_id": run["retry_of_id"]})  # fmt: skip
        return Reason("NOT_DUE", "it is not due yet", run["not_before"])
    if not run["job_enabled"] or run["domain_paused_at"] is not None:
        return _paused(run)
    if run["leader"] is None or run["lease_expires_at"] <= now:
        return Reason(
            "NO_LEADER", "nobody leads, so nothing is given out", None, {"since": run["lease_expires_at"]}
        )
    if run["quarantine_until"] is not None and run["quarantine_until"] > now:
        text = "after a failover of the database nothing is given out until what ran before has stopped"
        return Reason("QUARANTINE", text, run["quarantine_until"])
    if run["before_id"] is not None:
        text = f"run {run['before_id']}, an attempt before it, may still be executing"
        evidence = {"run_id": run["before_id"], "worker_id": run["before_worker_id"]}
        return Reason("AWAITING_QUIESCE", text, run["before_stops_at"], evidence)
    if run["concurrency"] is not None and len(facts.occupants) >= run["concurrency"]:
        text = f"its job {run['job']} runs at most {run['concurrency']} at a time"
        return Reason("CONCURRENCY_LIMIT", text, None, {"runs": list(facts.occupants)})
    return _roomless(facts, confirm_after_seconds)


def _paused(run: Mapping[str, Any]) -> Reason:
    if not run["job_enabled"]:
        return Reason("JOB_DISABLED", f"its job {run['job']} is disabled: `tenure job enable {run['job']}`")
    text = f"the domain {run['domain']} is paused: `tenure domain resume {run['domain']}`"
    return Reason("DOMAIN_PAUSED", text, None, {"paused_at": run["domain_paused_at"]})


def _roomless(facts: Facts, confirm_after_seconds: float) -> Reason:
    domain = facts.run["domain"]
    heard = [
        one
        for one in facts.candidates
        if one.state == "active" and one.silent_seconds < confirm_after_seconds
    ]
    if not heard:
        others = {one.worker_id: one.state if one.state != "active" else "silent" for one in facts.candidates}
        return Reason("NO_REPLICA", f"no replica works for the domain {domain}", None, {"replicas": others})
    free = sum(max(0, one.slots - one.held) for one in heard)
    if free == 0:
        taken = {one.worker_id: f"{one.held}/{one.slots}" for one in heard}
        text = f"all slots of the {len(heard)} replicas for {domain} are taken"
        return Reason("NO_FREE_SLOT", text, None, {"replicas": taken, "ahead": facts.ahead})
    count = f"{facts.ahead}{'+' if facts.ahead >= 1000 else ''}"
    text = f"it is due, {count} runs are before it; the leader gives it out with its next tick"
    return Reason(
        "IN_LINE", text, None, {"ahead": facts.ahead, "free_slots": free, "leader": facts.run["leader"]}
    )
