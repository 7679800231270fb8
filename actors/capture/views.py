"""A session and a day as they are shown, the same by the API and by the command line."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from supervisor.errors import NotFound
from supervisor.store import Record, Store
from supervisor.stored_json import readable


class NoSession(NotFound):
    """no capture session {name}"""

    hint = "`tenure capture list` shows what there is"


class NoSchedule(NotFound):
    """user {user} has no {what}"""

    hint = "`tenure schedule days --user {user}` lists what there is"


async def read_session(store: Store, session: UUID) -> dict[str, Any]:
    row = await store.row("show_capture", session)
    if row is None:
        raise NoSession(kind="capture", name=session)
    return session_view(row)


def session_view(row: Record | Mapping[str, Any]) -> dict[str, Any]:
    shown = {name: row[name] for name in ("session_id", "state", "error", "schedule_date", "version")}
    payload = readable(row["payload"]) if row.get("payload") else None
    return {
        **shown,
        "payload": payload,
        **{name: row[name] for name in ("user_id", "created_at", "images", "locked_by", "payload_hash")},
    }


async def read_day(store: Store, user: int, day: Any, version: int | None = None) -> dict[str, Any]:
    row = await store.row("show_schedule", user, day, version)
    if row is None:
        what = f"schedule for {day}" if version is None else f"version {version} of {day}"
        raise NoSchedule(user=user, what=what)
    return {**row, "payload": readable(row["payload"])}
