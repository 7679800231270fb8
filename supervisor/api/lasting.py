"""What is streamed goes on after the request was let in: it asks again whether it still would be.

Asking is cheap: what was right is remembered, and the database is asked once in TRUST_SECONDS for each
credential, however many streams it has. So a stream ends within ASK_SECONDS of the moment when a new request
would be refused.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Final

from starlette.requests import Request

from supervisor.clock import boottime
from supervisor.errors import TenureError

ASK_SECONDS: Final = 1.0
NOTHING: Final = ""
"""What events yield that have nothing to tell: a moment to ask."""
WHY: Final = "the token or the login is over"


async def while_permitted(
    request: Request, events: AsyncGenerator[str, None], end: str
) -> AsyncGenerator[str, None]:
    """The events, until whoever asked for them may no longer: then `end`."""
    still_valid: Callable[[], Awaitable[bool]] = request.scope["state"]["still_valid"]
    asked_at = boottime()
    async with aclosing(events):
        async for event in events:
            if boottime() - asked_at >= ASK_SECONDS:
                asked_at = boottime()
                if not await _is_valid(still_valid):
                    yield end
                    return
            if event != NOTHING:
                yield event


async def _is_valid(still_valid: Callable[[], Awaitable[bool]]) -> bool:
    try:
        return await still_valid()
    except TenureError:  # nobody knows at the moment, and while the database is away it has nothing to tell
        return True
