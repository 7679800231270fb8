"""Days: what is current, what was, and what changed."""

from datetime import date
from typing import Annotated, Any

from fastapi import APIRouter, Query

from actors.capture.api.models import INTEGER, Day, DayDifferences, DayPage, User, VersionPage
from actors.capture.api.refusals import Route, documented
from actors.capture.differences import differences
from actors.capture.views import read_day
from supervisor.api.v1.paging import BadCursor, Cursor, Limit, decode, encode, page
from supervisor.api.view import ReplicaView

Version = Annotated[int | None, Query(ge=1, le=INTEGER)]


class Schedules:
    def __init__(self, view: ReplicaView) -> None:
        self._store = view.store

    async def days(self, user: User, limit: Limit = 50, cursor: Cursor = None) -> dict[str, Any]:
        """The days that a user has a schedule for, newest first."""
        before = _day_of(cursor) if cursor is not None else None
        rows = await self._store.rows("list_schedule_days", user, before, limit + 1)
        return page([dict(row) for row in rows], limit, lambda row: encode(row["schedule_date"].isoformat()))

    async def day(self, user: User, day: date, version: Version = None) -> dict[str, Any]:
        """The current version of a day, or the one that is named."""
        return await read_day(self._store, user, day, version)

    async def versions(
        self, user: User, day: date, limit: Limit = 50, cursor: Cursor = None
    ) -> dict[str, Any]:
        """Newest first."""
        before = decode(cursor, int)[0] if cursor is not None else None
        rows = await self._store.rows("list_schedule_versions", user, day, before, limit + 1)
        return page([dict(row) for row in rows], limit, lambda row: encode(row["version"]))

    async def changes(
        self,
        user: User,
        day: date,
        since: Annotated[int | None, Query(ge=1, le=INTEGER, alias="from")] = None,
        until: Annotated[int | None, Query(ge=1, le=INTEGER, alias="to")] = None,
    ) -> dict[str, Any]:
        """Between two versions: by default the current one and the one before it."""
        after = await read_day(self._store, user, day, until)
        before = await read_day(self._store, user, day, since or max(1, after["version"] - 1))
        found = differences(before["payload"].get("entries", []), after["payload"].get("entries", []))
        return {
            "user_id": user,
            "schedule_date": day,
            "from_version": before["version"],
            "to_version": after["version"],
            "added": found.added,
            "removed": found.removed,
            "changed": [{"before": old, "after": new} for old, new in found.changed],
        }


def _day_of(cursor: str) -> date:
    try:
        return date.fromisoformat(decode(cursor, str)[0])
    except ValueError:
        raise BadCursor from None


def routes(view: ReplicaView) -> APIRouter:
    schedules, router = Schedules(view), APIRouter(prefix="/schedules/{user}", route_class=Route)
    for path, handler, model, summary in (
        ("", schedules.days, DayPage, "List the days of a user"),
        ("/{day}", schedules.day, Day, "Show a day"),
        ("/{day}/versions", schedules.versions, VersionPage, "List the versions of a day"),
        ("/{day}/differences", schedules.changes, DayDifferences, "Compare two versions of a day"),
    ):
        router.add_api_route(
            path, handler, methods=["GET"], response_model=model, summary=summary, responses=documented(404)
        )
    return router
