"""Hints that there is something to look at. They start nothing and decide nothing.

One direct connection LISTENs; after each (re)connect everybody is woken once, because what was said
meanwhile is lost. Whoever waits also has a time-out: polling is the truth. Where there is a Redis it is a
second way for the same words (hints.py). A topic is one of KINDS, or `lease:<table>` for a domain's rows.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import anyio
import asyncpg

from schemas import queries
from supervisor.clock import jitter
from supervisor.errors import DatabaseUnreachable
from supervisor.logs import logger
from supervisor.store import BROKEN, connect

KINDS: Final = ("run", "assigned", "leader", "event")
CHANNEL: Final = "tenure"

_log = logger("wakeups")


class Wakeups:
    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._events: dict[str, asyncio.Event] = {kind: asyncio.Event() for kind in KINDS}
        self.say: Callable[[str], None] = _to_nobody

    def hint(self, topic: str) -> None:
        """A topic that nobody here ever waited for is none of ours."""
        if (event := self._events.get(topic)) is not None:
            event.set()

    def hint_all(self) -> None:
        for event in self._events.values():
            event.set()

    def heard(self, text: str) -> None:
        """What was said on any channel, by whomever: data, and ignored where it means nothing."""
        kind, _, target = text.partition(":")
        if kind == "lease":
            self.hint(text)
        elif kind in KINDS and target in ("", self._worker_id):
            self.hint(kind)

    async def wait(self, topic: str, timeout: float) -> bool:
        """True when hinted; hints that came before the call count, several are one."""
        event = self._events.setdefault(topic, asyncio.Event())
        try:
            async with asyncio.timeout(max(0.0, timeout)):
                await event.wait()
        except TimeoutError:
            return False
        event.clear()
        return True

    async def listen(self, url: str) -> None:
        """Listen for ever, reconnecting; runs as a task of its own."""
        while True:
            try:
                await self._listen_once(url)
            except (DatabaseUnreachable, OSError) as error:
                _log.info("listening again soon", reason=str(error))
            await anyio.sleep(jitter(1.0, 0.9))

    async def _listen_once(self, url: str) -> None:
        connection = await connect(url, application_name="tenure/listen", cached_statements=0)
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _connection: lost.set())
        try:
            await connection.add_listener(CHANNEL, self._heard)
            self.hint_all()
            while not lost.is_set():
                # a silent cut would go unnoticed for ever
                try:
                    async with asyncio.timeout(10):
                        await lost.wait()
                except TimeoutError:
                    await connection.fetch(queries()["ping_database"].sql, timeout=5)
        except (TimeoutError, asyncpg.PostgresError, *BROKEN) as error:
            raise DatabaseUnreachable(what=f"the listening connection is lost: {error}") from error
        finally:
            connection.terminate()

    def _heard(self, _connection: Any, _pid: int, _channel: str, payload: object) -> None:
        self.heard(str(payload))


def _to_nobody(_text: str) -> None:
    """There is no second channel."""
