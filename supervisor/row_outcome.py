"""From what a handler of a leased row did to the path it takes and what is written along. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from supervisor import verdict
from supervisor.lease import Ending, Lease, Path
from supervisor.outcome import Cancel, Done, Outcome, Retry, Snooze


@dataclass(frozen=True, slots=True)
class RowVerdict:
    path: Ending
    code: str | None = None
    message: str | None = None
    after_seconds: float | None = None
    values: Mapping[str, Any] | None = None


DONE: Final = RowVerdict("done")
TIMED_OUT: Final = RowVerdict("retry", "TIMEOUT", "over its time")
UNREADABLE: Final = RowVerdict("retry", "UNREADABLE", verdict.UNREADABLE.error_message)


def of_outcome(lease: Lease, outcome: Outcome) -> RowVerdict:
    match outcome:
        case Done(result):
            return DONE if result is None else _checked(lease.done, RowVerdict("done", values=result))
        case Retry(code, message, after, result):
            code, message = verdict.clean(code)[:200], verdict.clean(message)
            return _checked(lease.retry, RowVerdict("retry", code, message, after, result))
        case Cancel(reason, code):
            code, message = verdict.clean(code)[:200], verdict.clean(reason)
            return RowVerdict(lease.ending("cancel"), code, message)
        case Snooze(seconds):
            if lease.snooze is None:
                return RowVerdict("retry", "SNOOZE_UNSUPPORTED", f"{lease.table} has no snooze; answer Retry")
            return RowVerdict("snooze", after_seconds=seconds)
        case _:
            assert_never(outcome)


def of_error(error: BaseException) -> RowVerdict:
    failed = verdict.of_error(error)
    return RowVerdict("retry", failed.error_code, failed.error_message)


def refused(reason: str) -> RowVerdict:
    """The database or the contract would not take the outcome as it was."""
    return RowVerdict("retry", "OUTCOME_REFUSED", verdict.clean(reason)[:500])


def _checked(path: Path, wanted: RowVerdict) -> RowVerdict:
    unknown = set(wanted.values or ()) - set(path.sets) - set(path.gives)
    if unknown:
        return refused(f"an outcome has no column {', '.join(sorted(unknown))} to fill")
    return wanted
