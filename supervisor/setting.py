"""A setting that all replicas share, in words: between which bounds it lies, and in what unit."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from supervisor.errors import BadInput
from supervisor.store import Store


def bounds(row: Mapping[str, Any]) -> str:
    if row["least"] is None:
        return "true or false"
    return " ".join(filter(None, (f"{plain(row['least'])} to {plain(row['most'])}", row["unit"])))


def plain(number: Decimal) -> str:
    """Without an exponent, and without zeros that say nothing."""
    return f"{number.normalize():f}"


async def refusal(store: Store, name: str, value: str) -> BadInput:
    row = await store.row("find_setting", name)
    between = f": it is {bounds(dict(row))}" if row is not None else ""
    return BadInput(what=f"{value} is not a value that {name} can have{between}")
