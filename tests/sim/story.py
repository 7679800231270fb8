"""A failure as a person reads it: what led to it, without the hum of beats, and how to see it again."""

import json
from collections.abc import Iterable
from typing import Final

from tests.sim.plan import Plan, Result
from tests.sim.record import Event

ALWAYS: Final = frozenset({"boots", "dies", "left", "peace", "enqueued"})
HUM: Final = frozenset({"beat_worker", "renew_tenure"})
BEATS: Final = 3
"""Of each worker, the last ones that name what it is about."""


def told(result: Result) -> str:
    events = result.events
    about = _about(events[-1]) if events else frozenset()
    lines = [str(event) for event in _relevant(events, about)]
    head = f"VIOLATION with seed {result.plan.seed} after {len(events)} events and {result.steps} steps:"
    return "\n".join([head, *lines, f"replay: {replay_command(result.plan, result.steps)}"])


def replay_command(plan: Plan, steps: int) -> str:
    parts = ["python -m tests.sim", f"--seed {plan.seed}", f"--replicas {plan.replicas}"]
    parts += [f"--seconds {plan.fault_seconds:g}"]
    if plan.scenario is not None:
        parts.append(f"--scenario {plan.scenario}")
    if plan.rules_off:
        parts.append(f"--rules-off {','.join(sorted(plan.rules_off))}")
    if plan.faults is not None:
        parts.append(f"--faults {','.join(plan.faults)}")
    return " ".join([*parts, f"--steps {steps + 1}", "--events"])


def _about(violation: Event) -> frozenset[str]:
    """The claims and runs it names."""
    text = json.dumps(dict(violation.facts), default=str) + violation.what
    return frozenset(word for word in _words(text) if len(word) == 36 and word.count("-") == 4)


def _words(text: str) -> Iterable[str]:
    return "".join(letter if letter.isalnum() or letter == "-" else " " for letter in text).split()


def _relevant(events: list[Event], about: frozenset[str]) -> Iterable[Event]:
    beats: dict[str, int] = {}
    kept: list[Event] = []
    for event in reversed(events):
        if event.facts.get("call") in HUM:
            named = set(event.facts.get("claims", ())) & about
            beats[event.who] = beats.get(event.who, 0) + bool(named)
            if not named or beats[event.who] > BEATS:
                continue
        kept.append(event)
    return reversed(kept)
