"""Draw the pictures of docs/pictures again: `python -m tests.docs.draw`."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.docs.picture_life import draw_life
from tests.docs.picture_moves import draw_moves
from tests.docs.picture_replica import draw_replica
from tests.docs.picture_silence import draw_silence
from tests.docs.picture_tick import draw_tick

PLACE: Final = Path(__file__).parents[2] / "docs/pictures"
PICTURES: Final[dict[str, Callable[[], str]]] = {
    "life.svg": draw_life,
    "moves.svg": draw_moves,
    "replica.svg": draw_replica,
    "silence.svg": draw_silence,
    "tick.svg": draw_tick,
}

if __name__ == "__main__":
    for name, draw in PICTURES.items():
        (PLACE / name).write_text(draw())
