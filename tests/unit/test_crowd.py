"""What workers hold, reckoned between two counts."""

from supervisor.crowd import Crowd
from supervisor.plan import Worker


def worker(name: str, **held_by: int) -> Worker:
    return Worker(name, "active", frozenset({"command", "scm"}), 10, 1, 30.0, 0.0, held_by)


def held(crowd: Crowd, ended: dict[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    return {one.worker_id: dict(one.held_by) for one in crowd.reckoned(ended)}


def test_what_was_given_counts_and_what_has_ended_does_not() -> None:
    crowd = Crowd()
    crowd.counted([worker("a", command=3), worker("b", scm=1)])
    crowd.given([("a", "command"), ("b", "command"), ("b", "command")])
    assert held(crowd, {("a", "command"): 2, ("b", "scm"): 1}) == {"a": {"command": 2}, "b": {"command": 2}}


def test_more_ends_than_were_held_leave_nothing_and_take_nothing_from_others() -> None:
    crowd = Crowd()
    crowd.counted([worker("a", command=1, scm=2)])
    assert held(crowd, {("a", "command"): 5, ("gone", "scm"): 1}) == {"a": {"scm": 2}}


def test_a_count_begins_anew() -> None:
    crowd = Crowd()
    crowd.counted([worker("a")])
    crowd.given([("a", "command")])
    crowd.counted([worker("a", command=1)])
    assert held(crowd, {}) == {"a": {"command": 1}}
