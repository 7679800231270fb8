"""Why is this run not running? One reason, the first that holds, with its evidence and what to do next.

`explain` reads the stored facts and is what the command line, the API and the console ask; `explain_all` does
so for all runs of a page with as many questions as for one. `decide` is pure: facts in, reason out. Its order
is the leader's own: what would have to change first stands first. A run that is running, or has ended, is
told so. No sentence holds an age: whoever shows it has the database's `now`.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, Final

from supervisor import pools
from supervisor.actor import waiting_domains
from supervisor.config import Timings, load_settings
from supervisor.errors import NotFound
from supervisor.jobrun import TERMINAL
from supervisor.pools import Pool, pool_of, size_of
from supervisor.store import Store

BY_ITSELF: Final = "nothing: it goes on by itself"
LEADERLESS: Final = "`tenure worker list`: is a replica there? If not, `tenure up`; if so, `tenure doctor`"
AHEAD_LIMIT: Final = 1000
AT_MOST: Final = frozenset({"AWAITING_QUIESCE", "CANCELLING", "CONFIRMING"})
"""These end before when the worker is heard."""
DUE: Final = frozenset({"ENDED", "NEXT_ATTEMPT_OWED"})
"""What these name a time for is the next attempt."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A replica that has not left; `held` counts the runs in its slots by their domain."""

    worker_id: str
    state: str
    domains: Sequence[str]
    slots: int
    held: Mapping[str, int]
    silent_seconds: float

    def free_in(self, pool: Pool, waiting: frozenset[str]) -> int:
        return pools.free_in(pool, self.slots, self.held, waiting)

    def held_in(self, pool: Pool, waiting: frozenset[str]) -> Counter[str]:
        return Counter(pools.held_in(pool, self.held, waiting))


@dataclass(frozen=True, slots=True)
class Facts:
    """`run` is a row of `read_why`; occupants take the job's concurrency, `occupied` counts all of them.

    `waiting` are the domains whose runs only wait, and have slots of their own. `ahead` is None where nobody
    counted who is before it.
    """

    run: Mapping[str, Any]
    occupants: Sequence[int] = ()
    occupied: int = 0
    candidates: Sequence[Candidate] = ()
    ahead: int | None = 0
    waiting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reason:
    code: str
    sentence: str
    next: str
    until: datetime | None = None
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def until_when(self) -> str:
        if self.code in DUE:
            return "due"
        return "until at most" if self.code in AT_MOST else "until"


@dataclass(frozen=True, slots=True)
class Why:
    """The answer about one run, at `now`."""

    run_id: int
    state: str
    continuation_state: str
    now: datetime
    reason: Reason

    def answer(self) -> dict[str, Any]:
        """The shape that is printed and served."""
        return {
            "id": self.run_id,
            "state": self.state,
            "reason": self.reason.code,
            "sentence": self.reason.sentence,
            "until": self.reason.until,
            "evidence": dict(self.reason.evidence),
            "next": self.reason.next,
        }


async def explain(store: Store, run_id: int, timings: Timings | None = None) -> Why:
    """Read what is stored about this run, and decide. `timings` are the fleet's; None = the settings'."""
    found = await explain_all(store, [run_id], timings or load_settings().timings)
    if run_id not in found:
        raise NotFound(kind="run", name=run_id)
    return found[run_id]


async def explain_all(
    store: Store, run_ids: Sequence[int], timings: Timings, *, counted: bool = True
) -> dict[int, Why]:
    """Of those that there are, by number. Not `counted`: who is before each in the line is left out, which
    costs most where many wait."""
    runs = [dict(row) for row in await store.rows("read_why", run_ids, timings.stop_bound)]
    queued = [run for run in runs if _is_queued(run)]
    facts = await _about_the_queue(store, queued, timings, counted=counted) if queued else {}
    return {
        run["id"]: Why(
            run["id"],
            run["state"],
            run["continuation_state"],
            run["now"],
            decide(facts.get(run["id"], Facts(run)), timings),
        )
        for run in runs
    }


