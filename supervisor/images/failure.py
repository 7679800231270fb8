"""The ways a picture can fail in a chamber, as codes for programs and sentences for people."""

from typing import Final

from supervisor.chamber_failure import TaskFailed, clean

DECODE_FAILED: Final = "DECODE_FAILED"
ENCODE_FAILED: Final = "ENCODE_FAILED"
TOO_LARGE: Final = "PICTURE_TOO_LARGE"


def failed(code: str, message: str, cause: BaseException | None = None) -> TaskFailed:
    detail = clean(cause).removeprefix("unable to call ")[-120:] if cause else ""
    return TaskFailed(code, f"{message} ({detail})" if detail else message)
