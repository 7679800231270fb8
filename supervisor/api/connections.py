"""Which connections a server keeps, and which one makes room when there are too many.

A connection is in one phase. Only requests count as work: a server that has its number of them refuses more,
and an eighth more connections may be open, so that a new one can always say what it wants. It takes the place
of the one that has waited longest for a complete head, then of the one idle for longest. So a client that
opens connections and says nothing pushes out only its own kind, and probes are answered whatever goes on.

The bound for each address works in the same way, among the connections of that address. It does not hold for
loopback, where one address stands for every local user and proxy, nor for a trusted proxy, whose address
stands for all of its clients. Requests are counted by the client that such a proxy names.

A request without a valid credential makes room for another request too: a login whose form never ends, or an
answer that nobody reads, must not keep out those who may come in. It is the oldest of the client that has the
most requests, so that a stranger who asks for much pushes out his own.

Time is given to who uses it: `head_seconds` for a whole head; after that each `window_seconds` must bring
`bytes_per_second` of a body that is awaited, or take something of an answer that is complete. How long a
handler works or streams is not bounded.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from supervisor.api.limiter import network_of
from supervisor.clock import Clock
from supervisor.logs import logger
from supervisor.proxies import TrustedProxies, to_address

HEADER_BYTES: Final = 16 * 1024
REQUESTS: Final = 512
REQUESTS_PER_ADDRESS: Final = 128
CHECK_SECONDS: Final = 1.0
LOG_SECONDS: Final = 10.0

_log = logger("api")


@dataclass(frozen=True, slots=True)
class Bounds:
    requests: int = REQUESTS
    requests_per_address: int = REQUESTS_PER_ADDRESS
    head_bytes: int = HEADER_BYTES
    head_seconds: float = 10.0
    window_seconds: float = 30.0
    bytes_per_second: int = 1024

    @classmethod
    def within(cls, open_files: int) -> "Bounds":
        """Return the usual bounds, or less: connections must leave half of the descriptors to the rest."""
        requests = max(1, min(REQUESTS, open_files * 4 // 9))
        return cls(requests=requests, requests_per_address=min(REQUESTS_PER_ADDRESS, requests))


def spare(requests: int) -> int:
    """How many more connections may be open than requests are begun."""
    return max(1, requests // 8)


class Client(NamedTuple):
    """Who asks; a trusted proxy's word about it is taken."""

    network: str
    has_share: bool = True
    """False: it stands for many."""


class Phase(Enum):
    """What a connection is at. The first three make room for others, in this order."""

    HEAD = "has not sent a complete head"
    IDLE = "has its answer"
    BRIEF = "waits for a probe or a refusal"
    REQUEST = "waits for anything else"


class Refusal(Enum):
    """Why a request is not begun."""

    SERVER_FULL = "server full"
    ADDRESS_FULL = "address full"


class Connection(Protocol):
    @property
    def group(self) -> str | None:
        """The address whose bound holds for it; None: of no address."""

    def is_unproven(self) -> bool:
        """Whether its request has shown no valid credential yet."""

    def keeps_up(self) -> bool:
        """Whether it did its part since it was asked last; begins the next window."""

    def drop(self) -> None:
        """Close it at once."""

    def time_out(self) -> None:
        """Close it because it was too slow, and say so where that is possible."""


class Places:
    """The connections of all, or of one address: by phase, in each the oldest first."""

    def __init__(self, requests: int) -> None:
        self._connections = requests + spare(requests)
        self._phases: dict[Phase, OrderedDict[Connection, float]] = {phase: OrderedDict() for phase in Phase}

    def enter(self, connection: Connection, phase: Phase, now: float) -> None:
        self._phases[phase][connection] = now

    def leave(self, connection: Connection, phase: Phase) -> None:
        del self._phases[phase][connection]

    def is_empty(self) -> bool:
        return not any(self._phases.values())

    def count(self) -> int:
        return sum(map(len, self._phases.values()))

    def to_make_room(self) -> Connection | None:
        """Return the connection that has to go before another one is opened."""
        if self.count() < self._connections:
            return None
        return next(oldest for phase in Phase for oldest in self._phases[phase])

    def since(self, phase: Phase, before: float) -> list[Connection]:
        """Return those in this phase since `before` or longer."""
        found = []
        for connection, entered in self._phases[phase].items():
            if entered > before:
                break
            found.append(connection)
        return found


class Requests:
    """The requests that are worked at, by the client, of each the oldest first."""

    def __init__(self) -> None:
        self._of_client: dict[str, OrderedDict[Connection, None]] = {}
        self._client: dict[Connection, str] = {}

    def __len__(self) -> int:
        return len(self._client)

    def enter(self, connection: Connection, network: str) -> None:
        self._client[connection] = network
        self._of_client.setdefault(network, OrderedDict())[connection] = None

    def leave(self, connection: Connection) -> None:
        network = self._client.pop(connection, None)
        if network is not None:
            del self._of_client[network][connection]
            if not self._of_client[network]:
                del self._of_client[network]

    def count(self, network: str) -> int:
        return len(self._of_client.get(network, ()))

    def oldest_unproven(self, network: str | None = None) -> Connection | None:
        """Return the one that makes room: of this client, else of the client that has the most."""
        those: Iterable[str] = self._of_client if network is None else (network,)
        for client in sorted(those, key=self.count, reverse=True):
            for connection in self._of_client[client]:
                if connection.is_unproven():
                    return connection
        return None