async def _about_the_queue(
    store: Store, runs: Sequence[Mapping[str, Any]], timings: Timings, *, counted: bool
) -> dict[int, Facts]:
    jobs = sorted({run["job_definition_id"] for run in runs})
    occupants = await store.rows("list_occupants", jobs, timings.stop_bound)
    taken: dict[int, Mapping[str, Any]] = {row["job_definition_id"]: dict(row) for row in occupants}
    replicas = await store.rows("list_candidates")
    candidates = [Candidate(**{**row, "held": json.loads(row["held"])}) for row in replicas]
    lines = await store.rows("count_ahead", [run["id"] for run in runs]) if counted else ()
    ahead = {row["id"]: row["ahead"] for row in lines}
    waiting = _that_wait()
    found = {}
    for run in runs:
        job = taken.get(run["job_definition_id"], {"runs": (), "total": 0})
        others = [one for one in job["runs"] if one != run["id"]]  # it may have been given out meanwhile
        found[run["id"]] = Facts(
            run=run,
            occupants=others,
            occupied=job["total"] - (len(job["runs"]) - len(others)),
            candidates=candidates,
            ahead=ahead.get(run["id"]),
            waiting=waiting,
        )
    return found


def _that_wait() -> frozenset[str]:
    from supervisor.wiring import actors  # noqa: PLC0415  loads every domain

    return waiting_domains(actors().values())


def decide(facts: Facts, timings: Timings) -> Reason:
    run = facts.run
    if run["state"] in TERMINAL:
        return _ended(run)
    if run["state"] == "RUNNING":
        return _running(run, timings)
    if run["cancel_requested_at"] is not None:
        return _cancelled_before_its_start(run)
    if run["state"] == "ASSIGNED":
        return _assigned(run, timings)
    return _held_back(run) or _held_up(facts) or _without_a_place(facts, timings)


def _is_queued(run: Mapping[str, Any]) -> bool:
    return run["state"] in ("PENDING", "ORPHANED")


def _known(**evidence: Any) -> dict[str, Any]:
    return {name: value for name, value in evidence.items() if value is not None}


def _by(actor: str | None) -> str:
    return f" by {actor}" if actor else ""


def _ended(run: Mapping[str, Any]) -> Reason:
    number, state, error = run["id"], run["state"], f" ({run['error_code']})" if run["error_code"] else ""
    facts = ("finished_at", "finished_by", "error_code", "error_message")
    evidence = _known(**{name: run[name] for name in facts})
    if (following := run["next_attempt_id"]) is not None:
        return Reason("ENDED", f"it ended as {state}{error}; run {following} is the next attempt",
                      f"`tenure run why {following}`", _due_later(run),
                      {**evidence, "next_attempt_id": following})  # fmt: skip
    if run["retry_at"] is not None or run["retry_requested"]:
        owed = f"it ended as {state}{error}, and the leader has yet to make the next attempt"
        if run["leader"] is None:
            return Reason("NEXT_ATTEMPT_OWED", f"{owed}, but nobody leads", LEADERLESS, run["retry_at"],
                          {**evidence, **_leaderless(run)})  # fmt: skip
        return Reason("NEXT_ATTEMPT_OWED", owed, BY_ITSELF, run["retry_at"], evidence)
    if state == "SUCCEEDED":
        shown = f"`tenure run show {number}` shows its result"
        return Reason("ENDED", "it ended as SUCCEEDED", shown, None, evidence)
    text = f"it ended as {state}{error}, and no further attempt is owed"
    advice = f"`tenure run logs {number}` says why; `tenure run retry {number}` makes another attempt"
    return Reason("ENDED", text, advice, None, evidence)


def _due_later(run: Mapping[str, Any]) -> datetime | None:
    """When the next attempt is due, while it waits for that."""
    due: datetime | None = run["next_not_before"]
    waits = run["next_state"] in ("PENDING", "ORPHANED") and due is not None and due > run["now"]
    return due if waits else None


def _running(run: Mapping[str, Any], timings: Timings) -> Reason:
    worker, cancel_at = run["assigned_worker_id"], run["cancel_requested_at"]
    evidence = _known(worker_id=worker, started_at=run["started_at"], heard_at=run["worker_heard_at"],
                      times_out_at=run["times_out_at"], cancel_requested_at=cancel_at,
                      cancel_requested_by=run["cancel_requested_by"])  # fmt: skip
    if run["continuation_state"] == "CONFIRMING":
        return _confirming(run, evidence, timings)
    if cancel_at is not None:
        text = f"cancelling was asked for{_by(run['cancel_requested_by'])}; it waits for {worker} to stop it"
        until = given_up_at(cancel_at + timedelta(seconds=timings.stop_bound), run["leader_since"], timings)
        return Reason("CANCELLING", text, "nothing: if the replica does not end it in time, the leader does",
                      until, {**evidence, "waits_for": worker})  # fmt: skip
    return Reason("RUNNING", f"it is running on {worker}",
                  f"`tenure run logs {run['id']} --follow`", None, evidence)  # fmt: skip


