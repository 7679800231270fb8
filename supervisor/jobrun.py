"""The run: its states and its moves, as data.

The database refuses every other move (schemas/functions/20_guard.sql); a test holds the two
tables equal, and the diagram in the documentation is drawn from this one.
"""

from typing import Final, Literal

State = Literal["PENDING", "ASSIGNED", "RUNNING", "SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED", "ORPHANED"]
Who = Literal["leader", "worker"]

STATES: Final[tuple[State, ...]] = (
    "PENDING",
    "ASSIGNED",
    "RUNNING",
    "SUCCEEDED",
    "FAILED",
    "TIMED_OUT",
    "CANCELED",
    "ORPHANED",
)
TERMINAL: Final[frozenset[State]] = frozenset({"SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED"})
LIVE: Final[frozenset[State]] = frozenset(STATES) - TERMINAL

MOVES: Final[dict[tuple[State, State], tuple[Who, ...]]] = {
    ("PENDING", "ASSIGNED"): ("leader",),
    ("ASSIGNED", "RUNNING"): ("worker",),
    ("ASSIGNED", "CANCELED"): ("leader",),
    ("ASSIGNED", "ORPHANED"): ("leader", "worker"),
    ("RUNNING", "SUCCEEDED"): ("worker",),
    ("RUNNING", "FAILED"): ("worker",),
    ("RUNNING", "TIMED_OUT"): ("leader", "worker"),
    ("RUNNING", "CANCELED"): ("leader", "worker"),
    ("ORPHANED", "ASSIGNED"): ("leader",),
}
