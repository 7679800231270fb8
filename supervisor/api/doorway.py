"""The first thing a request meets: probes are answered here, and the rest is made when it is first wanted.

A replica that only works is asked how it is and nothing else. The API and the console take longer to make
than everything else a replica is, so they are made in a thread, at the first request for them or when the
replica has been up for a while.
"""

from collections.abc import Callable
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.headers import secure
from supervisor.api.probes import Probes, is_probe
from supervisor.api.view import ReplicaView

WARM_UP_SECONDS: Final = 60.0


class Doorway:
    def __init__(self, replica: ReplicaView, make: Callable[[], ASGIApp]) -> None:
        self._probes = Probes(replica)
        self._make = make
        self._making = anyio.Lock()
        self._rest: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_probe(scope["method"], scope["path"]):
            answer = await self._probes.answer(scope["path"])

            async def send_secured(message: Message) -> None:
                if message["type"] == "http.response.start":
                    secure(MutableHeaders(scope=message), scope["path"])
                await send(message)

            await answer(scope, receive, send_secured)
            return
        await (await self._made())(scope, receive, send)

    async def warm_up(self) -> None:
        """So that the first to ask does not wait."""
        await anyio.sleep(WARM_UP_SECONDS)
        await self._made()

    async def _made(self) -> ASGIApp:
        if self._rest is not None:  # without the lock, which lets one task go on in a turn of the loop
            return self._rest
        async with self._making:
            if self._rest is None:
                self._rest = await run_sync(self._make)
        return self._rest
