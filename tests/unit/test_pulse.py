"""When the beats take it that nobody looks after what this replica is given."""

from typing import Any

from supervisor.claims import Claims
from supervisor.clock import boottime
from supervisor.config import Timings
from supervisor.errors import OutcomeUnknown
from supervisor.identity import Identity
from supervisor.memory import Memory
from supervisor.metrics import Metrics
from supervisor.pulse import Listener, Pulse
from supervisor.store import Store


class NoTimer:
    def arm(self, deadline_boottime: float) -> None: ...

    def disarm(self) -> None: ...


def quiet() -> None:
    return


def pulse() -> Pulse:
    timings = Timings()
    return Pulse(
        url="",
        identity=Identity(),
        domains=("command",),
        slots=1,
        timings=timings,
        claims=Claims(timings, NoTimer()),
        memory=Memory(),
        metrics=Metrics(),
        listener=Listener(assigned=quiet, drain=quiet),
    )


def test_nobody_looks_though_the_database_answers() -> None:
    one, now = pulse(), boottime()
    one._answering_since, one.looked_at = now - 300, now - 100
    assert 100 <= one._neglected() < 110
    one.looked()
    assert one._neglected() < 10


def test_an_outage_is_no_neglect() -> None:
    """Nobody could look: the first beat that is answered after it offers what the replica can do."""
    one, now = pulse(), boottime()
    one.looked_at = now - 100
    assert one._neglected() == 0
    one._answering_since = now
    assert one._neglected() < 10


async def test_a_release_that_fails_is_no_beat_that_was_not_answered() -> None:
    """Else the neglect would be counted from the beginning again, and nothing ever given back."""

    class Failing(Store):
        async def rows(self, query: Any, *args: Any, timeout: float | None = None) -> Any:  # noqa: ARG002
            raise OutcomeUnknown(name=str(query), what="lost")

    one = pulse()
    one._answering_since = since = boottime() - 300
    await one._give_back(Failing("postgresql://nowhere"))
    assert one._answering_since == since


def test_who_drains_neglects_nothing() -> None:
    one, now = pulse(), boottime()
    one._answering_since, one.looked_at, one.draining = now - 300, now - 100, True
    assert one._neglected() == 0
