"""The rules that can be switched off, to see that the simulation notices.

Each names what goes: a function of the database is replaced, or a part of the replica is patched.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from supervisor.claims import Claims, Held
from supervisor.memory import Memory
from supervisor.watch import Watch
from tests.sim.database import Database

NEVER: Final = 10_000.0


def _fence(source: str) -> str:
    return _swap(source, "IF term.epoch IS", "IF false AND term.epoch IS", "OR term", "AND term")


def _quiesced(source: str) -> str:
    return _swap(source, "SELECT r.started_at IS NULL OR", "SELECT true OR r.started_at IS NULL OR")


def _finish(source: str) -> str:
    current = "(SELECT e.epoch FROM supervisor.leader_epoch e)"
    return _swap(source, "AND r.leader_epoch = m.epoch", f"AND {current} = m.epoch")


def _start(source: str) -> str:
    return _swap(source, "AND term.current AND r.assigned_epoch >= term.first_epoch", "")


def _acquire(source: str) -> str:
    held = "+ make_interval(secs => greatest("
    return _swap(source, held, held.replace("+ make", "+ 0 * make"))


def _swap(source: str, *pairs: str) -> str:
    """Old and new, in turn; a rule that is not where it was is an error, not a green control."""
    for old, new in zip(pairs[::2], pairs[1::2], strict=True):
        assert old in source, f"no longer in the function: {old}"
        source = source.replace(old, new)
    return source


IN_THE_DATABASE: Final[Mapping[str, Mapping[str, Callable[[str], str]]]] = {
    "fence": {"fence": _fence},
    "quiesce": {"quiesced": _quiesced},
    "token_row": {"finish": _finish},
    "older_timeline": {"start": _start},
    "quarantine": {"acquire": _acquire},
}


def _always(*_args: object) -> float:
    return NEVER


def _from_receipt(self: Claims, named: Any, listed: Any, cancels: Any, _sent_at: float, now: float) -> None:
    _ANSWERED(self, named, listed, cancels, now, now)


_ANSWERED: Final = Claims.answered


def _begin_at_receipt(self: Claims, held: Held, _sent: float, now: float, stop: Callable[[], None]) -> bool:
    return _BEGIN(self, held, now, now, stop)


def _begin_for_ever(self: Claims, held: Held, sent: float, now: float, stop: Callable[[], None]) -> bool:
    self._timings = replace(self._timings, self_stop=NEVER)
    return _BEGIN(self, held, sent, now, stop)


_BEGIN: Final = Claims.begin


def _learn_without_clock(self: Memory, epoch: int, system_identifier: int, timeline: int) -> None:
    _LEARN(self, epoch, system_identifier, timeline)
    self.met_at = None


_LEARN: Final = Memory.learn

IN_THE_REPLICA: Final[Mapping[str, tuple[tuple[type, str, Any], ...]]] = {
    "two_keys": ((Watch, "stood", _always),),
    "stop_rule": ((Claims, "begin", _begin_for_ever),),
    "quarantine": ((Memory, "learn", _learn_without_clock),),
    "send_time": ((Claims, "answered", _from_receipt), (Claims, "begin", _begin_at_receipt)),
}
# dead_man: host.py
RULES: Final = tuple(dict.fromkeys((*IN_THE_DATABASE, *IN_THE_REPLICA, "dead_man")))


def changed_functions(database: Database, rules_off: frozenset[str]) -> dict[str, str]:
    return {
        name: change(database.sources[name])
        for rule in sorted(rules_off & IN_THE_DATABASE.keys())
        for name, change in IN_THE_DATABASE[rule].items()
    }


@contextmanager
def switched_off(rules_off: frozenset[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for rule in sorted(rules_off & IN_THE_REPLICA.keys()):
            for owner, name, stand_in in IN_THE_REPLICA[rule]:
                stack.enter_context(patch.object(owner, name, stand_in))
        yield
