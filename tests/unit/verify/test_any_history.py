"""Whatever is told by the rules holds; whatever is then changed in it is found."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from supervisor.jobrun import TERMINAL
from supervisor.verify.history import History
from supervisor.verify.judge import judge
from supervisor.verify.records import Move, Run
from tests.unit.verify.story import TIMINGS, Story, moves_of, with_move, with_moves, with_run

WORKERS = ("w1", "w2", "w3")


class Tale(Story):
    """A story that a seed tells: at every step one of the things that the protocol allows."""

    def __init__(self, chance: Random, steps: int) -> None:
        super().__init__()
        self.chance = chance
        self.lead("w1")
        for _ in range(steps):
            self.step()
        self.settle()

    def step(self) -> None:
        self.pass_time(self.chance.choice((0.0, 0.1, 0.9)))
        self.keep_alive()
        choices: list[Callable[[], object]] = [
            self.enqueue,
            lambda: self.lead(self.chance.choice(WORKERS)),
            lambda: self.look(self.chance.choice(WORKERS)),
            lambda: self.beat(self.chance.choice(WORKERS)),
            self.renew,
        ]
        for run in list(self.runs.values()):
            choices += self._ways(run)
        self.chance.choice(choices)()

    def _ways(self, run: Run) -> list[Callable[[], object]]:
        lost = self.chance.random() < 0.2
        if run.state in {"PENDING", "ORPHANED"}:
            return [
                lambda: self.assign(run.id, self.chance.choice(WORKERS)),
                lambda: self.cancel_queued(run.id),
            ]
        if run.state == "ASSIGNED":
            return [lambda: self.start(run.id, lost_answer=lost), lambda: self.release(run.id)]
        if run.state == "RUNNING":
            state = self.chance.choice(("SUCCEEDED", "FAILED"))
            ways: list[Callable[[], object]] = [lambda: self.finish(run.id, state, lost_answer=lost)]
            if run.continuation == "NONE":
                ways.append(lambda: self.confirm(run.id))
            return [*ways, lambda: self._expire(run)]
        if run.retry_at is not None and run.next_attempt is None and run.starts < run.max_attempts:
            return [lambda: self.next_attempt(run.id)]
        return []

    def _expire(self, run: Run) -> None:
        """Everybody else goes on beating while this one's worker is silent; so it is alone on its worker."""
        others = [one for one in self.runs.values() if one.state == "RUNNING" and one.id != run.id]
        for one in others:
            self.finish(one.id)
        if self.runs[run.id].continuation == "NONE":
            self.confirm(run.id)
        self.expire(run.id)

    def keep_alive(self) -> None:
        """No executor is older than half its time since its last contact."""
        for run in self.runs.values():
            if run.state == "RUNNING" and self.t - self.contact[run.claim or ""] > TIMINGS["S"] / 2:
                self.beat(run.worker or "")

    def settle(self) -> None:
        while True:
            self.keep_alive()
            live = [run for run in self.runs.values() if run.state not in TERMINAL]
            owed = [
                run for run in self.runs.values() if run.retry_at is not None and run.next_attempt is None
            ]
            if live:
                self._advance(live[0])
            elif owed:
                self.next_attempt(owed[0].id)
            else:
                return

    def _advance(self, run: Run) -> None:
        if run.state == "RUNNING":
            self.finish(run.id)
        elif run.state == "ASSIGNED":
            self.start(run.id)
        else:
            self.assign(run.id, self.chance.choice(WORKERS))


def tell(seed: int, steps: int) -> History:
    """Without its schedule: that part does not depend on the seed."""
    return replace(Tale(_chance(seed), steps).history(), schedules=[])


def _chance(seed: int) -> Random:
    return Random(seed)  # noqa: S311  to be repeated


seeds = st.integers(0, 2**32)
lengths = st.integers(0, 60)
# a seed is not shrunk: it is told again
quick = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)


@given(seed=seeds, steps=lengths)
@quick
def test_whatever_follows_the_rules_holds(seed: int, steps: int) -> None:
    report = judge(tell(seed, steps))
    assert report.findings == ()
    assert (report.doubts, report.verdict) == ((), "HOLDS")


Mutation = Callable[[History, Random], History | None]


def runs_in(history: History, state: str | None = None) -> list[Run]:
    return [run for root in history.roots or () for run in root.runs if state in {None, run.state}]


def a_move(history: History, chance: Random, least: int = 2) -> Move | None:
    moves = [move for move in history.moves() if move.version >= least]
    return chance.choice(moves) if moves else None


def dropped(history: History, chance: Random) -> History | None:
    move = a_move(history, chance, 1)
    if move is None:
        return None
    return with_moves(history, move.run, [one for one in moves_of(history, move.run) if one != move])


def doubled(history: History, chance: Random) -> History | None:
    move = a_move(history, chance, 1)
    if move is None:
        return None
    return with_moves(
        history, move.run, sorted([*moves_of(history, move.run), move], key=lambda m: m.version)
    )


def swapped(history: History, chance: Random) -> History | None:
    """Two versions change their places, each under the other's number."""
    move = a_move(history, chance)
    if move is None:
        return None
    moves = list(moves_of(history, move.run))
    place = move.version - 1
    moves[place - 1], moves[place] = (
        moves[place]._replace(version=place),
        moves[place - 1]._replace(version=place + 1),
    )
    return with_moves(history, move.run, moves)


def aged(history: History, chance: Random) -> History | None:
    move = a_move(history, chance)
    return move and with_move(history, move.run, move.version, at=move.at - 5000)


