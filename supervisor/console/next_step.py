"""What one does next about a run, as the console offers it: a link or a button where a page does it. Pure.

What no page does, such as starting a replica, stays the command that `why` names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from supervisor.console.inert import short_worker
from supervisor.console.page import Link, path_of
from supervisor.why import LEADERLESS, Reason, Why

PLACES: Final[Mapping[str, Link]] = {
    "QUARANTINE": Link("Leadership", "/leadership"),
    "NO_REPLICA": Link("Replicas", "/workers"),
    "NO_FREE_SLOT": Link("Replicas", "/workers"),
}
"""Where one sees more of it, beside the words of the reason."""


@dataclass(frozen=True, slots=True)
class Act:
    """A button, for who may operate."""

    label: str
    path: str
    fields: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Step:
    """Words with a link before or after them; `act` stands for the link where one may act."""

    words: str = ""
    link: Link | None = None
    after: str = ""
    act: Act | None = None


def next_step(why: Why, job: str | None, domain: str) -> Step:
    reason = why.reason
    if reason.next == LEADERLESS:
        replicas = Link("Replicas", "/workers")
        return Step("is a replica there?", replicas, "If not, `tenure up`; if so, `tenure doctor`")
    if reason.code == "ENDED":
        return _ended(why)
    if reason.code == "RUNNING":
        return Step(link=Link("Follow its log", "#log"))
    place = PLACES.get(reason.code)
    plain = Step(f"{reason.next} ·", place) if place else Step(reason.next)
    return _about_its_replica(reason) or _about_a_switch(why, job, domain) or plain


def _about_its_replica(reason: Reason) -> Step | None:
    worker = str(reason.evidence.get("worker_id", ""))
    there = f"/workers#{quote(worker)}"
    if reason.code == "CONFIRMING":
        return Step(link=Link(f"Is {short_worker(worker)} there, and heard?", there))
    if reason.code == "WORKER_SILENT":
        return Step("nothing;", Link("see which replicas are there", "/workers"))
    if reason.code == "AWAITING_START":
        return Step("if it stays so:", Link("Drain the replica", there), "gives it to another")
    return None


def _about_a_switch(why: Why, job: str | None, domain: str) -> Step | None:
    code, back = why.reason.code, f"/runs/{why.run_id}"
    if code == "DOMAIN_PAUSED":
        resume = Act("Resume the domain", "/domains", {"do": "resume", "domain": domain, "next": back})
        return Step(link=Link("Go to the domains", "/domains"), act=resume)
    if job is None:
        return None
    there = Link("Go to the job", path_of("jobs", job))
    if code == "JOB_DISABLED":
        return Step(link=there, act=Act("Enable the job", there.path, {"do": "enable", "next": back}))
    if code == "CONCURRENCY_LIMIT":
        return Step(f"{why.reason.next} ·", there)
    return None


def _ended(why: Why) -> Step:
    if (following := why.reason.evidence.get("next_attempt_id")) is not None:
        return Step(link=Link(f"See run {following}", f"/runs/{following}"))
    if why.state == "SUCCEEDED":
        return Step(link=Link("See what came of it", "#payload"))
    return Step(link=Link("Its log", "#log"), after="says why")
