"""`svn log --xml -v` as a stream of revisions. Pure: bytes in, records out.

The server behind it is not trusted: a document type (and with it every entity beyond XML's own five) ends the
reading, control characters and broken UTF-8 are replaced, and what is longer than its bound is cut. Author,
date, message and paths may all be absent, and a kind may be empty: then the author is `(no author)`, the time
None and the message empty.

A revision that has a number and makes no sense otherwise is BadLog, or, for a tolerant reader, one with a
fault; one without a number is BadLog for all, because nobody could say what was left out.
"""

import codecs
import re
from datetime import UTC, datetime
from typing import Final
from xml.parsers import expat

from actors.scm.diffs import bulk_by_paths
from actors.scm.records import ChangedPath, SvnRevision

__all__ = ["BadLog", "SvnLogParser"]

NO_AUTHOR: Final = "(no author)"
MAX_MESSAGE: Final = 1 << 20
MAX_FIELD: Final = 16_384
MAX_PATHS: Final = 20_000
TEXT_ELEMENTS: Final = frozenset({"author", "date", "msg", "path"})
NOT_XML: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


class BadLog(ValueError):
    """The log is no log."""


class SvnLogParser:
    """Feed it chunks; it returns the revisions that they completed."""

    def __init__(self, bulk_threshold: int, *, tolerant: bool = False) -> None:
        self._bulk_threshold = bulk_threshold
        self._tolerant = tolerant
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._parser = expat.ParserCreate(namespace_separator=None)
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._refuse
        self._parser.EntityDeclHandler = self._refuse
        self._done: list[SvnRevision] = []
        self._fault = ""
        self._rev: int | None = None
        self._fields: dict[str, str] = {}
        self._path: dict[str, str] = {}
        self._paths: list[ChangedPath] = []
        self._path_count = 0
        self._cut = False
        self._pieces: list[str] | None = None
        self._length = 0

    def feed(self, chunk: bytes) -> list[SvnRevision]:
        return self._parse(self._decode(chunk), is_final=False)

    def close(self) -> list[SvnRevision]:
        """The end of the output; BadLog when the log is not complete."""
        return self._parse(self._decode(b"", True), is_final=True)

    def _parse(self, text: str, *, is_final: bool) -> list[SvnRevision]:
        try:
            self._parser.Parse(NOT_XML.sub("\ufffd", text), is_final)
        except expat.ExpatError as error:
            raise BadLog(f"the log is no XML: {error}") from None
        done, self._done = self._done, []
        return done

    def _refuse(self, *_: object) -> None:
        raise BadLog("the log declares a document type or an entity")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "logentry":
            if self._rev is not None:  # of a merge, told on demand only; never asked for
                raise BadLog("a log entry inside another")
            self._rev = _number(attributes.get("revision", ""))
            self._fields, self._paths, self._path_count, self._cut = {}, [], 0, False
            self._fault = ""
        elif name == "path":
            self._path = attributes
        if name in TEXT_ELEMENTS:
            self._pieces, self._length = [], 0

    def _text(self, data: str) -> None:
        if self._pieces is None:
            return
        if self._length < MAX_MESSAGE:
            self._pieces.append(data)
        self._length += len(data)

    def _end(self, name: str) -> None:
        if name in TEXT_ELEMENTS:
            text = "".join(self._pieces or ())
            self._pieces = None
            bound = MAX_MESSAGE if name == "msg" else MAX_FIELD
            self._cut = self._cut or self._length > bound
            if name == "path":
                self._try_path(text[:bound])
            else:
                self._fields[name] = text[:bound]
        elif name == "logentry":
            self._finish()

    def _try_path(self, path: str) -> None:
        try:
            self._add_path(path)
        except BadLog as error:
            if not self._tolerant:
                raise
            self._fault = str(error)

    def _add_path(self, path: str) -> None:
        self._path_count += 1
        if len(self._paths) >= MAX_PATHS:
            self._cut = True
            return
        origin = self._path.get("copyfrom-path")
        rev = _number(self._path.get("copyfrom-rev", "")) if origin is not None else None
        action, kind = self._path.get("action", "")[:1], self._path.get("kind", "")[:16]
        self._paths.append(ChangedPath(path, action, kind, origin and origin[:MAX_FIELD], rev))

    def _finish(self) -> None:
        if self._rev is None:
            raise BadLog("a log entry without a revision")
        self._done.append(
            SvnRevision(
                rev=self._rev,
                author=self._fields.get("author") or NO_AUTHOR,
                ts=_instant(self._fields.get("date", "")),
                message=self._fields.get("msg", ""),
                changed_paths=tuple(self._paths),
                paths=self._path_count,
                bulk=bulk_by_paths(self._path_count, self._bulk_threshold),
                cut=self._cut,
                fault=self._fault,
            )
        )
        self._rev = None


def _number(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise BadLog("a revision that is no number")
    return int(text)


def _instant(text: str) -> datetime | None:
    """2024-01-15T10:00:00.123456Z, as svn writes it; anything else is no time."""
    try:
        instant = datetime.fromisoformat(text)
        return instant.astimezone(UTC) if instant.tzinfo else instant.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
