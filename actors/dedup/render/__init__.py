"""Thumbnails, made in chambers: a file that crashes or bombs its decoder fails alone.

    async with renderers(size=2) as chambers:
        made = await render(chambers, source_fd, output_fd, "webp", 320, deadline)

`source_fd` must be a regular file open for reading, `output_fd` an empty one open for writing; both stay the
caller's. A failure is a ThumbnailFailed with a code of verdicts.py; the output is then to be discarded.
"""

from dataclasses import dataclass
from signal import SIGXCPU
from typing import Any, Literal

from actors.dedup.render import verdicts
from supervisor.chamber import ChamberKilled, Chambers, ChamberTimedOut, Limits, TaskFailed
from supervisor.errors import BadInput, TenureError

__all__ = ["LIMITS", "Format", "Rendered", "ThumbnailFailed", "render", "renderers"]

TASK = "actors.dedup.render.task:render"
MIN_DIMENSION, MAX_DIMENSION = 16, 2048
MAX_OUTPUT_BYTES = 16 << 20
LIMITS = Limits(memory_bytes=2 << 30, cpu_seconds=60, seconds=120, output_bytes=MAX_OUTPUT_BYTES)
# The children are the parallelism: one thread in each.
ENVIRONMENT = {"VIPS_CONCURRENCY": "1"}

Format = Literal["jpeg", "webp"]


@dataclass(frozen=True, slots=True)
class Rendered:
    """A finished thumbnail and what it was made from; the source's size is that of its stored pixels."""

    width: int
    height: int
    bytes_size: int
    media_type: str
    source_type: str
    source_width: int
    source_height: int


class ThumbnailFailed(TenureError):
    """{message}"""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(code=code, message=message)


def renderers(size: int, limits: Limits = LIMITS) -> Chambers:
    """A pool for `render`; one child per core keeps the machine busy."""
    return Chambers(TASK, size=size, limits=limits, environment=ENVIRONMENT)


async def render(
    chambers: Chambers,
    source_fd: int,
    output_fd: int,
    format: Format,  # noqa: A002  (the name it has everywhere else)
    max_dimension: int,
    deadline: float,
) -> Rendered:
    if format not in ("jpeg", "webp") or not MIN_DIMENSION <= max_dimension <= MAX_DIMENSION:
        raise BadInput(what=f"a thumbnail is jpeg or webp and {MIN_DIMENSION} to {MAX_DIMENSION} pixels wide")
    request = {"format": format, "max_dimension": max_dimension}
    try:
        result = await chambers.carry_out(request, (source_fd, output_fd), deadline=deadline)
    except TaskFailed as failure:
        raise ThumbnailFailed(verdicts.of_task(failure.code), str(failure)) from failure
    except ChamberTimedOut as late:
        raise ThumbnailFailed(verdicts.TIMEOUT, "the thumbnail took too long") from late
    except ChamberKilled as killed:
        if killed.signal == SIGXCPU:
            raise ThumbnailFailed(verdicts.TIMEOUT, "the thumbnail took too much computing") from killed
        raise ThumbnailFailed(verdicts.DECODER_CRASHED, "the file made its decoder crash") from killed
    return _rendered(result, max_dimension)


def _rendered(result: dict[str, Any], max_dimension: int) -> Rendered:
    """What a child says is not to be trusted: it may have been taken over by its input."""
    match result:
        case {
            "width": int(width),
            "height": int(height),
            "bytes_size": int(size),
            "media_type": "image" | "video" as media_type,
            "source_type": str(source_type),
            "source_width": int(source_width),
            "source_height": int(source_height),
        } if 0 < width <= max_dimension and 0 < height <= max_dimension and 0 < size <= MAX_OUTPUT_BYTES:
            sizes = (source_width, source_height)
            return Rendered(width, height, size, media_type, source_type[:16], *sizes)
        case _:
            raise ThumbnailFailed(verdicts.DECODER_CRASHED, "the decoder gave a senseless answer")
