"""`tenure job`: what to run. Payloads are checked by the domain's actor before anything is stored."""

import json
from datetime import datetime
from typing import Annotated, Any

import typer

from supervisor.cli import output, session
from supervisor.cli.inputs import (
    JobName,
    check_name,
    check_payload,
    encodable,
    parse_instant,
    read_payload,
)
from supervisor.cli.options import (
    Action,
    Backoff,
    BackoffMax,
    Concurrency,
    Domain,
    MaxAttempts,
    Payload,
    Priority,
    Timeout,
)
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.store import Store

SECONDS = {"timeout": "timeout_seconds", "backoff": "backoff_seconds", "backoff_max": "backoff_max_seconds"}

app = typer.Typer(no_args_is_help=True, help="Jobs: what to run, and how.")


@app.command()
def add(
    name: JobName,
    *,
    domain: Domain = None,
    payload: Payload = None,
    action: Action = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    concurrency: Concurrency = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    as_json: Json = False,
) -> int:
    """Add a job. Nothing runs until it is triggered.

    Examples:

    - `tenure job add hello --domain command --payload '{"argv": ["echo", "hello"]}'`
    - `tenure job add backup --domain command --payload @backup.json --timeout 3600 --concurrency 1`

    Exits 4 when there is a job of that name.
    """
    check_name(name)
    if domain is None:
        raise BadInput(what="--domain is missing; for a program to run: --domain command")
    spec = _spec(
        domain=domain,
        payload=payload,
        action=action,
        max_attempts=max_attempts,
        timeout=timeout,
        priority=priority,
        concurrency=concurrency,
        backoff=backoff,
        backoff_max=backoff_max,
    )
    check_payload(domain, spec.setdefault("payload", {}))
    return _save(name, spec, create=True, as_json=as_json)


@app.command("set")
def set_(
    name: JobName,
    *,
    domain: Domain = None,
    payload: Payload = None,
    action: Action = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    concurrency: Concurrency = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    as_json: Json = False,
) -> int:
    """Change the options that are named; runs that exist keep what they were made with.

    Example: `tenure job set backup --timeout 7200 --max-attempts 5`
    """
    spec = _spec(
        domain=domain,
        payload=payload,
        action=action,
        max_attempts=max_attempts,
        timeout=timeout,
        priority=priority,
        concurrency=concurrency,
        backoff=backoff,
        backoff_max=backoff_max,
    )
    if not spec:
        raise BadInput(what="nothing to change: name at least one option")
    if {"domain", "payload"} & spec.keys():
        job, _ = _read(name)
        check_payload(spec.get("domain", job["domain"]), spec.get("payload", job["payload"]))
    return _save(name, spec, create=False, as_json=as_json)


@app.command("list")
def list_(as_json: Json = False) -> int:
    """List the jobs, with how many of their runs have not ended."""
    rows = session.run(lambda store: store.rows("list_jobs"))
    if as_json:
        output.print_json([{name: value for name, value in row.items() if name != "now"} for row in rows])
        return 0
    output.print_table(
        ["NAME", "DOMAIN", "ENABLED", "LIVE", "ATTEMPTS", "TIMEOUT", "CONCURRENCY", "PRIORITY", "CHANGED"],
        (
            [
                row["name"],
                row["domain"] + (f"/{row['action']}" if row["action"] else ""),
                "yes" if row["enabled"] else "no",
                row["live"],
                row["max_attempts"],
                output.duration(row["timeout_seconds"]) if row["timeout_seconds"] else "",
                row["concurrency"],
                row["priority"],
                output.age(row["now"], row["updated_at"]),
            ]
            for row in rows
        ),
        empty="no jobs yet: `tenure job add --help`",
    )
    return 0


@app.command()
def show(name: JobName, as_json: Json = False) -> int:
    """Show a job: its options, its payload, its live runs."""
    job, now = _read(name)
    if as_json:
        output.print_json(job)
    else:
        _show(job, now)
    return 0


