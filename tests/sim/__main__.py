"""`python -m tests.sim --seed 7`, or `--seeds 1..100`: simulate, and tell the story of what breaks.

--replicas K --seconds S --steps M   how large, how long, and where to stop
--rules-off fence,quiesce            what the simulation must notice (see rules.py)
--faults crash,cut                   these kinds alone, instead of a choice of the seed
--scenario NAME                      a story that once broke something (see scenarios.py)
--controls                           each rule off in turn, until a seed shows that it is missing
--directory DIR                      write the history of the last simulation there
--events                             print every event
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from tests.sim.database import Database, opened
from tests.sim.faults import KINDS, RARE
from tests.sim.plan import Plan, Result
from tests.sim.rules import RULES
from tests.sim.scenarios import CONTROLS, SCENARIOS
from tests.sim.simulation import simulate
from tests.sim.story import replay_command, told
from tests.support.server import claim_root, release_root, shared_server


def main(arguments: Sequence[str]) -> int:
    given = _parse(arguments)
    lock = claim_root()
    try:
        with opened(shared_server()) as database:
            return (_control_all if given.controls else _simulate_all)(database, given)
    finally:
        release_root(lock)


def _simulate_all(database: Database, given: argparse.Namespace) -> int:
    broken = 0
    for seed in given.seeds:
        plan = Plan(
            seed, given.replicas, given.seconds, frozenset(given.rules_off), given.faults, given.scenario,
            given.steps, directory=given.directory,
        )  # fmt: skip
        began = time.monotonic()
        result = simulate(database, plan)
        _tell(_line(result, time.monotonic() - began))
        if given.events:
            _tell(*result.events)
        if result.violations:
            broken += 1
            _tell(told(_closer(database, plan, result)))
            if given.stop:
                break
    return 1 if broken else 0


def _control_all(database: Database, given: argparse.Namespace) -> int:
    """0 = every rule was missed. A rule that nothing misses in these seeds is told by name."""
    unnoticed = 0
    for rule, scenario in CONTROLS.items():
        if given.rules_off and rule not in given.rules_off:
            continue
        for seed in given.seeds:
            plan = Plan(seed, given.replicas, given.seconds, frozenset({rule}), scenario=scenario)
            result = simulate(database, plan)
            if result.violations:
                _tell(
                    f"{rule}: missed by seed {seed}: {result.violations[0]}",
                    f"  {replay_command(plan, result.steps)}",
                )
                break
        else:
            unnoticed += 1
            _tell(f"{rule}: not missed in {len(given.seeds)} seeds")
    return 1 if unnoticed else 0


def _tell(*lines: object) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _closer(database: Database, plan: Plan, result: Result) -> Result:
    """The same again, looking at the database after every statement: the first that shows it ends it."""
    again = simulate(database, replace(plan, often=True))
    return again if again.violations else result


def _line(result: Result, wall_seconds: float) -> str:
    story = sha256("\n".join(map(str, result.events)).encode()).hexdigest()[:12]
    seen = " ".join(f"{name}={count}" for name, count in sorted(result.seen.items()) if count)
    state = "BROKEN" if result.violations else "holds"
    return (
        f"seed {result.plan.seed}: {state}; {result.seconds:.0f} s made up in {wall_seconds:.1f} s, "
        f"{result.statements} statements, {len(result.events)} events ({story}); "
        f"faults {','.join(result.kinds)}; {seen}"
    )


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sim", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=lambda text: [int(text)], dest="seeds", metavar="N")
    which.add_argument("--seeds", type=_range, metavar="A..B")
    parser.add_argument("--replicas", type=int, default=Plan.replicas)
    parser.add_argument("--seconds", type=float, default=Plan.fault_seconds)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rules-off", type=lambda text: _names(text, RULES), default=())
    parser.add_argument("--faults", type=lambda text: _names(text, (*KINDS, *RARE)))
    parser.add_argument("--scenario", choices=sorted(SCENARIOS))
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--events", action="store_true")
    parser.add_argument("--controls", action="store_true")
    parser.add_argument("--stop", action="store_true", help="at the first seed that breaks something")
    return parser.parse_args(arguments)


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last) + 1)


def _names(text: str, known: Sequence[str]) -> tuple[str, ...]:
    names = tuple(filter(None, text.split(",")))
    if unknown := set(names) - set(known):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))} (of {', '.join(known)})")
    return names


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
