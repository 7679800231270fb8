"""From what a handler did to what is recorded. Pure."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from supervisor.claims import Why
from supervisor.errors import first_of
from supervisor.jobrun import State
from supervisor.outcome import Cancel, Done, Outcome, Retry, Snooze

RESULT_BYTES: Final = 65536


@dataclass(frozen=True, slots=True)
class Verdict:
    state: State
    result: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    retry_after_seconds: float | None = None


SUCCEEDED: Final = Verdict("SUCCEEDED")
LOST: Final = Verdict("TIMED_OUT", None, "CONTINUATION_LOST", "stopped: the claim was not confirmed in time")
TIMED_OUT: Final = Verdict("TIMED_OUT", None, "TIMEOUT", "over its time")
UNREADABLE: Final = Verdict(
    "FAILED", None, "UNREADABLE", "its payload is nested too deep, or holds too long a number, to be read"
)


def of_outcome(outcome: Outcome) -> Verdict:
    match outcome:
        case Done(result):
            return SUCCEEDED if result is None else Verdict("SUCCEEDED", _as_json(result))
        case Retry(code, message, after):
            return Verdict("FAILED", None, clean(code)[:200], clean(message), after)
        case Cancel(reason):
            return Verdict("CANCELED", None, "CANCELED_BY_HANDLER", clean(reason))
        case Snooze():
            return Verdict("FAILED", None, "SNOOZE_UNSUPPORTED", "a run cannot snooze; answer Retry instead")
        case _:
            assert_never(outcome)


def of_stop(why: Why) -> Verdict:
    """Of a handler that was stopped before it had an outcome."""
    match why:
        case "LOST":
            return LOST
        case "CANCEL":
            return Verdict("CANCELED", None, None, "canceled on request")
        case "DRAIN":
            return Verdict("FAILED", None, "DRAINED", "its replica was shut down")
        case _:
            assert_never(why)


def of_error(error: BaseException) -> Verdict:
    error = first_of(error)
    return Verdict("FAILED", None, "HANDLER_ERROR", clean(f"{type(error).__name__}: {error}"))


def _as_json(result: Mapping[str, Any] | None) -> str | None:
    if result is None:
        return None
    try:
        text = json.dumps(dict(result), allow_nan=False).replace("\\u0000", "\\ufffd")
    except (TypeError, ValueError) as error:
        return json.dumps({"omitted": f"not JSON: {error}"})
    if len(text) > RESULT_BYTES:
        return json.dumps({"omitted": f"{len(text)} bytes, over the limit of {RESULT_BYTES}"})
    return text


def clean(text: str) -> str:
    return text.replace("\x00", "\N{SYMBOL FOR NULL}").encode("utf-8", "replace").decode()[:4000]
