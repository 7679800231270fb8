"""Simulations of a whole cluster: what must hold does, the same seed is the same story, and a rule that is
missing is noticed. One that fails prints its story and the command that replays it.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.verify import recorded
from tests.sim.database import Database, opened
from tests.sim.plan import Plan, Result
from tests.sim.scenarios import CONTROLS
from tests.sim.simulation import simulate
from tests.sim.story import told
from tests.support.server import Server

BY_ONE_CLOCK = ("crash", "cut", "pause", "deaf", "delayed", "resign", "cancel", "sigterm", "exile")
"""Faults after which the database's times can still be compared with the others."""


@pytest.fixture(scope="module")
def simulated(server: Server) -> Iterator[Database]:
    with opened(server) as database:
        yield database


def played(database: Database, plan: Plan) -> Result:
    result = simulate(database, plan)
    assert not result.violations, told(result)
    return result


def test_whatever_the_seed_does_the_promises_hold(simulated: Database) -> None:
    played(simulated, Plan(14, fault_seconds=10.0))


def test_the_history_checker_agrees(simulated: Database, tmp_path: Path) -> None:
    result = played(simulated, Plan(4, fault_seconds=10.0, faults=BY_ONE_CLOCK, directory=tmp_path))
    report = recorded.check(tmp_path)
    assert report.verdict == "HOLDS", (report, told(result))


def test_the_same_seed_is_the_same_story(simulated: Database) -> None:
    plan = Plan(8, steps=5000)
    first, second = played(simulated, plan), played(simulated, plan)
    assert first.events == second.events


@pytest.mark.parametrize("rule", CONTROLS)
def test_a_rule_that_is_switched_off_is_missed(simulated: Database, rule: str) -> None:
    plan = Plan(1, rules_off=frozenset({rule}), scenario=CONTROLS[rule])
    assert simulate(simulated, plan).violations


@pytest.mark.parametrize("rule", CONTROLS)
def test_with_every_rule_the_same_story_holds(simulated: Database, rule: str) -> None:
    """The other side of each control: a guard of the database that has no effect is seen here."""
    played(simulated, Plan(1, scenario=CONTROLS[rule]))


def test_the_history_checker_sees_a_zombie(simulated: Database, tmp_path: Path) -> None:
    without = frozenset({"dead_man"})
    plan = Plan(1, rules_off=without, scenario="long-stop", fault_seconds=16.0, directory=tmp_path)
    simulate(simulated, plan)
    assert recorded.check(tmp_path).properties["K8"] == "BROKEN"


@pytest.mark.parametrize("scenario", ["lost-start", "first-tenure-lost", "clock-set-in-quarantine"])
def test_what_a_failover_lost_is_not_executed_twice(simulated: Database, scenario: str) -> None:
    played(simulated, Plan(1, scenario=scenario, fault_seconds=9.5))
