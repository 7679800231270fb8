"""How a command ended, as an outcome. Pure."""

import signal
from collections.abc import Collection

from supervisor import Done, Outcome, Retry
from supervisor.isolate import Ended

STOPPED = {
    "expired": "its deadline passed before the replica heard from the database again",
    "lost": "its launcher was killed, and all its processes with it",
}


def verdict(ended: Ended, success_exit_codes: Collection[int], last_error_line: str) -> Outcome:
    if ended.stopped != "none":
        return Retry("STOPPED", STOPPED.get(ended.stopped, "it was stopped from outside"))
    if ended.exit_code is not None:
        if ended.exit_code in success_exit_codes:
            return Done({"exit_code": ended.exit_code})
        return Retry(f"EXIT_{ended.exit_code}", _message(f"exit code {ended.exit_code}", last_error_line))
    name = _signal_name(ended.signal or 0)
    return Retry(f"SIGNAL_{name}", _message(f"killed by {name}", last_error_line))


def _message(what: str, last_error_line: str) -> str:
    return f"{what}: {last_error_line}" if last_error_line else what


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have numbers only
        return str(number)
