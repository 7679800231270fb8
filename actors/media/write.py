"""The one way to write media, as the database offers it: a request with an id of its own, and its answer.

A request whose answer was lost is sent again under its id and gets the answer it had. The same id with
another wish is a conflict.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal
from uuid import UUID

import anyio

from supervisor.clock import jitter
from supervisor.errors import OutcomeUnknown, TenureError
from supervisor.store import Record, Store

Action = Literal["store", "attach", "replace", "move", "detach"]
OnOccupied = Literal["replace", "reject", "swap"]
REPEATS: Final = 4
PAUSE_SECONDS: Final = 0.1
CALL_SECONDS: Final = 15.0


@dataclass(frozen=True, slots=True)
class Slot:
    """A place of an entity. Of a move's target, what is None stays as it is."""

    workspace: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    role: str | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What was decided and what came of it; with `needs_content` nothing was decided yet."""

    request_id: UUID
    decision: str | None
    result: str | None
    ref_id: int | None
    blob_hash: str | None
    storage_key: str | None
    error_code: str | None
    error_message: str | None
    is_replay: bool
    needs_content: bool

    @property
    def is_ok(self) -> bool:
        return self.result is not None and self.result.startswith("OK_")


def answer_of(row: Record | None) -> Answer:
    assert row is not None  # noqa: S101  the function answers always
    return Answer(**dict(row))


@dataclass(frozen=True, slots=True)
class Writer:
    """Who writes. `principal` has authenticated; `actor` is on whose behalf, and grants nothing by itself."""

    principal: str
    is_admin: bool
    actor: str

    @classmethod
    def of(cls, principal: str, *, is_admin: bool, on_behalf_of: str | None = None) -> "Writer":
        return cls(principal, is_admin, principal if on_behalf_of is None else on_behalf_of)


@dataclass(frozen=True, slots=True)
class Request:
    """`blob`: what Content.facts says, or only {"hash": ...} of one that is there already."""

    id: UUID
    action: Action
    by: Writer
    slot: Slot = Slot()
    ref: int | None = None
    blob: Mapping[str, Any] | None = None
    on_occupied: OnOccupied | None = None


async def write(store: Store, request: Request, blob: Mapping[str, Any] | None = None) -> Answer:
    """`blob` in place of the request's own, as an upload comes to know more of it."""
    slot = request.slot
    facts = request.blob if blob is None else blob
    arguments = (
        request.id,
        request.action,
        request.by.actor,
        request.by.principal,
        request.by.is_admin,
        slot.workspace,
        slot.entity_type,
        slot.entity_id,
        slot.role,
        slot.position,
        request.ref,
        None if facts is None else json.dumps(facts),
        request.on_occupied,
    )
    for turn in range(REPEATS):
        try:
            return answer_of(await store.row("write_media", *arguments, timeout=CALL_SECONDS))
        except OutcomeUnknown:
            if turn == REPEATS - 1:
                raise
            await anyio.sleep(jitter(PAUSE_SECONDS * 2**turn))
    raise AssertionError("unreachable")


class Unwanted(TenureError):
    """nobody wants this content any more"""


class WriteRejected(TenureError):
    """{code}: {message}"""

    exit_code = 4


class WriteFailed(TenureError):
    """the write failed, and nothing of it was done: {code} {message}"""

    hint = "what is written down of it: `tenure media replay {request_id}`; a new try needs a new request id"
