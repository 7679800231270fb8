"""Server-sent events: how they are written, and how many may listen at once."""

from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from supervisor.api.problem import problem
from supervisor.sight import rendered

HEARTBEAT_SECONDS: Final = 15.0
HEARTBEAT: Final = ": still here\n\n"
AGAIN_SECONDS: Final = 5
CLOSE_SECONDS: Final = 2.0
TYPE: Final = "text/event-stream"


class Seats:
    """A bound on those who listen: each holds a connection of the server."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0


class Stream(StreamingResponse):
    """Takes a seat for as long as it is sent, or refuses. However it ends, the generator is closed."""

    media_type = TYPE

    def __init__(self, seats: Seats, events: AsyncGenerator[str, None]) -> None:
        super().__init__(events, headers={"X-Accel-Buffering": "no"})
        self._seats = seats
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        seats = self._seats
        if seats.taken >= seats.most:
            headers = {"Retry-After": str(AGAIN_SECONDS)}
            what = f"at most {seats.most} listen at once"
            await problem(503, "all places are taken", what, headers=headers)(scope, receive, send)
            return
        seats.taken += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            seats.taken -= 1
            with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                await self._events.aclose()


def event(name: str, data: Any, number: int | None = None) -> str:
    """JSON has no line ends of its own, so one `data:` line holds it."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {name}\ndata: {rendered(data)}\n\n"


def documented(description: str, example: str) -> dict[int | str, dict[str, Any]]:
    """For `responses=`."""
    fields = {name: {"type": "string"} for name in ("id", "event", "data")}
    schema = {"type": "object", "properties": fields, "description": "one event; `data` is JSON"}
    content = {TYPE: {"schema": schema, "example": example}}
    return {200: {"description": description, "content": content}}