def _confirming(run: Mapping[str, Any], evidence: Mapping[str, Any], timings: Timings) -> Reason:
    worker, why = run["assigned_worker_id"], run["continuation_reason"]
    until = run["continuation_check_deadline_at"]
    end = "cancelled" if run["cancel_requested_at"] is not None else "given up as TIMED_OUT"
    whose = "is silent" if why == "SILENT" else "sees no leader"
    text = f"it is running as far as anybody knows: {worker} {whose}; not confirmed in time, it is {end}"
    advice = f"`tenure worker list`: is {worker} there, and heard?"
    if run["leader"] is not None:
        until = given_up_at(until, run["leader_since"], timings)
    elif why == "SILENT":
        until, advice = None, LEADERLESS
        text = f"it is running as far as anybody knows: {worker} is silent; nobody leads who could give it up"
    return Reason("CONFIRMING", text, advice, until, {**evidence, "continuation_reason": why})


def given_up_at(deadline: datetime, leader_since: datetime, timings: Timings) -> datetime:
    """When a leader takes what is not confirmed: it must have watched for D itself, since it leads."""
    return max(deadline, leader_since + timedelta(seconds=timings.stop_bound))


def _cancelled_before_its_start(run: Mapping[str, Any]) -> Reason:
    asked = f"cancelling was asked for{_by(run['cancel_requested_by'])}"
    evidence = _known(cancel_requested_at=run["cancel_requested_at"],
                      cancel_requested_by=run["cancel_requested_by"])  # fmt: skip
    if run["leader"] is None:
        return Reason("CANCEL_REQUESTED", f"{asked}; it waits for a leader to end it, and nobody leads",
                      LEADERLESS, None, {**evidence, **_leaderless(run)})  # fmt: skip
    return Reason("CANCEL_REQUESTED", f"{asked}; the leader ends it with its next tick", BY_ITSELF, None,
                  {**evidence, "waits_for": run["leader"]})  # fmt: skip


def _assigned(run: Mapping[str, Any], timings: Timings) -> Reason:
    worker, heard = run["assigned_worker_id"], run["worker_heard_at"]
    evidence = _known(worker_id=worker, assigned_at=run["assigned_at"], heard_at=heard)
    if run["of_older_timeline"]:
        text = "it was given out before the database failed over, and cannot start; it is given out again"
        return Reason("ASSIGNED_BEFORE_FAILOVER", text, BY_ITSELF, run["quarantine_until"], evidence)
    silent_at = heard and heard + timedelta(seconds=timings.confirm_after)
    if run["worker_state"] in (None, "gone") or silent_at <= run["now"]:
        due = run["assigned_at"] + timedelta(seconds=run["reassign_after_seconds"])
        text = f"it was given to {worker}, which is not heard any more; then it goes to another replica"
        advice = LEADERLESS if run["leader"] is None else "nothing; `tenure worker list` shows who is there"
        return Reason("WORKER_SILENT", text, advice, due, evidence)
    return Reason("AWAITING_START", f"it was given to {worker}, which has not started it yet",
                  f"if it stays so: `tenure worker drain {quote(worker)}` gives it to another", None,
                  {**evidence, "waits_for": worker})  # fmt: skip


def _held_back(run: Mapping[str, Any]) -> Reason | None:
    """By its time, or by somebody's will."""
    if run["not_before"] > run["now"]:
        if (before := run["retry_of_id"]) is not None:
            return Reason("RETRY_BACKOFF", f"it waits out the back-off after run {before}", BY_ITSELF,
                          run["not_before"], {"retry_of_id": before, "attempt": run["attempt"]})  # fmt: skip
        return Reason("NOT_DUE", "it is not due yet", BY_ITSELF, run["not_before"],
                      _known(scheduled_for=run["scheduled_for"]))  # fmt: skip
    if not run["job_enabled"]:
        text = f"its job {run['job']} was disabled{_by(run['job_disabled_by'])}"
        return Reason("JOB_DISABLED", text, f"`tenure job enable {run['job']}`", None,
                      _known(since=run["job_disabled_at"], by=run["job_disabled_by"]))  # fmt: skip
    if run["domain_paused_at"] is not None:
        text = f"the domain {run['domain']} was paused{_by(run['domain_paused_by'])}"
        return Reason("DOMAIN_PAUSED", text, f"`tenure domain resume {run['domain']}`", None,
                      _known(since=run["domain_paused_at"], by=run["domain_paused_by"]))  # fmt: skip
    return None


