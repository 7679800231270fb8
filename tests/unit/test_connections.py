"""Which connection makes room, what is refused, and who has run out of time; no sockets."""

from dataclasses import dataclass, field

import pytest

from supervisor.api.connections import REQUESTS, Bounds, Connections, Phase, Refusal, group_of
from supervisor.proxies import TrustedProxies
from tests.support.fake_clock import FakeClock

BOUNDS = Bounds(requests=8, requests_per_address=2)
OPEN = 8 + 1
OPEN_FROM_ONE = 2 + 1


@dataclass(eq=False)
class Client:
    name: str
    group: str | None = None
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
        assert self.connections.begin(client, brief=False) is None
        return client

    def gone(self) -> list[str]:
        return [client.name for client in self.clients if client.end]


def test_the_longest_without_a_head_makes_room_then_the_longest_idle_then_a_probe() -> None:
    table = Table()
    probe = table.open("probe")
    table.connections.begin(probe, brief=True)
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
        assert table.connections.begin(probe, brief=True) is None
        assert late.end == "dropped", "there is one place beyond those of requests"
        late = table.open("late again")
        assert table.connections.begin(late, brief=False) is Refusal.SERVER_FULL
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
    assert table.connections.begin(late, brief=False) is Refusal.SERVER_FULL


def test_a_second_request_on_one_connection_counts_once() -> None:
    table = Table(Bounds(requests=1, requests_per_address=1))
    client = table.request("pipelining", unproven=True, group="192.0.2.1")
    assert table.connections.begin(client, brief=False) is None
    assert table.gone() == []


def test_handlers_whose_clients_have_gone_are_bounded_too() -> None:
    table = Table()
    client = table.open("late")
    begin = table.connections.begin
    assert begin(client, brief=False, tasks=2 * BOUNDS.requests + 1) is Refusal.SERVER_FULL
    assert begin(client, brief=True, tasks=2 * BOUNDS.requests + 1) is None
    assert begin(client, brief=False, tasks=2 * BOUNDS.requests) is None


def test_an_address_has_a_bound_of_its_own_and_pushes_out_only_itself() -> None:
    table = Table()
    other = table.open("silent elsewhere", group="192.0.2.2")
    near = [table.open(f"near {number}") for number in range(4)]
    here = [table.open(f"here {number}", group="192.0.2.1") for number in range(4 * OPEN_FROM_ONE)]
    assert [client.end for client in here] == ["dropped"] * (3 * OPEN_FROM_ONE) + [""] * OPEN_FROM_ONE
    assert not any(client.end for client in (other, *near))
    first, second, third = here[-OPEN_FROM_ONE:]
    assert table.connections.begin(first, brief=False) is None
    assert table.connections.begin(second, brief=False) is None
    assert table.connections.begin(third, brief=False) is Refusal.ADDRESS_FULL
    assert table.connections.begin(third, brief=True) is None, "a probe is answered"
    assert table.connections.begin(other, brief=False) is None
    assert not any(table.connections.begin(client, brief=False) for client in near)
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
