"""What a network of hosts offers to a world, whatever it is made of.

A host is a name (`r1`, `pg1`, `redis`, `sink`). A *way* is how processes on one host reach a service on
another; faults are done to ways or to hosts. The observer (this process) has ways of its own that no fault of
a way touches; a host whose link is down is out of its reach too.

`can` names what the layer is able to do: cut, one-way, loss, rate, delay, link. Anything else raises NotHere,
and the scenario is not run.
"""

import os
import shutil
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, Protocol

Way = Literal["both", "requests", "replies"]
CHOICE: Final = "TENURE_CHAOS_LAYER"


class NotHere(Exception):
    """What a scenario needs and this machine or layer does not have."""


class Layer(Protocol):
    name: ClassVar[str]
    can: ClassVar[frozenset[str]]

    def open(self, hosts: Sequence[str]) -> None: ...

    def close(self) -> None: ...

    def enter(self, host: str) -> list[str]:
        """What to put before a command line to run it on `host`."""
        ...

    def address(self, host: str) -> str:
        """Where services of `host` listen, and where the observer finds them."""
        ...

    def port(self, usual: int) -> int:
        """A port for a service: the usual one where every host has its own."""
        ...

    async def way(self, source: str, target: str, port: int, *, relayed: bool = False) -> tuple[str, int]:
        """Address and port by which `source` reaches `port` of `target`; `relayed` ways can be delayed."""
        ...

    async def cut(self, source: str, target: str, way: Way = "both") -> None:
        """What `source` sends to `target` (requests), what comes back (replies), or both, is dropped."""
        ...

    async def heal(self, source: str, target: str) -> None: ...

    async def delay(self, source: str, target: str, seconds: float, jitter: float) -> None: ...

    async def loss(self, host: str, percent: int) -> None: ...

    async def rate(self, host: str, kbit: int) -> None:
        """0 = unbounded again."""
        ...

    async def link(self, host: str, *, up: bool) -> None: ...

    async def get(self, host: str, port: int, path: str) -> str:
        """A page of a server that listens on the host's own loopback."""
        ...


def namespaces_work() -> str | None:
    """Why hosts cannot be namespaces here; None = they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [tool for tool in ("ip", "nft", "nsenter", "setpriv") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)}"
    from tests.chaos.namespaces import probe

    return probe()


def choose_layer(wanted: str | None = None) -> type[Layer]:
    """By name (argument, else TENURE_CHAOS_LAYER); namespaces where they work."""
    from tests.chaos.namespaces import Namespaces
    from tests.chaos.proxies import Proxies

    name = wanted or os.environ.get(CHOICE) or ""
    if name == "proxies":
        return Proxies
    trouble = namespaces_work()
    if name == "namespaces" and trouble:
        raise NotHere(f"the layer of namespaces: {trouble}")
    if name not in ("", "namespaces"):
        raise ValueError(f"{CHOICE} is namespaces or proxies, not {name}")
    return Proxies if trouble else Namespaces
