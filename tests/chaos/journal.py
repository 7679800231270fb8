"""Appended JSON lines: one write a line on O_APPEND, so that lines of several processes never mix."""

import json
import os
from pathlib import Path
from typing import Any

from supervisor.clock import boottime


class Journal:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, **fields: Any) -> None:
        line = json.dumps({"t": round(boottime(), 6), **fields}, default=str, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """What was written whole; the last line of a killed process may be half."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found
