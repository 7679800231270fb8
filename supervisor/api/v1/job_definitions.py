"""Job definitions: what to run, and when. (`/jobs` are the dedup domain's own.)"""

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Depends, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from supervisor import operations
from supervisor.api.principal import Actor, Principal, Role, principal_of
from supervisor.api.v1.paging import Cursor, Limit, Page, decode, encode, page
from supervisor.api.v1.route import Asked, Filter, Hanger, JobName, Key, Moment, answer
from supervisor.api.view import ReplicaView
from supervisor.errors import BadInput
from supervisor.jobspec import FIELDS
from supervisor.jobspec import Field as SpecField
from supervisor.sight import fires_of, joined, read_job
from supervisor.store import Store

EXAMPLE_SPEC: Final[dict[str, Any]] = {
    "domain": "command",
    "payload": {"argv": ["backup", "--all"]},
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
}
EXAMPLE_JOB: Final[dict[str, Any]] = {
    "id": 3,
    "name": "nightly",
    "domain": "command",
    "action": None,
    "enabled": True,
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "missed": "latest",
    "event_type": None,
    "schedule_error": None,
    "next_fire_at": "2026-02-01T01:30:00+00:00",
    "last_fire_at": "2026-01-31T01:30:00+00:00",
    "skipped": 0,
    "priority": 0,
    "max_attempts": 3,
    "timeout_seconds": None,
    "concurrency": None,
    "concurrency_policy": "allow",
    "backoff_seconds": 5,
    "backoff_max_seconds": 600,
    "created_at": "2026-01-01T09:00:00+00:00",
    "updated_at": "2026-01-01T09:00:00+00:00",
    "live": 0,
}
EXAMPLE_PARAMETERS: Final[dict[str, Any]] = {"order": {"type": "integer", "required": True}}
Operator = Annotated[Principal, Depends(principal_of)]
_TYPES: Final[Mapping[type, str]] = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    dict: "object",
}


class JobListed(BaseModel):
    """`live` counts its runs that have not ended; `skipped` its fires that passed without a run."""

    model_config = ConfigDict(json_schema_extra={"example": EXAMPLE_JOB})

    id: int
    name: str
    domain: str
    action: str | None
    enabled: bool
    cron: str | None
    timezone: str
    missed: str
    event_type: str | None
    schedule_error: str | None
    next_fire_at: datetime | None = Field(
        description="null without a schedule, or until the leader has seen it"
    )
    last_fire_at: datetime | None
    skipped: int
    priority: int
    max_attempts: int
    timeout_seconds: float | None
    concurrency: int | None
    concurrency_policy: str
    backoff_seconds: float
    backoff_max_seconds: float
    created_at: datetime
    updated_at: datetime
    live: int


class Fire(BaseModel):
    local: datetime
    utc: datetime


