"""One good story, and every way to spoil it: found by the property that it breaks, and by no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from supervisor.verify.calling import before
from supervisor.verify.history import History, Scenario
from supervisor.verify.judge import judge
from supervisor.verify.records import Call, Death, Offer, Skip, Tenure, Thing
from tests.unit.verify.story import (
    Story,
    calls_of,
    moves_of,
    schedule,
    with_call,
    with_move,
    with_moves,
    with_run,
)

FIRST, LOST, AGAIN, QUEUED = 1, 2, 3, 4


def told() -> History:
    """A run that succeeds; one that is lost, expires and is done again by another; a cancel; two leaders."""
    story = Story()
    story.lead("w1")
    first = story.enqueue()
    story.assign(first, "w2")
    story.look("w2")
    story.start(first)
    story.beat("w2")
    story.finish(first)
    lost = story.enqueue()
    story.assign(lost, "w3")
    story.start(lost)
    story.beat("w3")
    story.pass_time(2)
    story.confirm(lost)
    story.lead("w2")
    story.expire(lost)
    again = story.next_attempt(lost)
    story.assign(again, "w2")
    story.start(again)
    story.beat("w2")
    story.finish(again)
    queued = story.enqueue()
    story.cancel_queued(queued)
    story.renew()
    assert (first, lost, again, queued) == (FIRST, LOST, AGAIN, QUEUED)
    return story.history(expects=["leader_change", "confirming", "timed_out", "late_finish", "reassigned"])


def test_the_story_itself_holds() -> None:
    report = judge(told())
    assert report.findings == ()
    assert report.doubts == ()
    assert set(report.properties.values()) == {"HOLDS"}
    assert report.verdict == "HOLDS"


Spoil = Callable[[History], History]
SPOILED: list[tuple[str, str, Spoil]] = []


def spoils(name: str) -> Callable[[Spoil], Spoil]:
    def note(spoil: Spoil) -> Spoil:
        SPOILED.append((name, spoil.__name__, spoil))
        return spoil

    return note


def tenures(history: History, *changed: Tenure) -> History:
    by_id = {one.id: one for one in (*(history.tenures or ()), *changed)}
    return replace(history, tenures=[by_id[key] for key in sorted(by_id)])


def answers(history: History, call: Call, **changes: Any) -> History:
    return with_call(history, call.n, rows=tuple({**row, **changes} for row in call.rows))


def one_call(history: History, name: str, place: int = 0) -> Call:
    return calls_of(history, name)[place]


def once_more(history: History, call: Call, **changes: Any) -> History:
    """A call of its own, right after the end."""
    at = max(one.sent for one in history.calls or ()) + 1
    more = call._replace(n=10_000, op="more", sent=at, answered=at + 0.01, **changes)
    return replace(history, calls=[*(history.calls or ()), more])


@spoils("K1")
def a_holder_that_the_log_does_not_know(history: History) -> History:
    return with_call(history, one_call(history, "acquire_tenure", 1).n, worker="w9")


@spoils("K1")
def an_epoch_answered_to_two_candidates(history: History) -> History:
    return once_more(history, one_call(history, "acquire_tenure", 1), worker="w9")


@spoils("K1")
def an_epoch_resigned_by_another(history: History) -> History:
    return tenures(history, (history.tenures or ())[1]._replace(holder="w9"))


@spoils("K1")
def a_term_that_nobody_took(history: History) -> History:
    assert history.term is not None
    return replace(history, term=history.term._replace(epoch=9))


@spoils("K1")
def a_timeline_that_goes_back(history: History) -> History:
    before = [one._replace(timeline=2, epoch=one.epoch + 2**32) for one in (history.tenures or ())[:2]]
    after = [one._replace(epoch=one.epoch + 2**32) for one in (history.tenures or ())[2:]]
    assert history.term is not None
    only = replace(history, term=history.term._replace(epoch=after[-1].epoch), calls=[], roots=[], effects=[])
    return tenures(
        replace(only, offers=[], scenario=replace(history.scenario or Scenario(), expects=())),
        *before,
        *after,
    )


@spoils("K2")
def a_move_of_a_deposed_leader(history: History) -> History:
    """The wrong epoch comes with the assignment of a newer row's first move: made after the take-over."""
    moves = moves_of(history, QUEUED)
    spoiled = with_moves(
        history, QUEUED, [one if one.actor == "enqueue" else one._replace(epoch=1) for one in moves]
    )
    return with_call(
        with_run(spoiled, QUEUED, assigned_epoch=1),
        one_call(history, "cancel_runs").n,
        args={**one_call(history, "cancel_runs").args, "epoch": 1},
    )


