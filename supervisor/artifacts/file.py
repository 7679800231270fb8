"""The backend `file`: a share of NFS or SMB, mounted on every replica, by its `file://` address.

`file:///mnt/nfs/artifacts/proj_a` is a directory below a mount point, which every replica must have under
the same path. `file://fileserver/share/artifacts` is a share by its name in the network: where it is
mounted is looked up in this host's mounts, so the addresses mean the same on hosts that mount it in
different places, and a share that is not mounted is an error and not an empty directory.

The directory itself is not made: a mount point without its mount would take artifacts that nobody finds
again. No credentials are kept here; who may do what is decided by the share.
"""

from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from supervisor.artifacts.errors import BadAddress
from supervisor.artifacts.folder import FolderArtifacts
from supervisor.artifacts.key import check_key

MOUNTS: Final = Path("/proc/self/mountinfo")
HERE: Final = frozenset({"", "localhost"})


class FileArtifacts(FolderArtifacts):
    """`address` is a file:// URL; `mounts` the text of the host's mounts, for tests."""

    def __init__(self, address: str, *, mounts: str | None = None, **options: Any) -> None:
        self._place = _normal(address)
        super().__init__(directory_of(self._place, mounts), make_root=False, **options)

    @property
    def where(self) -> str:
        return f"{self._place} in {self._tree.root}"

    async def place(self) -> str | None:
        return self._place

    async def uri(self, key: str) -> str:
        check_key(key)
        return self._place + quote(key)


def directory_of(address: str, mounts: str | None = None) -> Path:
    """Where that address is in this host's file system, or BadAddress."""
    url = urlsplit(address)
    path = unquote(url.path)
    if (url.hostname or "") in HERE:
        return Path(path)
    server, (share, *inside) = url.hostname or "", path.strip("/").split("/")
    for source, root, point in _mounts(MOUNTS.read_text() if mounts is None else mounts):
        host, _, exported = source.removeprefix("//").replace(":/", "/", 1).partition("/")
        below = _below([share, *inside], [*exported.strip("/").split("/"), *root.strip("/").split("/")])
        if host.casefold() == server.casefold() and below is not None:
            return Path(point, *below)
    raise BadAddress(address=address, what="that share is not mounted on this host")


def _normal(address: str) -> str:
    """With one final slash; refused where it could mean something else than it says."""
    url = urlsplit(address)
    names = unquote(url.path).strip("/").split("/")
    if url.scheme != "file":
        raise BadAddress(address=address, what="it does not begin with file://")
    if url.query or url.fragment or "@" in url.netloc or ":" in url.netloc:
        raise BadAddress(address="file://...", what="it has more than a server and a path")
    if not names[0] or any(name in ("", ".", "..") or not name.isprintable() for name in names):
        raise BadAddress(address=address, what="its path is empty, or has a dot or nothing between slashes")
    host = "" if (url.hostname or "") in HERE else url.hostname
    return f"file://{host}/{quote('/'.join(names))}/"


def _mounts(text: str) -> list[tuple[str, str, str]]:
    """Source, directory of it, and mount point; the latest first, which hides those before."""
    found = []
    for line in text.splitlines():
        about, _, rest = line.partition(" - ")
        fields, source = about.split(), rest.split()
        if len(fields) >= 5 and len(source) >= 2:
            found.append((_plain(source[1]), _plain(fields[3]), _plain(fields[4])))
    return found[::-1]


def _plain(field: str) -> str:
    """The kernel writes spaces and their like as octal numbers."""
    return field.encode().decode("unicode_escape").encode("latin-1", "replace").decode(errors="replace")


def _below(names: list[str], mounted: list[str]) -> list[str] | None:
    """What is left of a path below a mounted one; SMB does not tell upper case from lower."""
    outer = [name for name in mounted if name]
    if [name.casefold() for name in names[: len(outer)]] != [name.casefold() for name in outer]:
        return None
    return names[len(outer) :]
