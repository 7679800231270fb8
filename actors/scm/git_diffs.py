"""Many diffs out of one `git log --patch --format=%H`: each stands behind the name of its commit. Blocks a
little.

The names come in the order they were asked for, each on a line of its own. Inside a diff every line begins
with a blank, a sign or a word of git's, and names of files with odd characters are quoted: none can be such
a line.
"""

from collections.abc import Mapping

from actors.scm.diffs import Diff, DiffSink, Ministat, Spool
from actors.scm.git_log import BadGitLog

__all__ = ["DiffSplitter"]


class DiffSplitter:
    """Feed it chunks, from one thread at a time; then `close`, or `cut_off` when the rest is not wanted."""

    def __init__(self, spool: Spool, commits: Mapping[str, Ministat]) -> None:
        self._spool = spool
        self._commits = iter(commits.items())
        self._done: list[Diff] = []
        self._sink: DiffSink | None = None
        self._breaks = 1  # of the line before: the name's own, and a blank one where there is a diff
        self._carry = b"\n"  # so that the first line has one before it like the others
        self._following = next(self._commits, None)

    @property
    def too_large(self) -> bool:
        return self._sink is not None and self._sink.too_large

    def feed(self, chunk: bytes) -> None:
        data = self._carry + chunk
        at = 0
        while self._following is not None:
            line = b"\n" + self._following[0].encode() + b"\n"
            found = data.find(line, at)
            if found < 0:
                # The line may be cut by the end of the chunk; its first byte is the diff's last.
                kept = max(at, len(data) - len(line) + 1)
                self._write(data[at:kept])
                self._carry = data[kept:]
                return
            self._write(data[at : found + 1])
            self._next()
            at = found + len(line) - 1  # the line break after one name may be the one before the next
        self._write(data[at:])
        self._carry = b""

    def close(self) -> list[Diff]:
        """All of it was fed; BadGitLog when a commit is missing."""
        self._write(self._carry)
        if self._following is not None:
            raise BadGitLog("diffs are missing")
        self._finish()
        return self._done

    def cut_off(self, reason: str | None = None) -> list[Diff]:
        """What there is, the unfinished one degraded; it is at least one."""
        if self._sink is None:
            self._next()
        if self._sink is not None:
            self._done.append(self._sink.degraded(reason) if reason else self._sink.done())
            self._sink = None
        return self._done

    def _next(self) -> None:
        self._finish()
        if self._following is not None:
            self._sink = self._spool.sink(*self._following)
            self._breaks = 2
        self._following = next(self._commits, None)

    def _finish(self) -> None:
        if self._sink is not None:
            self._done.append(self._sink.done())
            self._sink = None

    def _write(self, data: bytes) -> None:
        dropped = min(self._breaks, len(data))
        self._breaks -= dropped
        if data[:dropped].strip(b"\n") or (self._sink is None and len(data) > dropped):
            raise BadGitLog("something before a diff")
        if self._sink is not None and len(data) > dropped:
            self._sink.write(data[dropped:])
