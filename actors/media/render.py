"""Renditions, made in chambers: a picture that crashes or bombs its decoder fails alone.

`source_fd` must be a regular file open for reading, `output_fd` an empty one open for writing; both stay the
caller's. After a RenditionFailed the output is to be discarded.
"""

from signal import SIGXCPU
from typing import Final

from supervisor.chamber import ChamberKilled, Chambers, ChamberTimedOut, Limits, TaskFailed
from supervisor.errors import TenureError

TASK: Final = "actors.media.render_task:render"
MAX_OUTPUT_BYTES: Final = 64 << 20
LIMITS: Final = Limits(memory_bytes=2 << 30, cpu_seconds=60, seconds=120, output_bytes=MAX_OUTPUT_BYTES)


class RenditionFailed(TenureError):
    """{message}"""

    def __init__(self, code: str, message: str, *, is_final: bool) -> None:
        self.code = code
        self.is_final = is_final
        super().__init__(code=code, message=message)


def renderers(size: int, limits: Limits = LIMITS) -> Chambers:
    """The children are the parallelism: one thread in each."""
    return Chambers(TASK, size=size, limits=limits, environment={"VIPS_CONCURRENCY": "1"})


async def render(
    chambers: Chambers, source_fd: int, output_fd: int, wanted: dict[str, str | int], deadline: float
) -> None:
    try:
        result = await chambers.carry_out(wanted, (source_fd, output_fd), deadline=deadline)
    except TaskFailed as failure:
        raise RenditionFailed(failure.code, str(failure), is_final=True) from failure
    except ChamberTimedOut as late:
        raise RenditionFailed("RENDITION_TIMEOUT", "the rendition took too long", is_final=False) from late
    except ChamberKilled as killed:
        what = "took too much computing" if killed.signal == SIGXCPU else "made its decoder crash"
        raise RenditionFailed("DECODER_CRASHED", f"the picture {what}", is_final=False) from killed
    match result:
        case {"bytes_size": int(size)} if 0 < size <= MAX_OUTPUT_BYTES:
            return
        case _:
            raise RenditionFailed("DECODER_CRASHED", "the decoder gave a senseless answer", is_final=False)
