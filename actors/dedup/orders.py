"""What a run of this domain can be asked for, and the jobs it is made of. Pure.

| action                 | payload                                                            |
|------------------------|--------------------------------------------------------------------|
| scan                   | library; hash, algorithm, mode, thumbnails, allow_empty            |
| hash                   | library (all where it is left out), algorithm, mode                |
| rescan-all             | hash, algorithm, mode, allow_empty                                 |
| thumbnails-for-library | library; format, max_dimension                                     |

`mode` is `all`, or `duplicates`: only files that can have a partner. A run that an event started has the
event in its payload too; it says nothing here.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from supervisor.parameters import Parameter, TaskType

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
NAME_RULE: Final = "1 to 63 letters, digits and . _ -, of which the first is a letter or a digit"
ALGORITHMS: Final = ("blake3", "sha256")
MODES: Final = ("all", "duplicates")
FORMATS: Final = ("webp", "jpeg")
LEAST_DIMENSION: Final = 16
MOST_DIMENSION: Final = 2048


@dataclass(frozen=True, slots=True)
class Step:
    """One job of a run."""

    kind: str
    library: str | None
    payload: Mapping[str, Any] = field(default_factory=dict)


def _one_of(choices: Sequence[str]) -> Callable[[Any], str | None]:
    return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"


def _switch(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def _name(value: Any) -> str | None:
    fits = isinstance(value, str) and NAME.fullmatch(value)
    return None if fits else f"must be the name of a library: {NAME_RULE}"


def _dimension(value: Any) -> str | None:
    fits = isinstance(value, int) and not isinstance(value, bool)
    if fits and LEAST_DIMENSION <= value <= MOST_DIMENSION:
        return None
    return f"must be a whole number from {LEAST_DIMENSION} to {MOST_DIMENSION}"


_FIELDS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "library": _name,
    "hash": _switch,
    "algorithm": _one_of(ALGORITHMS),
    "mode": _one_of(MODES),
    "thumbnails": _switch,
    "allow_empty": _switch,
    "format": _one_of(FORMATS),
    "max_dimension": _dimension,
}
ACTIONS: Final[Mapping[str, frozenset[str]]] = {
    "scan": frozenset({"library", "hash", "algorithm", "mode", "thumbnails", "allow_empty"}),
    "hash": frozenset({"library", "algorithm", "mode"}),
    "rescan-all": frozenset({"hash", "algorithm", "mode", "allow_empty"}),
    "thumbnails-for-library": frozenset({"library", "format", "max_dimension"}),
}
_PARAMETERS: Final[Mapping[str, Parameter]] = {
    "library": Parameter(type="text", max_length=63, description="the name of a library"),
    "hash": Parameter(type="boolean", description="hash the files that were found"),
    "algorithm": Parameter(type="text", choices=ALGORITHMS),
    "mode": Parameter(type="text", choices=MODES, description="all, or only files that can have a partner"),
    "thumbnails": Parameter(type="boolean", description="make thumbnails too"),
    "allow_empty": Parameter(type="boolean", description="believe a library that looks empty"),
    "format": Parameter(type="text", choices=FORMATS),
    "max_dimension": Parameter(type="integer", minimum=LEAST_DIMENSION, maximum=MOST_DIMENSION),
}
_OF_ONE_LIBRARY: Final = frozenset({"scan", "thumbnails-for-library"})
_IGNORED: Final = frozenset({"event"})
TASK_TYPES: Final = tuple(
    TaskType(
        action=action,
        parameters={
            name: replace(one, required=name == "library" and action in _OF_ONE_LIBRARY)
            for name, one in _PARAMETERS.items()
            if name in takes
        },
    )
    for action, takes in ACTIONS.items()
)


def check(payload: Mapping[str, Any]) -> Sequence[str]:
    """What no action could be asked for; `faults` knows the action too."""
    named = payload.keys() - _IGNORED
    complaints = _field_faults(payload)
    if not complaints and not any(named <= takes for takes in ACTIONS.values()):
        complaints = [f"no action takes {', '.join(sorted(named))} together"]
    return complaints


def faults(action: str | None, payload: Mapping[str, Any]) -> Sequence[str]:
    """What is wrong with a payload for this action; empty when it can be run."""
    if action is None or action not in ACTIONS:
        return [f"the action must be one of {', '.join(ACTIONS)}"]
    complaints = _field_faults(payload)
    if surplus := sorted((payload.keys() & _FIELDS.keys()) - ACTIONS[action]):
        complaints.append(f"{action} does not take {', '.join(surplus)}")
    if action in _OF_ONE_LIBRARY and "library" not in payload:
        complaints.append("library is missing: name one from `tenure library list`")
    return complaints


def steps(action: str, payload: Mapping[str, Any], libraries: Sequence[str]) -> list[Step]:
    """The jobs in their order. `libraries` are those there are, which only rescan-all goes through."""
    library = payload.get("library")
    match action:
        case "scan":
            return [
                Step("scan", library, _scanning(payload)),
                *_hashing(payload, library),
                *([Step("thumbnail", library)] if payload.get("thumbnails") else []),
            ]
        case "hash":
            return [Step("hash", library, _part(payload, "algorithm", "mode"))]
        case "rescan-all":
            scans = [Step("scan", name, _scanning(payload)) for name in libraries]
            return [*scans, *(_hashing(payload, None) if libraries else [])]
        case "thumbnails-for-library":
            return [Step("thumbnail", library, _part(payload, "format", "max_dimension"))]
        case _:
            raise ValueError(action)


def _scanning(payload: Mapping[str, Any]) -> dict[str, Any]:
    """A scan that is followed by hashing may hash what is small at once, and in the same way."""
    names = ("hash", "algorithm", "mode") if payload.get("hash") else ()
    return _part(payload, "allow_empty", *names)


def _hashing(payload: Mapping[str, Any], library: str | None) -> list[Step]:
    return [Step("hash", library, _part(payload, "algorithm", "mode"))] if payload.get("hash") else []


def _part(payload: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: payload[name] for name in names if name in payload}


def _field_faults(payload: Mapping[str, Any]) -> list[str]:
    complaints = [f"{name} is unknown" for name in sorted(payload.keys() - _FIELDS.keys() - _IGNORED)]
    for name, fault_of in _FIELDS.items():
        if name in payload and (fault := fault_of(payload[name])) is not None:
            complaints.append(f"{name} {fault}")
    return complaints