@spoils("K2")
def an_epoch_that_nobody_took(history: History) -> History:
    """Between the first and the last version of a root, so that only the log of terms tells."""
    moves = moves_of(history, QUEUED)
    spoiled = with_moves(
        history, QUEUED, [one if one.actor == "enqueue" else one._replace(epoch=7) for one in moves]
    )
    return with_run(spoiled, QUEUED, assigned_epoch=7)


@spoils("K2")
def an_assignment_of_an_older_timeline_that_starts(history: History) -> History:
    later = [one._replace(timeline=2, epoch=one.epoch + 2**32) for one in (history.tenures or ())[2:]]
    epoch = later[-1].epoch
    moved = tenures(history, *later)
    for run in (LOST, AGAIN, QUEUED):
        changed = [one if one.epoch != 2 else one._replace(epoch=epoch) for one in moves_of(moved, run)]
        moved = with_moves(moved, run, changed)
    # assigned under 1, started under the new one
    started = [one if one.version < 3 else one._replace(epoch=epoch) for one in moves_of(moved, LOST)]
    moved = with_run(with_moves(moved, LOST, started), LOST, leader_epoch=epoch)
    moved = with_run(
        with_run(moved, AGAIN, assigned_epoch=epoch, leader_epoch=epoch), QUEUED, assigned_epoch=epoch
    )
    assert history.term is not None
    bare = replace(
        moved, term=history.term._replace(epoch=epoch, timeline=2), calls=[], offers=[], effects=[]
    )
    # what is assigned on the new timeline waits for D
    limits = replace(bare.limits, stop_bound=None, contacts={})
    return replace(bare, limits=limits, scenario=replace(bare.scenario or Scenario(), expects=()))


@spoils("K3")
def a_version_that_is_missing(history: History) -> History:
    kept = [one for one in moves_of(history, LOST) if one.version != 4]
    return with_moves(history, LOST, kept)


@spoils("K3")
def a_version_twice(history: History) -> History:
    moves = moves_of(history, FIRST)
    return with_moves(history, FIRST, [*moves[:2], moves[1], *moves[2:]])


@spoils("K3")
def a_move_that_is_none(history: History) -> History:
    return with_move(history, QUEUED, 2, state="RUNNING")


@spoils("K3")
def a_move_by_the_wrong_one(history: History) -> History:
    return with_run(with_move(history, FIRST, 4, actor="leader", epoch=1), FIRST, finished_by="leader")


@spoils("K3")
def a_move_after_the_end(history: History) -> History:
    moves = moves_of(history, FIRST)
    late = moves[-1]._replace(version=5, before="SUCCEEDED", state="FAILED", at=moves[-1].at + 1)
    return with_moves(history, FIRST, [*moves, late])


@spoils("K3")
def an_epoch_stamped_again(history: History) -> History:
    return with_move(history, FIRST, 4, epoch=2)


@spoils("K3")
def a_claim_that_changes_hands(history: History) -> History:
    return with_move(history, FIRST, 4, worker="w9")


@spoils("K3")
def a_row_that_says_otherwise(history: History) -> History:
    return with_run(history, FIRST, version=9)


@spoils("K3")
def a_history_without_a_row(history: History) -> History:
    roots = [root._replace(runs=()) if root.id == QUEUED else root for root in history.roots or ()]
    return replace(history, roots=roots)


@spoils("K3")
def a_version_older_than_the_one_before(history: History) -> History:
    return with_move(history, FIRST, 4, at=900.0)


@spoils("K3")
def a_worker_that_ended_and_did_not_stop(history: History) -> History:
    return with_run(history, FIRST, stopped_at=None)


@spoils("K4")
def an_attempt_with_the_wrong_number(history: History) -> History:
    changed = [one._replace(attempt=3) for one in moves_of(history, AGAIN)]
    spoiled = with_run(with_moves(history, AGAIN, changed), AGAIN, attempt=3)
    offers = [one._replace(attempt=3) if one.run == AGAIN else one for one in history.offers or ()]
    return replace(spoiled, offers=offers)


@spoils("K4")
def a_start_too_many(history: History) -> History:
    return with_run(history, FIRST, starts=4)


@spoils("K4")
def a_start_that_is_not_counted(history: History) -> History:
    return with_run(history, AGAIN, starts=1)


