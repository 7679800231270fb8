"""The states of a run and the moves between them, drawn from `supervisor.jobrun.MOVES`. Not a test."""

from typing import Final

from supervisor.jobrun import MOVES, TERMINAL, State, Who
from tests.docs.pen import Pen, Point

HEIGHT: Final = 46
# where each state stands, by the middle of its box; a state without a place is an error, so none is left out
PLACES: Final[dict[State, Point]] = {
    "PENDING": (85, 170),
    "ASSIGNED": (310, 170),
    "RUNNING": (560, 170),
    "ORPHANED": (310, 340),
    "SUCCEEDED": (865, 40),
    "FAILED": (865, 130),
    "TIMED_OUT": (865, 220),
    "CANCELED": (865, 340),
}
APART: Final = 50  # between a move and the one back


def draw_moves() -> str:
    pen = Pen("The states of a run and the moves between them", 950, 420)
    for (source, target), who in MOVES.items():
        _draw_move(pen, source, target, who)
    for state, (x, y) in PLACES.items():
        lines = [state, "or CONFIRMING, still running"] if state == "RUNNING" else [state]
        size = (_width(state), HEIGHT)
        pen.box((x - size[0] / 2, y - HEIGHT / 2), size, lines, hue="faint" if state in TERMINAL else "ink")
    _explain(pen)
    return pen.svg()


def _width(state: State) -> float:
    return 190 if state == "RUNNING" else 130


def _draw_move(pen: Pen, source: State, target: State, who: tuple[Who, ...]) -> None:
    hue = who[0] if len(who) == 1 else "both"
    start, end = PLACES[source], PLACES[target]
    if (target, source) in MOVES:  # side by side with the move back
        shift = APART if start[1] < end[1] else -APART
        start, end = (start[0] + shift, start[1]), (end[0] + shift, end[1])
    points = [_edge(start, end, _width(source)), _edge(end, start, _width(target))]
    pen.arrow(points, hue=hue, facts={"from": source, "to": target, "who": " ".join(who)})
    pen.label(_between(points, 0.45), " or ".join(who), hue=hue)


def _edge(start: Point, end: Point, width: float) -> Point:
    """Where the line from the middle of a box to `end` leaves the box."""
    across, down = abs(end[0] - start[0]), abs(end[1] - start[1])
    share = min((width / 2) / across if across else 1, (HEIGHT / 2) / down if down else 1)
    return _between([start, end], share)


def _between(points: list[Point], share: float) -> Point:
    (x, y), (to_x, to_y) = points
    return round(x + (to_x - x) * share, 1), round(y + (to_y - y) * share, 1)


def _explain(pen: Pen) -> None:
    pen.arrow([(85, 100), (85, 146)], hue="faint")
    pen.text((85, 90), "enqueued", kind="small", hue="faint", anchor="middle")
    pen.text((20, 388), "leader: one fenced call, under its epoch", kind="small", hue="leader")
    pen.text((20, 406), "worker: by the claim of this attempt", kind="small", hue="worker")
    pen.text(
        (930, 406),
        "An ended run never changes; its next attempt is a new row.",
        kind="small",
        hue="faint",
        anchor="end",
    )
