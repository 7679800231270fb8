"""Which addresses of repositories are let near a program, and to which hosts they may lead.

`parse` is pure: it refuses what is not one of the schemes of its kind, has a password in it, begins like an
option or holds control characters. `resolve` then looks the host up and refuses it when any of its addresses
is not public; `Pinned.address` is what the program is told to connect to where it can be told:

- git over http(s): http.curloptResolve (git >= 2.37; an older one ignores it), redirects off;
- ssh and svn+ssh: HostName is the address, HostKeyAlias the name;
- svn: the address stands in the URL itself (the protocol has no names of hosts in it).

NOT guaranteed: svn over http(s) looks the name up once more and follows a redirect of the server. A name that
changes between our look-up and svn's (DNS rebinding) leads it elsewhere; the root that `svn info` reports is
compared with the host that was asked for, before anything of it is stored. Nor is a proxy's look-up ours.
Link-local (the metadata services of clouds), multicast and unspecified addresses are refused even where
private ones are allowed.
"""

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

import anyio
from anyio import to_thread

from supervisor.errors import TenureError

__all__ = ["Address", "AddressRules", "HostUnknown", "Kind", "Pinned", "UnsafeAddress", "parse", "resolve"]

Kind = Literal["svn", "git"]
IPAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_URL: Final = 2048
RESOLVE_SECONDS: Final = 20.0
PORTS: Final = {"svn": 3690, "svn+ssh": 22, "ssh": 22, "https": 443, "http": 80, "file": 0}
SCHEMES: Final[dict[Kind, frozenset[str]]] = {
    "svn": frozenset({"svn", "svn+ssh", "https", "http", "file"}),
    "git": frozenset({"https", "ssh", "http", "file"}),
}
SHAPE: Final = re.compile(r"[a-z][a-z0-9+.-]*://\S+", re.IGNORECASE)
HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
# Addresses that carry another one: what counts is where the packet ends.
NAT64: Final = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))


class UnsafeAddress(TenureError):
    """this address of a repository is refused: {what}"""

    hint = "svn, svn+ssh, ssh and https are read; a secret goes into an environment variable"
    exit_code = 2


class HostUnknown(TenureError):
    """the host {host} is not known: {what}"""

    hint = "check the name and the resolver of this machine; it is tried again later"


@dataclass(frozen=True, slots=True)
class AddressRules:
    """What the operator allows beyond public hosts over encrypted or svn's own protocol."""

    allow_private: bool = False
    allow_http: bool = False
    allow_file: bool = False


@dataclass(frozen=True, slots=True)
class Address:
    """A repository's address that is safe to hand to a program, behind `--`."""

    kind: Kind
    scheme: str
    user: str
    host: str
    port: int
    path: str

    @property
    def url(self) -> str:
        return self._with(self.host)

    def at(self, address: str) -> str:
        """The same URL with the address in place of the name."""
        return self._with(address)

    def _with(self, host: str) -> str:
        if self.scheme == "file":
            return f"file://{self.path}"
        user = f"{self.user}@" if self.user else ""
        bare = f"[{host}]" if ":" in host else host
        port = "" if self.port == PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{user}{bare}{port}{self.path}"


@dataclass(frozen=True, slots=True)
class Pinned:
    """An address whose host was looked up and found fit; `addresses` is empty for file://."""

    of: Address
    addresses: tuple[str, ...]


def parse(url: str, kind: Kind, rules: AddressRules) -> Address:
    """The address in `url`, or UnsafeAddress. Never looks anything up."""
    parts, port = _split(url)
    scheme = parts.scheme.lower()
    _allow(scheme, kind, rules)
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise UnsafeAddress(what="it has a query or a fragment")
    path = parts.path.rstrip("/") if len(parts.path) > 1 else ""
    if scheme == "file":
        return _local(kind, parts, path)
    if parts.password is not None:
        raise UnsafeAddress(what="it has a password in it")
    host, user = parts.hostname or "", parts.username or ""
    if not _is_host(host):
        raise UnsafeAddress(what="its host is no name and no address")
    if user and not USER.fullmatch(user):
        raise UnsafeAddress(what="its user is no plain name")
    if path.startswith(("/-", "//")):
        raise UnsafeAddress(what="its path begins like an option or a host")
    return Address(kind, scheme, user, host, port or PORTS[scheme], path)


