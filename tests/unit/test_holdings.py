"""The stop rule of leased rows, and the timer that several holders share."""

from uuid import uuid4

from supervisor.holdings import HeldRow, Holdings
from supervisor.keeper import stop_seconds
from supervisor.shared_timer import SharedTimer
from tests.support.example_domain import JOBS

STOP, K = 10.0, 1.0


class FakeTimer:
    deadline: float | None = None

    def arm(self, deadline_boottime: float) -> None:
        self.deadline = deadline_boottime

    def disarm(self) -> None:
        self.deadline = None


class Story:
    """One row, claimed by a call that was sent at 100."""

    def __init__(self) -> None:
        self.timer = FakeTimer()
        self.holdings = Holdings(STOP, K, self.timer)
        self.stopped = 0
        self.row = self.claimed(100)

    def claimed(self, sent: float) -> HeldRow:
        row = HeldRow((1,), uuid4(), (), sent + STOP)
        self.holdings.take([row])
        return row

    def begin(self, now: float = 100.1) -> bool:
        return self.holdings.begin(self.row, now, self._stop)

    def beat(self, sent: float, now: float, *, listed: bool = True) -> None:
        self.holdings.answered([self.row], {self.row.token} if listed else set(), sent, now)

    def _stop(self) -> None:
        self.stopped += 1


def test_the_work_has_ended_before_the_lease_has() -> None:
    """H27: the stop, the kill time and a clock that runs 2 % slow fit into the lease."""
    assert (stop_seconds(JOBS, K, 1.02) + K) * 1.02 <= JOBS.lease_seconds


def test_time_runs_from_the_send_of_the_claim() -> None:
    story = Story()
    assert story.begin(now=109.9)
    assert story.timer.deadline == 100 + STOP + K


def test_a_row_that_waited_too_long_is_never_begun() -> None:
    story = Story()
    assert not story.begin(now=110)
    assert story.timer.deadline is None


def test_an_answered_heartbeat_extends_from_its_send() -> None:
    story = Story()
    moves: list[float] = []
    story.begin()
    story.row.moved.append(moves.append)
    story.beat(sent=104, now=105)
    assert (story.row.stop_at, story.timer.deadline, moves) == (104 + STOP, 104 + STOP + K, [104 + STOP])


def test_named_and_not_listed_stops_at_once() -> None:
    story = Story()
    story.begin()
    story.beat(sent=104, now=105, listed=False)
    assert (story.stopped, story.row.why, story.timer.deadline) == (1, "LOST", 105 + K)


def test_lost_while_it_waited_is_never_begun() -> None:
    story = Story()
    story.beat(sent=104, now=105, listed=False)
    assert not story.begin(105.1)


def test_an_answer_that_comes_too_late_extends_nothing() -> None:
    story = Story()
    story.begin()
    story.beat(sent=109, now=110)
    assert story.row.stop_at == 100 + STOP


def test_without_an_answer_it_stops_and_a_stop_is_final() -> None:
    story = Story()
    story.begin()
    story.holdings.enforce(109.99)
    assert story.stopped == 0
    story.holdings.enforce(110)
    assert (story.stopped, story.row.why) == (1, "LOST")
    story.beat(sent=110.1, now=110.2)
    assert story.row.stop_at == 100 + STOP
    assert story.timer.deadline == 110 + K


def test_the_timer_goes_when_nothing_is_worked_on() -> None:
    story = Story()
    other = story.claimed(103)
    story.begin()
    story.holdings.ended(story.row)
    assert story.timer.deadline is not None, "another row is about to begin"
    story.holdings.enforce(100.2)
    assert story.timer.deadline is None
    story.holdings.begin(other, 104, lambda: None)
    assert story.timer.deadline == 103 + STOP + K
    story.holdings.ended(other)
    assert story.timer.deadline is None


def test_a_shared_timer_stands_at_the_earliest_deadline() -> None:
    timer = FakeTimer()
    shared = SharedTimer(timer)
    one, other = shared.share(), shared.share()
    one.arm(5)
    other.arm(3)
    assert timer.deadline == 3
    other.arm(9)
    assert timer.deadline == 5
    one.disarm()
    assert timer.deadline == 9
    other.disarm()
    assert timer.deadline is None


def test_a_handler_that_fails_to_hear_costs_the_others_nothing() -> None:
    story = Story()
    story.begin()
    other = story.claimed(100)
    story.row.moved.append(lambda _at: 1 / 0)  # type: ignore[arg-type]
    rows = [story.row, other]
    story.holdings.answered(rows, {row.token for row in rows}, 101, 101.1)
    assert other.stop_at == 101 + STOP
