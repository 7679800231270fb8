"""The log of a run: page by page, or followed until the run has ended. Wherever it is by now."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any, Final

import anyio
from fastapi import APIRouter, Header, Query, Request, Response

from supervisor.api.lasting import NOTHING, WHY, while_permitted
from supervisor.api.v1 import sse
from supervisor.api.v1.paging import Cursor, Limit, decode, encode
from supervisor.api.v1.route import Hanger, RunId, answer
from supervisor.api.v1.run_models import LogPage
from supervisor.api.view import ReplicaView
from supervisor.archive import Line, LogUnreadable, read_log
from supervisor.artifacts import Artifacts
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.clock import boottime
from supervisor.errors import BadSettings, Conflict, NotFound, TenureError
from supervisor.jobrun import TERMINAL

FOLLOWERS: Final = 32
PAGE_BYTES: Final = 1024 * 1024
POLL_SECONDS: Final = 1.0
SEQ_MOST: Final = 2**31 - 1
EXAMPLE: Final = 'id: 0\nevent: line\ndata: {"seq":0,"stream":"stdout","at":"...","body":"hello\\n"}\n\n'


class RunLogs:
    def __init__(self, replica: ReplicaView) -> None:
        self._replica = replica
        self._seats = sse.Seats(FOLLOWERS)

    async def read_run_log(
        self,
        request: Request,
        run_id: RunId,
        limit: Limit = 50,
        cursor: Cursor = None,
        follow: Annotated[bool, Query(description="stream it as server-sent events instead")] = False,
        last_event_id: Annotated[str | None, Header(description="where a broken stream goes on")] = None,
    ) -> Response:
        """In the order of `seq`, at most `limit` lines and about a mebibyte a page. With `follow=true` an
        event `line` for each line, and `end` with the run's state when it has ended, or without when the
        token or the login is over; `limit` means nothing then. The id of an event is its seq."""
        after = decode(cursor, int)[0] if cursor is not None else -1
        if follow:
            after = max(after, _seq(last_event_id))
        await self._state(run_id)
        if not follow:
            return answer(await self._page(run_id, min(after, SEQ_MOST), limit))
        end = sse.event("end", {"id": run_id, "why": WHY})
        events = self._follow(run_id, min(after, SEQ_MOST))
        return sse.Stream(self._seats, while_permitted(request, events, end))

    async def _page(self, run_id: int, after: int, limit: int) -> dict[str, Any]:
        lines: list[Line] = []
        size = 0
        async with self._archive() as archive, aclosing(self._lines(archive, run_id, after)) as found:
            async for line in found:
                if len(lines) == limit or (lines and size + len(line.body) > PAGE_BYTES):
                    return {"items": lines, "next": encode(lines[-1].seq)}
                lines.append(line)
                size += len(line.body)
        return {"items": lines, "next": None}

    async def _follow(self, run_id: int, after: int) -> AsyncGenerator[str, None]:
        """What is not sent yet waits in the log itself: a slow client holds one page of it and no more."""
        yield sse.HEARTBEAT
        try:
            async with self._archive() as archive, aclosing(self._told(archive, run_id, after)) as events:
                async for event in events:
                    yield event
        except TenureError as error:
            yield sse.event("trouble", {"what": str(error), "hint": error.advice})

    async def _told(self, archive: Artifacts, run_id: int, after: int) -> AsyncGenerator[str, None]:
        heard_at = boottime()
        while not self._replica.draining:
            # asked before the lines: what was written before the end is among them
            state = await self._state(run_id)
            async with aclosing(self._lines(archive, run_id, after)) as lines:
                async for line in lines:
                    yield sse.event("line", line, line.seq)
                    after, heard_at = line.seq, boottime()
            if state in TERMINAL:
                yield sse.event("end", {"id": run_id, "state": state})
                return
            if boottime() - heard_at >= sse.HEARTBEAT_SECONDS:
                yield sse.HEARTBEAT
                heard_at = boottime()
            yield NOTHING
            await anyio.sleep(POLL_SECONDS)

    async def _lines(self, archive: Artifacts, run_id: int, after: int) -> AsyncGenerator[Line, None]:
        try:
            async with aclosing(read_log(self._replica.store, archive, run_id, after=after)) as lines:
                async for line in lines:
                    yield line
        except LogUnreadable as error:
            raise Conflict(what=f"{error}; {error.advice}") from error

    @asynccontextmanager
    async def _archive(self) -> AsyncGenerator[Artifacts, None]:
        """Where logs are that have left the database."""
        try:
            archive = open_artifacts(load_artifact_settings(), self._replica.settings.state_dir)
        except BadSettings as error:
            raise Conflict(what=str(error)) from error
        try:
            yield archive
        finally:
            await archive.aclose()

    async def _state(self, run_id: int) -> str:
        row = await self._replica.store.row("read_progress", run_id)
        if row is None:
            raise NotFound(kind="run", name=run_id)
        state: str = row["state"]
        return state


def _seq(last_event_id: str | None) -> int:
    """What another stream sent is no place in this one: then it begins at the beginning."""
    text = last_event_id or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


def routes(replica: ReplicaView) -> APIRouter:
    hanger = Hanger("runs")
    more = sse.documented("A page of the log, or the stream of it", EXAMPLE)
    hanger.add("GET", "/runs/{run_id}/logs", RunLogs(replica).read_run_log, LogPage,
               "Read or follow the log of a run", 400, 404, 409, more=more)  # fmt: skip
    return hanger.router
