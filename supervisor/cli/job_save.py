"""`tenure job add` and `job set`. Everything is checked before anything is stored."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from supervisor import jobspec
from supervisor.cli import output, session
from supervisor.cli.fires import next_fires, say_fires
from supervisor.cli.inputs import JobName, check_name, check_payload, encodable, read_payload
from supervisor.cli.options import (
    Action,
    Backoff,
    BackoffMax,
    Concurrency,
    Cron,
    Domain,
    Event,
    MaxAttempts,
    Missed,
    NoCron,
    NoEvent,
    Parameters,
    Payload,
    Policy,
    Priority,
    Timeout,
    Timezone,
)
from supervisor.cli.session import Json
from supervisor.errors import BadInput, NotFound
from supervisor.store import Store
from supervisor.stored_json import readable


def add(
    name: JobName,
    *,
    domain: Domain = None,
    payload: Payload = None,
    parameters: Parameters = None,
    action: Action = None,
    cron: Cron = None,
    timezone: Timezone = None,
    missed: Missed = None,
    event: Event = None,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    concurrency: Concurrency = None,
    concurrency_policy: Policy = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    as_json: Json = False,
) -> int:
    """Add a job. It runs when it is triggered, by its schedule, or on its event.

    Examples:

    - `tenure job add hello --domain command --payload '{"argv": ["echo", "hello"]}'`
    - `tenure job add backup --domain command --payload @b.json --cron '30 2 * * *' --timezone Europe/Berlin`
    - `tenure job add invoice --domain command --payload '{"argv": ["invoice", {"argument": "order"}]}'
      --parameters '{"order": {"type": "integer", "required": true}}'`
    - `tenure job add thumbs --domain command --payload @t.json --event upload --concurrency-policy forbid`

    Exits 4 when there is a job of that name.
    """
    check_name(name)
    if domain is None:
        raise BadInput(what="--domain is missing; for a program to run: --domain command")
    if cron is None and (timezone is not None or missed is not None):
        raise BadInput(what="--timezone and --missed say more about a --cron, which is missing")
    spec = jobspec.complete(
        _spec(
            domain=domain,
            payload=payload,
            parameters=parameters,
            action=action,
            cron=cron,
            timezone=timezone,
            missed=missed,
            event=event,
            max_attempts=max_attempts,
            timeout=timeout,
            priority=priority,
            concurrency=concurrency,
            concurrency_policy=concurrency_policy,
            backoff=backoff,
            backoff_max=backoff_max,
        )
    )
    check_payload(domain, spec.setdefault("payload", {}))
    _check_relations(spec)
    return save(name, spec, create=True, as_json=as_json)


def set_(
    name: JobName,
    *,
    domain: Domain = None,
    payload: Payload = None,
    parameters: Parameters = None,
    action: Action = None,
    cron: Cron = None,
    timezone: Timezone = None,
    missed: Missed = None,
    no_cron: NoCron = False,
    event: Event = None,
    no_event: NoEvent = False,
    max_attempts: MaxAttempts = None,
    timeout: Timeout = None,
    priority: Priority = None,
    concurrency: Concurrency = None,
    concurrency_policy: Policy = None,
    backoff: Backoff = None,
    backoff_max: BackoffMax = None,
    as_json: Json = False,
) -> int:
    """Change the options that are named; runs that exist keep what they were made with.

    Examples:

    - `tenure job set backup --timeout 7200 --max-attempts 5`
    - `tenure job set backup --cron '0 4 * * 1-5'`   from now on; the past is not made up for
    - `tenure job set backup --no-cron`
    """
    if (no_cron and cron is not None) or (no_event and event is not None):
        raise BadInput(what="an option and its --no- exclude each other")
    spec = _spec(
        domain=domain,
        payload=payload,
        parameters=parameters,
        action=action,
        cron=cron,
        timezone=timezone,
        missed=missed,
        event=event,
        max_attempts=max_attempts,
        timeout=timeout,
        priority=priority,
        concurrency=concurrency,
        concurrency_policy=concurrency_policy,
        backoff=backoff,
        backoff_max=backoff_max,
    )
    spec |= ({"cron": None} if no_cron else {}) | ({"event_type": None} if no_event else {})
    if not spec:
        raise BadInput(what="nothing to change: name at least one option")
    was, _ = read_job(name)
    spec = jobspec.complete(spec, was)
    if {"domain", "payload"} & spec.keys():
        check_payload(spec.get("domain", was["domain"]), spec.get("payload", was["payload"]))
    _check_relations({**was, **spec})
    return save(name, spec, create=False, as_json=as_json)


def read_job(name: str) -> tuple[dict[str, Any], datetime]:
    """The definition with its live runs, and the database's time."""
    encodable(name, "the name")
    row = session.run(lambda store: store.row("show_job", name))
    if row is None:
        raise NotFound(kind="job", name=name)
    return readable(row["job"]), row["now"]


def save(name: str, spec: dict[str, Any], *, create: bool, as_json: bool) -> int:
    encodable(name, "the name")

    async def work(store: Store) -> tuple[dict[str, Any], datetime]:
        row = await store.row("save_job", session.actor(), name, json.dumps(spec), create, True)
        assert row is not None  # noqa: S101  it raises where there is none
        return readable(row["job"]), row["now"]

    job, now = session.run(work)
    job["next_fires"] = next_fires(job, now)
    if as_json:
        output.print_json(job)
        return 0
    output.say(f"{'added' if create else 'changed'} job {name}: {_summary(spec)}")
    say_fires(job)
    return 0


def _spec(**options: Any) -> dict[str, Any]:
    """The columns of the options that were named."""
    named = {option: value for option, value in options.items() if value is not None}
    for option in ("payload", "parameters"):
        if option in named:
            named[option] = read_payload(named[option], f"the {option}")
    for option in ("domain", "action", "cron", "timezone", "event"):
        if option in named:
            encodable(named[option], f"--{option}")
    faults = [
        f"--{name.replace('_', '-')} {fault}"
        for name, value in named.items()
        for fault in jobspec.FIELDS[name].faults(value)
    ]
    if faults:
        raise BadInput(what="; ".join(faults))
    return jobspec.columns_of(named)


def _check_relations(job: Mapping[str, Any]) -> None:
    if faults := list(jobspec.relation_faults(job, session.wall_clock())):
        raise BadInput(what="; ".join(faults))


def _summary(spec: dict[str, Any]) -> str:
    texts = [
        field if field in {"payload", "parameters"} else f"{field}={value}" for field, value in spec.items()
    ]
    return ", ".join(sorted(texts, key=lambda text: "=" not in text))
