"""What a job is made of, under the names people write, and what can be wrong with it. Pure.

`job add`, `job set` and `job apply` share these fields. The bounds and defaults are those of the table, which
refuses anything else whoever asks; here they are named before anything is changed.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from supervisor import schedule

PAYLOAD_BYTES: Final = 256 * 1024
NAME: Final = re.compile(r"(?!.*/\.{1,2}(?:/|$))[A-Za-z0-9][A-Za-z0-9._:/-]{0,199}")
NAME_RULE: Final = (
    "1 to 200 letters, digits and . _ : / -, of which the first is a letter or a digit,"
    " without a part that is . or .."
)


@dataclass(frozen=True, slots=True)
class Field:
    """`low` and `high` bound a number, or the length of a text; 0 of a `zero_is_none` stands for no limit."""

    column: str
    kind: type
    default: Any = None
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()
    zero_is_none: bool = False

    def faults(self, value: Any) -> Iterator[str]:
        if not _is(value, self.kind):
            yield f"must be {_KINDS[self.kind]}"
        elif self.choices and value not in self.choices:
            yield f"must be one of {', '.join(self.choices)}"
        elif self.kind is str and "\0" in value:
            yield "holds a NUL"
        elif self.kind is str and not self.low <= len(value) <= self.high:
            yield f"must have {self.low:g} to {self.high:g} characters"
        elif self.kind in {int, float} and not self.low <= value <= self.high:
            yield f"must be between {self.low:g} and {self.high:g}"

    def stored(self, value: Any) -> Any:
        return None if self.zero_is_none and value == 0 else value


_KINDS: Final = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
}

FIELDS: Final[Mapping[str, Field]] = {
    "domain": Field("domain", str, low=1, high=63),
    "action": Field("action", str, low=1, high=100),
    "payload": Field("payload", dict, {}),
    "parameters": Field("parameters", dict, None),
    "enabled": Field("enabled", bool, True),
    "priority": Field("priority", int, 0, -1000000, 1000000),
    "max_attempts": Field("max_attempts", int, 3, 1, 1000),
    "timeout": Field("timeout_seconds", float, None, 0, 31536000, zero_is_none=True),
    "concurrency": Field("concurrency", int, None, 0, 1000000, zero_is_none=True),
    "concurrency_policy": Field("concurrency_policy", str, "allow", choices=("allow", "forbid", "replace")),
    "backoff": Field("backoff_seconds", float, 5, 0, 86400),
    "backoff_max": Field("backoff_max_seconds", float, 600, 0, 604800),
    "cron": Field("cron", str, None, 1, 200),
    "timezone": Field("timezone", str, "UTC", 1, 100),
    "missed": Field("missed", str, "latest", choices=("skip", "latest", "all")),
    "missed_limit": Field("missed_limit", int, 100, 1, 1000),
    "event": Field("event_type", str),
}


def columns_of(named: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of the fields that were named."""
    return {FIELDS[name].column: FIELDS[name].stored(value) for name, value in named.items()}


def complete(columns: dict[str, Any], was: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A policy that bounds means one at a time, unless it was said how many."""
    policy = columns.get("concurrency_policy", "allow")
    has_bound = "concurrency" in columns or (was is not None and was["concurrency"] is not None)
    return columns if policy == "allow" or has_bound else {**columns, "concurrency": 1}


def relation_faults(job: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """Of a whole job, by its columns: what no field shows alone."""
    if job.get("cron") is not None:
        yield from schedule.complaints(job["cron"], job.get("timezone") or "UTC", now)
    if job.get("concurrency_policy", "allow") != "allow" and job.get("concurrency") is None:
        yield f"the policy {job['concurrency_policy']} needs a concurrency of at least 1"
    if job.get("event_type") is not None and not NAME.fullmatch(job["event_type"]):
        yield f"{job['event_type']!r} cannot be an event's type: {NAME_RULE}"


# one for all: `json.dumps` with options makes an encoder each time
_ENCODE: Final = json.JSONEncoder(allow_nan=False).encode


def encode_payload(payload: Mapping[str, Any]) -> tuple[str, list[str]]:
    """As it is sent to be stored, and what is wrong with it; encoded once for both."""
    if not payload:
        return "{}", []
    try:
        text = _ENCODE(payload)
    except (TypeError, ValueError, RecursionError) as error:
        return "", [f"the payload is not JSON: {error}"]
    faults = []
    if "\\u0000" in text:
        faults.append("the payload holds a NUL")
    # what is escaped is longer than its bytes, never shorter
    if len(text) > PAYLOAD_BYTES and (size := _bytes_of(payload)) > PAYLOAD_BYTES:
        faults.append(f"the payload has {size} bytes, over the limit of {PAYLOAD_BYTES}")
    return text, faults


def payload_faults(payload: Mapping[str, Any]) -> list[str]:
    return encode_payload(payload)[1]


def _bytes_of(payload: Mapping[str, Any]) -> int:
    return len(json.dumps(payload, ensure_ascii=False).encode(errors="surrogatepass"))


def _is(value: Any, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)