class Connections:
    def __init__(self, bounds: Bounds, clock: Clock | None = None) -> None:
        self.bounds = bounds
        self._clock = clock or Clock()
        self._all = Places(bounds.requests)
        self._of_address: dict[str, Places] = {}
        self._requests = Requests()
        self._phase: dict[Connection, Phase] = {}
        self._dropped = self._refused = 0
        self._log_at = float("-inf")

    def open(self, connection: Connection) -> None:
        """Take in a new connection, which has said nothing yet."""
        for places in self._places_of(connection):
            if (oldest := places.to_make_room()) is not None:
                self._drop(oldest)
        self._enter(connection, Phase.HEAD)

    def begin(self, connection: Connection, client: Client, *, brief: bool, tasks: int = 0) -> Refusal | None:
        """Begin the request whose head is complete, or say why not.

        `tasks` is how many handlers run, those included whose client has gone.
        """
        if connection not in self._phase:
            return Refusal.SERVER_FULL
        self._leave(connection)
        refusal = None if brief else self._refusal(client, tasks)
        if brief or refusal:
            self._enter(connection, Phase.BRIEF)
        else:
            self._enter(connection, Phase.REQUEST)
            self._requests.enter(connection, client.network)
        if refusal is not None:
            self._refused += 1
            self._report()
        return refusal

    def move(self, connection: Connection, phase: Phase) -> None:
        if self._phase.get(connection, phase) is not phase:
            self._leave(connection)
            self._enter(connection, phase)

    def close(self, connection: Connection) -> None:
        if connection in self._phase:
            self._leave(connection)

    async def keep_deadlines(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self.end_overdue()

    def end_overdue(self) -> None:
        now = self._clock.now()
        for connection in self._all.since(Phase.HEAD, now - self.bounds.head_seconds):
            self.close(connection)
            connection.time_out()
        for phase in (Phase.IDLE, Phase.BRIEF, Phase.REQUEST):
            for connection in self._all.since(phase, now - self.bounds.window_seconds):
                if connection.keeps_up():
                    for places in self._places_of(connection):
                        places.leave(connection, phase)
                        places.enter(connection, phase, now)
                else:
                    self._leave(connection)
                    connection.time_out()

    def _refusal(self, client: Client, tasks: int) -> Refusal | None:
        if tasks > 2 * self.bounds.requests:
            return Refusal.SERVER_FULL
        if client.has_share and self._requests.count(client.network) >= self.bounds.requests_per_address:
            unproven = self._requests.oldest_unproven(client.network)
            if unproven is None:
                return Refusal.ADDRESS_FULL
            self._drop(unproven)
        if len(self._requests) >= self.bounds.requests:
            unproven = self._requests.oldest_unproven()
            if unproven is None:
                return Refusal.SERVER_FULL
            self._drop(unproven)
        return None

    def _places_of(self, connection: Connection) -> Iterator[Places]:
        if connection.group is not None:
            places = self._of_address.get(connection.group)
            if places is None:
                places = self._of_address[connection.group] = Places(self.bounds.requests_per_address)
            yield places
        yield self._all

    def _enter(self, connection: Connection, phase: Phase) -> None:
        self._phase[connection] = phase
        for places in self._places_of(connection):
            places.enter(connection, phase, self._clock.now())

    def _leave(self, connection: Connection) -> None:
        phase = self._phase.pop(connection)
        self._requests.leave(connection)
        for places in self._places_of(connection):
            places.leave(connection, phase)
        if connection.group is not None and self._of_address[connection.group].is_empty():
            del self._of_address[connection.group]

    def _drop(self, connection: Connection) -> None:
        self._leave(connection)
        connection.drop()
        self._dropped += 1
        self._report()

    def _report(self) -> None:
        """One line for all of a time: what a stranger causes must not fill the log."""
        now = self._clock.now()
        if now - self._log_at < LOG_SECONDS:
            return
        _log.warning("connections full", dropped=self._dropped, refused=self._refused, open=self._all.count())
        self._log_at, self._dropped, self._refused = now, 0, 0


def client_of(peer: str, forwarded_for: Iterable[str], proxies: TrustedProxies) -> Client:
    address = proxies.client_of(peer, forwarded_for)
    return Client(network_of(address), group_of(address, proxies) is not None)


def group_of(peer: str, proxies: TrustedProxies) -> str | None:
    """Return whose bound holds for a connection from there; None: of no address."""
    address = to_address(peer)
    if address is None or address.is_loopback or peer in proxies:
        return None
    return network_of(str(address))
