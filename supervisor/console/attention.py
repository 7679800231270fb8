"""What needs attention: the few things a person should look at, worst first, each with where to act. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import quote

from supervisor.console.moments import duration

LATE_SECONDS: Final = 30.0
EVENT_SECONDS: Final = 30.0
MISSED: Final = 3
"""So many renewals of a leader in a row are not lost by accident."""
TAKE_OVER_SECONDS: Final = 2.0
"""The others look about once a second."""
Weight = Literal["alarm", "warning", "note"]
ORDER: Final[tuple[Weight, ...]] = ("alarm", "warning", "note")


@dataclass(frozen=True, slots=True)
class Concern:
    weight: Weight
    code: str
    text: str
    path: str
    action: str


def concerns(
    status: Mapping[str, Any],
    leader: Mapping[str, Any],
    more: Mapping[str, Any],
    failed: int,
    renew_retry_seconds: float,
) -> list[Concern]:
    """`status` is what /status answers, `leader` a row of `show_leader`, `more` one of `see_concerns`."""
    found = [
        *_about_the_leader(leader, renew_retry_seconds),
        *_about_replicas(status),
        *_about_runs(status, more, failed),
        *_about_the_rest(status, more),
    ]
    return sorted(found, key=lambda concern: ORDER.index(concern.weight))


@dataclass(frozen=True, slots=True)
class Unheard:
    """A leader that has missed renewals: for how long, and when its place is free and taken for certain."""

    seconds: float
    within_seconds: float

    @classmethod
    def of(cls, leader: Mapping[str, Any], renew_retry_seconds: float) -> "Unheard | None":
        if not leader["live"]:
            return None
        seconds = (leader["now"] - leader["renewed_at"]).total_seconds()
        if seconds <= MISSED * renew_retry_seconds:
            return None
        return cls(seconds, leader["lease_remaining_seconds"] + TAKE_OVER_SECONDS)


def _about_the_leader(leader: Mapping[str, Any], renew_retry_seconds: float) -> list[Concern]:
    now: datetime = leader["now"]
    if not leader["live"]:
        since = leader["expires_at"]
        ago = f" for {duration((now - since).total_seconds())}" if since is not None and since < now else ""
        text = f"Nobody leads{ago}: nothing is given out or retried until a replica takes over"
        return [Concern("alarm", "NO_LEADER", text, "/leadership", "Leadership")]
    found = []
    if unheard := Unheard.of(leader, renew_retry_seconds):
        text = f"The leader has not been heard for {duration(unheard.seconds)}"
        found.append(Concern("warning", "LEADER_SILENT", text, "/leadership", "Leadership"))
    if leader["quarantine_until"] is not None and leader["quarantine_until"] > now:
        left = duration((leader["quarantine_until"] - now).total_seconds())
        text = f"After a failover of the database nothing is given out for another {left}"
        found.append(Concern("warning", "QUARANTINE", text, "/leadership", "Leadership"))
    if leader["resigning"]:
        found.append(
            Concern("note", "RESIGNING", "The leader was asked to resign", "/leadership", "Leadership")
        )
    return found


def _about_replicas(status: Mapping[str, Any]) -> list[Concern]:
    replicas = [one for one in status["replicas"] if one["state"] != "gone"]
    silent = [one for one in replicas if one["contact"] == "silent"]
    draining = [one for one in replicas if one["state"] == "draining" and one not in silent]
    found = []
    if not replicas:
        found.append(Concern("alarm", "NO_REPLICA", "No replica is known", "/workers", "Replicas"))
    if silent:
        held = sum(one["claims"] for one in silent)
        text = f"{_count(len(silent), 'replica is', 'replicas are')} not heard any more"
        text += f", with {_count(held, 'claim', 'claims')} held" if held else ""
        found.append(Concern("alarm" if held else "warning", "SILENT", text, "/workers", "See which"))
    if draining:
        text = f"{_count(len(draining), 'replica is', 'replicas are')} draining"
        found.append(Concern("note", "DRAINING", text, "/workers", "See which"))
    return found


def _about_runs(status: Mapping[str, Any], more: Mapping[str, Any], failed: int) -> list[Concern]:
    found = []
    for domain, seconds in sorted(status["lag_seconds"].items()):
        if seconds >= LATE_SECONDS and domain not in more["paused_domains"]:
            text = f"A due run of {domain} has waited {duration(seconds)} to be started"
            found.append(Concern("alarm", "LATE", text, "/late#due", "See which, and why"))
    if confirming := status["confirming"]:
        text = (
            f"{_count(len(confirming), 'run is', 'runs are')} waiting for a silent replica to be heard again"
        )
        found.append(Concern("warning", "CONFIRMING", text, "/runs?state=CONFIRMING", "See which"))
    if orphaned := status["orphaned"]:
        text = f"{_count(len(orphaned), 'run was', 'runs were')} taken from a lost replica and not given on"
        found.append(Concern("warning", "ORPHANED", text, "/runs?state=ORPHANED", "See which"))
    if failed:
        text = f"{_count(failed, 'attempt', 'attempts')} failed or timed out within the hour"
        found.append(Concern("warning", "FAILED", text, "/runs?state=FAILED_OR_TIMED_OUT", "See which"))
    if late := more["late_finishes"]:
        text = f"{_count(late, 'completion', 'completions')} came too late within the hour; refused and kept"
        found.append(Concern("note", "LATE_FINISH", text, "/late", "See which"))
    return found


def _about_the_rest(status: Mapping[str, Any], more: Mapping[str, Any]) -> list[Concern]:
    found = []
    for domain in more["paused_domains"]:
        text = f"The domain {domain} is paused: nothing of it is given out"
        found.append(Concern("note", "PAUSED", text, "/domains", "Resume"))
    for name in more["broken_schedules"]:
        text = f"The schedule of {name} cannot be read"
        found.append(Concern("warning", "SCHEDULE", text, f"/jobs/{quote(name)}", "See why"))
    expired = {table: counts["expired"] for table, counts in status["leases"].items() if counts["expired"]}
    if expired:
        where = ", ".join(f"{count} in {table}" for table, count in sorted(expired.items()))
        text = f"Leases ran out and wait to be taken over: {where}"
        found.append(Concern("warning", "EXPIRED_LEASES", text, "/late#leases", "Leases"))
    if (oldest := more["oldest_event_at"]) is not None:
        age = (more["now"] - oldest).total_seconds()
        if age >= EVENT_SECONDS:
            text = f"An event has waited {duration(age)} to be processed"
            found.append(Concern("warning", "EVENTS", text, "/events", "Events"))
    return found


def _count(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"