@spoils("K4")
def two_successes(history: History) -> History:
    """The first attempt's end, forged with all that goes with it."""
    spoiled = with_move(history, LOST, 5, state="SUCCEEDED", actor="worker", epoch=1, reason=None)
    spoiled = with_run(spoiled, LOST, state="SUCCEEDED", finished_by="worker", error_code=None)
    calls = [one for one in spoiled.calls or () if one.name != "expire_runs"]
    return replace(spoiled, calls=calls, scenario=replace(history.scenario or Scenario(), expects=()))


@spoils("K4")
def an_attempt_that_nobody_named(history: History) -> History:
    return with_run(history, LOST, next_attempt=None, retry_at=None)


@spoils("K5")
def a_read_of_the_past(history: History) -> History:
    """Answered long after the start had been answered, and still the version before it."""
    look = one_call(history, "read_assigned")
    after = one_call(history, "finish_runs")
    past = look._replace(n=10_000, worker="w5", sent=after.sent + 1, answered=after.sent + 1.01)
    return replace(history, calls=[*(history.calls or ()), past])


@spoils("K5")
def a_write_seen_before_it_was_sent(history: History) -> History:
    look = one_call(history, "read_assigned")
    early = look._replace(n=10_000, worker="w5", sent=999.0, answered=999.1)
    return replace(history, calls=[early, *(history.calls or ())])


@spoils("K6")
def a_repetition_without_a_first(history: History) -> History:
    return answers(history, one_call(history, "start_runs"), answer="ALREADY")


@spoils("K6")
def a_completion_recorded_twice(history: History) -> History:
    """The second while the first was under way, so that the order of calls allows it."""
    first = one_call(history, "finish_runs")
    return replace(
        history, calls=[*(history.calls or ()), first._replace(n=10_000, op="twice", name="finish_runs")]
    )


@spoils("K7")
def an_acknowledged_outcome_that_is_not_there(history: History) -> History:
    call = one_call(history, "finish_runs")
    return with_call(history, call.n, args={**call.args, "states": ["FAILED"]})


@spoils("K7")
def an_acknowledged_assignment_that_is_not_there(history: History) -> History:
    call = one_call(history, "assign_runs")
    return with_call(history, call.n, args={**call.args, "ids": [77]}, rows=({"id": 77},))


@spoils("K8")
def two_executions_at_once(history: History) -> History:
    """The first attempt's process was waited for, and died after the second had begun."""
    effects = [
        one._replace(pid=7) if one.run == LOST else one
        for one in history.effects or ()
        if not (one.run == LOST and one.what == "end")
    ]
    begun = next(one.t for one in effects if one.run == AGAIN and one.what == "begin")
    return replace(history, effects=effects, deaths=[Death(begun + 0.5, "h", 7, -9)])


@spoils("K8")
def a_claim_executed_twice(history: History) -> History:
    begin = next(one for one in history.effects or () if one.run == FIRST)
    return replace(history, effects=[*(history.effects or ()), begin._replace(t=begin.t + 0.001)])


@spoils("K9")
def an_older_token_accepted_after_a_newer(history: History) -> History:
    old = next(one for one in history.offers or () if one.run == LOST)
    last = (history.offers or ())[-1]
    return replace(history, offers=[*(history.offers or ()), old._replace(seq=last.seq + 1, t=last.t + 1)])


@spoils("K9")
def a_token_that_was_never_given_out(history: History) -> History:
    last = (history.offers or ())[-1]
    return replace(history, offers=[*(history.offers or ()), last._replace(seq=last.seq + 1, claim="forged")])


@spoils("K9")
def an_order_that_is_none(history: History) -> History:
    offers = list(history.offers or ())
    return replace(history, offers=[*offers, Offer(*offers[-1])])


@spoils("K10")
def an_executor_that_does_not_stop(history: History) -> History:
    """A second longer than S + k after its last contact, and nobody else was given the work by then."""
    end = next(one for one in history.effects or () if one.run == LOST and one.what == "end")
    late = [one._replace(t=one.t + 2) if one is end else one for one in history.effects or ()]
    return replace(history, effects=late)


@spoils("K10")
def an_execution_before_its_start_was_answered(history: History) -> History:
    begin = next(one for one in history.effects or () if one.run == FIRST)
    early = [one._replace(t=one.t - 0.1) if one is begin else one for one in history.effects or ()]
    return replace(history, effects=early)


