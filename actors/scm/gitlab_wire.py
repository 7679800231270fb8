"""The way to one GitLab server, and to no other host; and the reading of its answers within bounds.

The name of the host is looked up and judged once, when the way is opened, and every connection goes to the
addresses found then: a name that leads elsewhere a moment later leads nobody there. The token is put on a
request here, behind the check of where it goes, so nothing above ever holds a request with a token in it. No
proxy and no other setting of the surroundings has a say.
"""

import ssl
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx
from anyio import to_thread

from actors.scm.address import Pinned, UnsafeAddress
from actors.scm.gitlab_answer import BadAnswer, Incomplete, TooLarge
from actors.scm.surroundings import Secret

__all__ = ["PinnedTransport", "pinned_transport", "read_body"]

CONNECTIONS: Final = 16
PIECE_BYTES: Final = 1 << 16


class PinnedTransport(httpx.AsyncBaseTransport):
    """Connects to the addresses that were judged, whatever the name leads to now."""

    def __init__(self, pinned: Pinned, secret: Secret | None, inner: httpx.AsyncBaseTransport) -> None:
        self._pinned = pinned
        self._secret = secret
        self._inner = inner

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        of, url = self._pinned.of, request.url
        port = url.port or (443 if url.scheme == "https" else 80)
        if (url.scheme, url.host, port) != (of.scheme, of.host.lower(), of.port):
            raise UnsafeAddress(what="the request leads to another host than the repository's")
        for address in self._pinned.addresses[:-1]:
            try:
                return await self._inner.handle_async_request(self._at(request, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(self._at(request, self._pinned.addresses[-1]))

    def _at(self, request: httpx.Request, address: str) -> httpx.Request:
        headers = request.headers.copy()  # the name stands in Host already, and TLS asks for it too
        if self._secret:
            headers["PRIVATE-TOKEN"] = self._secret.value
        named = {**request.extensions, "sni_hostname": self._pinned.of.host}
        url = request.url.copy_with(host=address)
        return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=named)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def pinned_transport(pinned: Pinned, secret: Secret | None, ca_file: Path | None) -> PinnedTransport:
    context = await to_thread.run_sync(lambda: ssl.create_default_context(cafile=ca_file))
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    inner = httpx.AsyncHTTPTransport(verify=context, trust_env=False, limits=limits)
    return PinnedTransport(pinned, secret, inner)


async def read_body(response: httpx.Response, limit_bytes: int) -> bytes:
    """The whole body, unpacked; TooLarge as soon as it exceeds the limit, and no more of it is held."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip"):
        raise BadAnswer("a body in an encoding that was not asked for")
    held, size = [], 0
    async for piece in _unpacked(response) if encoding == "gzip" else response.aiter_raw():
        size += len(piece)
        if size > limit_bytes:
            raise TooLarge(f"a body of more than {limit_bytes} bytes")
        held.append(piece)
    return b"".join(held)


async def _unpacked(response: httpx.Response) -> AsyncIterator[bytes]:
    """Piece by piece: a small body that unpacks to a large one is not unpacked at once."""
    unpacking = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    async for raw in response.aiter_raw():
        rest = raw
        while rest and not unpacking.eof:
            try:
                yield unpacking.decompress(rest, PIECE_BYTES)
            except zlib.error:
                raise BadAnswer("a body that is not packed as it says") from None
            rest = unpacking.unconsumed_tail
    if not unpacking.eof:
        raise Incomplete
