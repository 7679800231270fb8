"""The proxies whose word about a client's address is believed (TENURE_TRUSTED_PROXIES). Pure."""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_WITH_PORT: Final = re.compile(r"\[(?P<v6>[^\]]*)\](?::\d+)?|(?P<v4>[0-9.]+):\d+")


class TrustedProxies:
    def __init__(self, networks: Sequence[Network] = ()) -> None:
        self._networks = networks

    @classmethod
    def parse(cls, text: str) -> "TrustedProxies":
        """Read addresses and networks, separated by commas; ValueError says which one is wrong."""
        return cls([_network(part.strip()) for part in text.split(",") if part.strip()])

    def __contains__(self, address: str) -> bool:
        parsed = to_address(address)
        return parsed is not None and any(parsed in network for network in self._networks)

    def client_of(self, peer: str, forwarded_for: Iterable[str]) -> str:
        """Return the address of the nearest hop that is no trusted proxy.

        Each proxy adds at the right whom it was asked by, so what stands left of the first untrusted hop is
        only what that hop said. The headers of a peer that is not trusted are not read at all.
        """
        client = peer
        for hop in reversed([hop for line in forwarded_for for hop in line.split(",")]):
            if client not in self:
                break
            address = to_address(hop.strip())
            if address is None:
                break
            client = str(address)
        return client


def to_address(text: str) -> Address | None:
    """Read an address, also with a port as some proxies write it; an IPv4 address in IPv6 is the former."""
    found = _WITH_PORT.fullmatch(text)
    try:
        address = ipaddress.ip_address((found["v6"] or found["v4"]) if found else text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _network(text: str) -> Network:
    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"`{text}` is no address and no network such as 10.0.0.0/8") from None
    if network.prefixlen == 0:
        raise ValueError(f"`{text}` would believe everybody: name the proxies")
    if str(network.network_address) != text.partition("/")[0] and "/" in text:
        raise ValueError(f"`{text}` is an address inside a network: write {network}, or the address alone")
    return network
