"""Settings that all replicas share, domains that can be paused, and the audit of who changed what."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from supervisor import operations
from supervisor.api.principal import Actor, Role
from supervisor.api.v1.paging import BIGINT, SCAN_ROWS, Cursor, Limit, Page, decode, encode, page
from supervisor.api.v1.route import TEXT, Asked, Filter, Hanger, answer
from supervisor.api.view import ReplicaView
from supervisor.config import Timings
from supervisor.sight import Raw
from supervisor.store import Record, Store

Name = Annotated[str, Path(max_length=200, pattern=TEXT)]


class Setting(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "reassign_after_seconds",
                "value": 60,
                "least": 0.1,
                "most": 86400,
                "updated_at": "2026-01-31T01:00:00+00:00",
            }
        }
    )

    name: str
    value: float | bool
    least: float | None = Field(description="null for a switch")
    most: float | None
    updated_at: datetime


class SettingAsked(Asked):
    model_config = ConfigDict(json_schema_extra={"example": {"value": 90}})

    value: bool | int | Annotated[float, Field(allow_inf_nan=False)]


class SettingAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {"name": "reassign_after_seconds", "value": 90, "was": 60}}
    )

    name: str
    value: float | bool
    was: float | bool


class DomainShown(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "domain": "command",
                "installed": True,
                "replicas": 3,
                "jobs": 12,
                "paused_at": None,
                "paused_by": None,
            }
        }
    )

    domain: str
    installed: bool = Field(description="on this replica")
    replicas: int = Field(
        description="that are heard and take its runs; 0 where it has none: its rows are claimed by every "
        "replica that was started for it"
    )
    jobs: int
    paused_at: datetime | None
    paused_by: str | None


class PauseAnswer(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {"domain": "command", "paused": True, "changed": True}}
    )

    domain: str
    paused: bool
    changed: bool = Field(description="false where it was so already")


class AuditEntry(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "id": 31,
                "at": "2026-01-31T01:00:00+00:00",
                "actor": "token:ada",
                "action": "setting.set",
                "target": "setting:reassign_after_seconds",
                "before": 60,
                "after": 90,
                "login": "tenure_control",
            }
        }
    )

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    before: Any
    after: Any
    login: str | None = Field(description="of the database; null for rows of older releases")


class Governance:
    def __init__(self, store: Store, timings: Timings) -> None:
        self._store = store
        self._timings = timings

    async def list_settings(self, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """By name, with the bounds that a value must keep to."""
        after = decode(cursor, str)[0] if cursor is not None else ""
        rows = await self._store.rows("list_settings_page", after, limit + 1)
        items = [_with_raw(row, "value") for row in rows]
        return answer(page(items, limit, lambda row: encode(row["name"])))

    async def save_setting(self, name: Name, asked: SettingAsked, who: Actor) -> Response:
        """For all replicas, which read it with their next tick."""
        return answer(await operations.set_setting(self._store, who, name, asked.value))

    async def list_domains(self, limit: Limit = 50, cursor: Cursor = None) -> Response:
        """Domains that are installed here, have jobs, have replicas that work for them, or are paused."""
        after = decode(cursor, str)[0] if cursor is not None else ""
        known = await operations.known_domains(self._store, self._timings.confirm_after)
        return answer(
            page([row for row in known if row["domain"] > after], limit, lambda row: encode(row["domain"]))
        )

    async def pause_domain(self, name: Name, who: Actor) -> Response:
        """Nothing more of it is given out, on any replica; what is running ends."""
        return answer(await operations.pause(self._store, who, name))

    async def resume_domain(self, name: Name, who: Actor) -> Response:
        """What waits is given out again."""
        return answer(await operations.resume(self._store, who, name))

    async def list_audit(
        self,
        limit: Limit = 50,
        cursor: Cursor = None,
        target: Filter = None,
        actor: Filter = None,
        action: Filter = None,
    ) -> Response:
        """Newest first: who did what to what, and what it was before and after. What is rare is looked for
        page by page: such a page can be short, or empty, and has a `next` all the same."""
        before = decode(cursor, int)[0] if cursor is not None else BIGINT
        rows = await self._store.rows("list_audit_page", before, limit + 1, SCAN_ROWS, target, actor, action)
        shown = page(
            [_with_raw(row, "before", "after") for row in rows], limit, lambda row: encode(row["id"])
        )
        if shown["next"] is None and (target, actor, action) != (None, None, None):
            end = await self._store.value("find_audit_end", before, SCAN_ROWS)
            shown["next"] = encode(end) if end is not None else None
        return answer(shown)


def _with_raw(row: Record, *names: str) -> dict[str, Any]:
    return {**row, **{name: Raw(row[name]) for name in names if row[name] is not None}}


def routes(replica: ReplicaView) -> APIRouter:
    governance, router = Governance(replica.store, replica.settings.timings), APIRouter()
    settings, domains, audit = Hanger("settings"), Hanger("domains"), Hanger("audit")
    settings.add("GET", "/settings", governance.list_settings, Page[Setting], "List settings", 400)
    settings.add("PUT", "/settings/{name}", governance.save_setting, SettingAnswer, "Change a setting",
                 400, 404, role=Role.ADMIN)  # fmt: skip
    domains.add("GET", "/domains", governance.list_domains, Page[DomainShown], "List domains", 400)
    domains.add("POST", "/domains/{name}/pause", governance.pause_domain, PauseAnswer, "Pause a domain",
                400, 404, role=Role.OPERATE)  # fmt: skip
    domains.add("POST", "/domains/{name}/resume", governance.resume_domain, PauseAnswer, "Resume a domain",
                400, 404, role=Role.OPERATE)  # fmt: skip
    audit.add("GET", "/audit", governance.list_audit, Page[AuditEntry], "List who changed what", 400)
    for hanger in (settings, domains, audit):
        router.include_router(hanger.router)
    return router
