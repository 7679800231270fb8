"""The five statements of a run's life, and a leader's tick. Not a test."""

from collections.abc import Sequence
from typing import Final

from tests.docs.pen import Pen

LANES: Final = {"application": 90, "leader": 270, "PostgreSQL": 540, "worker": 850}
# name, who calls it, what it must match, what it leaves
STATEMENTS: Final = (
    ("1  enqueue", "application", "in its own transaction", "PENDING"),
    ("2  assign", "leader", "the fence, and versions", "ASSIGNED"),
    ("3  start", "worker", "version, claim, assignee, this server", "RUNNING"),
    ("4  beat", "worker", "names every claim that it holds", "which are its own"),
    ("5  finish", "worker", "claim, state, the row's own epoch", "an outcome"),
)
ANSWERS: Final = {
    "3  start": "RECORDED, ALREADY, REFUSED",
    "4  beat": "what is not listed stops now",
    "5  finish": "RECORDED, ALREADY, SUPERSEDED",
}


def draw_life() -> str:
    pen = Pen("The five statements of a run's life", 940, 520)
    hues = {"application": "faint", "leader": "leader", "PostgreSQL": "ink", "worker": "worker"}
    for lane, x in LANES.items():
        pen.box((x - 75, 16), (150, 36), [lane], hue=hues[lane])
        pen.arrow([(x, 52), (x, 500)], hue="faint", dashed=True, head=False)
    for number, (name, who, match, leaves) in enumerate(STATEMENTS):
        y = 92 + number * 86
        _call(pen, y, who, (name, match), hues[who])
        pen.box((LANES["PostgreSQL"] - 78, y - 4), (156, 40), [leaves], hue="ink")
        if name in ANSWERS:
            start, end = LANES["PostgreSQL"] + 78, LANES["worker"]
            pen.arrow([(start, y + 30), (end, y + 30)], hue="faint", dashed=True)
            pen.text(((start + end) / 2, y + 46), ANSWERS[name], kind="small", hue="faint", anchor="middle")
    return pen.svg()


def _call(pen: Pen, y: int, who: str, lines: Sequence[str], hue: str) -> None:
    side = 1 if who == "worker" else -1
    start, end = LANES[who], LANES["PostgreSQL"] + side * 78
    pen.arrow([(start, y + 12), (end, y + 12)], hue=hue)
    left = min(start, end) + 8
    pen.text((left, y - 12), lines[0], kind="bold", hue=hue)
    pen.text((left, y + 4), lines[1], kind="small")