def _split(url: str) -> tuple[SplitResult, int | None]:
    if len(url) > MAX_URL:
        raise UnsafeAddress(what=f"it is longer than {MAX_URL} characters")
    if not url.isprintable() or "\\" in url:
        raise UnsafeAddress(what="it has control characters or backslashes in it")
    if not SHAPE.fullmatch(url):
        raise UnsafeAddress(what="it is not of the form scheme://host/path")
    try:
        parts = urlsplit(url)
        return parts, parts.port
    except ValueError:
        raise UnsafeAddress(what="it is no URL") from None


def _allow(scheme: str, kind: Kind, rules: AddressRules) -> None:
    if scheme not in SCHEMES[kind]:
        raise UnsafeAddress(what=f"{kind} is not read over this scheme")
    if scheme == "http" and not rules.allow_http:
        raise UnsafeAddress(what="http is not encrypted, and not allowed here")
    if scheme == "file" and not rules.allow_file:
        raise UnsafeAddress(what="local repositories are not allowed here")


def _local(kind: Kind, parts: SplitResult, path: str) -> Address:
    if parts.netloc or not path.startswith("/") or path.startswith("//") or ".." in path.split("/"):
        raise UnsafeAddress(what="a local repository is file:///absolute/path, without ..")
    if path.startswith("/-"):
        raise UnsafeAddress(what="its path begins like an option")
    return Address(kind, "file", "", "", 0, path)


def _is_host(host: str) -> bool:
    try:
        return not getattr(ipaddress.ip_address(host), "scope_id", None)
    except ValueError:
        return len(host) <= 253 and ".." not in host and bool(HOST.fullmatch(host))


def complaint(address: str, rules: AddressRules) -> str | None:
    """Why nothing is to connect to this address, or None. Pure."""
    for one in _carried(ipaddress.ip_address(address)):
        if (
            one.is_link_local
            or one.is_multicast
            or one.is_unspecified
            or (one.version == 4 and one.is_reserved)
        ):
            return "it leads to a link-local, multicast or reserved address"
        if not one.is_global and not rules.allow_private:
            return "it leads to a private or loopback address"
    return None


def _carried(address: IPAddress) -> list[IPAddress]:
    """The address, and those inside of it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped:
        return [address.ipv4_mapped]
    inner: list[IPAddress] = [address]
    if address.sixtofour:
        inner.append(address.sixtofour)
    if address.teredo:
        inner.extend(address.teredo)
    if any(address in net for net in NAT64) or int(address) >> 32 == 0 < int(address) >> 16:
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return inner


async def resolve(address: Address, rules: AddressRules) -> Pinned:
    """Look the host up and judge everything it has; one unfit address refuses them all."""
    if address.scheme == "file":
        return Pinned(address, ())
    found: list[str] = []
    with anyio.move_on_after(RESOLVE_SECONDS) as patience:
        found = await to_thread.run_sync(_look_up, address.host, address.port, abandon_on_cancel=True)
    if patience.cancelled_caught:
        raise HostUnknown(host=address.host, what=f"no answer in {RESOLVE_SECONDS:g} s")
    for one in found:
        if trouble := complaint(one, rules):
            raise UnsafeAddress(what=trouble)
    return Pinned(address, tuple(found))


def _look_up(host: str, port: int) -> list[str]:
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise HostUnknown(host=host, what=getattr(error, "strerror", None) or "no such name") from None
    return list(dict.fromkeys(str(answer[4][0]).partition("%")[0] for answer in answers))