@spoils("K11")
def a_healthy_worker_that_is_not_listed(history: History) -> History:
    """Its row stood, its beat named it, and the answer did not."""
    call = one_call(history, "beat_worker", 1)
    bare = with_call(history, call.n, rows=({**call.rows[0], "listed": []},))
    # the start is its last contact then: let the executor keep to it
    effects = [one for one in bare.effects or () if one.run != LOST]
    return replace(bare, effects=effects)


@spoils("K11")
def an_expiry_of_a_worker_in_contact(history: History) -> History:
    """Its completion was refused within S of an answered beat."""
    beat = one_call(history, "beat_worker", 1)
    refused = next(
        call for call in calls_of(history, "finish_runs") if call.rows[0]["answer"] == "SUPERSEDED"
    )
    near = beat._replace(n=10_000, op="near", sent=refused.sent - 0.03, answered=refused.sent - 0.02)
    # out of the way of K15, which knows contacts by worker
    return replace(history, calls=[*(history.calls or ()), near])


@spoils("K12")
def a_run_that_never_ends(history: History) -> History:
    moves = moves_of(history, FIRST)[:3]
    spoiled = with_run(
        with_moves(history, FIRST, moves),
        FIRST,
        state="RUNNING",
        version=3,
        finished_by=None,
        finished_at=None,
        stopped_at=None,
    )
    calls = [
        one for one in spoiled.calls or () if not (one.name == "finish_runs" and one.args["ids"] == [FIRST])
    ]
    late = replace(history.scenario or Scenario(), healed_at=1000.0, ended_at=1100.0)
    return replace(spoiled, calls=calls, scenario=late)


@spoils("K12")
def a_time_without_a_leader(history: History) -> History:
    """The first leader resigned, and for long nobody took over."""
    scenario = replace(
        history.scenario or Scenario(), healed_at=1000.0, bounds={"leader_gap": 0.001, "terminal": 60}
    )
    return replace(history, scenario=scenario)


@spoils("K13")
def an_instant_that_never_fired(history: History) -> History:
    one = schedule()
    return replace(history, schedules=[one._replace(fired=one.fired[:3] + one.fired[4:])])


@spoils("K13")
def an_instant_that_is_none(history: History) -> History:
    one = schedule()
    return replace(history, schedules=[one._replace(fired=(*one.fired, one.fired[3] + 60))])


@spoils("K13")
def an_instant_fired_twice(history: History) -> History:
    one = schedule()
    return replace(history, schedules=[one._replace(fired=(*one.fired, one.fired[3]))])


@spoils("K14")
def an_epoch_that_a_process_sees_go_back(history: History) -> History:
    last = one_call(history, "beat_worker", -1)
    return once_more(history, last, args={"claims": []}, rows=({**last.rows[0], "epoch": 1, "listed": []},))


@spoils("K15")
def a_second_attempt_while_the_first_may_run(history: History) -> History:
    """It never said that it stopped, and its last contact lies less than D back."""
    silent = with_run(history, LOST, stopped_at=None)
    assigned = next(one for one in moves_of(history, AGAIN) if one.state == "ASSIGNED")
    contacts = {**history.limits.contacts, "w3": [(assigned.at - 0.5, assigned.at - 1)]}
    return replace(silent, limits=replace(history.limits, contacts=contacts))


@spoils("K15")
def an_assignment_in_the_quarantine(history: History) -> History:
    later = [one._replace(system=2) for one in (history.tenures or ())[2:]]
    moved = tenures(history, *later)
    taken = later[0].at
    assigned = next(one for one in moves_of(history, AGAIN) if one.state == "ASSIGNED")
    assert assigned.at > taken
    bound = assigned.at - taken + 1
    bare = replace(moved, limits=replace(moved.limits, stop_bound=bound, contacts={}))
    return with_run(bare, LOST, stopped_at=assigned.at - 0.001)


@spoils("K16")
def an_object_that_is_not_what_its_name_says(history: History) -> History:
    return replace(history, things=[Thing("ab/" + "a" * 64, "b" * 64, (FIRST,), False, 0.0)])


@spoils("K16")
def an_object_that_two_name(history: History) -> History:
    return replace(history, things=[Thing("a" * 64, "a" * 64, (FIRST, AGAIN), False, 0.0)])


@spoils("K16")
def an_old_half(history: History) -> History:
    return replace(history, things=[Thing("x.part", "", (), True, 100.0)])


