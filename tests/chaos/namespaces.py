"""Hosts as network namespaces, joined by a bridge whose own address is the observer's.

A run takes a slot: a locked file, a network 10.213.SLOT.0/24, and names that begin with `tnrSLOT`. Whatever a
killed run left behind under its slot is removed by the next one that finds the slot's file unlocked. Cuts and
losses are nft rules inside the namespace of the host they are done to; the observer's address is never
dropped. The kernel may lack netem, so delays come from a relay on the bridge, for ways that ask for one.
"""

import asyncio
import ctypes
import fcntl
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

from tests.chaos import strays
from tests.chaos.layer import NotHere, Way
from tests.chaos.relay import Relay
from tests.chaos.web import fetch

IP: Final = shutil.which("ip") or "/usr/sbin/ip"
SLOTS: Final = 60
# not the directory that TMPDIR names: who has a slot must be the same question for every run on the machine
LOCKS: Final = Path("/tmp")  # noqa: S108
LOCK: Final = "tenure-chaos-slot-"
OBSERVER: Final = 254


class Namespaces:
    name: ClassVar[str] = "namespaces"
    can: ClassVar[frozenset[str]] = frozenset({"cut", "one-way", "loss", "rate", "delay", "link"})

    def __init__(self) -> None:
        self._slot, self._lock = _take_slot()
        self._hosts: list[str] = []
        self._relays: dict[tuple[str, str], list[Relay]] = {}
        self._cuts: dict[tuple[str, str], Way] = {}
        self._losses: dict[str, int] = {}

    def open(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        bridge = f"tnr{self._slot}br"
        lines = [f"link add {bridge} type bridge", f"addr add {self._ip(OBSERVER)}/24 dev {bridge}"]
        lines += [f"link set {bridge} up", *(f"netns add {self._ns(host)}" for host in hosts)]
        for number, host in enumerate(hosts, 1):
            outside = f"tnr{self._slot}v{number}"
            lines += [f"link add {outside} type veth peer name eth0 netns {self._ns(host)}"]
            lines += [f"link set {outside} master {bridge} up"]
        _ip_batch(lines)
        for number, host in enumerate(hosts, 1):
            inside = [f"addr add {self._ip(number)}/24 dev eth0", "link set eth0 up", "link set lo up"]
            _ip_batch(inside, "-n", self._ns(host))

    def close(self) -> None:
        """Everything under the slot's names goes, and the slot last."""
        for relays in self._relays.values():
            for relay in relays:
                relay.close()
        _clear(self._slot)
        os.close(self._lock)

    def enter(self, host: str) -> list[str]:
        return ["/usr/bin/nsenter", f"--net=/run/netns/{self._ns(host)}"]

    def address(self, host: str) -> str:
        return self._ip(self._hosts.index(host) + 1)

    def port(self, usual: int) -> int:
        return usual

    async def way(self, source: str, target: str, port: int, *, relayed: bool = False) -> tuple[str, int]:
        if not relayed:
            return self.address(target), port
        relay = Relay((self.address(target), port))
        self._relays.setdefault((source, target), []).append(relay)
        return await relay.open(self._ip(OBSERVER))

    async def cut(self, source: str, target: str, way: Way = "both") -> None:
        self._cuts[source, target] = way
        self._apply(source)

    async def heal(self, source: str, target: str) -> None:
        self._cuts.pop((source, target), None)
        self._apply(source)
        for relay in self._relays.get((source, target), ()):
            relay.heal()

    async def delay(self, source: str, target: str, seconds: float, jitter: float) -> None:
        relays = self._relays.get((source, target))
        if not relays:
            raise NotHere(f"the way from {source} to {target} has no relay: Topology(relayed=True)")
        for relay in relays:
            relay.delay_seconds, relay.jitter_seconds = seconds, jitter

    async def loss(self, host: str, percent: int) -> None:
        self._losses[host] = percent
        self._apply(host)

    async def rate(self, host: str, kbit: int) -> None:
        places = [["-n", self._ns(host)], []]
        devices = ["eth0", self._outside(host)]
        for place, device in zip(places, devices, strict=True):
            shape = f"tbf rate {kbit}kbit burst 32kbit latency 400ms"
            what = f"qdisc replace dev {device} root {shape}" if kbit else f"qdisc del dev {device} root"
            _run(["tc", *place, *what.split()])

    async def link(self, host: str, *, up: bool) -> None:
        _run(["ip", "link", "set", self._outside(host), "up" if up else "down"])
        if up:
            # the first packets would otherwise go to neighbours that failed to answer meanwhile
            for other in self._hosts:
                _run(["ip", "-n", self._ns(other), "neigh", "flush", "all"])
            _run(["ip", "neigh", "flush", "dev", f"tnr{self._slot}br"])

    async def get(self, host: str, port: int, path: str) -> str:
        return await asyncio.to_thread(self._fetch, host, port, path)

    def _fetch(self, host: str, port: int, path: str) -> str:
        """In a thread of its own: the namespace is the thread's."""
        libc = ctypes.CDLL(None, use_errno=True)
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self._ns(host)}", os.O_RDONLY)
        try:
            if libc.setns(there, 0) != 0:
                raise OSError(ctypes.get_errno(), "setns")
            return fetch("127.0.0.1", port, path)
        finally:
            libc.setns(home, 0)
            os.close(home)
            os.close(there)

    def _apply(self, host: str) -> None:
        """The host's rules as a whole, in one transaction."""
        rules = []
        for (source, target), way in self._cuts.items():
            if source == host:
                rules += self._drops(source, target, way)
        if percent := self._losses.get(host, 0):
            sparing = f'iifname "eth0" ip saddr != {self._ip(OBSERVER)}'
            rules.append(f"add rule inet chaos in {sparing} numgen random mod 100 < {percent} drop")
        lines = [
            "add table inet chaos",
            "delete table inet chaos",
            "add table inet chaos",
            "add chain inet chaos in { type filter hook input priority 0; }",
            "add chain inet chaos out { type filter hook output priority 0; }",
            *rules,
        ]
        _run([*self.enter(host), "nft", "-f", "-"], "\n".join(lines) + "\n")

    def _drops(self, source: str, target: str, way: Way) -> list[str]:
        ends = [(self.address(target), "", "")]
        for relay in self._relays.get((source, target), ()):
            address, port = relay.address
            ends.append((address, f"tcp sport {port}", f"tcp dport {port}"))
        rules = []
        for address, sport, dport in ends:
            if way in ("both", "replies"):
                rules.append(f"add rule inet chaos in ip saddr {address} {sport} drop")
            if way in ("both", "requests"):
                rules.append(f"add rule inet chaos out ip daddr {address} {dport} drop")
        return rules

    def _ns(self, host: str) -> str:
        return f"tnr{self._slot}-{host}"

    def _ip(self, number: int) -> str:
        return f"10.213.{self._slot}.{number}"

    def _outside(self, host: str) -> str:
        return f"tnr{self._slot}v{self._hosts.index(host) + 1}"


