"""`/stream`: live changes as server-sent events."""

from collections.abc import AsyncGenerator
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response

from supervisor.api.lasting import NOTHING, WHY, while_permitted
from supervisor.api.v1 import sse
from supervisor.api.v1.changes import Changes
from supervisor.api.v1.route import Hanger
from supervisor.api.view import ReplicaView
from supervisor.clock import boottime
from supervisor.errors import TenureError

SUBSCRIBERS: Final = 64
EXAMPLE: Final = 'id: 1769823000000000\nevent: run\ndata: {"id":7,"state":"RUNNING","version":3}\n\n'


class LiveChanges:
    def __init__(self, replica: ReplicaView) -> None:
        self._replica = replica
        self._changes = Changes(replica.store)
        self._seats = sse.Seats(SUBSCRIBERS)

    async def follow_changes(
        self,
        request: Request,
        last_event_id: Annotated[str | None, Header(description="where a broken stream goes on")] = None,
    ) -> Response:
        """`hello` first, with who leads and every replica's state; then `run` for each run that moved,
        `leader` and `workers` when they changed, `reset` when too much happened to be told: read again what
        you show. The stream ends with `end` when this replica drains (connect to another), or when the token
        or the login is over."""
        end = sse.event("end", {"why": WHY})
        return sse.Stream(self._seats, while_permitted(request, self._follow(last_event_id), end))

    async def _follow(self, last_event_id: str | None) -> AsyncGenerator[str, None]:
        with self._changes.subscribed() as subscriber:
            heard_at = boottime()
            yield sse.HEARTBEAT
            try:
                await self._changes.begin(subscriber, last_event_id)
                while not self._replica.draining:
                    for text in await self._changes.wait(subscriber):
                        yield text
                        heard_at = boottime()
                    if boottime() - heard_at >= sse.HEARTBEAT_SECONDS:
                        yield sse.HEARTBEAT
                        heard_at = boottime()
                    yield NOTHING
                yield sse.event("end", {"why": "this replica drains"})
            except TenureError as error:
                yield sse.event("trouble", {"what": str(error), "hint": error.advice})


def routes(replica: ReplicaView) -> APIRouter:
    hanger = Hanger("stream")
    more = sse.documented("Events until this replica drains", EXAMPLE)
    hanger.add("GET", "/stream", LiveChanges(replica).follow_changes, None, "Follow what changes", more=more)
    return hanger.router
