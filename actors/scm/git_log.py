"""`git log -z --raw --numstat` as a stream of commits. Pure: bytes in, records out.

Every field ends with a zero byte, which can be in none of them (git ends a text there). Behind the fields
come the raw lines, each with its path, and then the same files with their counts: what has a tab in it is a
count, what has none is the next commit. Nothing that a message or a path holds can be taken for something
else.

A text that git could not turn into UTF-8 is decoded by the encoding its commit names, with replacements for
what does not fit. What is longer than its bound is cut. Files that are binary count no lines.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from actors.scm.diffs import GIT_LINES, NO_BULK, bulk_by_lines
from actors.scm.records import FileChange, GitCommit

__all__ = ["FACTS", "STATS", "BadGitLog", "GitLogParser"]

FACTS: Final = ("-z", "--encoding=none", "--no-mailmap", "--no-color", "--no-notes", "--no-show-signature")
FORMAT: Final = "%H%x00%P%x00%an%x00%ae%x00%at%x00%cn%x00%ce%x00%ct%x00%e%x00%B%x00"
STATS: Final = ("--raw", "--numstat", "--no-renames", "--no-abbrev", "--no-ext-diff", "--no-textconv")
FIELDS: Final = 11
"""Those of the format, and the empty one that the end of the format itself makes."""

MAX_TOKEN: Final = 1 << 20
MAX_NAME: Final = 4096
MAX_FILES: Final = 1000
NAMES_KNOWN: Final = 1000
RAW: Final = (b":", b"\n:")
SHA: Final = re.compile(rb"[0-9a-f]{40}")
ENCODINGS: Final = re.compile(
    r"(iso-?8859-?\d{1,2}|latin-?\d|(windows|cp)-?\d{3,4}|koi8-[rut]|euc-?(jp|kr|cn)|shift_?jis|sjis|gbk|gb2312"
    r"|gb18030|big5|iso-?2022-?(jp|kr)|utf-?(8|16|32)([bl]e)?|(us-)?ascii|mac-?\w{3,12})",
    re.IGNORECASE,
)


class BadGitLog(ValueError):
    """The log is no log."""


class GitLogParser:
    """Feed it chunks; it returns the commits that they completed."""

    def __init__(self, *, stats: bool, bulk_lines: int = GIT_LINES) -> None:
        self._stats = stats
        self._bulk_lines = bulk_lines
        self._carry = b""
        self._skipping = False
        self._fields: list[bytes] = []
        self._names: dict[bytes, str] = {}
        self._actions: list[bytes] = []
        self._path_follows = False
        self._files: list[FileChange] = []
        self._file_count = self._additions = self._deletions = 0

    def feed(self, chunk: bytes) -> list[GitCommit]:
        if self._skipping:
            _, end, chunk = chunk.partition(b"\0")
            if not end:
                return []
            chunk, self._skipping = end + chunk, False
        tokens = (self._carry + chunk).split(b"\0")
        self._carry = tokens.pop()
        if len(self._carry) > MAX_TOKEN:
            self._carry, self._skipping = self._carry[: MAX_TOKEN + 1], True
        return self._take(tokens)

    def close(self) -> list[GitCommit]:
        """The end of the output; BadGitLog when it ended in the middle of a commit."""
        if self._carry or self._path_follows or (self._fields and len(self._fields) < FIELDS):
            raise BadGitLog("the log ends in the middle of a commit")
        return [self._commit()] if self._fields else []

    def _take(self, tokens: Sequence[bytes]) -> list[GitCommit]:
        """Every token of a history comes through here, so what a turn needs is at hand."""
        done: list[GitCommit] = []
        fields, actions, count = self._fields, self._actions, self._count
        at, end = 0, len(tokens)
        while at < end:
            if missing := FIELDS - len(fields):
                fields += tokens[at : at + missing]
                at += missing
                continue
            token = tokens[at]
            at += 1
            if self._path_follows:
                self._path_follows = False
            elif b"\t" in token:
                count(token)
            elif token.startswith(RAW):
                if len(actions) < MAX_FILES:
                    actions.append(token[-1:])
                # its path comes next, and once more with its counts
                if at < end:
                    at += 1
                else:
                    self._path_follows = True
            else:
                at -= 1
                done.append(self._commit())
        return done

    def _count(self, token: bytes) -> None:
        added, deleted, path = token.split(b"\t", 2)
        binary = added == b"-"
        additions, deletions = (0, 0) if binary else (int(added), int(deleted))
        self._additions += additions
        self._deletions += deletions
        place = self._file_count
        if place < MAX_FILES:
            action = self._actions[place].decode("latin-1") if place < len(self._actions) else "?"
            name = path[:MAX_NAME].decode("utf-8", "replace")
            self._files.append(FileChange(name, action, additions, deletions, binary))
        self._file_count = place + 1

    def _commit(self) -> GitCommit:
        sha, parents, name, email, authored, committer, committer_email, committed, encoding, message, _ = (
            self._fields
        )
        if not SHA.fullmatch(sha):
            raise BadGitLog("a commit without a name")
        charset = encoding.decode("ascii", "replace") if encoding else ""
        committed_at = _instant(committed)
        commit = GitCommit(
            sha=sha.decode(),
            parents=tuple(parents.decode().split()),
            author_name=self._name(name, charset),
            author_email=self._name(email, charset),
            committer_name=self._name(committer, charset),
            committer_email=self._name(committer_email, charset),
            authored_at=committed_at if authored == committed else _instant(authored),
            committed_at=committed_at,
            message=_text(message[:MAX_TOKEN], charset),
            additions=self._additions if self._stats else None,
            deletions=self._deletions if self._stats else None,
            files=tuple(self._files),
            file_count=self._file_count,
            bulk=bulk_by_lines(self._additions, self._deletions, self._bulk_lines)
            if self._stats
            else NO_BULK,
            cut=len(message) > MAX_TOKEN or self._file_count > MAX_FILES,
        )
        self._fields.clear()
        if self._actions:
            self._actions.clear()
            self._files.clear()
            self._file_count = self._additions = self._deletions = 0
        return commit

    def _name(self, raw: bytes, charset: str) -> str:
        """The same few people wrote most of a history."""
        if charset:
            return _text(raw[:MAX_NAME], charset)
        known = self._names.get(raw)
        if known is None:
            if len(self._names) >= NAMES_KNOWN:
                self._names.clear()
            known = self._names[raw] = _text(raw[:MAX_NAME], charset)
        return known


def _text(raw: bytes, charset: str) -> str:
    """git has made UTF-8 of it where it could; else these are the commit's own bytes. Never a zero byte."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        pass
    try:
        known = charset if ENCODINGS.fullmatch(charset) else "utf-8"
        return raw.decode(known, "replace").replace("\0", "\ufffd")
    except LookupError:
        return raw.decode("utf-8", "replace")


def _instant(seconds: bytes) -> datetime | None:
    """None for what no calendar has."""
    try:
        return datetime.fromtimestamp(int(seconds), UTC)
    except (ValueError, OverflowError, OSError):
        return None