@app.command()
def enable(name: JobName, as_json: Json = False) -> int:
    """Let its runs be given out again."""
    return _save(name, {"enabled": True}, create=False, as_json=as_json)


@app.command()
def disable(name: JobName, as_json: Json = False) -> int:
    """Pause it: what is queued waits, what is running ends."""
    return _save(name, {"enabled": False}, create=False, as_json=as_json)


@app.command()
def remove(name: JobName, as_json: Json = False) -> int:
    """Remove a job; its runs and their history stay. Exits 4 while it has runs that have not ended."""
    encodable(name, "the name")
    removed = session.run(lambda store: store.value("remove_job", session.actor(), name))
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
    """Make a run. Keys of --payload replace those of the job's payload.

    Examples:

    - `tenure job trigger hello`
    - `tenure job trigger invoice --idempotency-key order-4711 --payload '{"env": {"ORDER": "4711"}}' --json`

    Exits 4 when the key was used with another job or payload.
    """
    given = read_payload(payload) if payload is not None else {}
    due = parse_instant(not_before) if not_before is not None else None
    key = encodable(idempotency_key, "the key") if idempotency_key is not None else None
    job, _ = _read(name)
    check_payload(job["domain"], {**job["payload"], **given})
    row = session.run(lambda store: store.row("enqueue_run", name, json.dumps(given), key, due, priority))
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


def _spec(**options: Any) -> dict[str, Any]:
    """The columns of the options that were named; 0 stands for no limit, which is NULL in the database."""
    named = {option: value for option, value in options.items() if value is not None}
    spec = {SECONDS.get(option, option): value for option, value in named.items()}
    if "payload" in spec:
        spec["payload"] = read_payload(spec["payload"])
    if "action" in spec:
        encodable(spec["action"], "the action")
    for field in ("timeout_seconds", "concurrency"):
        if spec.get(field) == 0:
            spec[field] = None
    return spec


def _read(name: str) -> tuple[dict[str, Any], datetime]:
    encodable(name, "the name")
    row = session.run(lambda store: store.row("show_job", name))
    if row is None:
        raise NotFound(kind="job", name=name)
    return json.loads(row["job"]), row["now"]


def _save(name: str, spec: dict[str, Any], *, create: bool, as_json: bool) -> int:
    encodable(name, "the name")

    async def save(store: Store) -> dict[str, Any]:
        saved: dict[str, Any] = json.loads(
            await store.value("save_job", session.actor(), name, json.dumps(spec), create)
        )
        return saved

    job = session.run(save)
    if as_json:
        output.print_json(job)
    else:
        output.say(f"{'added' if create else 'changed'} job {name}: {_summary(spec)}")
    return 0


def _summary(spec: dict[str, Any]) -> str:
    shown = {field: value for field, value in spec.items() if field != "payload"}
    return ", ".join(
        [f"{field}={value}" for field, value in shown.items()] + ["payload"] * ("payload" in spec)
    )


def _show(job: dict[str, Any], now: datetime) -> None:
    output.print_facts(
        [
            ("name", job["name"]),
            ("domain", job["domain"]),
            ("action", job["action"]),
            ("enabled", "yes" if job["enabled"] else "no"),
            ("payload", json.dumps(job["payload"])),
            ("priority", job["priority"]),
            ("max attempts", job["max_attempts"]),
            ("timeout", job["timeout_seconds"] and output.duration(job["timeout_seconds"])),
            ("concurrency", job["concurrency"]),
            ("back-off", f"{job['backoff_seconds']:g} s, at most {job['backoff_max_seconds']:g} s"),
            ("added", output.age(now, job["created_at"])),
            ("changed", output.age(now, job["updated_at"])),
            ("live runs", ", ".join(f"{count} {state}" for state, count in job["live"].items()) or "none"),
        ]
    )
