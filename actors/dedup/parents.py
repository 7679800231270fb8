"""Files of one directory after another, each directory opened (confined) once while its turn lasts."""

import os
from typing import Self

from actors.dedup.confine import Beneath, FileTrouble
from actors.dedup.names import BadPath, to_bytes


class Parents:
    def __init__(self, root: Beneath) -> None:
        self._root = root
        self._path: str | None = None
        self._directory: Beneath | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            self._directory.close()

    def open(self, path: str, flags: int) -> int | None:
        """A descriptor for the path; None where it cannot be had, for whatever reason."""
        parent, _, name = path.rpartition("/")
        try:
            if parent != self._path:
                self._move(parent)
            if self._directory is None or name in ("", ".", ".."):
                return None
            raw = name if name.isascii() else to_bytes(name)
            return os.open(raw, flags | os.O_NOFOLLOW, dir_fd=self._directory.fd)
        except (OSError, ValueError, FileTrouble, BadPath):
            return None

    def _move(self, parent: str) -> None:
        if self._directory is not None:
            self._directory.close()
        self._directory, self._path = None, parent
        self._directory = self._root.open_directory(parent)
