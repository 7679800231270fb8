"""Pictures of a schedule become its entries. Decoding and recognition happen in chambers.

    async with readers(size=2) as chambers:
        reading = await read_schedule(pictures, day=d, languages="eng", equipment=chambers, deadline=ends_at)

What cannot be read is Unreadable, with a reason for the person who sent the pictures; the same pictures would
fail again. ChamberNotStarted passes: that is this replica's trouble, not the pictures'.

A picture is decoded, levelled and recognised in a child (task.py and what it imports); the words that come
back become lines, columns, cards and entries by pure functions (schedule.py and what it imports).
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from signal import SIGXCPU
from typing import Any, Final

from anyio import Semaphore, create_task_group
from anyio.to_thread import run_sync

from actors.capture.reading.languages import check_languages, data_path
from actors.capture.reading.result import Entry, Reading, payload_of
from actors.capture.reading.schedule import schedule_of
from actors.capture.reading.trouble import LanguageMissing, Unreadable
from actors.capture.reading.words import MAX_BYTES, Page, decode
from supervisor.chamber import ChamberKilled, Chambers, ChamberTimedOut, Limits, TaskFailed
from supervisor.clock import boottime
from supervisor.errors import first_of

__all__ = [
    "LIMITS",
    "MAX_PICTURES",
    "MAX_PICTURE_BYTES",
    "Entry",
    "LanguageMissing",
    "Reading",
    "Unreadable",
    "payload_of",
    "read_schedule",
    "readers",
]

TASK: Final = "actors.capture.reading.task:read"
MAX_PICTURES: Final = 20
MAX_PICTURE_BYTES: Final = 32 << 20
LIMITS: Final = Limits(
    memory_bytes=2 << 30,
    cpu_seconds=60,
    seconds=120,
    output_bytes=MAX_BYTES,
    recycle_requests=200,
)
# The children are the parallelism: one thread in each.
ENVIRONMENT: Final = {"VIPS_CONCURRENCY": "1", "OMP_THREAD_LIMIT": "1"}


def readers(size: int, limits: Limits = LIMITS) -> Chambers:
    """A pool for `read_schedule`. A child keeps what it has loaded of a language for the next picture."""
    return Chambers(TASK, size=size, limits=limits, environment=ENVIRONMENT, readable=[data_path()])


async def read_schedule(
    pictures: Sequence[bytes],
    *,
    day: date,
    languages: str,
    equipment: Chambers,
    deadline: Callable[[], float],
) -> Reading:
    """What the pictures say together, in their order; `day` is the date where they name none.

    `deadline` (boottime) is asked for each picture when its turn comes: while a lease is kept it moves.
    """
    check_languages(languages)
    _check(pictures)
    pages: list[Page | None] = [None] * len(pictures)
    turns = Semaphore(equipment.size)

    async def read(number: int) -> None:
        named = f"picture {number + 1} of {len(pictures)}"
        async with turns:
            pages[number] = await _page_in_time(pictures[number], named, languages, equipment, deadline)

    try:
        async with create_task_group() as group:
            for number in range(len(pictures)):
                group.start_soon(read, number)
    except ExceptionGroup as failures:
        raise first_of(failures) from failures
    found = [page for page in pages if page is not None]
    return await run_sync(lambda: schedule_of(found, day=day, languages=languages))


def _check(pictures: Sequence[bytes]) -> None:
    if not 0 < len(pictures) <= MAX_PICTURES:
        raise Unreadable(
            "PICTURES", f"a schedule is read from 1 to {MAX_PICTURES} pictures, not {len(pictures)}"
        )
    for number, data in enumerate(pictures, start=1):
        named = f"picture {number} of {len(pictures)}"
        if not data:
            raise Unreadable("EMPTY", f"{named} is empty")
        if len(data) > MAX_PICTURE_BYTES:
            most = f"at most {MAX_PICTURE_BYTES >> 20} MiB are read"
            raise Unreadable("TOO_LARGE", f"{named} has {len(data)} bytes: {most}")


async def _page_in_time(
    data: bytes, named: str, languages: str, equipment: Chambers, deadline: Callable[[], float]
) -> Page:
    """Where the time was short only because the lease was, and the lease has been kept, it is read again."""
    while True:
        until, began = deadline(), boottime()
        try:
            return await _page(data, named, languages, equipment, until)
        except Unreadable as error:
            if error.code != "TIMEOUT" or deadline() <= until or boottime() - began >= LIMITS.seconds:
                raise


async def _page(data: bytes, named: str, languages: str, equipment: Chambers, deadline: float) -> Page:
    request = {"languages": languages, "data_path": data_path()}
    with _file("picture") as source, _file("words") as output:
        await run_sync(_fill, source, data)
        try:
            result = await equipment.carry_out(request, (source, output), deadline=deadline)
        except TaskFailed as failure:
            what = (
                "is not a picture that can be read" if failure.code != "TASK_FAILED" else "could not be read"
            )
            raise Unreadable(failure.code, f"{named} {what}: {failure}") from failure
        except ChamberTimedOut as late:
            raise Unreadable("TIMEOUT", f"{named} took too long to read") from late
        except ChamberKilled as killed:
            what = "took too much computing" if killed.signal == SIGXCPU else "made its decoder crash"
            raise Unreadable("CRASHED", f"{named} {what}") from killed
        page = _words(result, output)
    if page is None:
        raise Unreadable("CRASHED", f"{named} made its decoder give a senseless answer")
    return page


def _words(result: dict[str, Any], output: int) -> Page | None:
    """What a child says is not to be trusted: it may have been taken over by its input."""
    match result:
        case {"bytes_size": int(size)} if 0 < size <= MAX_BYTES:
            return decode(os.pread(output, size, 0))
        case _:
            return None


@contextmanager
def _file(name: str) -> Iterator[int]:
    handle = os.memfd_create(name)
    try:
        yield handle
    finally:
        os.close(handle)


def _fill(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
