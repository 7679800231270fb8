"""What a leader does, by its loops. Not a test."""

from typing import Final

from supervisor.config import Timings
from supervisor.leader import MAKE_SECONDS, TICK_SECONDS
from supervisor.retention import IDLE_SECONDS
from tests.docs.pen import Pen

DUTIES: Final = {
    "confirm": "silent for C: CONFIRMING",
    "expire": "past its deadline",
    "orphan": "not started, worker lost",
    "cancel": "what was asked for",
    "time_out": "over its own time",
    "exhaust": "too many assignments",
    "next_attempts": "what is owed, as new rows",
    "partitions": "months of the history",
    "recover_rows": "leases that ran out",
}
LOOPS: Final = (
    ("assign", f"at a hint, or every {TICK_SECONDS:g} s", "read due, plan, one fenced call"),
    ("schedules, events", f"at a hint, or every {MAKE_SECONDS:g} s", "due instants and events become runs"),
    ("retention", f"every {IDLE_SECONDS:g} s", "prune, archive logs, discard"),
    ("renew", f"every {Timings().renew_retry:g} s", "the lease; stops when trust is over"),
)


def draw_tick() -> str:
    pen = Pen("What a leader does", 940, 430)
    pen.frame((16, 16), (560, 398), f"the tick: every {TICK_SECONDS:g} s", hue="leader")
    pen.box(
        (34, 48),
        (524, 52),
        ["look", "two statements: all workers, and the runs that need attention"],
        hue="ink",
    )
    for number, (name, what) in enumerate(DUTIES.items()):
        column, row = number % 3, number // 3
        x, y = 34 + column * 178, 134 + row * 74
        pen.box((x, y), (168, 58), [name, what], hue="leader")
    for column in range(3):
        pen.arrow([(118 + column * 178, 100), (118 + column * 178, 132)], hue="faint")
    pen.box((34, 356), (524, 44), ["duties of domains", "one fenced call each"], hue="leader")
    pen.frame((592, 16), (332, 398), "beside it", hue="leader")
    for number, (name, when, what) in enumerate(LOOPS):
        pen.box((610, 48 + number * 76), (296, 66), [name, when, what], hue="leader")
    pen.box(
        (610, 356),
        (296, 44),
        ["a duty that fails is its own", "stuck for two leases and D: it resigns"],
        hue="stop",
    )
    return pen.svg()
