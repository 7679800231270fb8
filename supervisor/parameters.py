"""Task types: what an actor's runs take from callers.

`tenure migrate` sends them to the database, which checks what callers give.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

Kind = Literal["text", "integer", "number", "boolean", "object", "array", "any"]
ANY_ACTION: Final = "*"
NO_ACTION: Final = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A name in a run's payload. A caller gives its value, unless the definition has fixed it."""

    type: Kind
    required: bool = False
    choices: Sequence[str | int | float] = ()
    minimum: float | None = None
    maximum: float | None = None
    max_length: int | None = None
    """The most characters of a text, or elements of an array."""
    description: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the form that `job_definition.parameters` has too."""
        named = {
            "required": self.required or None,
            "choices": list(self.choices) or None,
            "minimum": self.minimum,
            "maximum": self.maximum,
            "max_length": self.max_length,
            "description": self.description or None,
        }
        return {"type": self.type, **{name: value for name, value in named.items() if value is not None}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskType:
    """One action of a domain's runs.

    Without `parameters`, a definition declares what its callers may give. Keys in `own_keys` are the
    definition's alone. A definition of a type that names a program is saved by role admin only.
    """

    action: str = ANY_ACTION
    parameters: Mapping[str, Parameter] | None = None
    own_keys: Sequence[str] = ()
    names_program: bool = False

    def as_row(self, domain: str) -> dict[str, Any]:
        """Return the row of `supervisor.task_type`."""
        parameters = self.parameters
        return {
            "domain": domain,
            "action": self.action,
            "parameters": parameters and {name: one.as_json() for name, one in parameters.items()},
            "own_keys": list(self.own_keys),
            "names_program": self.names_program,
        }


def describe(spec: Mapping[str, Any]) -> str:
    """Return a parameter's declaration as people read it."""
    parts = [
        spec["type"],
        *(["required"] if spec.get("required") else []),
        *([f"by default {json.dumps(spec['default'])}"] if "default" in spec else []),
        *([f"one of {', '.join(map(str, spec['choices']))}"] if "choices" in spec else []),
        *([f"at least {spec['minimum']}"] if "minimum" in spec else []),
        *([f"at most {spec['maximum']}"] if "maximum" in spec else []),
        *([f"length at most {spec['max_length']}"] if "max_length" in spec else []),
    ]
    return ", ".join(parts) + (f": {spec['description']}" if "description" in spec else "")


def blank(takes: Mapping[str, Mapping[str, Any]] | None) -> str:
    """Return JSON with the required names, for a form."""
    return json.dumps({name: None for name, spec in (takes or {}).items() if spec.get("required")})
