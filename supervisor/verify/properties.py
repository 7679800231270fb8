"""The properties, each with what it says, what it needs, and what finds it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from supervisor.verify import (
    attempts,
    causes,
    epochs,
    executions,
    fence,
    liveness,
    machine,
    order,
    outcomes,
    quiesce,
    reads,
    schedules,
    things,
    vacuity,
)
from supervisor.verify.history import History, Limits
from supervisor.verify.records import Root
from supervisor.verify.report import Finding

OfRoot = Callable[[Root, Limits], Iterable[Finding]]


@dataclass(frozen=True, slots=True)
class Property:
    """`live`: a database in use has what it needs."""

    id: str
    statement: str
    needs: frozenset[str]
    finder: str
    check: Callable[[History], Iterable[Finding]]
    live: bool = False


def _each(check: OfRoot) -> Callable[[History], Iterator[Finding]]:
    def over(history: History) -> Iterator[Finding]:
        for root in history.roots or ():
            yield from check(root, history.limits)

    return over


def _epochs(history: History) -> Iterator[Finding]:
    tenures = history.tenures or ()
    lost = history.lost.tenures if history.lost is not None else None
    yield from epochs.terms_grow(tenures, history.term)
    yield from epochs.answers_kept(tenures, lost, history.called("acquire_tenure"))


def _stale(history: History) -> Iterator[Finding]:
    reigns = epochs.Reigns()
    for root in history.roots or ():
        reigns.add(root)
        yield from epochs.order_of_reigns(root, history.limits)
    yield from epochs.reigns_end(reigns, history.tenures or ())


def _schedules(history: History) -> Iterator[Finding]:
    for schedule in history.schedules or ():
        try:
            yield from schedules.check(schedule)
        except ValueError as error:
            history.doubts.append(f"K13 cannot read the schedule of {schedule.job}: {error}")


_DATABASE: Final = frozenset({"roots", "tenures"})

PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        "K1",
        "Epochs only grow, each has one holder, and every answer to a candidate stands in the log of terms.",
        frozenset({"tenures"}),
        "the log of terms by id, the term in force, the answers to candidates",
        _epochs,
        live=True,
    ),
    Property(
        "K2",
        "No leader's move is made under an epoch after the next one was taken.",
        _DATABASE,
        "first and last move of each epoch against the take-overs; epochs along the versions of a root",
        _stale,
        live=True,
    ),
    Property(
        "K3",
        "Every run goes by legal moves, one version each, under one token an attempt, and ends once.",
        _DATABASE,
        "a replay of each run's history against the table of moves, then against its row",
        _each(machine.check),
        live=True,
    ),
    Property(
        "K4",
        "The attempts of a root are 1, 2, 3, ..., one live at a time, one success, no start too many.",
        _DATABASE,
        "the rows of a root as a chain, and the attempt numbers along their histories",
        _each(attempts.check),
        live=True,
    ),
    Property(
        "K5",
        "There is one order of all calls about a run that agrees with its versions and with real time.",
        _DATABASE | {"calls"},
        "a graph of who wrote and who saw each version, with real-time edges; its shortest cycle is printed",
        order.check,
    ),
    Property(
        "K6",
        "A call is applied once, also when its answer was lost and it was repeated.",
        _DATABASE | {"calls"},
        "starts and completions by claim: answers RECORDED, and moves in the history",
        outcomes.applied_once,
    ),
    Property(
        "K7",
        "What was answered as recorded is recorded; where a failover may lose commits, they are counted.",
        _DATABASE | {"calls", "scenario"},
        "every answered completion, start and assignment against the history",
        outcomes.kept,
    ),
    Property(
        "K8",
        "No two executions of one root are alive at the same time.",
        frozenset({"effects"}),
        "a sweep over the executions, from their first sign to their end or their process's death",
        executions.overlap,
    ),
    Property(
        "K9",
        "The sink accepts no older token after a newer one, and only tokens that were given out and started.",
        _DATABASE | {"offers"},
        "accepted offers in the sink's order, each against the history of its claim",
        fence.check,
    ),
    Property(
        "K10",
        "An executor begins when its start was answered, and is over by S + k after its last contact.",
        frozenset({"effects", "calls", "scenario"}),
        "the last sign of each execution against the starts and beats that listed its claim",
        executions.self_stop,
    ),
    Property(
        "K11",
        "A worker in contact loses a claim only by cancel, time-out, its own word or a new timeline.",
        _DATABASE | {"calls", "scenario"},
        "claims that were named and not listed, or superseded, within S of the last contact",
        causes.check,
    ),
    Property(
        "K12",
        "After the last fault somebody leads and every run ends within the stated bounds.",
        _DATABASE | {"scenario"},
        "ends of runs against their due time and the healing; gaps between terms",
        liveness.check,
    ),
    Property(
        "K13",
        "A schedule fires at each of its instants once, or says that it skipped it.",
        frozenset({"schedules"}),
        "a minute-by-minute count of the instants against the runs and the skipped ones",
        _schedules,
        live=True,
    ),
    Property(
        "K14",
        "A process never sees an older epoch or version than it saw before, within one timeline.",
        frozenset({"calls"}),
        "answers of each process in real time",
        reads.check,
    ),
    Property(
        "K15",
        "An attempt is assigned only when the one before it has stopped, or its worker was silent for D.",
        _DATABASE,
        "assignments against stops, last contacts and take-overs on a new timeline",
        quiesce.of_history,
        live=True,
    ),
    Property(
        "K16",
        "What was published is named by one succeeded run and is what its name says; no old half is left.",
        frozenset({"things", "roots"}),
        "a list of the stored objects against the runs that name them",
        things.check,
    ),
    Property(
        "K17",
        "The scenario did what it was made for: each effect that it expects was seen.",
        frozenset({"scenario"}),
        "one look for each expected effect; without it nothing was shown",
        vacuity.check,
    ),
)