def _held_up(facts: Facts) -> Reason | None:
    """By the leader, who may or can not give it out."""
    run = facts.run
    if run["leader"] is None:
        text = "nobody leads, so nothing is given out"
        return Reason("NO_LEADER", text, LEADERLESS, None, _leaderless(run))
    if run["quarantine_until"] is not None and run["quarantine_until"] > run["now"]:
        text = "after a failover of the database nothing is given out until what ran before has stopped"
        return Reason("QUARANTINE", text, BY_ITSELF, run["quarantine_until"], {"leader": run["leader"]})
    if (before := run["before_id"]) is not None and run["before_stops_at"] > run["now"]:
        text = f"run {before}, an attempt before it, may still be executing on {run['before_worker_id']}"
        return Reason("AWAITING_QUIESCE", text, BY_ITSELF, run["before_stops_at"],
                      {"run_id": before, "worker_id": run["before_worker_id"]})  # fmt: skip
    if run["concurrency"] is not None and facts.occupied >= run["concurrency"]:
        text = f"its job {run['job']} runs at most {run['concurrency']} at a time"
        advice = f"nothing, or raise the limit: `tenure job set {run['job']} --concurrency N`"
        return Reason("CONCURRENCY_LIMIT", text, advice, None, {"runs": list(facts.occupants)})
    return None


def _without_a_place(facts: Facts, timings: Timings) -> Reason:
    domain, waiting = facts.run["domain"], facts.waiting
    pool = pool_of(domain, waiting)
    able = [one for one in facts.candidates if domain in one.domains]
    heard = [one for one in able if _takes_work(one, timings)]
    if not heard:
        return _no_replica(facts, able, timings)
    if free := sum(one.free_in(pool, waiting) for one in heard):
        text = f"it is due{_line(facts.ahead)}; the leader gives it out with its next tick"
        evidence = _known(ahead=facts.ahead, free_slots=free, leader=facts.run["leader"])
        return Reason("IN_LINE", text, "nothing; if it stays so: `tenure doctor`", None, evidence)
    runs = sum((one.held_in(pool, waiting) for one in heard), Counter[str]())
    whose = ", ".join(f"{count} of {name}" for name, count in runs.most_common())
    text = f"all slots of the {len(heard)} replicas for {domain} are taken by {runs.total()} runs: {whose}"
    taken = {
        one.worker_id: f"{one.held_in(pool, waiting).total()}/{size_of(pool, one.slots)}" for one in heard
    }
    evidence = _known(replicas=taken, runs=dict(runs), ahead=facts.ahead)
    advice = "wait, start another replica (`tenure up`) or give the replicas more TENURE_SLOTS"
    if pool is not None:
        advice = "wait, or start another replica (`tenure up`)"
    return Reason("NO_FREE_SLOT", text, advice, None, evidence)


def _line(ahead: int | None) -> str:
    if ahead is None:
        return ""
    return f", {ahead}{'+' if ahead >= AHEAD_LIMIT else ''} runs are before it"


def _no_replica(facts: Facts, able: Sequence[Candidate], timings: Timings) -> Reason:
    domain = facts.run["domain"]
    live = {one.worker_id: list(one.domains) for one in facts.candidates if _takes_work(one, timings)}
    evidence = {
        "replicas": {one.worker_id: one.state if one.state != "active" else "silent" for one in able},
        "live": live,
    }
    others = sorted({name for names in live.values() for name in names})
    works = f"; those that are there work for {', '.join(others)}" if others else ", and none is there at all"
    advice = f"start one that does: `{f'TENURE_DOMAINS={domain} ' if others else ''}tenure up`"
    return Reason("NO_REPLICA", f"no replica works for the domain {domain}{works}", advice, None, evidence)


def _takes_work(one: Candidate, timings: Timings) -> bool:
    return one.state == "active" and one.silent_seconds < timings.confirm_after


def _leaderless(run: Mapping[str, Any]) -> dict[str, Any]:
    """Since when; a lease that is not over was taken on a server that this one no longer is."""
    over = run["lease_expires_at"] is not None and run["lease_expires_at"] <= run["now"]
    return _known(since=run["lease_expires_at"] if over else None, last_leader=run["last_leader"])