def stamped_again(history: History, chance: Random) -> History | None:
    move = a_move(history, chance)
    if move is None or move.epoch is None:
        return None
    return with_move(history, move.run, move.version, epoch=move.epoch + chance.choice((-1, 1000)))


def forged_end(history: History, chance: Random) -> History | None:
    """Another outcome, in the row and in its history alike: the one who was answered knows better."""
    ended = [run for run in runs_in(history, "SUCCEEDED") if run.finished_by == "worker"]
    if not ended:
        return None
    run = chance.choice(ended)
    forged = with_run(history, run.id, state="FAILED", error_code="EXIT_1")
    return with_move(forged, run.id, run.version, state="FAILED")


def forged_claim(history: History, chance: Random) -> History | None:
    move = a_move(history, chance)
    return move and with_move(history, move.run, move.version, claim="00000000-0000-4000-8000-000000000000")


def forged_attempt(history: History, chance: Random) -> History | None:
    move = a_move(history, chance, 1)
    return move and with_move(history, move.run, move.version, attempt=move.attempt + 1)


def removed_run(history: History, chance: Random) -> History | None:
    runs = runs_in(history)
    if not runs:
        return None
    gone = chance.choice(runs).id
    roots = [
        root._replace(runs=tuple(run for run in root.runs if run.id != gone)) for root in history.roots or ()
    ]
    return replace(history, roots=roots)


def removed_term(history: History, chance: Random) -> History | None:
    taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
    gone = chance.choice(taken)
    return replace(history, tenures=[one for one in history.tenures or () if one != gone])


def repeated_epoch(history: History, chance: Random) -> History | None:
    taken = [one for one in history.tenures or () if one.what == "ACQUIRED"]
    twin = chance.choice(taken)
    last = (history.tenures or ())[-1]
    return replace(history, tenures=[*(history.tenures or ()), twin._replace(id=last.id + 1, at=last.at + 1)])


def executed_on(history: History, chance: Random) -> History | None:
    """An executor that goes on for a minute."""
    if not history.effects:
        return None
    one = chance.choice(list(history.effects))
    return replace(history, effects=[*history.effects, one._replace(what="alive", t=one.t + 60)])


def offered_again(history: History, chance: Random) -> History | None:
    """An offer of an attempt that was followed by another, accepted at the end."""
    old = [
        one
        for one in history.offers or ()
        if any(other.root == one.root and other.attempt > one.attempt for other in history.offers or ())
    ]
    if not old:
        return None
    last = (history.offers or ())[-1]
    late = chance.choice(old)._replace(seq=last.seq + 1, t=last.t + 1, accepted=True)
    return replace(history, offers=[*(history.offers or ()), late])


def forgotten_answer(history: History, chance: Random) -> History | None:
    """An answered completion whose run was never ended, in any table."""
    calls = [call for call in history.calls or () if call.name == "finish_runs" and call.kind == "ok"]
    recorded = [call for call in calls if call.rows[0]["answer"] == "RECORDED"]
    if not recorded:
        return None
    run = chance.choice(recorded).args["ids"][0]
    moves = moves_of(history, run)[:-1]
    undone: dict[str, Any] = {
        "state": "RUNNING",
        "finished_by": None,
        "finished_at": None,
        "stopped_at": None,
    }
    undone |= {"version": len(moves), "retry_at": None, "error_code": None}
    return with_run(with_moves(history, run, moves), run, **undone)


MUTATIONS: dict[Mutation, Sequence[str]] = {
    dropped: ("K3",),
    doubled: ("K3",),
    swapped: ("K3",),
    aged: ("K3",),
    stamped_again: ("K2", "K3"),
    forged_end: ("K7",),
    forged_claim: ("K3",),
    forged_attempt: ("K4",),
    removed_run: ("K3", "K4"),
    removed_term: ("K1",),
    repeated_epoch: ("K1",),
    executed_on: ("K8", "K10"),
    offered_again: ("K9",),
    forgotten_answer: ("K7",),
}


@given(seed=seeds, steps=lengths, mutation=st.sampled_from(list(MUTATIONS)))
@settings(quick, max_examples=120)
def test_whatever_is_changed_in_it_is_found(seed: int, steps: int, mutation: Mutation) -> None:
    changed = mutation(tell(seed, steps), _chance(seed + 1))
    if changed is None:
        return
    report = judge(changed)
    assert report.verdict == "BROKEN", mutation
    assert any(report.properties[name] == "BROKEN" for name in MUTATIONS[mutation]), report.findings


@given(seed=seeds, steps=lengths)
@quick
def test_a_call_whose_answer_was_lost_is_applied_once(seed: int, steps: int) -> None:
    """K6 counts them, and a second application of any of them is found."""
    history = tell(seed, steps)
    report = judge(history)
    unknown = [call for call in history.calls or () if call.kind == "unknown"]
    assert report.figures["unknown_calls"] == len(unknown)
    for call in unknown[:1]:
        rows = ({"id": call.args["ids"][0], "answer": "RECORDED"},)
        twice = [
            one._replace(rows=rows)
            if one.name == call.name and one.args.get("claims") == call.args["claims"] and one.kind == "ok"
            else one
            for one in history.calls or ()
        ]
        again = replace(
            history, calls=[*twice, call._replace(kind="ok", answered=call.sent, rows=rows, n=-1)]
        )
        assert judge(again).properties["K6"] == "BROKEN"
