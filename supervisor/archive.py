"""Logs that leave the database: moved to artifacts after `log_retention_days_db`, and read from either.

A log becomes one artifact, `logs/<year>/<month>/<run>-<digest>.jsonl.gz`: a JSON object a line with seq,
stream, at and body. The order of the move is its safety: the artifact is durable and was read back and
compared before the one fenced call that writes the reference and deletes the bodies, and that call does
neither unless the lines it deletes are as many, and as long, as those archived. The name holds a digest of
the content, so nobody overwrites an archive with another reading of the log, and who crashed comes to the
same name again. An artifact that no run refers to (lines came during a move that was then cut off) is garbage
and nothing else.

Lines that come after the move, from a worker that was given up, stay in the database; a reader gets both, in
order. A local store belongs to one host: the reference says which, and elsewhere the log is an error that
says so, never an empty log.
"""

import hashlib
import json
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from tempfile import SpooledTemporaryFile
from typing import IO, Any, Final

from anyio.to_thread import run_sync

from supervisor.artifacts import ArtifactError, Artifacts, Overwrite, StoreFailed
from supervisor.errors import NotFound, TenureError
from supervisor.logs import logger
from supervisor.store import Record, Store

BATCH: Final = 50
# a line has up to a mebibyte
PAGE: Final = 32
MEMORY_BYTES: Final = 8 * 1024 * 1024
LIMIT_BYTES: Final = 1 << 40
PIECE: Final = 16 * 1024
MALFORMED: Final = (zlib.error, ValueError, KeyError, TypeError)
GZIP: Final = 31
START: Final = (datetime.min.replace(tzinfo=UTC), 0)

_log = logger("archive")

Call = Callable[..., Awaitable[Sequence[Record]]]


class LogUnreadable(TenureError):
    """the log of run {run_id} was moved to {ref} and cannot be read here: {what}"""

    hint = "the run itself is untouched; ask a replica that reaches that store"


@dataclass(frozen=True, slots=True)
class Line:
    seq: int
    stream: str
    at: datetime
    body: str


@dataclass(frozen=True, slots=True)
class Tally:
    """What a log amounts to: equal tallies mean equal logs."""

    lines: int
    bytes: int
    sha256: str


class Archive:
    """The leader's duty. `call` sends a fenced statement under its epoch."""

    def __init__(self, store: Store, call: Call, artifacts: Artifacts) -> None:
        self._store = store
        self._call = call
        self._artifacts = artifacts
        self._after = START

    async def run_once(self) -> bool:
        """Move a batch; True when there may be more. One that cannot be moved is passed by, and told."""
        waiting = await self._store.rows("read_unarchived", *self._after, BATCH)
        failed: Exception | None = None
        for row in waiting:
            # before the move: whatever ends it, the next turn goes on behind it
            self._after = (row["at"], row["run_id"])
            try:
                answer = await self.move(row["run_id"], row["finished_at"])
                _log.debug("log moved", run=row["run_id"], answer=answer)
            except (ArtifactError, OSError) as error:
                _log.warning("log not moved", run=row["run_id"], error=str(error))
                failed = error
        if len(waiting) < BATCH:
            self._after = START
        if failed is not None:
            raise failed
        return len(waiting) == BATCH

    async def move(self, run_id: int, finished_at: datetime) -> str:
        """RECORDED, or why not: EMPTY, CHANGED, ALREADY, SUPERSEDED, GONE. Repeated, it ends at the same."""
        with SpooledTemporaryFile(max_size=MEMORY_BYTES) as file:
            packer = Packer(file)
            async with aclosing(_stored_lines(self._store, run_id, -1)) as pages:
                async for page in pages:
                    await run_sync(packer.add, page)
            tally, sha256 = await run_sync(packer.finish)
            if not tally.lines:
                return "EMPTY"
            key = f"logs/{finished_at.astimezone(UTC):%Y/%m}/{run_id}-{sha256[:32]}.jsonl.gz"
            artifact = await self._artifacts.put(
                key, file, overwrite=Overwrite.SAME, expected_sha256=sha256, limit=LIMIT_BYTES
            )
        await self._require_readable(key, tally)
        rows = await self._call("archive_log", run_id, artifact.uri, tally.lines, tally.bytes)
        return str(rows[0]["answer"])

    async def _require_readable(self, key: str, tally: Tally) -> None:
        unpacker = Unpacker()
        try:
            async with self._artifacts.open(key) as chunks, aclosing(unpacker.lines(chunks)) as lines:
                async for _ in lines:
                    pass
        except MALFORMED as error:
            raise StoreFailed(path=key, what=f"cannot be read back: {error}") from error
        if unpacker.tally != tally:
            raise StoreFailed(path=key, what=f"read back as {unpacker.tally}, written as {tally}")


