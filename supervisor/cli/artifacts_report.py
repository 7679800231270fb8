"""What `tenure artifacts` prints: how it goes on, and what came of it."""

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from supervisor.artifacts.collector import Collection, Rules
from supervisor.artifacts.inspection import Inspection
from supervisor.artifacts.move import Move, Rewriting
from supervisor.cli import output
from supervisor.clock import boottime

SHOWN: Final = 50
TELL_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 10.0


class Progress:
    """A line on stderr now and then; on a terminal it is written over."""

    def __init__(self, words: Callable[[Any], str]) -> None:
        self._words = words
        self._pause = TELL_SECONDS if sys.stderr.isatty() else QUIET_SECONDS
        self._due = boottime() + self._pause

    def __call__(self, found: Any) -> None:
        if boottime() < self._due:
            return
        self._due = boottime() + self._pause
        ends = "\r" if sys.stderr.isatty() else "\n"
        sys.stderr.write(f"{self._words(found)}{ends}")
        sys.stderr.flush()


def counts(found: Any, *names: str) -> dict[str, int]:
    return {name: getattr(found, name) for name in names}


def pairs(pairs: Sequence[tuple[str, str]], first: str, second: str) -> list[dict[str, str]]:
    return [{first: one, second: other} for one, other in pairs]


def rewriting_json(told: Rewriting | None) -> dict[str, Any] | None:
    if told is None:
        return None
    return {**counts(told, "found", "changed"), "unknown": pairs(told.unknown, "source", "ref")}


def inspection_json(told: Inspection) -> dict[str, Any]:
    return {
        **counts(told, "checked", "checked_bytes", "referenced", "elsewhere"),
        "wrong": pairs(told.wrong, "key", "error"),
        "missing": pairs(told.missing, "key", "referenced_by"),
        "residues": pairs(told.residues, "ref", "referenced_by"),
    }


def print_collection(found: Collection, rules: Rules) -> None:
    output.print_table(
        ["KEY", "BYTES", "LAST PUT"],
        ([entry.key, entry.size, f"{entry.modified_at:%Y-%m-%d %H:%M}"] for entry in found.orphans[:SHOWN]),
        empty=f"no orphans older than {rules.orphan_days:g} days",
    )
    if len(found.orphans) > SHOWN:
        output.say(f"... and {len(found.orphans) - SHOWN} more: --json has all")
    output.say(
        f"{found.scanned} artifacts ({found.scanned_bytes} bytes): {found.referenced} referenced, "
        f"{found.young} young, {len(found.orphans)} orphans ({found.orphan_bytes} bytes)"
    )
    if not rules.execute:
        output.say("nothing was removed: this was a dry run, --execute removes")
        return
    output.say(f"removed {found.removed} ({found.removed_bytes} bytes), spared {found.spared}")
    _print_failures(found.failed)


def print_move(moved: Move, rewritten: Rewriting | None, place: str | None, *, doing: bool) -> None:
    verb = "copied" if doing else "to copy"
    output.say(
        f"{moved.scanned} artifacts ({moved.scanned_bytes} bytes): "
        f"{verb} {moved.copied} ({moved.copied_bytes} bytes), "
        f"{moved.present} there already, {moved.verified} verified"
    )
    print_rewriting(rewritten, doing=doing)
    _print_failures(moved.failed)
    if not doing:
        output.say("nothing was changed: this was a dry run, --execute does it")
    elif place is not None and not moved.failed:
        output.say(f"addresses of the source stay valid with TENURE_ARTIFACTS_FORMER_PLACES={place}")


def print_rewriting(told: Rewriting | None, *, doing: bool) -> None:
    if told is None:
        return
    output.say(f"{told.found} rows hold an address: {told.changed} {'changed' if doing else 'to change'}")
    for source, ref in told.unknown[:SHOWN]:
        output.say(f"not of these stores: {ref} ({source})")


def print_inspection(told: Inspection) -> None:
    rows = [
        *(["wrong", key, error] for key, error in told.wrong),
        *(["missing", key, where] for key, where in told.missing),
        *(["address", ref, where] for ref, where in told.residues),
    ]
    output.print_table(["WHAT", "ARTIFACT", "WHY"], rows, empty="all as it was recorded")
    output.say(
        f"{told.checked} artifacts ({told.checked_bytes} bytes) checked, {told.referenced} referenced; "
        f"{len(told.wrong)} wrong, {len(told.missing)} missing, {len(told.residues)} addresses for keys"
    )


def _print_failures(failed: Sequence[tuple[str, str]]) -> None:
    for key, error in failed[:SHOWN]:
        output.say(f"failed: {key}: {error}")
