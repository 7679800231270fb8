"""What an operator does: each action is one call of the database, which audits it under the name of who acts.

The API and the console act through these, so that the same request is checked the same way and leaves the
same row whoever carried it. Nothing here decides who may: the caller has asked that before.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

from supervisor.apply import read_jobs
from supervisor.cli.inputs import check_name, encodable, run_actors, unsuited
from supervisor.errors import BadInput, Conflict, NotFound, TenureError
from supervisor.jobspec import encode_payload
from supervisor.setting import refusal
from supervisor.status import CONFIRM_AFTER
from supervisor.store import Record, Store
from supervisor.stored_json import UnreadableJson, decode

DEPTH: Final = 100
EVENT_BYTES: Final = 64 * 1024
KEY_CHARACTERS: Final = 200
BULK: Final = 500
SENSIBLE: Final = 1e15
MESSAGE: Final = 2000
"""What somebody sent may be quoted in a complaint, of any length."""


@dataclass(frozen=True, slots=True)
class Triggered:
    """`created` is false where the key had made that run before; a disabled job's run waits."""

    id: int
    state: str
    created: bool
    job: str
    domain: str
    enabled: bool


@dataclass(frozen=True, slots=True)
class TriggeredMany:
    """`ids` in the order of the call; `existing` are those that a key had made before."""

    job: str
    ids: list[int]
    created: int
    existing: list[int]


@dataclass(frozen=True, slots=True)
class CancelAsked:
    """`requested` is false where it had been asked before."""

    id: int
    state: str
    requested: bool


@dataclass(frozen=True, slots=True)
class RetryAsked:
    id: int
    requested: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one run of many; `what` says why it was refused."""

    id: int
    outcome: Literal["requested", "already", "refused", "not_found"]
    what: str | None = None


@dataclass(frozen=True, slots=True)
class DrainAsked:
    worker_id: str
    state: str
    requested: bool


@dataclass(frozen=True, slots=True)
class ResignAsked:
    epoch: int
    worker_id: str


@dataclass(frozen=True, slots=True)
class PauseSet:
    domain: str
    paused: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class SettingSaved:
    name: str
    value: Any
    was: Any


@dataclass(frozen=True, slots=True)
class JobSaved:
    """`job` is the definition as it is now, as JSON; `now` the database's time."""

    name: str
    created: bool
    job: str
    now: datetime


@dataclass(frozen=True, slots=True)
class JobRemoved:
    id: int
    name: str
    removed: bool = True


@dataclass(frozen=True, slots=True)
class Emitted:
    id: int
    created: bool


async def trigger(
    store: Store,
    actor: str,
    name: str,
    payload: Mapping[str, Any] | None = None,
    key: str | None = None,
    not_before: datetime | None = None,
    priority: int | None = None,
) -> Triggered:
    given = dict(payload or {})
    text = _encoded(given)
    if key is not None:
        _check_key(key)
    job = await _definition(store, encodable(name, "the name"))
    row = _answered(await store.row("trigger_job", actor, name, text, key, not_before, priority))
    return Triggered(**row, job=name, domain=job["domain"], enabled=job["enabled"])


async def trigger_many(
    store: Store,
    actor: str,
    name: str,
    payloads: Sequence[Mapping[str, Any]],
    keys: Sequence[str | None],
    not_before: datetime | None = None,
    priority: int | None = None,
) -> TriggeredMany:
    """All of them or none; one row of audit."""
    texts = [_encoded(payload) for payload in payloads]
    for key in filter(None, keys):
        _check_key(key)
    encodable(name, "the name")
    rows = await store.rows(
        "trigger_jobs",
        actor,
        name,
        texts,
        list(keys) if any(keys) else None,
        not_before,
        priority,
    )
    existing = [row["id"] for row in rows if not row["created"]]
    return TriggeredMany(name, [row["id"] for row in rows], len(rows) - len(existing), existing)


async def cancel(store: Store, actor: str, run_id: int) -> CancelAsked:
    return CancelAsked(**_answered(await store.row("request_cancel", actor, run_id)))


async def retry(store: Store, actor: str, run_id: int) -> RetryAsked:
    return RetryAsked(**_answered(await store.row("request_retry", actor, run_id)))


async def cancel_many(store: Store, actor: str, run_ids: Sequence[int]) -> list[Outcome]:
    return await _each(partial(cancel, store, actor), run_ids)


async def retry_many(store: Store, actor: str, run_ids: Sequence[int]) -> list[Outcome]:
    return await _each(partial(retry, store, actor), run_ids)


async def drain(store: Store, actor: str, worker_id: str) -> DrainAsked:
    name = encodable(worker_id, "the worker's id")
    return DrainAsked(**_answered(await store.row("request_drain", actor, name)))


async def resign(store: Store, actor: str) -> ResignAsked:
    return ResignAsked(**_answered(await store.row("request_resign", actor)))


async def pause(store: Store, actor: str, domain: str) -> PauseSet:
    return await _set_pause(store, actor, domain, paused=True)


async def resume(store: Store, actor: str, domain: str) -> PauseSet:
    return await _set_pause(store, actor, domain, paused=False)


async def known_domains(store: Store, confirm_after_seconds: float = CONFIRM_AFTER) -> list[dict[str, Any]]:
    """Those installed here, with jobs, with replicas that work for them, or paused."""
    from supervisor.wiring import actors  # noqa: PLC0415  loads every domain

    installed = sorted({actor.domain for actor in actors().values()})
    rows = await store.rows("list_known_domains", installed, confirm_after_seconds)
    return [{name: value for name, value in row.items() if name != "now"} for row in rows]