def probe() -> str | None:
    """Why a host cannot be made here; None = it can. Under a slot, so that a killed probe is cleared."""
    try:
        layer = Namespaces()
    except NotHere as reason:
        return str(reason)
    try:
        layer.open(["probe"])
        layer._apply("probe")
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    finally:
        layer.close()
    return None


def clear_leftovers() -> None:
    """What has no lock has no owner: the kernel takes it from whoever dies."""
    for path in LOCKS.glob(f"{LOCK}*"):
        slot = path.name.removeprefix(LOCK)
        if slot.isdecimal() and path.stat().st_uid == os.geteuid() and (lock := _hold(int(slot))) is not None:
            os.close(lock)


def _take_slot() -> tuple[int, int]:
    """A free slot, and the descriptor that holds it; leftovers of killed runs go on the way."""
    clear_leftovers()
    for slot in range(1, SLOTS + 1):
        if (lock := _hold(slot)) is not None:
            return slot, lock
    raise NotHere(f"all {SLOTS} slots of namespaces are in use")


def _hold(slot: int) -> int | None:
    """The slot, with nothing in it; None = somebody has it."""
    lock = os.open(LOCKS / f"{LOCK}{slot}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    _clear(slot)
    return lock


def _clear(slot: int) -> None:
    """Everything under the slot's names, and whoever still runs there."""
    names = list(Path("/run/netns").glob(f"tnr{slot}-*")) if Path("/run/netns").is_dir() else []
    if names:
        strays.end(strays.of_namespaces(names))
    for path in names:
        _output([IP, "netns", "del", path.name])
    # a namespace goes some time after its name does, and would take its link with it only then
    for path in Path("/sys/class/net").glob(f"tnr{slot}v*"):
        _output([IP, "link", "del", path.name])
    if Path(f"/sys/class/net/tnr{slot}br").exists():
        _output([IP, "link", "del", f"tnr{slot}br"])


def _output(command: Sequence[str]) -> str:
    """What it says; nothing where it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, start_new_session=True)
    return done.stdout


def _ip_batch(lines: Sequence[str], *options: str) -> None:
    _run(["ip", *options, "-batch", "-"], "\n".join(lines) + "\n")


def _run(command: Sequence[str], text: str | None = None) -> None:
    done: Any = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, start_new_session=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}\n{text or ''}")
