"""What is shown of a run and of a job: one reading for the command line, the API and the console.

Payloads, results and messages are other people's JSON, of any depth: they are handed on as the database wrote
them (`Raw`) and not taken apart on the way.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from supervisor.cli.fires import next_fires
from supervisor.errors import NotFound
from supervisor.store import Record, Store
from supervisor.stored_json import UnreadableJson, decode

FIRES: Final = 3


class Raw(str):
    """A text that is JSON already."""

    __slots__ = ()


def rendered(value: Any) -> str:
    """JSON of our own shapes, with the raw pieces in their places; times in ISO 8601."""
    match value:
        case Raw():
            return value
        case datetime():
            return json.dumps(value.isoformat())
        case UUID():
            return json.dumps(str(value))
        case Mapping() | Record():
            return "{" + ",".join(f"{json.dumps(name)}:{rendered(one)}" for name, one in value.items()) + "}"
        case list() | tuple():
            if all(type(one) is int for one in value):  # by ten thousands, as the answer to many triggers
                return json.dumps(value)
            return "[" + ",".join(map(rendered, value)) + "]"
        case _ if is_dataclass(value):
            return rendered({field.name: getattr(value, field.name) for field in fields(value)})
        case _:
            return json.dumps(value)


async def read_run(store: Store, run_id: int) -> Raw:
    """Every column under its name, the job's name, what it went through, completions that came too late."""
    row = await store.row("show_run", run_id)
    if row is None:
        raise NotFound(kind="run", name=run_id)
    return joined(
        row["run"], job=row["job"], history=Raw(row["history"]), late_finishes=Raw(row["late_finishes"])
    )


async def read_job(store: Store, name: str) -> Raw:
    """Its options, its live runs, when it fired, what it skipped, and when it fires next."""
    row = await store.row("show_job", name)
    if row is None:
        raise NotFound(kind="job", name=name)
    return joined(row["job"], next_fires=fires_of(row["job"], row["now"]))


def fires_of(job: str, now: datetime) -> list[dict[str, str]]:
    try:
        return next_fires(decode(job), now, FIRES)
    except UnreadableJson:
        return []


def joined(object_text: str, **more: Any) -> Raw:
    """A JSON object with further fields."""
    head = object_text.rstrip().removesuffix("}")
    return Raw(f"{head},{rendered(more)[1:]}")