@pytest.mark.parametrize(
    ("name", "spoil"), [(name, spoil) for name, _, spoil in SPOILED], ids=[f"{a}-{b}" for a, b, _ in SPOILED]
)
def test_a_spoiled_story_is_broken_there_and_nowhere_else(name: str, spoil: Spoil) -> None:
    report = judge(spoil(told()))
    assert {finding.property for finding in report.findings} == {name}, report.findings
    assert report.verdict == "BROKEN"
    assert report.properties[name] == "BROKEN"
    assert all(finding.text for finding in report.findings)


def test_every_property_but_vacuity_has_a_spoiled_story() -> None:
    assert {name for name, _, _ in SPOILED} == {f"K{n}" for n in range(1, 17)}


@pytest.mark.parametrize("expects", [["fenced_write"], ["no_such_effect"], None])
def test_a_scenario_in_which_nothing_happened_is_inconclusive(expects: list[str] | None) -> None:
    """K17."""
    history = told()
    report = judge(replace(history, scenario=replace(history.scenario or Scenario(), expects=expects)))
    assert (report.verdict, report.properties["K17"]) == ("INCONCLUSIVE", "INCONCLUSIVE")


@pytest.mark.parametrize("part", ["calls", "effects", "offers", "roots", "tenures", "scenario", "schedules"])
def test_what_was_not_recorded_never_holds(part: str) -> None:
    missing: dict[str, Any] = {part: None}
    report = judge(replace(told(), **missing))
    assert report.verdict == "INCONCLUSIVE"
    assert "INCONCLUSIVE" in report.properties.values()


def test_what_was_never_to_be_recorded_raises_no_doubt() -> None:
    history = told()
    scenario = replace(history.scenario or Scenario(), without=frozenset({"offers", "things"}))
    report = judge(replace(history, offers=None, things=None, scenario=scenario))
    assert (report.verdict, report.properties["K9"]) == ("HOLDS", "INCONCLUSIVE")


def test_a_skipped_instant_is_no_missing_one() -> None:
    one = schedule()
    gap = Skip(one.fired[3], one.fired[3], 1)
    fired = one.fired[:3] + one.fired[4:]
    assert judge(replace(told(), schedules=[one._replace(fired=fired, skips=(gap,))])).verdict == "HOLDS"
    lenient = one._replace(fired=fired, skips=None, missed="latest")
    assert judge(replace(told(), schedules=[lenient])).verdict == "HOLDS"


def test_losses_of_a_failover_are_counted() -> None:
    """K7: where commits may be lost, the count is the answer; what neither side has is still a break."""
    spoiled = an_acknowledged_outcome_that_is_not_there(told())
    lossy = replace(spoiled, scenario=replace(spoiled.scenario or Scenario(), async_failover=True))
    assert (judge(lossy).verdict, judge(lossy).figures["lost_answers"]) == ("HOLDS", 1)
    assert judge(replace(lossy, lost=History(roots=[], tenures=[]))).properties["K7"] == "BROKEN"


def test_a_clock_that_was_set_back_is_no_proof() -> None:
    spoiled = a_second_attempt_while_the_first_may_run(told())
    assert judge(replace(spoiled, slack=float("inf"))).verdict == "HOLDS"


def test_a_repeated_call_that_was_answered_already_promises_the_same() -> None:
    """K7: the first answer was lost, the second said ALREADY, and the outcome is another now."""
    story = Story()
    story.lead("w1")
    run = story.enqueue()
    story.assign(run, "w2")
    story.start(run, lost_answer=True)
    story.finish(run, lost_answer=True)
    history = story.history()
    assert judge(history).verdict == "HOLDS"
    forged = with_run(with_move(history, run, 4, state="FAILED"), run, state="FAILED")
    assert {one.property for one in judge(forged).findings} == {"K7"}


def test_a_beat_under_way_proves_no_contact() -> None:
    """K15: it may have been counted after the assignment."""
    spoiled = a_second_attempt_while_the_first_may_run(told())
    assigned = next(one for one in moves_of(spoiled, AGAIN) if one.state == "ASSIGNED")
    contacts = {"w3": [(assigned.at + 0.5, assigned.at - 1)]}
    assert judge(replace(spoiled, limits=replace(spoiled.limits, contacts=contacts))).verdict == "HOLDS"


def test_what_came_after_the_dump_is_not_looked_for_in_it() -> None:
    calls = told().calls or ()
    last = calls[-1]
    assert last.answered is not None
    kept = before(calls, last.answered - 0.001)
    assert (kept[-1].n, kept[-1].kind, kept[-1].rows) == (last.n, "unknown", ())
    assert len(before(calls, last.sent - 0.001)) == len(calls) - 1
