"""K1 and K2: epochs only grow, each has one holder, and nobody leads after the next one was taken."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from supervisor.verify.history import Limits
from supervisor.verify.records import Call, Move, Root, Tenure, Term
from supervisor.verify.report import Finding, shown


def terms_grow(tenures: Sequence[Tenure], term: Term | None) -> Iterator[Finding]:
    """K1 by the log of terms alone; its numbers were given out under the lock of the term."""
    taken = [one for one in tenures if one.what == "ACQUIRED"]
    for before, after in pairwise(taken):
        if after.epoch <= before.epoch:
            yield _found("K1", "an epoch that did not grow", before, after)
        elif after.system == before.system and (after.timeline or 0) < (before.timeline or 0):
            yield _found("K1", "a timeline that went back", before, after)
    for one in taken:
        if one.timeline is not None and one.epoch <= (one.timeline - 1) << 32:
            yield _found("K1", f"an epoch below timeline {one.timeline}", one)
    holders = {one.epoch: one.holder for one in taken}
    for one in tenures:
        if one.what == "RESIGNED" and holders.get(one.epoch) != one.holder:
            yield _found("K1", "resigned by somebody who did not hold it", one)
    if term is not None:
        yield from _term_fault(taken, term)


def _term_fault(taken: Sequence[Tenure], term: Term) -> Iterator[Finding]:
    last = taken[-1] if taken else None
    if last is None:
        if term.epoch != 0:
            yield Finding("K1", f"epoch {term.epoch} stands, and nobody ever took one")
    elif (term.epoch, term.holder) != (last.epoch, last.holder):
        yield _found("K1", f"the term in force is epoch {term.epoch} of {term.holder}", last)


def answers_kept(
    tenures: Sequence[Tenure], lost: Sequence[Tenure] | None, calls: Iterable[Call]
) -> Iterator[Finding]:
    """K1 by what the candidates were told: each answer is in the log once, or on a timeline that was lost."""
    told: dict[int, Call] = {}
    taken = [one for one in tenures if one.what == "ACQUIRED"]
    holders = {one.epoch: one.holder for one in (*(lost or ()), *taken) if one.what == "ACQUIRED"}
    # without the server that was left behind, what came before a failover may have been lost with it
    unknown = max(_turns(taken), default=0) if lost is None else 0
    for call in calls:
        for row in call.rows if call.kind == "ok" else ():
            epoch = int(row["epoch"])
            if epoch in told:
                text = f"epoch {epoch} was given to {told[epoch].worker} and to {call.worker}"
                yield Finding("K1", text, (_said(told[epoch]), _said(call)))
            told[epoch] = call
            if holders.get(epoch) != call.worker and not (epoch not in holders and epoch < unknown):
                yield Finding(
                    "K1", f"{call.worker} was given epoch {epoch}, the log says otherwise", (_said(call),)
                )


class Reigns:
    """What was done under each epoch: the first and last move, and which assignments were started later."""

    def __init__(self) -> None:
        self.first: dict[int, Move] = {}
        self.last: dict[int, Move] = {}
        self.started: dict[tuple[int, int], Move] = {}
        self.unled: Move | None = None

    def add(self, root: Root) -> None:
        for run in root.runs:
            assigned = None
            for move in root.moves.get(run.id, ()):
                if move.actor == "leader":
                    self._add_led(move)
                if move.state == "ASSIGNED":
                    assigned = move.epoch
                elif move.before == "ASSIGNED" and move.state == "RUNNING" and assigned and move.epoch:
                    self.started.setdefault((assigned, move.epoch), move)

    def _add_led(self, move: Move) -> None:
        epoch = move.epoch
        if epoch is None:
            self.unled = move
            return
        if epoch not in self.first or move.at < self.first[epoch].at:
            self.first[epoch] = move
        if epoch not in self.last or move.at > self.last[epoch].at:
            self.last[epoch] = move


def reigns_end(reigns: Reigns, tenures: Sequence[Tenure]) -> Iterator[Finding]:
    """K2 by the clock of the database: a leader's move lies between its own take-over and the next one."""
    taken = sorted((one for one in tenures if one.what == "ACQUIRED"), key=lambda one: one.epoch)
    terms = {one.epoch: one for one in taken}
    nexts = {one.epoch: other for one, other in pairwise(taken)}
    if reigns.unled is not None:
        yield Finding("K2", "a leader's move without an epoch", (shown(reigns.unled),))
    for epoch, move in sorted(reigns.last.items()):
        if epoch not in terms:
            yield Finding("K2", f"a move under epoch {epoch}, which nobody took", (shown(move),))
            continue
        first, term, after = reigns.first[epoch], terms[epoch], nexts.get(epoch)
        if first.at < term.at:
            yield _found("K2", "a move before its epoch was taken", term, first, seconds=term.at - first.at)
        if after is not None and move.at > after.at:
            yield _found("K2", "a move under an epoch that was over", after, move, seconds=move.at - after.at)
    yield from _older_timelines(reigns.started, taken)


def _older_timelines(started: Mapping[tuple[int, int], Move], taken: Sequence[Tenure]) -> Iterator[Finding]:
    """What was assigned before a failover is never started after it."""
    turns = _turns(taken)
    for (assigned, epoch), move in sorted(started.items()):
        if any(assigned < turn <= epoch for turn in turns):
            text = f"started under epoch {epoch}, assigned under {assigned} on an older timeline"
            yield Finding("K2", text, (shown(move),))


def _turns(taken: Sequence[Tenure]) -> list[int]:
    """The first epochs after a failover."""
    return [
        after.epoch
        for before, after in pairwise(taken)
        if (before.system, before.timeline) != (after.system, after.timeline)
    ]


def order_of_reigns(root: Root, _limits: Limits) -> Iterator[Finding]:
    """K2 by the order of versions, whatever the clock says: no older leader moves after a newer one."""
    newest: Move | None = None
    for run in root.runs:
        for move in root.moves.get(run.id, ()):
            if move.actor != "leader" or move.epoch is None:
                continue
            if newest is not None and newest.epoch is not None and move.epoch < newest.epoch:
                text = f"root {root.id}: epoch {move.epoch} acted after epoch {newest.epoch}"
                yield Finding("K2", text, (shown(newest), shown(move)))
                return
            newest = move


def _found(name: str, text: str, *around: Tenure | Move, seconds: float | None = None) -> Finding:
    lines = tuple(shown(one) if isinstance(one, Move) else _line(one) for one in around)
    return Finding(name, text, lines, seconds)


def _line(one: Tenure) -> str:
    return f"{one.what} epoch {one.epoch} by {one.holder} on {one.system}/{one.timeline} at {one.at:.6f}"


def _said(call: Call) -> str:
    return f"{call.worker} {call.name} sent {call.sent:.6f} answered {call.answered}"
