"""Every error this product raises on purpose.

A class docstring is the message (formatted with the keyword arguments given to the constructor), `hint` says
what an operator does next, and `exit_code` is what the command line answers: 1 failed, 2 usage,
3 database unreachable, 4 conflict, 5 not found.
"""

from typing import Any, ClassVar


class TenureError(Exception):
    """something went wrong"""

    hint: ClassVar[str] = ""
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int | None] = None
    """Where the exit code says too little."""

    def __init__(self, **facts: Any) -> None:
        self.facts = facts
        super().__init__((type(self).__doc__ or "").strip().format(**facts))

    @property
    def advice(self) -> str:
        return self.hint.format(**self.facts)


class BadInput(TenureError):
    """{what}"""

    exit_code = 2


class BadSettings(TenureError):
    """the settings do not fit together: {what}"""

    hint = "correct the TENURE_ variables or tenure.toml; `tenure doctor` prints the values in force"
    exit_code = 2


class DatabaseUnreachable(TenureError):
    """the database does not answer: {what}"""

    hint = (
        "check TENURE_DATABASE_URL (with --no-lead: TENURE_WORKER_DATABASE_URL), or start an embedded"
        " database with `tenure up`"
    )
    exit_code = 3


class Conflict(TenureError):
    """{what}"""

    exit_code = 4


class QueueFull(TenureError):
    """{what}"""

    hint = "try again later"
    exit_code = 4
    http_status = 429


class Forbidden(TenureError):
    """the role {role} may not do this"""

    hint = "it needs a token of role {needed}: `tenure token create NAME --role {needed}`"
    http_status = 403


class AdminNeeded(TenureError):
    """{what}"""

    hint = "it needs a token of role admin: `tenure token create NAME --role admin`, or the command line"
    http_status = 403


class NotFound(TenureError):
    """no {kind} {name}"""

    hint = "`tenure {kind} list` shows what there is"
    exit_code = 5


class LostTenure(TenureError):
    """{what}"""

    hint = "another replica leads; nothing to do"


class TrustOver(TenureError):
    """the tenure of epoch {epoch} is over: {why}"""

    hint = "its renewals were not answered in time, or another replica leads; nothing to do"


class UnsafeServer(TenureError):
    """this server cannot keep a promise: {what}"""

    hint = "`tenure doctor` names the setting; leadership is refused until it is corrected"


class OutcomeUnknown(TenureError):
    """the call {name} was sent and not answered: {what}"""

    hint = "the same call is repeated; its effect happens at most once"


def only_expected(group: BaseExceptionGroup) -> BaseException:
    """Out of a task group: our own error when there is nothing else in it, else the group as it is."""
    _, unexpected = group.split(TenureError)
    if unexpected is not None:
        return group
    return first_of(group)


def first_of(error: BaseException) -> BaseException:
    """The first error itself, however deep task groups have wrapped it."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
