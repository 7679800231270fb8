"""The backend `local`: files of this host, below one directory.

An address is `local://<store>@<host>/<key>`. The store's name is a file in its directory, so a volume that
moves to another host stays the same store; the host is there for people, and says where it was written.
"""

import socket
from pathlib import Path
from typing import Any
from urllib.parse import quote

from anyio.to_thread import run_sync

from supervisor.artifacts.draft import make_identity, read_identity
from supervisor.artifacts.folder import FolderArtifacts
from supervisor.artifacts.key import check_key


class LocalArtifacts(FolderArtifacts):
    def __init__(self, root: Path, *, host: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self._host = host or socket.gethostname()
        self._store: str | None = None

    @property
    def where(self) -> str:
        return f"{self._tree.root} on {self._host}"

    async def place(self) -> str | None:
        if self._store is None:
            self._store = await run_sync(read_identity, self._tree)
        return None if self._store is None else f"local://{self._store}@"

    async def uri(self, key: str) -> str:
        check_key(key)
        if self._store is None:
            self._store = await run_sync(make_identity, self._tree)
        return f"local://{self._store}@{quote(self._host)}/{quote(key)}"
