"""The log of one run on its way to the database: in order, in batches, with back-pressure."""

import asyncio
import codecs
from typing import Final
from uuid import UUID

import anyio
from anyio.abc import TaskGroup

from supervisor.errors import TenureError
from supervisor.logs import logger
from supervisor.store import Store

FLUSH_SECONDS: Final = 0.5
FLUSH_BYTES: Final = 64 * 1024
HOLD_BYTES: Final = 1024 * 1024
CHUNK_CHARACTERS: Final = 200_000

_log = logger("runlog")


class RunLog:
    """`write` waits when a megabyte is on its way; nothing is lost while the database comes back in time.

    With the first line a task of `group` begins to send; `close` ends it and sends the rest.
    """

    def __init__(self, group: TaskGroup, store: Store, worker_id: str, run_id: int, claim_id: UUID) -> None:
        self._group = group
        self._sending: anyio.CancelScope | None = None
        self._store = store
        self._key = (worker_id, run_id, claim_id)
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}
        self._waiting: list[tuple[int, str, str]] = []
        self._waiting_bytes = 0
        self._seq = 0
        self._flushing = asyncio.Lock()
        self._full = asyncio.Event()

    async def write(self, stream: str, data: bytes) -> None:
        if self._sending is None:
            self._sending = anyio.CancelScope()
            self._group.start_soon(self._keep_sending, self._sending)
        decoder = self._decoders.setdefault(stream, codecs.getincrementaldecoder("utf-8")("replace"))
        # PostgreSQL's text holds every character but this one
        text = decoder.decode(data).replace("\x00", "\N{SYMBOL FOR NULL}")
        for start in range(0, len(text), CHUNK_CHARACTERS):
            self._waiting.append((self._seq, stream, text[start : start + CHUNK_CHARACTERS]))
            self._seq += 1
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= FLUSH_BYTES:
            self._full.set()
        while self._waiting_bytes >= HOLD_BYTES:
            await self._flush_or_wait()

    async def close(self, patience_seconds: float) -> None:
        if self._sending is None:
            return
        self._sending.cancel()
        with anyio.move_on_after(patience_seconds):
            while self._waiting:
                await self._flush_or_wait()

    async def _keep_sending(self, scope: anyio.CancelScope) -> None:
        with scope:
            while True:
                with anyio.move_on_after(FLUSH_SECONDS):
                    await self._full.wait()
                self._full.clear()
                await self._flush_or_wait()

    async def _flush(self) -> None:
        async with self._flushing:
            while self._waiting:
                batch = self._waiting[:100]
                await self._store.value("append_log", *self._key, *map(list, zip(*batch, strict=True)))
                del self._waiting[: len(batch)]
            self._waiting_bytes = 0

    async def _flush_or_wait(self) -> None:
        try:
            await self._flush()
        except TenureError as error:
            _log.info("log kept for later", run=self._key[1], reason=str(error))
            await anyio.sleep(FLUSH_SECONDS)