async def set_setting(store: Store, actor: str, name: str, value: float | bool) -> SettingSaved:
    encodable(name, "the name")
    if not isinstance(value, bool) and not abs(value) <= SENSIBLE:
        raise BadInput(what=f"{name} cannot be a number of that size")
    try:
        was = await store.value("save_setting", actor, name, json.dumps(value))
    except BadInput:
        raise await refusal(store, name, json.dumps(value)) from None
    return SettingSaved(name, value, decode(was))


async def save_job(
    store: Store, actor: str, name: str, spec: Mapping[str, Any], *, may_name_programs: bool
) -> JobSaved:
    """The whole truth about a job, as a table of `tenure job apply`: what it does not name has its default,
    but without `enabled` a job stays enabled or disabled as it is."""
    check_name(name)
    _check_depth(spec)
    now = datetime.now(UTC)  # only to see whether a schedule ever fires
    jobs, faults = read_jobs({"jobs": {name: spec}}, partial(unsuited, run_actors()), now)
    if faults:
        raise BadInput(what="; ".join(fault.removeprefix(f"{name}: ") for fault in faults)[:MESSAGE])
    columns = json.dumps(jobs[name])
    for _turn in range(3):
        try:
            return await _save(store, actor, name, columns, may_name_programs, create=False)
        except NotFound:
            pass
        try:
            return await _save(store, actor, name, columns, may_name_programs, create=True)
        except Conflict:
            pass  # somebody added it meanwhile
    raise Conflict(what=f"job {name} is being added and removed by somebody else")


async def enable_job(store: Store, actor: str, name: str, *, enabled: bool) -> JobSaved:
    encodable(name, "the name")
    return await _save(store, actor, name, json.dumps({"enabled": enabled}), False, create=False)


async def remove_job(store: Store, actor: str, name: str, *, may_name_programs: bool) -> JobRemoved:
    encodable(name, "the name")
    return JobRemoved(await store.value("remove_job", actor, name, may_name_programs), name)


async def emit(
    store: Store,
    actor: str,
    event_type: str,
    payload: Mapping[str, Any] | None = None,
    key: str | None = None,
) -> Emitted:
    check_name(event_type, "an event's type")
    given = dict(payload or {})
    text = _encoded(given)
    if len(text.encode()) > EVENT_BYTES:
        raise BadInput(what=f"an event's payload has at most {EVENT_BYTES} bytes")
    if key is not None:
        _check_key(key)
    return Emitted(**_answered(await store.row("post_event", actor, event_type, text, key)))


async def _save(
    store: Store, actor: str, name: str, columns: str, may_name_programs: bool, *, create: bool
) -> JobSaved:
    row = _answered(await store.row("save_job", actor, name, columns, create, may_name_programs))
    return JobSaved(name, create, row["job"], row["now"])


async def _set_pause(store: Store, actor: str, domain: str, *, paused: bool) -> PauseSet:
    encodable(domain, "the domain")
    if all(row["domain"] != domain for row in await known_domains(store)):
        raise NotFound(kind="domain", name=domain)
    changed = await store.value("pause_domain", actor, domain, paused)
    return PauseSet(domain, paused, bool(changed))


async def _each(
    ask: Callable[[int], Awaitable[CancelAsked | RetryAsked]], run_ids: Sequence[int]
) -> list[Outcome]:
    """One after the other and each for itself: one that is refused leaves the others as they are."""
    if len(run_ids) > BULK:
        raise BadInput(what=f"at most {BULK} runs at once")
    return [await _one(ask, run_id) for run_id in dict.fromkeys(run_ids)]


async def _one(ask: Callable[[int], Awaitable[CancelAsked | RetryAsked]], run_id: int) -> Outcome:
    try:
        answer = await ask(run_id)
    except NotFound as error:
        return Outcome(run_id, "not_found", str(error))
    except (Conflict, BadInput) as error:
        return Outcome(run_id, "refused", str(error))
    return Outcome(run_id, "requested" if answer.requested else "already")


async def _definition(store: Store, name: str) -> Mapping[str, Any]:
    row = await store.row("show_job", name)
    if row is None:
        raise NotFound(kind="job", name=name)
    try:
        job: Mapping[str, Any] = decode(row["job"])
    except UnreadableJson:
        raise Unreadable(name=name) from None
    return job


class Unreadable(TenureError):
    """the payload of job {name} is nested too deep, or holds too long a number, to be read here"""

    hint = "give the job another payload: `tenure job set {name} --payload ...`"
    exit_code = 4


def _encoded(payload: Mapping[str, Any]) -> str:
    """As it is sent, or what is wrong with it."""
    text, faults = encode_payload(payload)
    # each level has an opening bracket: with fewer of them it is not too deep, and need not be gone through
    if faults or text.count("{") + text.count("[") >= DEPTH:
        _check_depth(payload)
    if faults:
        raise BadInput(what="; ".join(faults))
    return text


def _check_depth(value: Any) -> None:
    """Level by level, because what is nested too deeply cannot be looked at by recursion."""
    level = [value]
    for _depth in range(DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list, Mapping))  # what is most common first: the last takes longest
            for inner in (one if isinstance(one, list) else one.values())
        ]
        if not level:
            return
    raise BadInput(what=f"this is nested deeper than {DEPTH} levels")


def _check_key(key: str) -> None:
    if not 1 <= len(encodable(key, "the key")) <= KEY_CHARACTERS:
        raise BadInput(what=f"a key has 1 to {KEY_CHARACTERS} characters")


def _answered(row: Record | None) -> Record:
    assert row is not None  # noqa: S101  these calls answer with a row, or raise
    return row
