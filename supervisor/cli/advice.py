"""What to try next after an error: a command that exists, or the name that was probably meant."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from supervisor.cli import names
from supervisor.errors import BadInput, Conflict, NotFound, OutcomeUnknown, TenureError

UNKNOWN_HINT: Final = "it may or may not have been done: look before you repeat it"

Known = Callable[[], Sequence[str]]
LOOKUPS: Final[Mapping[str, Known]] = {
    "job": names.job_names,
    "worker": lambda: [name for name, _ in names.worker_ids()],
}


def advice(error: TenureError, root: Any, arguments: Sequence[str]) -> str:
    """The error's own hint where it has one, else what its noun offers. `root` is the tree of commands."""
    path, group, rest = _walk(root, arguments)
    if isinstance(error, OutcomeUnknown):
        return UNKNOWN_HINT
    if isinstance(error, NotFound) and error.hint == NotFound.hint:
        return _not_found(error, root)
    if error.advice:
        return error.advice
    if isinstance(error, Conflict) and "show" in group and rest:
        return f"`tenure {path[0]} show {rest[0]}` shows how it stands"
    if isinstance(error, BadInput | Conflict):
        return f"`{' '.join(('tenure', *path))} --help` shows how it is used"
    return "`tenure doctor` looks for the cause"


def _not_found(error: NotFound, root: Any) -> str:
    kind, name = str(error.facts["kind"]), str(error.facts["name"])
    meant = names.did_you_mean(name, LOOKUPS[kind]()) if kind in LOOKUPS else ""
    known = getattr(root.commands.get(kind), "commands", {})
    listing = next((verb for verb in ("list", "get", "show") if verb in known), None)
    shows = f"`tenure {kind} {listing}` shows what there is" if listing else "`tenure --help` lists what is"
    return f"{meant} {shows}" if meant else shows


def _walk(root: Any, arguments: Sequence[str]) -> tuple[list[str], Mapping[str, Any], list[str]]:
    """The command these arguments name, its siblings, and what stands behind it without a dash."""
    path: list[str] = []
    here, siblings = root, dict[str, Any]()
    words = [word for word in arguments if not word.startswith("-")]
    for word in words:
        below = getattr(here, "commands", {})
        if word not in below:
            break
        path.append(word)
        here, siblings = below[word], below
    return path, siblings if len(path) > 1 else {}, words[len(path) :]
