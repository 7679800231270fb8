"""`/audit`: who did what, with the values before and after."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import Query, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.runs import BIGINT
from supervisor.stored_json import readable

PAGE: Final = 50


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    @router.get("/audit")
    async def list_audit(
        request: Request,
        target: Annotated[str, Query(max_length=300)] = "",
        before: Annotated[int | None, Query(ge=1, le=BIGINT)] = None,
    ) -> Response:
        rows = await replica.store.rows("list_audit", target.strip() or None, before, PAGE)
        return page.render(
            request,
            "audit.html",
            now=await replica.store.value("see_clock"),
            entries=[(row, changes(row["before"], row["after"])) for row in rows],
            target=target.strip(),
            before=before,
            next_before=rows[-1]["id"] if len(rows) == PAGE else None,
        )

    return router


def changes(before: str | None, after: str | None) -> list[tuple[str, str, str]]:
    """(name, was, is) of what differs; a value that is no object has no name."""
    was, now = _parsed(before), _parsed(after)
    if not isinstance(was, Mapping) and not isinstance(now, Mapping):
        return [("", _short(was), _short(now))]
    was, now = (one if isinstance(one, Mapping) else {} for one in (was, now))
    names = [name for name in {**was, **now} if was.get(name) != now.get(name) and name != "updated_at"]
    return [(name, _short(was.get(name)), _short(now.get(name))) for name in names]


def _parsed(text: str | None) -> Any:
    return None if text is None else readable(text)


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 200 else f"{text[:200]}..."
