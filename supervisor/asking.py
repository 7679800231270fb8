"""Calls of a handler that are repeated until they are answered."""

from collections.abc import Sequence
from typing import Any, Final

from schemas import Query
from supervisor.errors import TenureError
from supervisor.logs import logger
from supervisor.outbox import until_answered
from supervisor.store import Canceled, Record, Store

ASK_SECONDS: Final = 30.0
"""Longer than a role's statement_timeout, so that the server is the one who gives up."""
CANCELED_TRIES: Final = 5

_log = logger("asking")


class GivenUp(TenureError):
    """the server cancelled the call {name} {times} times: {what}"""

    hint = "nothing of it was kept; look for locks and load, or raise the statement_timeout of the role"


async def ask(store: Store, query: str | Query, *args: Any, timeout: float = ASK_SECONDS) -> Sequence[Record]:
    """For as long as the caller may go on: a claim that is lost ends it.

    Only for calls that are safe to repeat, because one without an answer may have been carried out: a read,
    or a function that knows by its arguments (a claim, a number) what it has done already and answers that
    again. What the server itself cancels was rolled back and is likely to be cancelled again, so that is
    repeated CANCELED_TRIES times at most and then fails the work.
    """
    canceled = 0

    async def send() -> Sequence[Record]:
        nonlocal canceled
        try:
            return await store.rows(query, *args, timeout=timeout)
        except Canceled as error:
            canceled += 1
            if canceled < CANCELED_TRIES:
                raise
            raise GivenUp(**error.facts, times=canceled) from error

    return await until_answered(send, _log)


async def ask_one(store: Store, query: str | Query, *args: Any) -> Any:
    """The first column of the first row."""
    rows = await ask(store, query, *args)
    return rows[0][0] if rows else None
