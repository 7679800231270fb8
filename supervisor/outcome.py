"""What a handler answers. Values, matched in one place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Done:
    """The work is done."""

    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """This attempt failed; another follows while attempts are left. A leased row may keep a result too."""

    error_code: str
    error_message: str = ""
    after_seconds: float | None = None
    result: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Not now: the row goes back untouched and is due again later. For domain rows only."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """The work is given up for good; no further attempt. A leased row keeps the code."""

    reason: str = ""
    error_code: str = "CANCELED_BY_HANDLER"


Outcome = Done | Retry | Snooze | Cancel
