"""A Subversion repository as `svn` shows it: the youngest revision, pages of its log, and diffs.

A diff that is too large, takes too long, or cannot be made (no right to read it) is told of with its reason,
and for a tolerant reader one that the server fails at as well; all other troubles are SourceFailed.
svn_batches.py makes batches of it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import anyio
from anyio import to_thread

from actors.scm.address import Pinned
from actors.scm.backoff import Trouble, trouble_of_svn
from actors.scm.diffs import Diff, Ministat, Spool
from actors.scm.process import CommandNotStarted, Program, Programs, Stalled
from actors.scm.records import SourceFailed, SvnRevision
from actors.scm.surroundings import Secret, SshFiles, svn_arguments, svn_environment
from actors.scm.svn_log import BadLog, SvnLogParser

__all__ = ["FAILED_DIFF", "SvnHead", "SvnOptions", "SvnSource", "TakeRevisions"]

INFO_BYTES = 65536
INLINE_BYTES = 16_384

FAILED_DIFF = f"diff_unavailable:{Trouble.SERVER_ERROR.value}"

TakeRevisions = Callable[[Sequence[SvnRevision]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class SvnOptions:
    batch_size: int = 100
    log_limit: int = 500
    bulk_threshold: int = 100
    diffs: bool = True
    diff_limit_bytes: int = 10 << 20
    diff_seconds: float = 120.0
    parallelism: int = 4
    tolerant: bool = False

    @property
    def page_size(self) -> int:
        """With diffs a page is a batch: the server is not kept waiting in the middle of a log meanwhile."""
        return min(self.batch_size, self.log_limit) if self.diffs else self.log_limit


@dataclass(frozen=True, slots=True)
class SvnHead:
    uuid: str
    root: str
    rev: int


class SvnSource:
    def __init__(
        self,
        programs: Programs,
        pinned: Pinned,
        *,
        secret: Secret | None = None,
        ssh: SshFiles | None = None,
    ) -> None:
        self._programs = programs
        self._secret = secret
        self._host = pinned.of.host
        # svn's own protocol has no names of hosts in it, so there the address itself can be asked.
        self._url = pinned.of.at(pinned.addresses[0]) if pinned.of.scheme == "svn" else pinned.of.url
        self._pin = pinned.addresses[:1]
        self._env = svn_environment(programs.scratch, pinned, ssh or SshFiles())
        user = pinned.of.user if pinned.of.scheme != "svn+ssh" else ""
        self._common = svn_arguments(programs.scratch, secret, user or (secret.user if secret else ""))

    @property
    def scratch(self) -> Path:
        return self._programs.scratch

    async def head(self) -> SvnHead:
        """The youngest revision, and which repository this is."""
        async with self._svn("info", "--xml", at="HEAD") as program:
            answer = await program.read(INFO_BYTES)
            await self._check(program)
        try:
            head = _head(answer)
        except (BadLog, ET.ParseError, ValueError) as error:
            raise self.failed(Trouble.SERVER_ERROR, f"its info makes no sense: {error}") from None
        if (urlsplit(head.root).hostname or "") not in (self._host, *self._pin, ""):
            raise self.failed(Trouble.BAD_CONFIG, "it leads to another host")
        return head

    async def page(self, first: int, last: int, peg: int, options: SvnOptions, take: TakeRevisions) -> None:
        """Hand on the log of `first` to `last`, at most `page_size` revisions of it, as it comes in."""
        parser = SvnLogParser(options.bulk_threshold, tolerant=options.tolerant)
        span = ("-r", f"{first}:{last}", "--limit", str(options.page_size))
        async with self._svn("log", "--xml", "-v", *span, at=str(peg)) as program:
            try:
                async for chunk in program:
                    await take(parser.feed(chunk))
                await self._check(program)
                await take(parser.close())
            except BadLog as error:
                await self._check(program)  # a log that was cut off has a better reason than its form
                raise self.failed(Trouble.SERVER_ERROR, str(error)) from None

    async def diff(self, record: SvnRevision, peg: int, options: SvnOptions, spool: Spool) -> Diff:
        """What the revision changed under our URL, in the spool, or why it is not there."""
        sink = spool.sink(str(record.rev), Ministat(record.paths, 0))
        with anyio.move_on_after(options.diff_seconds):
            async with self._svn("diff", "--internal-diff", "-c", str(record.rev), at=str(peg)) as program:
                async for chunk in program:
                    if len(chunk) < INLINE_BYTES:
                        sink.write(chunk)
                    else:
                        await to_thread.run_sync(sink.write, chunk)
                    if sink.too_large:
                        return sink.done()
                ended = await program.end()
                if ended.exit_code == 0:
                    return sink.done()
                trouble = trouble_of_svn(program.stderr)
                if trouble in (Trouble.NOT_FOUND, Trouble.PERMISSION):
                    return sink.degraded(f"diff_unavailable:{trouble.value}")
                if options.tolerant and trouble is Trouble.SERVER_ERROR and ended.exit_code is not None:
                    return sink.degraded(FAILED_DIFF)
                await self._check(program)
        return sink.degraded(f"diff_timeout:{options.diff_seconds:g}")

    def is_root(self, head: SvnHead) -> bool:
        return urlsplit(self._url).path.rstrip("/") == urlsplit(head.root).path.rstrip("/")

    @asynccontextmanager
    async def _svn(self, verb: str, *arguments: str, at: str) -> AsyncIterator[Program]:
        """A call of svn about our URL as it was at revision `at`; the @ keeps others in it from being one."""
        argv = ["svn", verb, *self._common, *arguments, "--", f"{self._url}@{at}"]
        feed = self._secret.value.encode() if self._secret else None
        secrets = self._secret.forms if self._secret else ()
        try:
            await to_thread.run_sync(_empty_configuration, self._programs)
            async with self._programs.run(argv, self._env, feed=feed, secrets=secrets) as program:
                yield program
        except Stalled as stall:
            raise self.failed(Trouble.TIMEOUT, str(stall)) from None
        except CommandNotStarted as refusal:
            raise self.failed(Trouble.BAD_CONFIG, str(refusal)) from None

    async def _check(self, program: Program) -> None:
        ended = await program.end()
        if ended.exit_code == 0:
            return
        if ended.exit_code is None:
            raise self.failed(Trouble.TIMEOUT, f"svn was ended ({ended.stopped}, signal {ended.signal})")
        raise self.failed(trouble_of_svn(program.stderr), program.stderr)

    def failed(self, trouble: Trouble, what: str) -> SourceFailed:
        return SourceFailed(source="svn", trouble=trouble, what=what)


def _empty_configuration(programs: Programs) -> None:
    """Files that are there are not made: svn would write its own, and several at once."""
    place = programs.scratch / "svn"
    if not (place / "servers").exists():
        place.mkdir(exist_ok=True)
        for name in ("config", "servers", "README.txt"):
            (place / name).touch()


def _head(answer: bytes) -> SvnHead:
    if b"<!" in answer:
        raise BadLog("it declares a document type")
    entry = ET.fromstring(answer).find("entry")  # noqa: S314  no document type, and bounded
    if entry is None:
        raise BadLog("no entry in it")
    uuid, root = entry.findtext("repository/uuid"), entry.findtext("repository/root")
    if not uuid or not root:
        raise BadLog("no repository in it")
    return SvnHead(uuid[:100], root, int(entry.get("revision", "")))
