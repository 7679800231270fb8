"""The breaker: open after a failure, tried again after a pause that grows, closed by a success."""

from supervisor.breaker import LONGEST_SECONDS, PAUSE_SECONDS, TRIAL_SECONDS, Breaker
from tests.support.fake_clock import FakeClock


def test_a_failure_opens_it_for_a_pause_and_a_success_closes_it() -> None:
    clock = FakeClock()
    breaker = Breaker(clock)
    assert not breaker.open
    assert not breaker.try_again(), "there is nothing to try while it is closed"
    breaker.failed()
    assert breaker.open
    clock.pass_seconds(PAUSE_SECONDS * 0.69)
    assert not breaker.try_again()
    clock.pass_seconds(PAUSE_SECONDS * 0.62)
    assert breaker.try_again()
    assert breaker.open, "until the trial has succeeded"
    breaker.succeeded()
    assert not breaker.open


def test_one_trial_at_a_time_and_one_that_is_never_reported_is_followed_by_another() -> None:
    clock = FakeClock()
    breaker = Breaker(clock)
    breaker.failed()
    clock.pass_seconds(PAUSE_SECONDS * 1.31)
    assert breaker.try_again()
    assert not breaker.try_again()
    clock.pass_seconds(TRIAL_SECONDS)
    assert breaker.try_again()


def test_the_pause_grows_to_a_limit_and_starts_anew_after_a_success() -> None:
    clock = FakeClock()
    breaker = Breaker(clock)

    def pause() -> float:
        began = clock.now()
        breaker.failed()
        while not breaker.try_again():
            clock.pass_seconds(0.1)
        return clock.now() - began

    pauses = [pause() for _ in range(10)]
    assert pauses[0] < PAUSE_SECONDS * 1.4
    assert max(pauses) <= LONGEST_SECONDS * 1.4
    assert min(pauses[5:]) >= LONGEST_SECONDS * 0.69
    assert len({round(one, 1) for one in pauses[5:]}) > 1, "without jitter all replicas try at once"
    breaker.succeeded()
    assert pause() < PAUSE_SECONDS * 1.4
