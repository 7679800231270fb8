"""The table of what is searched: which rules are in force, which faults may happen, what must come out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

Expected = Literal["holds", "fails"]

EVERYTHING: Final = "EVERYTHING"
STUCK: Final = "STUCK"
MASKS: Final = {
    EVERYTHING: "255",
    STUCK: "0",
    "OVERLAP": "1",
    "SPURIOUS": "2",
    "KILLED": "4",
    "STALE": "8",
    "HISTORY": "16",
    "EPOCHS": "32",
    "SUCCESSES": "64",
    "ATTEMPTS": "128",
}


@dataclass(frozen=True, slots=True)
class Case:
    """`switches` go to the model as -D. `holds` asks for every state."""

    name: str
    switches: str
    about: str
    expected: Expected
    quick: bool = False
    seconds: float = 60.0

    def defines(self) -> list[str]:
        return [f"-D{switch}" for switch in (*self.switches.split(), f"PROPERTIES={MASKS[self.about]}")]

    @property
    def wants_ends(self) -> bool:
        return self.about in (STUCK, EVERYTHING)


HOLDS: Final = (
    Case("calm", "BEATS=2", EVERYTHING, "holds"),
    Case("calm-small", "", EVERYTHING, "holds", quick=True),
    Case("takeover", "LOSSES=1", EVERYTHING, "holds"),
    Case("deaf", "DEAF=1", EVERYTHING, "holds"),
    Case("in-flight", "LOSSES=1 INFLIGHT=1 BEATS=0", EVERYTHING, "holds"),
    Case("crash", "CRASHES=1 FRUIT=2", EVERYTHING, "holds"),
    Case("cut", "CUTS=1", EVERYTHING, "holds"),
    Case("pause", "PAUSES=1 K=1 D=4", EVERYTHING, "holds"),
    Case("limbo", "LIMBO=1", EVERYTHING, "holds"),
    Case("ambiguous", "AMBIGUOUS=1 LOSSES=1 BEATS=0", EVERYTHING, "holds"),
    Case("jump", "JUMPS=1", EVERYTHING, "holds", quick=True),
    Case("drain", "DRAINS=1", EVERYTHING, "holds"),
    Case("cancel", "CANCELS=1 OPRETRY=1", EVERYTHING, "holds"),
    Case("overtime", "OVERTIMES=1", EVERYTHING, "holds"),
    Case("fresh", "FRESH=1 BEATS=3 LIMBO=1", EVERYTHING, "holds"),
    Case("failover", "FAILOVERS=1 ROWS=1 FRUIT=2", "OVERLAP", "holds"),
    Case("given-back", "RELEASES=1", EVERYTHING, "holds"),
    Case("wedge", "RELEASES=1 WEDGE=1 FRESH=1 BEATS=2", EVERYTHING, "holds", quick=True),
    Case("newcomer", "FAILOVERS=1 JUMPS=1 LOSSES=1 ROWS=1 BEATS=0", "OVERLAP", "holds"),
    Case("failover-two-rows", "FAILOVERS=1 FRUIT=1 BEATS=0", EVERYTHING, "holds"),
)

WITHOUT: Final = (
    Case("r3-no-fence", "R3_FENCE=0 INFLIGHT=1 LOSSES=1", "STALE", "fails", quick=True),
    Case("r3-fence-read-before", "R3_FENCE=1 INFLIGHT=1 LOSSES=1", "STALE", "fails"),
    Case("r3-no-version", "R3_FENCE=1 R3_VERSION=0 INFLIGHT=1 LOSSES=1", "HISTORY", "fails"),
    Case("r4-deaf-leader-renews", "R4_DEAF=0 DEAF=1", STUCK, "fails", quick=True),
    Case("r5-token-is-current-epoch", "R5_TOKEN=1 LOSSES=1", "SPURIOUS", "fails", quick=True),
    Case("r5-row-stamped-again", "R5_TOKEN=2 LOSSES=1", "SPURIOUS", "fails"),
    Case("r6-executes-before-answer", "R6_START=0 FRUIT=2", "OVERLAP", "fails", quick=True),
    Case("r7-stop-from-receipt", "R7_SEND=0", "OVERLAP", "fails", quick=True),
    Case("r7-no-self-stop", "R7_STOP=0", "OVERLAP", "fails", quick=True),
    Case("r7-any-list-counts", "R7_ORDER=0 LIMBO=1", "OVERLAP", "fails"),
    Case("r7-repeated-start-not-noted", "R7_ALREADY=0 LIMBO=2 FRESH=1", "OVERLAP", "fails"),
    Case("r7-named-after-answer", "R7_NAMED=0", "OVERLAP", "fails", quick=True),
    Case("r7-nothing-dropped", "R7_DROP=0 FRESH=1 LIMBO=1 BEATS=2", STUCK, "fails"),
    Case("r8-stop-equals-bound", "S=3 D=3", "OVERLAP", "fails"),
    Case("r8-stop-after-bound", "S=3 D=2", "OVERLAP", "fails"),
    Case("r8-never-cleared", "R8_CLEAR=0 S=3 D=4 BEATS=2", "SPURIOUS", "fails"),
    Case("r8-deadline-from-now", "R8_DEADLINE=0 S=3 D=4", "SPURIOUS", "fails"),
    Case("r8-start-does-not-confirm", "R8_ALREADY=0 CUTS=1", "KILLED", "fails"),
    Case("r8-start-confirms-nothing", "R8_ALREADY=0 LIMBO=1", "SPURIOUS", "fails"),
    Case("r9-no-watch", "R9_WATCH=0 JUMPS=1", "KILLED", "fails", quick=True),
    Case("r9-worker-alone-records", "R9_RECORD=0 CRASHES=1", STUCK, "fails", quick=True),
    Case("r10-no-quiesce", "R10_QUIESCE=0 OVERTIMES=1", "OVERLAP", "fails", quick=True),
    Case("r10-no-watch", "R10_WATCH=0 R9_WATCH=0 JUMPS=1", "OVERLAP", "fails"),
    Case("r11-no-dead-man", "R11_DEADMAN=0 PAUSES=1 K=1 D=4", "OVERLAP", "fails"),
    Case("r12-made-twice", "R12_ONCE=0 INFLIGHT=1", "ATTEMPTS", "fails"),
    Case("r22-plain-epoch", "R22_EPOCH=0 FAILOVERS=1 ROWS=1", "EPOCHS", "fails", quick=True),
    Case("r22-plain-fence", "R22_FENCE=0 FAILOVERS=1 ROWS=1 FRUIT=2", "OVERLAP", "fails"),
    Case("r22-one-key", "R22_WATCH=0 FAILOVERS=1 JUMPS=1 LOSSES=1 ROWS=1 BEATS=0", "OVERLAP", "fails"),
    Case("r22-no-quarantine", "R22_QUARANTINE=0 FAILOVERS=1 ROWS=1", "OVERLAP", "fails"),
    Case(
        "r22-old-assignment-starts",
        "R22_START=0 FAILOVERS=1 ROWS=1 FRUIT=2 BEATS=0",
        "OVERLAP",
        "fails",
    ),
    Case("r22-old-assignment-stays", "R22_ORPHAN=0 FAILOVERS=1 ROWS=1 FRESH=1 BEATS=2", STUCK, "fails"),
    Case("r22-lost-start-listed", "R22_LISTED=0 FAILOVERS=1 ROWS=1 FRUIT=2", "OVERLAP", "fails"),
    Case("unstarted-stays", "WEDGE=1 FRESH=1 BEATS=2", STUCK, "fails", quick=True),
    Case("orphan-without-exit", "EXHAUSTED=0", STUCK, "fails", quick=True),
)

CASES: Final = (*HOLDS, *WITHOUT)


def chosen(names: Iterable[str], *, quick: bool) -> list[Case]:
    """The named cases, or all; with `quick` those that take seconds. KeyError for a name that is none."""
    table = {case.name: case for case in CASES}
    wanted = [table[name] for name in names] or list(CASES)
    return [case for case in wanted if case.quick or not quick]
