"""uvicorn's protocol, with a strict reader, and with a place in the table of connections.

uvicorn bounds neither how long a head or a body takes nor who holds a connection. Each connection tells the
table its phase after everything that was read or answered, and the table tells it when it has to go.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import anyio
import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from supervisor.api.connections import Client, Connections, Phase, Refusal, client_of, group_of
from supervisor.api.headers import secure
from supervisor.api.probes import is_probe
from supervisor.api.problem import Problem, problem
from supervisor.api.strict_http import StrictConnection
from supervisor.proxies import TrustedProxies


class BoundedProtocol(H11Protocol):
    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
        proxies: TrustedProxies,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._bounds = bounds = connections.bounds
        self.conn: StrictConnection = StrictConnection(bounds.head_bytes)
        self.group: str | None = None
        self._handler = self.app
        self.app = self._answer
        self._table = connections
        self._proxies = proxies
        self._window_bytes = int(bounds.bytes_per_second * bounds.window_seconds)
        self._begun: RequestResponseCycle | None = None
        self._refusal: Refusal | None = None
        self._while_connected: anyio.CancelScope | None = None
        self._received = 0
        self._excused = False
        self._unsent = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self.group = group_of(self.client[0] if self.client else "", self._proxies)
        self._table.open(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._table.close(self)
        super().connection_lost(exc)
        if self._while_connected is not None and self._is_answering() and self.is_unproven():
            # whoever guesses and goes must not leave his place in a queue behind
            self._while_connected.cancel()

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        self._excused |= self.flow.read_paused

    def handle_events(self) -> None:
        super().handle_events()
        self._tell_phase()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell_phase()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  the same words for all that is no HTTP
        self._end(
            problem(
                400,
                "the request is not valid HTTP/1.1",
                "lines end with CRLF and are not continued, a request has Content-Length or "
                f"Transfer-Encoding and not both, its head has at most {self._bounds.head_bytes} bytes",
            )
        )

    def is_unproven(self) -> bool:
        state = self.scope["state"]  # what the gate has set
        principal = state.get("principal")
        return (principal is None or not principal.role) and not state.get("was_right", False)

    def keeps_up(self) -> bool:
        received, self._received = self._received, 0
        excused, self._excused = self._excused, self.flow.read_paused
        unsent, self._unsent = self._unsent, self.transport.get_write_buffer_size()
        if not self._is_answering() or self.transport.is_closing():
            return self._unsent > 0 and (unsent == 0 or self._unsent < unsent)
        if self.conn.their_state is not h11.SEND_BODY or excused or self.cycle.waiting_for_100_continue:
            return True
        return received >= self._window_bytes

    def drop(self) -> None:
        self.transport.abort()

    def time_out(self) -> None:
        if self._is_answering():
            self._end(problem(408, "the body came too slowly", "send it again, over a faster connection"))
        if not self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()

    async def _answer(self, scope: Any, receive: Any, send: Any) -> None:
        if self._refusal is not None:
            await _problem_of(self._refusal)(scope, receive, send)
        elif not self.cycle.disconnected:
            with anyio.CancelScope() as self._while_connected:
                await self._handler(scope, receive, send)

    def _tell_phase(self) -> None:
        begun: RequestResponseCycle | None = self.cycle  # None before the first head
        if begun is not self._begun:
            self._begun = begun
            self._received, self._unsent, self._excused = 0, 0, self.flow.read_paused
            brief = is_probe(self.scope["method"], self.scope["path"])
            self._refusal = self._table.begin(self, self._asks(), brief=brief, tasks=len(self.tasks))
        elif self._begun is not None and self._begun.response_complete:
            between = self.conn.their_state is h11.IDLE and self.conn.has_data
            self._table.move(self, Phase.HEAD if between else Phase.IDLE)

    def _asks(self) -> Client:
        peer = self.client[0] if self.client else ""
        lines = (value.decode("latin-1") for name, value in self.headers if name == b"x-forwarded-for")
        return client_of(peer, lines, self._proxies)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _end(self, answer: Problem) -> None:
        """Answer outside of any handler, where nothing was answered yet, and close."""
        if self._is_answering():
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        headers = [*self.server_state.default_headers, *_closing(answer).raw_headers]
        reason = HTTPStatus(answer.status_code).phrase.encode()
        for event in (
            h11.Response(status_code=answer.status_code, headers=headers, reason=reason),
            h11.Data(data=bytes(answer.body)),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event))
        self.transport.close()


def _problem_of(refusal: Refusal) -> Problem:
    wait = {"Retry-After": "1"}
    match refusal:
        case Refusal.SERVER_FULL:
            what = "the server has all the requests that it takes"
            return _closing(problem(503, what, "try again in a moment", headers=wait))
        case Refusal.ADDRESS_FULL:
            what, hint = "too many requests at once from this address", "a proxy? name it in "
            return _closing(problem(429, what, f"{hint}TENURE_TRUSTED_PROXIES", headers=wait))


def _closing(answer: Problem) -> Problem:
    secure(answer.headers, "")
    answer.headers["Connection"] = "close"
    return answer
