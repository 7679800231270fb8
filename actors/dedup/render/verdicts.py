"""The ways a thumbnail can fail, as codes that are stored with it."""

from typing import Final

from supervisor.images import failure

DECODE_FAILED = "THUMB_DECODE_FAILED"
UNSUPPORTED_TYPE = "THUMB_UNSUPPORTED_TYPE"
TOO_LARGE = "THUMB_TOO_LARGE"
VIDEO_FAILED = "THUMB_VIDEO_FAILED"
GENERATION_FAILED = "THUMB_GENERATION_FAILED"
DECODER_CRASHED = "THUMB_DECODER_CRASHED"
TIMEOUT = "THUMB_TIMEOUT"


_OF_PICTURES: Final = {failure.DECODE_FAILED: DECODE_FAILED, failure.TOO_LARGE: TOO_LARGE}


def of_task(code: str) -> str:
    """The code of a thumbnail for what its task failed with."""
    return code if code.startswith("THUMB_") else _OF_PICTURES.get(code, GENERATION_FAILED)
