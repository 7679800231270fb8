"""Where a request of a browser comes from, and where one may be sent to. Pure."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

PORTS: Final[Mapping[str, int]] = {"http": 80, "https": 443}
PATH_LENGTH: Final = 2000
PURPOSES: Final = ("sec-purpose", "purpose", "x-purpose", "x-moz")
EARLY: Final = ("prefetch", "prerender", "preview")


def is_foreign(headers: Mapping[str, str]) -> bool:
    """Whether a page of somebody else made the browser send this.

    A browser says so in Sec-Fetch-Site, or, over plain http to another machine, in Origin only. What says
    neither is no browser of these years, and sends what its user told it to.
    """
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site.strip().lower() not in {"same-origin", "none"}:
        return True
    return origin is not None and not _names_same_place(origin, headers.get("host", ""))


def is_followed(headers: Mapping[str, str]) -> bool:
    """Whether a person goes there, as far as a browser says: not a page that loads it, nor a fetch ahead."""
    if any(word in headers.get(purpose, "").lower() for purpose in PURPOSES for word in EARLY):
        return False
    return headers.get("sec-fetch-mode", "navigate") == "navigate" and (
        headers.get("sec-fetch-dest", "document") == "document"
    )


def is_secure(scheme: str, headers: Mapping[str, str]) -> bool:
    """Whether the browser speaks https, be it to a proxy in front: its own word, about its own cookie."""
    return scheme == "https" or _scheme(headers.get("origin", "")) == "https"


def local_path(path: str) -> str:
    """A path of this server, whatever was given; `/` where that would lead anywhere else."""
    if not path.startswith("/") or path.startswith("//") or "\\" in path or len(path) > PATH_LENGTH:
        return "/"
    if not path.isascii() or not path.isprintable() or " " in path:
        return "/"
    return "/" if path.partition("?")[0] in {"/login", "/logout"} else path


def _scheme(origin: str) -> str:
    try:
        return urlsplit(origin).scheme
    except ValueError:
        return ""


def _names_same_place(origin: str, host: str) -> bool:
    try:
        given = urlsplit(origin)
        ours = urlsplit(f"//{host}")
        default = PORTS[given.scheme]
        return bool(ours.hostname) and (given.hostname, given.port or default) == (
            ours.hostname,
            ours.port or default,
        )
    except (KeyError, ValueError):  # `null` has no scheme
        return False
