"""How groups of equal files are printed while they are read: for people, as JSON, as CSV.

JSON and a piped CSV hold the names exactly; on a terminal nothing of a name is a control character.
"""

import csv
import json
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from rich.filesize import decimal

from actors.dedup.cli.groups import Group
from supervisor.cli import output
from supervisor.store import Record


class Writer(Protocol):
    def begin(self) -> None: ...

    def add(self, group: Group, files: Sequence[Record], *, last: bool) -> None:
        """The next files of a group; `last`: it has no more."""

    def end(self) -> None: ...


class Lines:
    """A line for each group, one for each file, and the sums."""

    def __init__(self) -> None:
        self._groups = self._files = self._bytes = self._waste = 0
        self._open = False

    def begin(self) -> None:
        pass

    def add(self, group: Group, files: Sequence[Record], *, last: bool) -> None:
        if not self._open:
            self._head(group)
        for file in files:
            name = output.clean(f"{file['library']}: {file['relative_path']}")
            sys.stdout.write(f"  {file['id']:>10}  {name}\n")
        self._open = not last

    def end(self) -> None:
        if not self._groups:
            sys.stdout.write("no duplicates among the files that are hashed\n")
            return
        sys.stdout.write(
            f"{self._groups:,} groups, {self._files:,} files, {decimal(self._bytes)},"
            f" of which {decimal(self._waste)} wasted\n"
        )

    def _head(self, group: Group) -> None:
        self._groups += 1
        self._files += group.file_count
        self._bytes += group.total_size_bytes
        self._waste += group.duplicate_waste_bytes
        sys.stdout.write(
            f"{group.file_count:,} files, {decimal(group.total_size_bytes)},"
            f" {decimal(group.duplicate_waste_bytes)} wasted  {group.key}\n"
        )


class Json:
    """`{"groups": [...]}`, a group a line; `libraries` and `file_ids` run along with `files`."""

    def __init__(self) -> None:
        self._first = True
        self._open = False
        self._libraries: list[str] = []
        self._ids: list[int] = []

    def begin(self) -> None:
        sys.stdout.write('{"groups": [')

    def add(self, group: Group, files: Sequence[Record], *, last: bool) -> None:
        if not self._open:
            sys.stdout.write(("\n" if self._first else ",\n") + _head(group) + ', "files": [')
            self._first = False
        for file in files:
            sys.stdout.write((", " if self._ids else "") + json.dumps(file["relative_path"]))
            self._libraries.append(sys.intern(file["library"]))
            self._ids.append(file["id"])
        if last:
            rest = f'], "libraries": {json.dumps(self._libraries)}, "file_ids": {json.dumps(self._ids)}}}'
            sys.stdout.write(rest)
            self._libraries, self._ids = [], []
        self._open = not last

    def end(self) -> None:
        sys.stdout.write("\n]}\n" if not self._first else "]}\n")


class Csv:
    """A row for each file."""

    def __init__(self) -> None:
        self._writer = csv.writer(sys.stdout, lineterminator="\n")
        self._clean = sys.stdout.isatty()

    def begin(self) -> None:
        self._writer.writerow(["group_key", "library", "relative_path", "size_bytes"])

    def add(self, group: Group, files: Sequence[Record], *, last: bool) -> None:  # noqa: ARG002  rows have no end
        for file in files:
            path = output.clean(file["relative_path"]) if self._clean else file["relative_path"]
            self._writer.writerow([group.key, file["library"], path, file["size_bytes"]])

    def end(self) -> None:
        pass


def _head(group: Group) -> str:
    facts: dict[str, Any] = {
        "group_key": group.key,
        "file_count": group.file_count,
        "total_size_bytes": group.total_size_bytes,
        "duplicate_waste_bytes": group.duplicate_waste_bytes,
    }
    return json.dumps(facts)[:-1]
