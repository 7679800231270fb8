"""Walks a library and writes down what it finds.

The walk is in the order of paths, and each batch is recorded with where it ends: a walk that was cut, by
whatever, goes on there on any replica. A file's contents are not read, unless it is small, new, and to be
hashed in any case (early.py). What cannot be read is recorded and left; what is no longer there is missing,
a file of the same inode, size and time elsewhere is that file, moved.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from actors.dedup.confine import Beneath, FileTrouble, library_root
from actors.dedup.early import Early
from actors.dedup.literals import bigints
from actors.dedup.walk import Batch, batches
from supervisor import Cancel, Claim, Done, Outcome, Tools
from supervisor.asking import ask, ask_one
from supervisor.errors import BadInput
from supervisor.store import Record
from supervisor.threads import in_thread

BATCH: Final = 5000
AHEAD: Final = 2
FOLD: Final = 5000
LONGEST_BYTES: Final = 2600
"""A longer path does not fit into an entry of the index that finds it."""


async def handle(claim: Claim, tools: Tools) -> Outcome:
    libraries = tools.place.settings.libraries_dir
    if libraries is None:
        return Cancel("TENURE_LIBRARIES_DIR is not set on this replica", "LIBRARIES_DIR_UNSET")
    (session,) = await ask(tools.place.store, "begin_scan", claim.key, claim.claim_id)
    scan = Scan(claim, tools, session)
    try:
        root = await in_thread(lambda _stop: library_root(libraries, session["root_path"]))
        with root:
            await scan.refuse_empty(root, allow=bool(claim.payload["payload"].get("allow_empty")))
            await scan.walk(root)
    except (FileTrouble, BadInput) as error:
        return await scan.fail(getattr(error, "code", "LIBRARY_LOOKS_EMPTY"), str(error))
    return await scan.finish()


class Scan:
    """One walk, or the rest of one."""

    def __init__(self, claim: Claim, tools: Tools, session: Record) -> None:
        self._token = (claim.key, claim.claim_id, session["session_id"])
        self._root: str = session["root_path"]
        self._store = tools.place.store
        self._progress = tools.progress
        self._after: str = session["cursor_path"]
        self._number: int = session["batches"]
        self._seen: int = session["files_seen"]
        self._early = Early.asked_for(claim.payload["payload"])
        self._known_from: str | None = ""

    async def refuse_empty(self, root: Beneath, *, allow: bool) -> None:
        """A walk goes on elsewhere than it began, perhaps where the disk is not mounted."""
        if self._number and not allow and await in_thread(lambda _stop: _is_empty(root)):
            raise FileTrouble(path=self._root, code="LIBRARY_LOOKS_EMPTY")

    async def walk(self, root: Beneath) -> None:
        """A thread lists ahead while the database takes what was found."""
        send, receive = anyio.create_memory_object_stream[Batch](AHEAD)
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._list, root, send)
                await self._record_all(receive)
        except ExceptionGroup as group_error:
            if len(group_error.exceptions) == 1:
                raise group_error.exceptions[0] from None
            raise

    async def _list(self, root: Beneath, send: MemoryObjectSendStream[Batch]) -> None:
        walk = batches(root, self._after, BATCH, longest_bytes=LONGEST_BYTES)
        async with send:
            try:
                while (batch := await in_thread(partial(_next, root, walk))) is not None:
                    if self._early is not None and self._early.pays() and await self._is_new(batch):
                        await in_thread(partial(self._early.hash, root, batch))
                    await send.send(batch)
            finally:
                _close(walk)

    async def _is_new(self, batch: Batch) -> bool:
        """Nothing is known in its stretch. Only this walk adds to it: an answer holds for more than one."""
        if self._known_from is not None and self._known_from <= batch.after:
            self._known_from = await ask_one(self._store, "find_known", *self._token[:2], batch.after)
        return self._known_from is None or (not batch.final and self._known_from > batch.upto)

    async def _record_all(self, receive: MemoryObjectReceiveStream[Batch]) -> None:
        async with receive:
            async for batch in receive:
                await self._record(batch)
                self._seen += len(batch.paths)
                self._progress(processed_items=self._seen)

    async def _record(self, batch: Batch) -> None:
        """In parts where the table knows much more in this stretch than was found."""
        rest: Batch | None = batch
        while rest is not None:
            reached = await self._record_part(rest)
            rest = _behind(rest, reached) if reached is not None else None

    async def _record_part(self, batch: Batch) -> str | None:
        if unreadable := [fault.code for fault in batch.faults if not fault.path]:
            raise FileTrouble(path=self._root, code=unreadable[0])
        self._number += 1
        (answer,) = await ask(
            self._store,
            "record_scan",
            *self._token,
            self._number,
            batch.after,
            batch.upto,
            batch.final,
            batch.paths,
            bigints(batch.sizes),
            bigints(batch.mtimes_ns),
            bigints(batch.inodes),
            bigints(batch.devices),
            batch.hashes,
            [fault.path for fault in batch.faults],
            [fault.code for fault in batch.faults],
            [prefix for fault in batch.faults for prefix in (fault.path, f"{fault.path}/")],
            batch.directories,
            batch.skipped,
        )
        reached: str | None = answer["reached"]
        return reached

    async def finish(self) -> Outcome:
        after: int | None = 0
        while after is not None:
            (part,) = await ask(self._store, "fold_moves", *self._token, after, FOLD)
            after = part["last_id"]
        await ask(self._store, "end_scan", *self._token, None, None)
        return Done({"progress": 1.0})

    async def fail(self, code: str, message: str) -> Outcome:
        await ask(self._store, "end_scan", *self._token, code, message)
        return Cancel(message, code)


def _behind(batch: Batch, reached: str) -> Batch:
    """What of it lies behind a path; the faults go along: what they hide is still unknown."""
    first = bisect_right(batch.paths, reached)
    return replace(
        batch,
        after=reached,
        paths=batch.paths[first:],
        sizes=batch.sizes[first:],
        mtimes_ns=batch.mtimes_ns[first:],
        inodes=batch.inodes[first:],
        devices=batch.devices[first:],
        hashes=None if batch.hashes is None else batch.hashes[first:],
    )


def _is_empty(root: Beneath) -> bool:
    with root.open_directory() as directory, os.scandir(directory.fd) as entries:
        return next(entries, None) is None


def _next(root: Beneath, walk: Iterator[Batch], should_stop: Callable[[], bool]) -> Batch | None:
    """A directory may be slow and large: whoever cancels the scan does not wait for the end of it."""
    root.should_stop = should_stop
    return next(walk, None)


def _close(walk: Iterator[Any]) -> None:
    """Its threads end with it."""
    close = getattr(walk, "close", None)
    if close is not None:
        close()