async def read_log(
    store: Store, artifacts: Artifacts, run_id: int, *, after: int = -1
) -> AsyncGenerator[Line, None]:
    """The lines of a run's log after a seq, wherever they are. Lines that leave meanwhile are not missed."""
    last = after
    ref = await _log_ref(store, run_id)
    if ref is None:
        async with aclosing(_stored(store, run_id, last)) as lines:
            async for line in lines:
                yield line
                last = line.seq
        ref = await _log_ref(store, run_id)
    if ref is not None:
        async with (
            aclosing(_archived(artifacts, run_id, ref, last)) as moved,
            aclosing(_stored(store, run_id, last)) as late,
            aclosing(_merged(moved, late)) as lines,
        ):
            async for line in lines:
                yield line


class Packer:
    """Lines into a gzip file. Blocking; the same lines give the same bytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._gzip = zlib.compressobj(wbits=GZIP)
        self._packed = hashlib.sha256()
        self._plain = hashlib.sha256()
        self._lines = 0
        self._bytes = 0

    def add(self, lines: Sequence[Line]) -> None:
        for line in lines:
            text = _encode(line)
            self._plain.update(text)
            self._write(self._gzip.compress(text))
            self._lines += 1
            self._bytes += len(line.body.encode())

    def finish(self) -> tuple[Tally, str]:
        """What went in, and the digest of what came out; the file stands at its beginning."""
        self._write(self._gzip.flush())
        self._file.seek(0)
        return Tally(self._lines, self._bytes, self._plain.hexdigest()), self._packed.hexdigest()

    def _write(self, piece: bytes) -> None:
        self._packed.update(piece)
        self._file.write(piece)


class Unpacker:
    """A gzip file into lines; a piece of it at a time, which is at most a thousand times as long unpacked."""

    def __init__(self) -> None:
        self._gzip = zlib.decompressobj(wbits=GZIP)
        self._plain = hashlib.sha256()
        self._rest = b""
        self._lines = 0
        self._bytes = 0

    @property
    def tally(self) -> Tally:
        return Tally(self._lines, self._bytes, self._plain.hexdigest())

    async def lines(self, chunks: AsyncIterator[bytes]) -> AsyncGenerator[Line, None]:
        """All of them, or an error of MALFORMED."""
        async for chunk in chunks:
            for start in range(0, len(chunk), PIECE):
                for line in await run_sync(self._feed, chunk[start : start + PIECE]):
                    yield line
        if not self._gzip.eof or self._rest:
            raise ValueError("it ends in the middle")

    def _feed(self, piece: bytes) -> list[Line]:
        text = self._gzip.decompress(piece)
        self._plain.update(text)
        *whole, self._rest = (self._rest + text).split(b"\n")
        lines = [_decode(line) for line in whole]
        self._lines += len(lines)
        self._bytes += sum(len(line.body.encode()) for line in lines)
        return lines


def _encode(line: Line) -> bytes:
    at = line.at.astimezone(UTC).isoformat(timespec="microseconds")
    fields = {"seq": line.seq, "stream": line.stream, "at": at, "body": line.body}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _decode(text: bytes) -> Line:
    fields: dict[str, Any] = json.loads(text)
    return Line(fields["seq"], fields["stream"], datetime.fromisoformat(fields["at"]), fields["body"])


async def _log_ref(store: Store, run_id: int) -> str | None:
    row = await store.row("read_log_ref", run_id)
    if row is None:
        raise NotFound(kind="run", name=run_id)
    ref: str | None = row["log_ref"]
    return ref


async def _stored_lines(store: Store, run_id: int, after: int) -> AsyncGenerator[list[Line], None]:
    while page := [Line(*row) for row in await store.rows("read_log_lines", run_id, after, PAGE)]:
        yield page
        after = page[-1].seq


async def _stored(store: Store, run_id: int, after: int) -> AsyncGenerator[Line, None]:
    async with aclosing(_stored_lines(store, run_id, after)) as pages:
        async for page in pages:
            for line in page:
                yield line


async def _archived(artifacts: Artifacts, run_id: int, ref: str, after: int) -> AsyncGenerator[Line, None]:
    try:
        key = await artifacts.key_of(ref)
        async with artifacts.open(key) as chunks, aclosing(Unpacker().lines(chunks)) as lines:
            async for line in lines:
                if line.seq > after:
                    yield line
    except (ArtifactError, *MALFORMED) as error:
        raise LogUnreadable(run_id=run_id, ref=ref, what=str(error)) from error


async def _merged(moved: AsyncIterator[Line], late: AsyncIterator[Line]) -> AsyncGenerator[Line, None]:
    """Both in the order of seq; a line that is in both counts once."""
    straggler = await anext(late, None)
    async for line in moved:
        while straggler is not None and straggler.seq <= line.seq:
            if straggler.seq < line.seq:
                yield straggler
            straggler = await anext(late, None)
        yield line
    while straggler is not None:
        yield straggler
        straggler = await anext(late, None)
