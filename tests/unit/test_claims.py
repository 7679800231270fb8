"""The stop rule: until when a claim may be executed, and what the dead man's timer stands at."""

from uuid import UUID, uuid4

from supervisor.claims import Claims, Held
from supervisor.config import Timings

S, K = 4.0, 1.0
TIMINGS = Timings(6, 3, 0.5, 0.5, 1.5, S, K, 7)


class FakeTimer:
    deadline: float | None = None

    def arm(self, deadline_boottime: float) -> None:
        self.deadline = deadline_boottime

    def disarm(self) -> None:
        self.deadline = None


class Story:
    """One claim, started at 100, and what became of it."""

    def __init__(self) -> None:
        self.timer = FakeTimer()
        self.claims = Claims(TIMINGS, self.timer)
        self.claim_id: UUID = uuid4()
        self.stopped = 0
        self.held: Held = self.claims.hold(self.claim_id, 1, "command")

    def begin(self, sent: float = 100.0, now: float = 100.1) -> bool:
        return self.claims.begin(self.held, sent, now, self._stop)

    def beat(self, sent: float, now: float, *, listed: bool = True, cancel: bool = False) -> None:
        _, named = self.claims.build_list()
        mine = {self.claim_id}
        self.claims.answered(named, mine if listed else set(), mine if cancel else set(), sent, now)

    def _stop(self) -> None:
        self.stopped += 1


def test_named_from_before_the_start_until_dropped() -> None:
    story = Story()
    assert story.claims.build_list() == (1, [story.claim_id])
    story.begin()
    story.claims.ended(story.held)
    assert story.claims.build_list() == (2, [story.claim_id])
    story.claims.drop([story.claim_id])
    assert story.claims.build_list() == (3, [])


def test_time_runs_from_the_send_of_the_start_not_from_its_answer() -> None:
    story = Story()
    assert story.begin(sent=100, now=103.9)
    assert story.held.stop_at == 100 + S
    assert story.timer.deadline == 100 + S + K


def test_a_start_answered_too_late_is_never_executed() -> None:
    story = Story()
    assert not story.begin(sent=100, now=104)
    assert story.timer.deadline is None


def test_beats_before_it_begins_extend_it_too() -> None:
    """Rule 7: it is named from before its start, so a launch that waits its turn is not lost."""
    story = Story()
    for sent in (100.5, 102.0, 104.0):
        story.beat(sent, sent + 0.02)
    assert story.begin(sent=100.0, now=104.2)
    assert story.claims.next_stop() == 104.0 + S


def test_a_gap_before_it_begins_is_final() -> None:
    story = Story()
    story.beat(100.5, 100.6)
    story.beat(105.0, 105.1)
    assert not story.begin(sent=100.0, now=105.2)


def test_an_answered_beat_extends_from_its_send() -> None:
    story = Story()
    story.begin()
    story.beat(sent=102, now=103.5)
    assert story.held.stop_at == 102 + S
    assert story.timer.deadline == 102 + S + K


def test_an_old_beat_answered_late_takes_nothing_back() -> None:
    story = Story()
    story.begin()
    story.beat(sent=103, now=103.1)
    story.beat(sent=101, now=103.2)
    assert story.held.stop_at == 103 + S


def test_named_and_not_listed_stops_at_once() -> None:
    """R003-43: past its continuation deadline the database no longer lists it."""
    story = Story()
    story.begin()
    story.beat(sent=101, now=101.1, listed=False)
    assert (story.stopped, story.held.why) == (1, "LOST")
    assert story.timer.deadline == 101.1 + K


def test_an_answer_to_a_list_that_did_not_name_it_says_nothing() -> None:
    story = Story()
    story.begin()
    story.claims.answered([], set(), set(), sent_at=101, now=101.1)
    assert story.stopped == 0
    assert story.held.stop_at == 100 + S


def test_no_answer_stops_it_at_s_and_a_stop_is_final() -> None:
    """R003-45"""
    story = Story()
    story.begin()
    story.claims.enforce(103.99)
    assert story.stopped == 0
    story.claims.enforce(104)
    assert (story.stopped, story.held.why) == (1, "LOST")
    story.beat(sent=104.1, now=104.2)
    assert story.held.stop_at == 100 + S
    assert story.timer.deadline == 104 + K


def test_an_answer_that_comes_after_the_stop_deadline_extends_nothing() -> None:
    story = Story()
    story.begin()
    story.beat(sent=103.9, now=104.05)
    assert story.held.stop_at == 100 + S


def test_revoked_before_it_began_is_never_executed() -> None:
    story = Story()
    story.beat(sent=100.2, now=100.3, listed=False)
    assert not story.begin()


def test_cancel_stops_and_keeps_the_claim_alive() -> None:
    story = Story()
    story.begin()
    story.beat(sent=101, now=101.1, cancel=True)
    assert (story.stopped, story.held.why) == (1, "CANCEL")
    assert story.held.revoked_at is None
    story.beat(sent=102, now=102.1, cancel=True)
    assert story.stopped == 1


def test_the_timer_is_disarmed_when_nothing_is_executed() -> None:
    story = Story()
    story.begin()
    assert story.timer.deadline is not None
    story.claims.ended(story.held)
    assert story.timer.deadline is None


def test_the_timer_stands_at_the_earliest_stop() -> None:
    story = Story()
    story.begin()
    other = story.claims.hold(uuid4(), 2, "command")
    story.claims.begin(other, 98, 100, lambda: None)
    assert story.timer.deadline == 98 + S + K
    story.claims.ended(other)
    story.claims.enforce(100.2)
    assert story.timer.deadline == 100 + S + K


def test_the_deadline_is_told_to_whoever_asked() -> None:
    story = Story()
    story.begin()
    moves: list[float] = []
    story.held.moved.append(moves.append)
    story.beat(sent=102, now=102.1)
    assert moves == [102 + S]


def test_a_handler_that_fails_to_hear_costs_the_others_nothing() -> None:
    """The thread of beats calls back: what is raised there must stop neither it nor the other claims."""
    story = Story()
    story.begin()
    other = story.claims.hold(uuid4(), 2, "command")
    story.claims.begin(other, 100.0, 100.1, story._stop)
    heard: list[float] = []
    story.held.moved += [lambda _at: 1 / 0, heard.append]  # type: ignore[list-item]
    _, named = story.claims.build_list()
    story.claims.answered(named, set(named), set(), 101.0, 101.1)
    assert heard == [101.0 + S]
    assert other.stop_at == 101.0 + S
    assert story.timer.deadline == 101.0 + S + K
