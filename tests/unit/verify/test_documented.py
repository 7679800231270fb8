"""The page about the checker says what the checker does."""

from pathlib import Path

from supervisor.verify.properties import PROPERTIES
from supervisor.verify.vacuity import EFFECTS

PAGE = Path(__file__).parents[3] / "docs/verify.md"


def lines() -> list[str]:
    """The table of properties as it should stand there."""
    return [
        f"| {one.id}{' *live*' if one.live else ''} | {one.statement} | {', '.join(sorted(one.needs))}"
        f" | {one.finder} |"
        for one in PROPERTIES
    ]


def test_the_table_is_the_properties() -> None:
    told = [line for line in PAGE.read_text().splitlines() if line.startswith("| K")]
    assert told == lines()


def test_the_properties_are_numbered_without_a_gap() -> None:
    assert [one.id for one in PROPERTIES] == [f"K{number}" for number in range(1, 18)]


def test_every_effect_that_can_be_expected_is_named() -> None:
    listed = " ".join(PAGE.read_text().split()).partition("`expects` knows: ")[2]
    assert set(listed.rstrip(".").replace("`", "").split(", ")) == set(EFFECTS)