class JobSavedAnswer(BaseModel):
    """The definition by its columns."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "example": {
                **EXAMPLE_JOB,
                "payload": EXAMPLE_SPEC["payload"],
                "parameters": EXAMPLE_PARAMETERS,
                "takes": EXAMPLE_PARAMETERS,
                "next_fires": [],
            }
        },
    )

    id: int
    name: str
    domain: str
    payload: dict[str, Any]
    parameters: dict[str, Any] | None = Field(description="what the definition itself declares")
    takes: dict[str, Any] | None = Field(
        description="the parameters that callers may give: the definition's own, or those of its task type;"
        " null for an older definition, which takes anything that is not the definition's"
    )
    enabled: bool
    cron: str | None
    next_fire_at: datetime | None
    next_fires: list[Fire]


class JobShown(JobSavedAnswer):
    last_fire_at: datetime | None
    skipped: int
    live: dict[str, int] = Field(description="its runs that have not ended, by state")


class EnabledAsked(Asked):
    model_config = ConfigDict(json_schema_extra={"example": {"enabled": False}})

    enabled: bool


class TriggerAsked(Asked):
    model_config = ConfigDict(
        json_schema_extra={"example": {"payload": {"order": 4711}, "idempotency_key": "order-4711"}}
    )

    payload: dict[str, Any] | None = Field(
        None, description="arguments for the parameters of the job, which `takes` of the job names"
    )
    idempotency_key: Key | None = Field(None, description="the same key again answers with the same run")
    not_before: Annotated[Moment, Field(strict=False)] | None = Field(
        None, description="not earlier than that"
    )
    priority: int | None = Field(
        None, ge=-1000000, le=1000000, description="instead of the job's; larger first"
    )


class RunAsked(Asked):
    payload: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: Key | None = None


class TriggerManyAsked(Asked):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "runs": [
                    {"payload": {"order": 4711}, "idempotency_key": "order-4711"},
                    {"payload": {"order": 4712}, "idempotency_key": "order-4712"},
                ]
            }
        }
    )

    runs: list[RunAsked] = Field(min_length=1, max_length=10000)
    not_before: Annotated[Moment, Field(strict=False)] | None = None
    priority: int | None = Field(None, ge=-1000000, le=1000000)


class TriggeredManyAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {"job": "nightly", "ids": [7, 8], "created": 1, "existing": [7]},
        }
    )

    job: str
    ids: list[int] = Field(description="in the order of the call")
    created: int
    existing: list[int] = Field(description="those that their key had made before")


class TriggeredAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 7,
                "state": "PENDING",
                "created": True,
                "job": "nightly",
                "domain": "command",
                "enabled": True,
            }
        }
    )

    id: int
    state: str
    created: bool = Field(description="false where the key had made that run before")
    job: str
    domain: str
    enabled: bool = Field(description="a disabled job's run waits until it is enabled")


class RemovedAnswer(BaseModel):
    id: int
    name: str
    removed: bool


def _field_schema(field: SpecField) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _TYPES[field.kind]}
    least, most = ("minLength", "maxLength") if field.kind is str else ("minimum", "maximum")
    schema |= {least: field.low} if field.low > -math.inf else {}
    schema |= {most: field.high} if field.high < math.inf else {}
    schema |= {"enum": list(field.choices)} if field.choices else {}
    return schema | ({"default": field.default} if field.default is not None else {})


Spec = Annotated[
    dict[str, Any],
    Body(description="as a table of `tenure job apply`: what is not named has its default"),
    WithJsonSchema(
        {
            "type": "object",
            "required": ["domain"],
            "additionalProperties": False,
            "properties": {name: _field_schema(field) for name, field in FIELDS.items()},
            "example": EXAMPLE_SPEC,
        }
    ),
]


class JobDefinitions:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def list_job_definitions(
        self,
        limit: Limit = 50,
        cursor: Cursor = None,
        domain: Filter = None,
        enabled: Annotated[bool | None, Query()] = None,
    ) -> Response:
        """By name."""
        after = decode(cursor, str)[0] if cursor is not None else ""
        rows = await self._store.rows("list_jobs_page", after, limit + 1, domain, enabled)
        return answer(page(rows, limit, lambda row: encode(row["name"])))

    async def show_job_definition(self, name: JobName) -> Response:
        """Its options and its payload, its live runs, its next three fire times and what it skipped."""
        return answer(await read_job(self._store, name))

    async def save_job_definition(self, name: JobName, spec: Spec, who: Operator) -> Response:
        """Make the job what the body says: 201 where it is new. Runs that exist keep what they were made
        with. Without `enabled`, a job stays enabled or disabled as it is. A job that names a program is
        saved and removed by role admin only."""
        saved = await operations.save_job(
            self._store, who.name, name, spec, may_name_programs=who.role >= Role.ADMIN
        )
        return _shown(saved, 201 if saved.created else 200)

    async def enable_job_definition(self, name: JobName, asked: EnabledAsked, who: Actor) -> Response:
        """Let its runs be given out, or pause it: what is queued waits then, what is running ends."""
        saved = await operations.enable_job(self._store, who, name, enabled=asked.enabled)
        return _shown(saved, 200)

    async def remove_job_definition(self, name: JobName, who: Operator) -> Response:
        """Its runs and their history stay. Refused while it has runs that have not ended."""
        removed = await operations.remove_job(
            self._store, who.name, name, may_name_programs=who.role >= Role.ADMIN
        )
        return answer(removed)

    async def trigger_job_definition(
        self,
        name: JobName,
        who: Actor,
        asked: Annotated[TriggerAsked | None, Body()] = None,
        idempotency_key: Annotated[str | None, Header(description="as in the body")] = None,
    ) -> Response:
        """Make a run: 201, or 200 with the run that the key made before."""
        asked = asked or TriggerAsked()
        keys = {key for key in (idempotency_key, asked.idempotency_key) if key is not None}
        if len(keys) > 1:
            raise BadInput(what="the Idempotency-Key header and `idempotency_key` differ")
        made = await operations.trigger(
            self._store,
            who,
            name,
            asked.payload,
            keys.pop() if keys else None,
            asked.not_before,
            asked.priority,
        )
        return answer(made, 201 if made.created else 200)

    async def trigger_many(self, name: JobName, who: Actor, asked: TriggerManyAsked) -> Response:
        """Make many runs in one call: all of them, or none where one is refused."""
        made = await operations.trigger_many(
            self._store,
            who,
            name,
            [run.payload for run in asked.runs],
            [run.idempotency_key for run in asked.runs],
            asked.not_before,
            asked.priority,
        )
        return answer(made, 201 if made.created else 200)


def _shown(saved: operations.JobSaved, status: int) -> Response:
    return answer(joined(saved.job, next_fires=fires_of(saved.job, saved.now)), status)


def routes(replica: ReplicaView) -> APIRouter:
    jobs, hanger = JobDefinitions(replica.store), Hanger("job definitions")
    one = "/job-definitions/{name:path}"
    hanger.add("GET", "/job-definitions", jobs.list_job_definitions, Page[JobListed], "List jobs", 400)
    hanger.add("POST", f"{one}/trigger", jobs.trigger_job_definition, TriggeredAnswer, "Trigger a job",
               400, 404, 409, 429, role=Role.OPERATE,
               more=_made(TriggeredAnswer, "A run was made"))  # fmt: skip
    hanger.add("POST", f"{one}/trigger-many", jobs.trigger_many, TriggeredManyAnswer, "Trigger many",
               400, 404, 409, 429, role=Role.OPERATE,
               more=_made(TriggeredManyAnswer, "Runs were made"))  # fmt: skip
    hanger.add("GET", one, jobs.show_job_definition, JobShown, "Show a job", 404)
    hanger.add("PUT", one, jobs.save_job_definition, JobSavedAnswer, "Add or replace a job",
               400, 409, role=Role.OPERATE, more=_made(JobSavedAnswer, "The job is new"))  # fmt: skip
    hanger.add("PATCH", one, jobs.enable_job_definition, JobSavedAnswer, "Enable or disable a job",
               400, 404, role=Role.OPERATE)  # fmt: skip
    hanger.add("DELETE", one, jobs.remove_job_definition, RemovedAnswer, "Remove a job",
               404, 409, role=Role.OPERATE)  # fmt: skip
    return hanger.router


def _made(model: type[BaseModel], meaning: str) -> dict[int | str, dict[str, Any]]:
    return {201: {"model": model, "description": meaning}}
