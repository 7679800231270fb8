"""The payload of a command: what it may say, and what becomes of it. Pure.

{"argv": ["prog", "arg", ...]             required; no shell. Instead of "arg", {"argument": "NAME"} stands
                                          for the value of a parameter that the definition declares
 "env": {"NAME": "value"}                 variables of its own
 "env_allow": ["NAME", ...]               which of TENURE_COMMAND_ENV it takes over from the replica, not all
 "cwd": "/absolute/path"                  working directory; the replica's own without it
 "max_output_bytes": 1048576              how much of stdout and stderr together is kept
 "success_exit_codes": [0],               which exit codes are a success
 "event": {...},                          the event that made the run; put there by the leader
 "NAME": ...}                             an argument: any other name. Callers can give nothing else

Variables whose names begin with TENURE_ are ours: the replica's secrets live there, and the fencing token.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from supervisor import Claim
from supervisor.own_variables import is_own
from supervisor.parameters import TaskType

DEFAULT_OUTPUT_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 64 * 1024 * 1024
RESERVED_PREFIX = "TENURE_"
ARGUMENTS_BYTES = 64 * 1024
"""Longer arguments are in the file only: a single variable must not crowd out the others."""


@dataclass(frozen=True, slots=True)
class Order:
    """A payload without complaints, with its defaults filled in."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    env_allow: tuple[str, ...] | None
    cwd: str | None
    max_output_bytes: int
    success_exit_codes: tuple[int, ...]
    arguments: Mapping[str, Any]
    """What callers gave, the defaults of what they did not give, and the event."""

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Self:
        given = {name: value for name, value in payload.items() if value is not None}
        return cls(
            argv=tuple(_resolved(given["argv"], payload)),
            env=given.get("env", {}),
            env_allow=tuple(given["env_allow"]) if "env_allow" in given else None,
            cwd=given.get("cwd"),
            max_output_bytes=given.get("max_output_bytes", DEFAULT_OUTPUT_BYTES),
            success_exit_codes=tuple(given.get("success_exit_codes", (0,))),
            arguments={name: value for name, value in payload.items() if name not in OWN_KEYS},
        )


def _resolved(argv: Sequence[Any], payload: Mapping[str, Any]) -> Iterator[str]:
    """Put each argument where argv names it; one that was not given is left out."""
    for part in argv:
        value = payload.get(part["argument"]) if isinstance(part, dict) else part
        if value is not None:
            yield value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def inherited(order: Order, permitted: Collection[str], replica: Mapping[str, str]) -> dict[str, str]:
    """Return what the command takes over of the replica's environment."""
    wanted = permitted if order.env_allow is None else order.env_allow
    return {name: replica[name] for name in wanted if name in permitted and name in replica}


def check_env_allow(order: Order, permitted: Collection[str]) -> str | None:
    refused = sorted(set(order.env_allow or ()).difference(permitted))
    if not refused:
        return None
    return f"env_allow names {', '.join(refused)}, which TENURE_COMMAND_ENV of this replica does not pass on"


def environment(
    order: Order, claim: Claim, arguments_file: Path, taken_over: Mapping[str, str]
) -> dict[str, str]:
    text = json.dumps(order.arguments, ensure_ascii=False)
    short = {"TENURE_ARGUMENTS": text} if len(text.encode()) <= ARGUMENTS_BYTES else {}
    return {
        **taken_over,
        **order.env,
        **_event_variables(order.arguments.get("event")),
        **short,
        "TENURE_ARGUMENTS_FILE": str(arguments_file),
        "TENURE_RUN_ID": str(claim.run_id),
        "TENURE_ATTEMPT": str(claim.attempt),
        "TENURE_EPOCH": str(claim.epoch),
        "TENURE_CLAIM": str(claim.claim_id),
    }


def _event_variables(event: Mapping[str, Any] | None) -> dict[str, str]:
    if event is None:
        return {}
    return {
        "TENURE_EVENT_ID": str(event.get("id", "")),
        "TENURE_EVENT_TYPE": str(event.get("type", "")),
        # as it was stored: with escapes it could exceed what the kernel takes for one variable
        "TENURE_EVENT": json.dumps(event.get("payload", {}), ensure_ascii=False),
    }


def check_payload(payload: Mapping[str, Any]) -> list[str]:
    """Name everything that is wrong with a definition's payload; empty when nothing is."""
    unknown = [name for name in payload if name not in _CHECKS]
    known = f"known are {', '.join(_CHECKS)}; values from callers are parameters"
    return [*check_run(payload), *(f"unknown key {name!r}; {known}" for name in unknown)]


def check_run(payload: Mapping[str, Any]) -> list[str]:
    """Name what is wrong with a run's payload, in which any other key is an argument."""
    complaints = []
    if payload.get("argv") is None:
        complaints.append('argv is missing: a list of strings such as ["sleep", "1"]')
    for name, value in payload.items():
        check = _CHECKS.get(name)
        if check is not None and value is not None and (complaint := check(value)):
            complaints.append(complaint)
    return complaints


def _argv(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return "argv must be a list of at least one string"
    if not all(_is_text(part) or _is_argument(part) for part in value):
        return 'argv must hold strings without NUL characters, or {"argument": "NAME"}'
    if not isinstance(value[0], str):
        return "argv begins with an argument: name a program"
    return None if value[0] else "argv begins with an empty string: name a program"


def _env(value: Any) -> str | None:
    if not isinstance(value, dict):
        return "env must be an object of names and strings"
    for name, text in value.items():
        if complaint := _variable("env", name):
            return complaint
        if name.upper().startswith(RESERVED_PREFIX):
            return f"env: {name!r} is reserved"
        if not _is_text(text):
            return f"env: the value of {name!r} must be a string without NUL characters"
    return None


def _env_allow(value: Any) -> str | None:
    if not isinstance(value, list):
        return "env_allow must be a list of variable names"
    for name in value:
        if complaint := _variable("env_allow", name):
            return complaint
        if is_own(name):
            return f"env_allow: {name!r} is of a kind that holds secrets of the replica"
    return None


def _variable(key: str, name: Any) -> str | None:
    return (
        None if _is_text(name) and name and "=" not in name else f"{key}: {name!r} is no name of a variable"
    )


def _cwd(value: Any) -> str | None:
    return None if _is_text(value) and value.startswith("/") else "cwd must be an absolute path"


def _max_output_bytes(value: Any) -> str | None:
    fits = _is_integer(value) and 0 <= value <= MAX_OUTPUT_BYTES
    return None if fits else f"max_output_bytes must be an integer from 0 to {MAX_OUTPUT_BYTES}"


def _success_exit_codes(value: Any) -> str | None:
    fits = isinstance(value, list) and value and all(_is_integer(code) and 0 <= code <= 255 for code in value)
    return None if fits else "success_exit_codes must be a list of integers from 0 to 255"


def _event(value: Any) -> str | None:
    return None if isinstance(value, dict) else "event must be an object"


def _is_argument(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"argument"} and _is_text(value["argument"])


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_CHECKS: Mapping[str, Callable[[Any], str | None]] = {
    "argv": _argv,
    "env": _env,
    "env_allow": _env_allow,
    "cwd": _cwd,
    "max_output_bytes": _max_output_bytes,
    "success_exit_codes": _success_exit_codes,
    "event": _event,
}
OWN_KEYS: Final = frozenset(_CHECKS) - {"event"}
TASK_TYPE: Final = TaskType(own_keys=sorted(OWN_KEYS), names_program=True)
