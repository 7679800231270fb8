"""Listening: which addresses are allowed, and a server that lives inside our event loop.

Few connections are accepted in one turn of the loop, so that what the earlier ones have sent is read before
newer ones push them out, which takes some turns; the others wait in the kernel, in their order.

The socket is bound before the server starts, so that a taken port is an error with advice and not a process
that exits by itself. The server owns no signals; cancelling `serve` ends it, open requests get GRACE_SECONDS.
"""

import errno
import ipaddress
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import anyio
import uvicorn

from supervisor.api.connections import Bounds, Connections, spare
from supervisor.api.http_protocol import BoundedProtocol
from supervisor.config import Settings
from supervisor.descriptors import open_file_limit
from supervisor.errors import BadSettings, TenureError
from supervisor.proxies import TrustedProxies

GRACE_SECONDS: Final = 2
TURNS_TO_READ: Final = 8
WAITING_IN_KERNEL: Final = 1024


class PortInUse(TenureError):
    """port {port} on {host} is in use"""

    hint = "stop what listens there (`ss -ltnp`), or choose another port with TENURE_HTTP_PORT or --port"


class CannotListen(TenureError):
    """cannot listen on {host}, port {port}: {what}"""

    hint = "correct TENURE_HTTP_HOST and TENURE_HTTP_PORT"


def is_loopback(host: str) -> bool:
    """Only what is certain: `localhost` or a literal address; any other name may point anywhere."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(settings: Settings) -> None:
    """Refuse to be reachable from other machines without a token."""
    if not is_loopback(settings.http_host) and settings.api_token is None:
        raise BadSettings(
            what=f"TENURE_HTTP_HOST={settings.http_host} is not loopback and TENURE_API_TOKEN is unset"
        )


def bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host.strip("[]") or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise CannotListen(host=host, port=port, what=error.strerror or error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        # Listening at once: two that both bound an address with SO_REUSEADDR find out here.
        listener.listen(WAITING_IN_KERNEL)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(host=host, port=port) from error
        raise CannotListen(host=host, port=port, what=error.strerror or error) from error
    listener.setblocking(False)
    return listener


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the replica's: it drains first."""
        yield


async def serve(
    app: Any,
    host: str,
    port: int,
    ready: Callable[[int], None],
    *,
    bounds: Bounds | None = None,
    proxies: TrustedProxies | None = None,
) -> None:
    """Serve until cancelled; `ready` gets the port (also a chosen one, for 0) when requests are answered."""
    listener = bind(host, port)
    bounds = bounds or Bounds.within(open_file_limit())
    connections = Connections(bounds)
    protocol = partial(BoundedProtocol, connections=connections, proxies=proxies or TrustedProxies())
    accepted_at_once = max(1, spare(bounds.requests) // TURNS_TO_READ)
    server = _Server(_config(app, cast("type[BoundedProtocol]", protocol), accepted_at_once))

    async def run() -> None:
        with anyio.CancelScope(shield=True):
            await server.serve(sockets=[listener])

    with listener:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            tasks.start_soon(connections.keep_deadlines)
            try:
                while not server.started:
                    await anyio.sleep(0.01)
                listener.listen(WAITING_IN_KERNEL)  # uvicorn has set it to accepted_at_once
                ready(listener.getsockname()[1])
                await anyio.sleep_forever()
            finally:
                server.should_exit = True


def _config(app: Any, protocol: type[BoundedProtocol], accepted_at_once: int) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        log_level="error",  # what is less a stranger causes, as often as he likes
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=accepted_at_once,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
