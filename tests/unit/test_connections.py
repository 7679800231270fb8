"""Which connection makes room, what is refused, and who has run out of time; no sockets."""

from dataclasses import dataclass, field

import pytest

from supervisor.api.connections import REQUESTS, Bounds, Connections, Phase, Refusal, client_of, group_of
from supervisor.api.connections import Client as Asking
from supervisor.proxies import TrustedProxies
from tests.support.fake_clock import FakeClock

BOUNDS = Bounds(requests=8, requests_per_address=2)
OPEN = 8 + 1
OPEN_FROM_ONE = 2 + 1


@dataclass(eq=False)
class Client:
    name: str
    group: str | None = None
    asking: Asking = Asking("127.0.0.1", has_share=False)  # noqa: RUF009  it is immutable
    unproven: bool = False
    kept_up: bool = True
    end: str = ""
    windows: list[bool] = field(default_factory=list)

    def is_unproven(self) -> bool:
        return self.unproven

    def keeps_up(self) -> bool:
        self.windows.append(self.kept_up)
        return self.kept_up

    def drop(self) -> None:
        self.end = "dropped"

    def time_out(self) -> None:
        self.end = "timed out"


class Table:
    """Connections that clients open, in their order."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self.clock = FakeClock()
        self.connections = Connections(bounds, self.clock)
        self.clients: list[Client] = []

    def open(self, name: str, **how: object) -> Client:
        client = Client(name, **how)  # type: ignore[arg-type]
        self.clients.append(client)
        self.connections.open(client)
        self.clock.pass_seconds(0.001)
        return client

    def request(self, name: str, **how: object) -> Client:
        client = self.open(name, **how)
        assert self.begin(client) is None
        return client

    def begin(self, client: Client, *, brief: bool = False, tasks: int = 0) -> Refusal | None:
        asking = client.asking if client.group is None else Asking(client.group)
        return self.connections.begin(client, asking, brief=brief, tasks=tasks)

    def gone(self) -> list[str]:
        return [client.name for client in self.clients if client.end]


def test_the_longest_without_a_head_makes_room_then_the_longest_idle_then_a_probe() -> None:
    table = Table()
    probe = table.open("probe")
    table.begin(probe, brief=True)
    for name in ("idle 1", "idle 2"):
        table.connections.move(table.request(name), Phase.IDLE)
    for name in ("silent 1", "silent 2"):
        table.open(name)
    for number in range(OPEN - 5):
        table.request(f"working {number}")
    assert table.gone() == []
    expected = []
    for name in ("silent 1", "silent 2", "idle 1", "idle 2"):
        table.request(f"after {name}")
        expected.append(name)
        assert sorted(table.gone()) == sorted(expected)
    table.open("one more")
    assert probe.end == "dropped"
    assert not any(client.end for client in table.clients if client.name.startswith(("work", "after")))


def test_a_head_that_has_come_is_no_longer_the_oldest() -> None:
    """Also on a connection that is used again: its second head waits since it began."""
    table = Table()
    again = table.request("again")
    table.connections.move(again, Phase.IDLE)
    for number in range(OPEN - 1):
        table.open(f"silent {number}")
    table.connections.move(again, Phase.HEAD)
    table.open("new")
    assert table.gone() == ["silent 0"]


def test_requests_are_bounded_and_probes_are_not() -> None:
    table = Table()
    for number in range(BOUNDS.requests):
        table.request(f"working {number}")
    for _ in range(3 * BOUNDS.requests):
        late, probe = table.open("late"), table.open("probe")
        assert table.begin(probe, brief=True) is None
        assert late.end == "dropped", "there is one place beyond those of requests"
        late = table.open("late again")
        assert table.begin(late) is Refusal.SERVER_FULL
    assert not any(client.end for client in table.clients if client.name.startswith("working"))
    table.connections.move(table.clients[0], Phase.IDLE)
    table.request("has the place that came free")


def test_a_request_that_has_proven_nothing_makes_room_for_another() -> None:
    table = Table()
    for number in range(BOUNDS.requests):
        table.request(str(number), unproven=number in (2, 5))
    table.request("first")
    table.request("second")
    assert table.gone() == ["2", "5"]
    late = table.open("third")
    assert table.begin(late) is Refusal.SERVER_FULL


def test_whoever_asks_most_makes_room_by_what_he_has_not_proven() -> None:
    table, loud = Table(), Asking("203.0.113.77", has_share=False)
    table.request("quiet", unproven=True, asking=Asking("198.51.100.5", has_share=False))
    for number in range(BOUNDS.requests - 1):
        table.request(f"loud {number}", unproven=number > 0, asking=loud)
    for number in range(1, BOUNDS.requests - 1):
        table.request(f"new {number}", asking=Asking("198.51.100.6", has_share=False))
        assert table.gone() == [f"loud {one}" for one in range(1, number + 1)]
    table.request("takes the last one")
    assert table.gone()[0] == "quiet"


def test_the_clients_of_a_trusted_proxy_have_a_share_each() -> None:
    proxies = TrustedProxies.parse("10.0.0.0/8")
    assert client_of("10.1.2.3", ["203.0.113.77"], proxies) == Asking("203.0.113.77")
    assert client_of("192.0.2.1", ["203.0.113.77"], proxies) == Asking("192.0.2.1")
    for many in (client_of("10.1.2.3", [], proxies), client_of("127.0.0.1", [], proxies)):
        assert not many.has_share
    table, one = Table(), Asking("203.0.113.77")
    for number in range(BOUNDS.requests_per_address):
        table.request(str(number), asking=one, unproven=number == 1)
    table.request("takes the place of what proves nothing", asking=one)
    assert table.gone() == ["1"]
    assert table.begin(table.open("one more", asking=one)) is Refusal.ADDRESS_FULL
    table.clock.pass_seconds(BOUNDS.window_seconds)
    table.connections.end_overdue()
    assert table.begin(table.open("later", asking=one)) is Refusal.ADDRESS_FULL, "a window changes nothing"
    table.request("another", asking=Asking("198.51.100.5"))
    table.connections.move(table.clients[0], Phase.IDLE)
    table.request("has the place that came free", asking=one)


def test_a_second_request_on_one_connection_counts_once() -> None:
    table = Table(Bounds(requests=1, requests_per_address=1))
    client = table.request("pipelining", unproven=True, group="192.0.2.1")
    assert table.begin(client) is None
    assert table.gone() == []


def test_handlers_whose_clients_have_gone_are_bounded_too() -> None:
    table = Table()
    client = table.open("late")
    begin = table.begin
    assert begin(client, tasks=2 * BOUNDS.requests + 1) is Refusal.SERVER_FULL
    assert begin(client, brief=True, tasks=2 * BOUNDS.requests + 1) is None
    assert begin(client, tasks=2 * BOUNDS.requests) is None


def test_an_address_has_a_bound_of_its_own_and_pushes_out_only_itself() -> None:
    table = Table()
    other = table.open("silent elsewhere", group="192.0.2.2")
    near = [table.open(f"near {number}") for number in range(4)]
    here = [table.open(f"here {number}", group="192.0.2.1") for number in range(4 * OPEN_FROM_ONE)]
    assert [client.end for client in here] == ["dropped"] * (3 * OPEN_FROM_ONE) + [""] * OPEN_FROM_ONE
    assert not any(client.end for client in (other, *near))
    first, second, third = here[-OPEN_FROM_ONE:]
    assert table.begin(first) is None
    assert table.begin(second) is None
    assert table.begin(third) is Refusal.ADDRESS_FULL
    assert table.begin(third, brief=True) is None, "a probe is answered"
    assert table.begin(other) is None
    assert not any(table.begin(client) for client in near)
    for client in table.clients:
        table.connections.close(client)
        table.connections.close(client)


@pytest.mark.parametrize(
    ("peer", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8::1", "2001:db8::/64"),
        ("127.0.0.1", None),
        ("::1", None),
        ("::ffff:127.0.0.1", None),
        ("10.1.2.3", None),
        ("", None),
    ],
)
def test_loopback_and_trusted_proxies_stand_for_many(peer: str, group: str | None) -> None:
    assert group_of(peer, TrustedProxies.parse("10.0.0.0/8")) == group


def test_a_head_has_so_many_seconds() -> None:
    table = Table()
    slow = table.open("slow")
    quick = table.request("quick")
    table.clock.pass_seconds(BOUNDS.head_seconds - 1)
    late = table.open("late")
    table.connections.end_overdue()
    assert table.gone() == []
    table.clock.pass_seconds(1)
    table.connections.end_overdue()
    assert (slow.end, quick.end, late.end) == ("timed out", "", "")


def test_each_window_is_looked_at_once() -> None:
    table = Table()
    lazy, busy = table.request("lazy", kept_up=False), table.request("busy")
    idle = table.request("idle", kept_up=False)
    table.connections.move(idle, Phase.IDLE)
    table.clock.pass_seconds(BOUNDS.window_seconds - 1)
    table.connections.end_overdue()
    assert table.gone() == []
    table.clock.pass_seconds(1)
    table.connections.end_overdue()
    table.connections.end_overdue()
    assert (lazy.end, idle.end) == ("timed out", "timed out")
    assert busy.windows == [True]
    table.clock.pass_seconds(BOUNDS.window_seconds)
    busy.kept_up = False
    table.connections.end_overdue()
    assert (busy.windows, busy.end) == ([True, False], "timed out")


def test_connections_leave_descriptors_to_the_rest() -> None:
    assert Bounds.within(1_000_000) == Bounds()
    for open_files in (64, 256, 1024):
        bounds = Bounds.within(open_files)
        assert bounds.requests + bounds.requests // 8 <= open_files // 2
        assert bounds.requests_per_address <= bounds.requests < REQUESTS
