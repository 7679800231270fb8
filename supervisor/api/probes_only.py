"""What a replica that only works answers to every request that is no probe."""

from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.headers import secure
from supervisor.api.probes import PROBES
from supervisor.api.problem import problem

SERVED: Final = ", ".join(f"GET {path}" for path in sorted(PROBES))


def refuse_all() -> ASGIApp:
    return _refuse


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    async def send_secured(message: Message) -> None:
        if message["type"] == "http.response.start":
            secure(MutableHeaders(scope=message), scope["path"])
        await send(message)

    if scope["type"] == "http":
        words = f"this replica only works and serves {SERVED}: ask one that may lead"
        await problem(404, "not served here", words)(scope, receive, send_secured)
