"""The parts of chaos that can be wrong without anybody noticing: the sink, the schedules, the guards."""

import json
import random
from itertools import pairwise
from pathlib import Path

import pytest

from tests.chaos.executions import overlaps
from tests.chaos.faults import Crash, Cut, Freeze, Kill
from tests.chaos.guards import GUARDS
from tests.chaos.journal import Journal, read_lines
from tests.chaos.judge import table
from tests.chaos.nemesis import Maker, plan
from tests.chaos.scenarios import SCENARIOS, find, groups
from tests.chaos.sink import Sink

FUNCTIONS = Path(__file__).parents[2] / "schemas" / "functions"
MENU: tuple[Maker, ...] = (
    lambda chance: Kill(chance.choice(["r1", "r2"])),
    lambda chance: Freeze(chance.choice(["r1", "r2"])),
    lambda chance: Cut(chance.choice(["r1", "r2"]), "pg1"),
    lambda _chance: Crash(),
)


def test_the_sink_refuses_an_older_token_after_a_newer_one_and_logs_both(tmp_path: Path) -> None:
    sink = Sink(str(tmp_path / "sink"))
    offers = ["7 7 1 3 a 10", "7 9 2 3 b 11", "7 7 1 3 a 10", "7 9 1 4 c 12", "7 9 1 4 d 13", "8 8 1 1 e 14"]
    assert [sink.offer(line) for line in offers] == [True, True, False, True, False, True]
    logged = read_lines(tmp_path / "sink")
    assert [line["seq"] for line in logged] == [1, 2, 3, 4, 5, 6]
    assert [line["accepted"] for line in logged] == [True, True, False, True, False, True]
    assert "older" in logged[2]["reason"]


def test_a_seed_gives_the_same_schedule_again_and_another_seed_another() -> None:
    first, again = (plan(random.Random(7), MENU, faults=8) for _ in range(2))  # noqa: S311  replayable
    assert first == again
    assert first != plan(random.Random(8), MENU, faults=8)  # noqa: S311  replayable
    assert all(later.at >= one.at + one.seconds for one, later in pairwise(first))


@pytest.mark.parametrize("name", [name for name, guard in GUARDS.items() if guard.sql])
def test_what_a_control_takes_out_of_sql_is_there_once(name: str) -> None:
    text = "\n".join(path.read_text() for path in sorted(FUNCTIONS.glob("*.sql")))
    for function, there, _ in GUARDS[name].sql:
        body = text.partition(f"FUNCTION {function}(")[2].partition("\n$$;")[0]
        body = body.partition("END $$;")[0]
        assert body.count(there) == 1, f"{there!r} is not once in {function}"


def test_overlapping_executions_of_one_root_are_found(tmp_path: Path) -> None:
    file = Journal(tmp_path / "effects")
    common = {"run": 1, "root": 1, "epoch": 1, "pid": 1, "host": "r1"}
    for t, what, attempt in ((1.0, "begin", 1), (2.0, "begin", 2), (2.5, "alive", 1), (3.0, "end", 2)):
        file.write(**{**common, "t": t, "what": what, "attempt": attempt, "claim": f"c{attempt}"})
    file.close()
    assert len(overlaps(tmp_path / "effects")) == 1
    lines = [line for line in read_lines(tmp_path / "effects") if line["what"] != "alive"]
    (tmp_path / "calm").write_text("\n".join(map(json.dumps, lines)))
    assert overlaps(tmp_path / "calm") == []


def test_scenarios_have_names_of_their_own_and_controls_say_what_must_be_reported() -> None:
    names = [one.id for one in SCENARIOS]
    assert len(names) == len(set(names))
    assert all(one.reports for one in SCENARIOS if one.guards_off)
    assert [one.id for one in find("C01+C02")] == ["C01", "C02"]
    assert [[one.id for one in group] for group in groups("C03")] == [["C03a"], ["C03b"], ["C03c"]]


def test_a_history_without_a_dump_has_empty_tables(tmp_path: Path) -> None:
    assert table(tmp_path, "job_run") == []
