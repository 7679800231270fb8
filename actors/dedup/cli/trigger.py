"""Runs of this domain that a person asks for: each action has a definition, made when it is first needed.

The work goes on whether whoever asked stays or not, and is seen like any other: `tenure run list`.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from supervisor.errors import Conflict, NotFound
from supervisor.store import Record, Store

PREFIX: Final = "dedup/"


async def trigger(
    store: Store, actor: str, action: str, payload: Mapping[str, Any], key: str | None = None
) -> Record:
    """The run: id, state, and whether it was made now."""
    name = f"{PREFIX}{action}"
    try:
        return await _trigger(store, actor, name, payload, key)
    except NotFound:
        await _define(store, actor, name, action)
        return await _trigger(store, actor, name, payload, key)


async def _trigger(
    store: Store, actor: str, name: str, payload: Mapping[str, Any], key: str | None
) -> Record:
    row = await store.row("trigger_job", actor, name, json.dumps(payload), key, None, None)
    assert row is not None  # noqa: S101  it raises where there is none
    return row


async def _define(store: Store, actor: str, name: str, action: str) -> None:
    try:
        spec = json.dumps({"domain": "dedup", "action": action})
        await store.row("save_job", actor, name, spec, True, False)
    except Conflict:  # somebody else was faster
        return
