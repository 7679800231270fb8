"""The headers that every answer has. A route that sets one of them itself keeps its own."""

from collections.abc import Mapping
from typing import Final

from starlette.datastructures import MutableHeaders

SECURITY_HEADERS: Final[Mapping[str, str]] = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
PAGE_HEADERS: Final[Mapping[str, str]] = {
    **SECURITY_HEADERS,
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # with no-referrer a browser would send its forms with `Origin: null`
    "Referrer-Policy": "same-origin",
}


def secure(headers: MutableHeaders, path: str) -> None:
    """A page is HTML of ours; what the API gives out as HTML was somebody's upload."""
    is_page = headers.get("content-type", "").startswith("text/html") and not path.startswith("/api/")
    for name, value in (PAGE_HEADERS if is_page else SECURITY_HEADERS).items():
        headers.setdefault(name, value)
