"""The pictures of the documentation show what the code does now."""

import re
import struct
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from supervisor.clock import boottime
from supervisor.config import Timings, load_settings
from supervisor.election import Tenure
from supervisor.jobrun import MOVES, STATES
from supervisor.leader import Leader
from supervisor.metrics import Metrics
from supervisor.replica import Replica
from supervisor.store import Store
from supervisor.urls import RuntimeUrls
from supervisor.wakeups import Wakeups
from tests.docs.draw import PICTURES, PLACE
from tests.docs.pages import PAGES, ROOT, links_of
from tests.docs.picture_replica import POOLS
from tests.docs.picture_tick import DUTIES

NOBODY = "postgresql://nobody@127.0.0.1:1/none"


def drawn_moves() -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
    for element in ET.fromstring((PLACE / "moves.svg").read_text()).iter():  # noqa: S314  our own file
        if "data-from" in element.attrib:
            move = element.attrib["data-from"], element.attrib["data-to"]
            yield move, tuple(element.attrib["data-who"].split())


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_as_the_code_draws_it_now(name: str) -> None:
    assert (PLACE / name).read_text() == PICTURES[name](), "stale: python -m tests.docs.draw"


def test_the_moves_drawn_are_the_moves_there_are() -> None:
    assert dict(drawn_moves()) == {(str(a), str(b)): who for (a, b), who in MOVES.items()}


def test_the_moves_drawn_are_those_the_database_lets_pass() -> None:
    """R003-06 to R003-15; that the guard refuses all others is tried in tests/integration/sql."""
    guard = (ROOT / "schemas/functions/20_guard.sql").read_text()
    listed = re.search(r"OLD\.state \|\| '>' \|\| NEW\.state\) NOT IN \((.*?)\)", guard, re.DOTALL)
    assert listed is not None
    passing = {tuple(move.split(">")) for move in re.findall(r"'([A-Z_>]+)'", listed[1])}
    assert {move for move, _who in drawn_moves()} == passing
    assert {state for move in passing for state in move} == set(STATES)


def test_the_duties_drawn_are_those_of_a_leader() -> None:
    tenure = Tenure(1, "w1", boottime() + 60, 0)
    leader = Leader(Store(NOBODY), tenure, Timings(), Wakeups("w1"), Metrics())
    assert list(DUTIES) == [duty.__name__ for duty in leader.duties]


async def test_the_connections_drawn_are_those_a_replica_may_open(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # no settings from outside
    replica = Replica(load_settings(), RuntimeUrls(NOBODY, NOBODY, NOBODY, NOBODY), {})
    assert replica._control is not None
    stores = {
        "control": replica._control.store,
        "term": replica._control.term_store,
        "duty": replica._control.duty_store,
        "runs": replica.work_store,
        "rows": replica._row_store,
        "upkeep": replica._maintenance,
    }
    assert {name: store._room._value for name, store in stores.items()}.items() <= POOLS.items()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_whole_and_loads_nothing(name: str) -> None:
    root = ET.fromstring((PLACE / name).read_text())  # noqa: S314  our own file
    assert root.tag.endswith("svg")
    assert not [key for one in root.iter() for key in one.attrib if key.endswith("href")]
    words = [one for one in root.iter() if one.tag.endswith("text")]
    assert all(0 <= float(one.attrib["x"]) <= float(root.attrib["width"]) for one in words)


def test_every_picture_is_shown_and_small() -> None:
    shown = {(page.parent / link).resolve() for page in PAGES for link in links_of(page)}
    pictures = set(PLACE.iterdir())
    assert pictures <= shown
    assert {path.name for path in pictures} == {*PICTURES, "console.png"}
    console = (PLACE / "console.png").read_bytes()
    assert len(console) <= 200 * 1024
    assert struct.unpack(">I", console[16:20])[0] == 1400
