"""`tenure job`: what to run, and when."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import typer

from supervisor.cli import job_apply, job_save, output, session
from supervisor.cli.fires import next_fires
from supervisor.cli.inputs import JobName, encodable, parse_instant, read_payload
from supervisor.cli.job_save import read_job, save
from supervisor.cli.options import Payload
from supervisor.cli.session import Json
from supervisor.parameters import describe

app = typer.Typer(no_args_is_help=True, help="Jobs: what to run, when, and how.")
app.command("add")(job_save.add)
app.command("set")(job_save.set_)
app.command("apply")(job_apply.apply)


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the jobs: how many of their runs have not ended, when they fired and will fire.

    Example: `tenure job list --json | jq '.[] | select(.schedule_error != null)'`
    """
    rows = session.run(lambda store: store.rows("list_jobs"))
    if as_json:
        output.print_json([{name: value for name, value in row.items() if name != "now"} for row in rows])
        return 0
    output.print_table(
        [
            "NAME",
            "DOMAIN",
            "ENABLED",
            "LIVE",
            "WHEN",
            "ZONE",
            "NEXT",
            "LAST",
            "SKIPPED",
            "CONCURRENCY",
            "CHANGED",
        ],
        (
            [
                row["name"],
                row["domain"] + (f"/{row['action']}" if row["action"] else ""),
                "yes" if row["enabled"] else "no",
                row["live"],
                _when(row),
                row["timezone"] if row["cron"] is not None else "",
                _next(row),
                output.age(row["now"], row["last_fire_at"]),
                row["skipped"] or "",
                _bound(row),
                output.age(row["now"], row["updated_at"]),
            ]
            for row in rows
        ),
        empty="no jobs yet: `tenure job add --help`",
    )
    return 0


@app.command()
def show(name: JobName, as_json: Json = False) -> int:
    """Show a job: its options, its payload, its live runs, its next three fire times and what it skipped.

    Example: `tenure job show nightly`
    """
    job, now = read_job(name)
    job["next_fires"] = next_fires(job, now)
    if as_json:
        output.print_json(job)
    else:
        _show(job, now)
    return 0


@app.command()
def enable(name: JobName, as_json: Json = False) -> int:
    """Let its runs be given out again.

    Example: `tenure job enable nightly`
    """
    return save(name, {"enabled": True}, create=False, as_json=as_json)


@app.command()
def disable(name: JobName, as_json: Json = False) -> int:
    """Pause it: what is queued waits, what is running ends.

    Example: `tenure job disable nightly`
    """
    return save(name, {"enabled": False}, create=False, as_json=as_json)


@app.command()
def remove(name: JobName, as_json: Json = False) -> int:
    """Remove a job; its runs and their history stay. Exits 4 while it has runs that have not ended.

    Example: `tenure job remove nightly`
    """
    encodable(name, "the name")
    removed = session.run(lambda store: store.value("remove_job", session.actor(), name, True))
    if as_json:
        output.print_json({"id": removed, "name": name, "removed": True})
    else:
        output.say(f"removed job {name}")
    return 0


@app.command()
def trigger(
    name: JobName,
    idempotency_key: Annotated[
        str | None, typer.Option(help="The same key again returns the same run.", show_default=False)
    ] = None,
    payload: Payload = None,
    not_before: Annotated[
        str | None, typer.Option(help="ISO 8601 with offset: not earlier than that.", show_default=False)
    ] = None,
    priority: Annotated[
        int | None, typer.Option(min=-1000000, max=1000000, help="Instead of the job's.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> int:
    """Make a run. --payload holds arguments for the job's parameters: `tenure job show NAME` names them.

    Examples:

    - `tenure job trigger hello`
    - `tenure job trigger invoice --idempotency-key order-4711 --payload '{"order": 4711}' --json`

    Exits 2 when the job does not take these arguments, 4 when the key was used with another job or payload.
    """
    given = read_payload(payload) if payload is not None else {}
    due = parse_instant(not_before) if not_before is not None else None
    key = encodable(idempotency_key, "the key") if idempotency_key is not None else None
    job, _ = read_job(name)
    row = session.run(
        lambda store: store.row("trigger_job", session.actor(), name, json.dumps(given), key, due, priority)
    )
    assert row is not None  # noqa: S101  it raises where there is none
    if as_json:
        output.print_json({**row, "job": name, "domain": job["domain"], "enabled": job["enabled"]})
        return 0
    output.say(
        f"run {row['id']} ",
        output.state(row["state"]),
        "" if row["created"] else " (made earlier with this key)",
    )
    if not job["enabled"]:
        output.say(f"the job is disabled, so it waits: `tenure job enable {name}`")
    return 0


def _when(row: Any) -> str:
    return " ".join(
        [row["cron"]] * (row["cron"] is not None)
        + [f"on {row['event_type']}"] * (row["event_type"] is not None)
    )


def _next(row: Any) -> str:
    if row["schedule_error"] is not None:
        return f"never: {row['schedule_error']}"
    if row["cron"] is None or not row["enabled"]:
        return ""
    if row["next_fire_at"] is not None:
        return output.age(row["now"], row["next_fire_at"])
    fires = next_fires(row, row["now"], count=1)
    return output.age(row["now"], fires[0]["utc"]) if fires else "never"


def _bound(row: Any) -> str:
    bound = "" if row["concurrency"] is None else str(row["concurrency"])
    return bound if row["concurrency_policy"] == "allow" else f"{bound} {row['concurrency_policy']}"


def _taken(takes: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """What callers may give, a line for each parameter."""
    if takes is None:
        return [
            "any argument: the job is older than parameters; declare them with `tenure job set --parameters`"
        ]
    return [f"{name}: {describe(spec)}" for name, spec in takes.items()]


def _show(job: dict[str, Any], now: datetime) -> None:
    skipped = job["last_skipped"]
    output.print_facts(
        [
            ("name", job["name"]),
            ("domain", job["domain"]),
            ("action", job["action"]),
            ("enabled", "yes" if job["enabled"] else "no"),
            ("payload", json.dumps(job["payload"])),
            *(("takes", text) for text in _taken(job["takes"])),
            ("cron", job["cron"] and f"{job['cron']} ({job['timezone']}), missed: {job['missed']}"),
            ("schedule error", job["schedule_error"]),
            *(("next fire", f"{fire['local']} = {fire['utc']}") for fire in job["next_fires"]),
            (
                "last fire",
                job["last_fire_at"] and f"{job['last_fire_at']} ({output.age(now, job['last_fire_at'])})",
            ),
            (
                "skipped",
                skipped
                and f"{job['skipped']} fires, the last {skipped['last_instant']}: {skipped['reason']}",
            ),
            ("event", job["event_type"]),
            ("priority", job["priority"]),
            ("max attempts", job["max_attempts"]),
            ("timeout", job["timeout_seconds"] and output.duration(job["timeout_seconds"])),
            ("concurrency", _bound(job) or None),
            ("back-off", f"{job['backoff_seconds']:g} s, at most {job['backoff_max_seconds']:g} s"),
            ("added", output.age(now, job["created_at"])),
            ("changed", output.age(now, job["updated_at"])),
            ("live runs", ", ".join(f"{count} {state}" for state, count in job["live"].items()) or "none"),
        ]
    )
