"""Redis: makes things faster, and is never believed.

It carries the same words as NOTIFY (wakeups.py) and the keys of the short leases (shortlease.py). It may be
absent, slow, empty, full of lies or of noise: a call takes 200 ms at most, the first failure opens a breaker,
and with the breaker open nobody waits for Redis at all. Connecting and speaking are never waited for. What is
heard is read as data, and passed on only so often.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final

import anyio

from supervisor.breaker import Breaker
from supervisor.clock import Clock, jitter
from supervisor.logs import logger
from supervisor.metrics import Metrics
from supervisor.redisline import Command, Line, NotRedis, open_pool

CHANNEL: Final = "tenure"
CALL_SECONDS: Final = 0.2
CONNECT_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 10.0
AGAIN_SECONDS: Final = 1.0
LONGEST_SECONDS: Final = 30.0
UNSAID: Final = 1_000
PACE_SECONDS: Final = 0.01
PACE_TEXTS: Final = 50

# Only whoever set the key deletes it; a value of another type is not ours either.
DROP: Final = """
for _, key in ipairs(KEYS) do
    if redis.pcall('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
"""

_log = logger("redis")


class Hints:
    """`heard` is told each text; `missed` is called when some may have been said unheard."""

    def __init__(
        self,
        url: str,
        metrics: Metrics,
        heard: Callable[[str], None],
        missed: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._metrics = metrics
        self._heard = heard
        self._missed = missed
        self._breaker = Breaker(clock)
        pool = open_pool(url)
        self._asking, self._telling, self._listening = Line(pool), Line(pool), Line(pool)
        self._unsaid: dict[Command, None] = {}
        self._some = asyncio.Event()
        self._some.set()

    async def run(self) -> None:
        """Speak and listen for ever; runs as a task of its own."""
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(self._tell_for_ever)
                group.start_soon(self._listen_for_ever)
        finally:
            for line in (self._asking, self._telling, self._listening):
                await line.close()

    def say(self, text: str) -> None:
        self._tell(("PUBLISH", CHANNEL, text))

    async def take(self, run_ids: Sequence[int], token: str, seconds: float) -> frozenset[int]:
        """Ask for the short leases of these runs; those that somebody else has, by the word of Redis."""
        if self._breaker.open or not self._asking.connected:
            self._some.set()
            return frozenset()
        oks = await self._guarded(self._asking, [_set_lease(run_id, token, seconds) for run_id in run_ids])
        return frozenset(run_id for run_id, ours in zip(run_ids, oks, strict=False) if not ours)

    def drop(self, run_ids: Sequence[int], token: str) -> None:
        if run_ids:
            self._tell(("EVAL", DROP, len(run_ids), *map(lease_key, run_ids), token))

    def _tell(self, command: Command) -> None:
        if len(self._unsaid) < UNSAID:
            self._unsaid[command] = None
            self._some.set()

    async def _tell_for_ever(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if self._breaker.open else None):
                    await self._some.wait()
            self._some.clear()
            commands = list(self._unsaid)
            self._unsaid.clear()
            if not self._breaker.open:
                await self._guarded(self._telling, commands)
            elif self._breaker.try_again():
                # of the kind that a full or read-only server refuses; there is no run 0
                await self._guarded(self._telling, [_set_lease(0, "trial", 0.001)])
            if not self._breaker.open and not self._asking.connected:
                await self._guarded(self._asking, [])

    async def _guarded(self, line: Line, commands: Sequence[Command]) -> list[bool]:
        """Whether each was done; an empty list when Redis fails, is late or talks nonsense."""
        try:
            if not line.connected:
                async with asyncio.timeout(CONNECT_SECONDS):
                    await line.connect()
            async with asyncio.timeout(CALL_SECONDS):
                answers = await line.call(commands)
            oks = [_done(command, answer) for command, answer in zip(commands, answers, strict=True)]
        except Exception as error:  # noqa: BLE001  however Redis fails, it is only Redis
            self._failed(error)
            return []
        self._succeeded()
        return oks

    async def _listen_for_ever(self) -> None:
        pause = AGAIN_SECONDS
        while True:
            try:
                await self._subscribe(self._listening)
                pause = AGAIN_SECONDS
                while True:
                    await self._hear(self._listening)
            except Exception as error:  # noqa: BLE001  however Redis fails, it is only Redis
                self._failed(error)
            await self._listening.close()
            await anyio.sleep(jitter(pause))
            pause = min(pause * 2, LONGEST_SECONDS)

    async def _subscribe(self, line: Line) -> None:
        async with asyncio.timeout(CONNECT_SECONDS):
            await line.connect()
            (answer,) = await line.call([("SUBSCRIBE", CHANNEL)])
        if not isinstance(answer, list) or answer[-1:] != [1]:
            raise NotRedis
        self._succeeded()
        self._missed()

    async def _hear(self, line: Line) -> None:
        """One text at once; what else is shouted within a moment counts once, and is read only so far."""
        self._pass_on(await _next(line))
        rest: set[str] = set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PACE_SECONDS):
                for _ in range(PACE_TEXTS):
                    rest.add(text_of(await line.read()))
                await anyio.sleep_forever()
        for text in rest:
            self._pass_on(text)

    def _pass_on(self, text: str) -> None:
        if text:
            self._heard(text)

    def _failed(self, error: Exception) -> None:
        self._metrics.redis_errors.inc()
        if not self._breaker.open:
            # of the error only its kind: its text may hold a piece of the URL
            _log.warning("going on without Redis", reason=type(error).__name__)
        self._breaker.failed()
        self._metrics.redis_open.set(1)
        # what one line met, the others have met too and do not know yet
        self._asking.connected = self._telling.connected = False
        self._some.set()

    def _succeeded(self) -> None:
        if self._breaker.open:
            _log.info("Redis answers again")
        self._breaker.succeeded()
        self._metrics.redis_open.set(0)


async def say_once(url: str, text: str) -> bool:
    """For those who enqueue and go: one word, if it can be had quickly. False: nobody heard it, no matter."""
    line = Line(open_pool(url))
    try:
        async with asyncio.timeout(CALL_SECONDS):
            await line.connect()
            await line.call([("PUBLISH", CHANNEL, text)])
    except Exception:  # noqa: BLE001  however Redis fails, it is only Redis
        return False
    finally:
        await line.close()
    return True


def lease_key(run_id: int) -> str:
    return f"jobrun:lease:{run_id:d}"


def text_of(answer: Any) -> str:
    """The text of a message; empty for what is none."""
    match answer:
        case [b"message", _, bytes(data)]:
            return data.decode("ascii", "replace")
        case ["message", _, str(data)]:
            return data
        case list():
            return ""
        case _:
            raise NotRedis


def _set_lease(run_id: int, token: str, seconds: float) -> Command:
    return ("SET", lease_key(run_id), token, "NX", "PX", int(seconds * 1000))


def _done(command: Command, answer: Any) -> bool:
    match command[0], answer:
        case "SET", b"OK" | "OK":
            return True
        case "SET", None:
            return False
        case ("EVAL", None) | ("PUBLISH", int()):
            return True
    raise NotRedis


async def _next(line: Line) -> str:
    """The next text, however long it takes; a line that was cut silently would go unnoticed for ever."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            return text_of(await line.read())
    except TimeoutError:
        async with asyncio.timeout(CONNECT_SECONDS):
            await line.send("PING")
            return text_of(await line.read())
