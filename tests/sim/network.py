"""The way between a replica and the database: it delays, loses, cuts, and says nothing about it.

A statement is sent, executed and answered at three moments. In between the sender may have given up, stopped
or died; a statement that is under way is executed all the same.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from schemas import queries
from supervisor.errors import DatabaseUnreachable
from supervisor.store import CONNECT_SECONDS
from tests.sim.loop import LANE

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

LATENCY_SECONDS: Final = (0.0003, 0.004)
HINTS_HEARD: Final = 0.9


@dataclass
class Link:
    """One host's way to the database."""

    requests_cut: int = 0
    replies_cut: int = 0
    slow_seconds: float = 0.0
    lose_replies: float = 0.0
    delay: float = 0.0
    delay_seconds: float = 0.0
    late_calls: frozenset[str] = frozenset()
    """These alone arrive `delay_seconds` late."""
    held: list["Call"] = field(default_factory=list)

    @property
    def cut(self) -> bool:
        return bool(self.requests_cut or self.replies_cut)


@dataclass(eq=False)
class Call:
    number: int
    host: "Host"
    role: str
    name: str
    sql: str
    args: Sequence[Any]
    sent_at: float
    answer: asyncio.Future[Any]


class Connection:
    """Stands for asyncpg's, as far as the store and the wake-ups use it."""

    def __init__(self, network: "Network", host: "Host", role: str) -> None:
        self._network, self._host, self._role = network, host, role
        self._closed = False
        self._pending: asyncio.Future[Any] | None = None
        self._ears: list[Callable[..., None]] = []
        self._mourners: list[Callable[..., None]] = []
        host.connections.append(self)

    async def fetch(self, sql: str, *args: Any, timeout: float | None = None) -> Any:
        if self._closed:
            raise asyncpg.InterfaceError("connection is closed")
        self._pending = asyncio.get_running_loop().create_future()
        self._network.send(self._host, self._role, sql, args, self._pending)
        try:
            async with asyncio.timeout(timeout):
                return await self._pending
        finally:
            self._pending = None

    def hear(self, text: str) -> None:
        if not self._closed:
            for ear in self._ears:
                ear(self, 0, "tenure", text)

    def broken(self) -> None:
        """The other side, or the way to it, is gone."""
        if self._pending is not None and not self._pending.done():
            self._pending.set_exception(ConnectionResetError("connection reset by peer"))
        self._close()

    async def add_listener(self, _channel: str, ear: Callable[..., None]) -> None:
        self._ears.append(ear)

    def add_termination_listener(self, mourner: Callable[..., None]) -> None:
        self._mourners.append(mourner)

    def add_log_listener(self, _listener: object) -> None:
        """The simulated server says nothing beside its answers."""

    def is_closed(self) -> bool:
        return self._closed

    def terminate(self) -> None:
        self._close()

    async def close(self, timeout: float | None = None) -> None:  # noqa: ARG002  asyncpg's
        self._close()

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._host.connections.remove(self)
            for mourner in self._mourners:
                mourner(self)


class Network:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._loop = world.loop
        self._names = {query.sql: name for name, query in queries().items()}
        self._sent = 0
        self.closed = False

    async def connect(self, url: str, **_options: object) -> Connection:
        """In the place of supervisor.store.connect."""
        host: Host = LANE.get().host  # type: ignore[assignment]
        await asyncio.sleep(self._latency() * 3)
        if host.link.cut and not self.closed:
            await asyncio.sleep(CONNECT_SECONDS)
        if self.closed or host.link.cut:
            raise DatabaseUnreachable(what="nobody answers")
        return Connection(self, host, self._world.database.role_of(url))

    def send(
        self, host: "Host", role: str, sql: str, args: Sequence[Any], answer: asyncio.Future[Any]
    ) -> None:
        if self.closed:
            raise ConnectionResetError("the simulation is over")
        self._sent += 1
        call = Call(self._sent, host, role, self._names.get(sql, "?"), sql, args, self._loop.now, answer)
        self._world.witness.invoked(call)
        draw, link = self._loop.random, host.link
        if link.requests_cut:
            # what the kernel still holds is delivered when the way is free again, if the sender lives or not
            if draw.random() < 0.5:
                link.held.append(call)
            return
        late = draw.uniform(0, link.delay_seconds) if draw.random() < link.delay else 0.0
        if call.name in link.late_calls:
            late = link.delay_seconds
        self._loop.at(self._latency() + draw.random() * link.slow_seconds + late, self._arrive, call)

    def deliver_held(self, link: Link) -> None:
        held, link.held = link.held, []
        for call in held:
            self._loop.at(self._latency() + self._loop.random.random() * 0.3, self._arrive, call)

    def say(self, texts: Sequence[str]) -> None:
        """Hints go to whoever listens and can be reached; some are lost."""
        for text in dict.fromkeys(texts):
            for host in self._world.hosts:
                for connection in list(host.connections):
                    if not host.link.replies_cut and self._loop.random.random() < HINTS_HEARD:
                        self._loop.at(self._latency(), self._whisper, host, connection, text)

    def _whisper(self, host: "Host", connection: Connection, text: str) -> None:
        if host.alive:
            self._loop.in_lane(host.lane).run(lambda: self._loop.call_soon(connection.hear, text))

    def _arrive(self, call: Call) -> None:
        if self.closed:
            return
        outcome: Any
        try:
            answer = self._world.execute(call.role, call.sql, *call.args)
            outcome = answer.rows
        except asyncpg.PostgresError as error:
            answer, outcome = None, error
        self._world.witness.executed(call, outcome)
        self._world.executed(call.host, call.name, 0 if answer is None else len(answer.rows))
        if answer is not None:
            self.say(answer.said)
        draw, link = self._loop.random, call.host.link
        if link.replies_cut or draw.random() < link.lose_replies:
            if draw.random() < 0.5 and not link.cut:
                self._loop.at(self._latency(), self._answer, call, ConnectionResetError("connection reset"))
            return
        self._loop.at(self._latency() + draw.random() * link.slow_seconds, self._answer, call, outcome)

    def _answer(self, call: Call, outcome: Any) -> None:
        if call.host.link.replies_cut or call.answer.done() or not call.host.alive:
            return
        self._world.witness.answered(call, outcome)
        if isinstance(outcome, Exception):
            call.answer.set_exception(outcome)
        else:
            call.answer.set_result(outcome)

    def _latency(self) -> float:
        return self._loop.random.uniform(*LATENCY_SECONDS)
