"""How work in a chamber can fail. Light: the child loads it too."""

import re
import signal as signals
from typing import Any

from supervisor.errors import TenureError

MAX_TEXT = 300
_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


class ChamberFailure(TenureError):
    """the work in a child process failed"""


class ChamberNotStarted(ChamberFailure):
    """the child for {task} could not be started: {what}"""

    hint = "the task's packages must be installed on every replica, and the memory limit must hold them"


class ChamberKilled(ChamberFailure):
    """the child that did the work died: {what}"""

    hint = "its input crashed it or went over a limit; the replica and the other work are not touched"

    def __init__(self, signal: int | None = None, what: str = "") -> None:
        self.signal = signal
        super().__init__(what=what or _name(signal))


class ChamberTimedOut(ChamberFailure):
    """the work in a child process was not done in time"""

    hint = "its input takes too long; the child was killed"


class TaskFailed(ChamberFailure):
    """{message}"""

    def __init__(self, code: Any, message: Any) -> None:
        # What a child says is not to be trusted: it may have been taken over by its input.
        self.code = code if isinstance(code, str) and _CODE.fullmatch(code) else "TASK_FAILED"
        super().__init__(code=self.code, message=clean(message))


def clean(text: Any) -> str:
    """One line, printable, bounded."""
    words = "".join(c if c.isprintable() else " " for c in str(text)[: 4 * MAX_TEXT]).split()
    return " ".join(words)[:MAX_TEXT]


def _name(signal: int | None) -> str:
    try:
        return signals.Signals(signal or 0).name
    except ValueError:
        return f"signal {signal}" if signal else "it ended by itself"
