"""What the pages are drawn from: times, lanes, tenures, concerns. Pure, without a browser."""

import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from supervisor.console import inert, moments
from supervisor.console.attention import concerns
from supervisor.console.audit import changes
from supervisor.console.figures import lags, throughput
from supervisor.console.jobs import at_a_time
from supervisor.console.tenures import reign
from supervisor.console.timeline import timeline
from supervisor.stored_json import readable

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def step(run: int, attempt: int, seconds: float, state: str, **more: Any) -> dict[str, Any]:
    plain = {"continuation_state": "NONE", "worker_id": None, "reason": None}
    return {"run_id": run, "attempt": attempt, "at": at(seconds), "to_state": state, **plain, **more}


def test_a_lane_for_each_attempt_that_a_run_went_through() -> None:
    steps = [
        step(1, 1, 0, "PENDING"),
        step(1, 1, 2, "ASSIGNED", worker_id="w1"),
        step(1, 1, 3, "RUNNING", worker_id="w1"),
        step(1, 1, 5, "RUNNING", worker_id="w1", continuation_state="CONFIRMING"),
        step(1, 1, 8, "TIMED_OUT", worker_id="w1"),
        step(2, 2, 8, "PENDING"),
        step(2, 2, 9, "RUNNING", worker_id="w2"),
    ]
    drawn = timeline(steps, at(10))
    assert drawn is not None
    first, second = drawn.lanes
    assert [(one.kind, one.x, one.width) for one in first.segments] == [
        ("PENDING", 0, 20), ("ASSIGNED", 20, 10), ("RUNNING", 30, 20), ("CONFIRMING", 50, 30),
    ]  # fmt: skip
    assert (first.end, first.end_x, first.worker_id) == ("TIMED_OUT", 80, "w1")
    assert [(one.kind, one.x, one.width) for one in second.segments] == [
        ("PENDING", 80, 10),
        ("RUNNING", 90, 10),
    ]
    assert (second.end, second.worker_id) == (None, "w2")
    assert [tick.seconds for tick in drawn.ticks] == [0, 5, 10]


def test_a_moment_too_short_to_be_seen_is_drawn_within_the_frame() -> None:
    drawn = timeline([step(1, 1, 0, "PENDING"), step(1, 1, 1000, "RUNNING")], at(1000))
    assert drawn is not None
    last = drawn.lanes[0].segments[-1]
    assert last.width > 0
    assert last.x + last.width <= 100
    assert timeline([], NOW) is None


def leader(epoch: int, *, live: bool, expires: float = 5) -> dict[str, Any]:
    return {"epoch": epoch, "live": live, "expires_at": at(expires), "now": NOW}


def term(
    epoch: int, seconds: float, what: str = "ACQUIRED", *, before: float | None = None
) -> dict[str, Any]:
    """`before`: when the one before, who did not resign, last renewed."""
    renewed = at(before) if before is not None else None
    row = {"epoch": epoch, "at": at(seconds), "holder": f"w{epoch}", "what": what, "reason": None}
    return {**row, "before_renewed_at": renewed}


def test_tenures_and_the_gaps_between_them() -> None:
    log = [term(3, -20), term(2, -50), term(1, -60, "RESIGNED"), term(1, -100)]
    drawn = reign(log, leader(3, live=True), None)
    assert drawn is not None
    assert [(one.epoch, one.ending, one.seconds) for one in drawn.terms] == [
        (3, "leads", 20), (2, "lost", 30), (1, "resigned", 40),
    ]  # fmt: skip
    assert [(gap.seconds, gap.x, gap.width) for gap in drawn.gaps] == [(10, 40, 10)]


def test_a_lost_leader_led_until_it_last_renewed_for_certain() -> None:
    """The gap that follows is at most so long; where nobody noted it, none is drawn."""
    log = [term(3, -20, before=-41), term(2, -50), term(1, -100)]
    drawn = reign(log, leader(3, live=True), None)
    assert drawn is not None
    assert [(one.epoch, one.ending, one.seconds, one.renewed) for one in drawn.terms] == [
        (3, "leads", 20, False), (2, "lost", 9, True), (1, "lost", 50, False),
    ]  # fmt: skip
    assert [(gap.seconds, gap.at_most) for gap in drawn.gaps] == [(21, True)]
    # a clock that was set back notes a renewal that is later than what followed
    back = reign([term(2, -50, before=-20), term(1, -100)], leader(2, live=True), None)
    assert back is not None
    assert (back.terms[1].seconds, back.gaps) == (50, [])


def test_nobody_leads_since_the_last_lease_ran_out() -> None:
    drawn = reign([term(1, -100)], leader(1, live=False, expires=-30), None)
    assert drawn is not None
    assert (drawn.terms[0].ending, drawn.terms[0].seconds, drawn.gaps[0].seconds) == ("lost", 70, 30)
    assert reign([], leader(0, live=False), None) is None


def status(**more: Any) -> dict[str, Any]:
    heard = {"worker_id": "w1", "state": "active", "contact": "heard", "claims": 0}
    plain = {"leader": {"epoch": 1}, "replicas": [heard], "lag_seconds": {}, "leases": {}}
    return {**plain, "confirming": [], "orphaned": [], **more}


MORE = {"paused_domains": [], "broken_schedules": [], "late_finishes": 0, "oldest_event_at": None, "now": NOW}
QUIET = {
    "live": True, "renewed_at": at(-2), "lease_remaining_seconds": 13.0, "quarantine_until": None,
    "resigning": False, "expires_at": at(13), "now": NOW,
}  # fmt: skip
DYING = {"renewed_at": at(-7), "lease_remaining_seconds": 8.0}
SILENT = {"worker_id": "w2", "state": "active", "contact": "silent", "claims": 1}


@pytest.mark.parametrize(
    ("given", "leader_row", "more", "failed", "codes"),
    [
        ({}, {}, {}, 0, []),
        ({}, {"live": False, "expires_at": at(-7)}, {}, 0, ["NO_LEADER"]),
        ({}, DYING, {}, 0, ["LEADER_SILENT"]),
        ({}, {**DYING, "live": False, "expires_at": at(-1)}, {}, 0, ["NO_LEADER"]),
        ({"replicas": []}, {}, {}, 0, ["NO_REPLICA"]),
        ({"replicas": [SILENT]}, {}, {}, 0, ["SILENT"]),
        ({"lag_seconds": {"command": 31.0}}, {}, {}, 0, ["LATE"]),
        ({"lag_seconds": {"command": 31.0}}, {}, {"paused_domains": ["command"]}, 0, ["PAUSED"]),
        ({"confirming": [1], "orphaned": [1]}, {}, {}, 3, ["CONFIRMING", "ORPHANED", "FAILED"]),
        ({"leases": {"dedup.jobs": {"held": 0, "expired": 2}}}, {}, {}, 0, ["EXPIRED_LEASES"]),
        ({}, {"quarantine_until": at(9), "resigning": True}, {}, 0, ["QUARANTINE", "RESIGNING"]),
        ({}, {}, {"broken_schedules": ["a"], "late_finishes": 2}, 0, ["SCHEDULE", "LATE_FINISH"]),
        ({}, {}, {"oldest_event_at": at(-31)}, 0, ["EVENTS"]),
    ],
)
def test_what_needs_attention(
    given: dict[str, Any], leader_row: dict[str, Any], more: dict[str, Any], failed: int, codes: list[str]
) -> None:
    """Worst first, each with where one acts."""
    found = concerns(status(**given), {**QUIET, **leader_row}, {**MORE, **more}, failed, 2)
    assert [concern.code for concern in found] == codes
    assert all(concern.path.startswith("/") and concern.action for concern in found)


def test_throughput_is_stacked_by_minute() -> None:
    rows = [
        {"minutes_ago": 0, "state": "SUCCEEDED", "runs": 3, "longest_wait_seconds": 2.0},
        {"minutes_ago": 0, "state": "FAILED", "runs": 1, "longest_wait_seconds": None},
        {"minutes_ago": 59, "state": "SUCCEEDED", "runs": 2, "longest_wait_seconds": 1.0},
        {"minutes_ago": 60, "state": "SUCCEEDED", "runs": 9, "longest_wait_seconds": 1.0},
    ]
    drawn = throughput(rows)
    assert (drawn.peak, drawn.total, drawn.longest_wait_seconds) == (4, 6, 2.0)
    assert [(piece.kind, piece.y, piece.height) for piece in drawn.pieces] == [
        ("SUCCEEDED", 25, 75), ("FAILED", 0, 25), ("SUCCEEDED", 50, 50),
    ]  # fmt: skip
    assert drawn.pieces[-1].x < 1
    assert drawn.pieces[0].x > 98


def test_a_lag_of_nothing_is_drawn_as_nothing_and_a_short_one_as_short() -> None:
    drawn = lags({"scm": 0.0, "command": 0.3})
    assert (drawn.scale_seconds, [one.share for one in drawn.bars]) == (30, [1, 0])
    drawn = lags({"scm": 15.0, "command": 60.0})
    assert (drawn.scale_seconds, [one.share for one in drawn.bars]) == (60, [100, 25])
    assert lags({}).bars == []


@pytest.mark.parametrize(
    ("most", "policy", "words"),
    [
        (None, "allow", None),
        (1, "allow", "at most 1; the others wait"),
        (1, "forbid", "at most 1; while it has not ended, no other is made"),
        (3, "forbid", "at most 3; while 3 have not ended, no other is made"),
        (1, "replace", "at most 1; a new one takes the place of the one before, which is cancelled"),
        (3, "replace", "at most 3; a new one takes the place of the oldest, which is cancelled"),
    ],
)
def test_how_many_runs_of_a_job_there_may_be(most: int | None, policy: str, words: str | None) -> None:
    assert at_a_time(most, policy) == words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.02, "20 ms"),
        (1.25, "1.2 s"),
        (59, "59 s"),
        (61, "1 min 1 s"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_for_people(seconds: float, text: str) -> None:
    assert moments.duration(seconds) == text


def test_a_time_says_how_long_ago_and_when() -> None:
    shown = str(moments.time_element(at(-90), NOW))
    assert shown == (
        '<time datetime="2026-03-01T11:58:30+00:00" title="2026-03-01 11:58:30 UTC">1 min 30 s ago</time>'
    )
    assert "in 5 s" in str(moments.time_element(at(5), NOW))
    assert str(moments.time_element(None, NOW, "never")) == '<span class="none">never</span>'


def test_what_cannot_be_seen_is_shown_by_its_number() -> None:
    assert inert.visible("a\u202eb\x1b\x00\ud800\n") == "a\\u202eb\\x1b\\x00\\ud800\\x0a"
    assert inert.visible("a\u3164b\u26a0\ufe0f") == "a\\u3164b\u26a0\ufe0f"
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert inert.visible(everything).isprintable()
    assert inert.visible(everything, keep="\n\t").count("\t") == 1
    assert inert.log_text("\x1b[1;31mred\x1b[0m\tx\r\ny\x07") == "red\tx\ny\\x07"
    assert inert.pretty_json({"a": "\u202e"}) == '{\n  "a": "\\u202e"\n}'
    assert inert.shell_word("post:7") == "post:7"
    assert inert.shell_word("a;id $(id) `id` 'b\u202e") == """'a;id $(id) `id` '"'"'b\\u202e'"""
    assert str(inert.commands("do `<x>` & go")) == "do <code>&lt;x&gt;</code> &amp; go"
    assert inert.short_worker("pod-7-11111111-2222-4333-8444-555555555555") == "pod-7·11111111"


@pytest.mark.parametrize("depth", [1, 99, 100, 101, 5000])
def test_json_is_read_however_deep_it_is(depth: int) -> None:
    text = f'{{"a": {"[" * depth}"]}}[x\\\\\\"", 7{"]" * depth}, "b": [1]}}'
    read = readable(text)
    assert read["b"] == [1]
    assert ("..." in json.dumps(read)) is ("[x" not in json.dumps(read)) is (depth >= 100)
    assert inert.pretty_json(read).startswith('{\n  "a": [')


def test_an_audit_row_names_what_changed() -> None:
    assert changes('{"a": 1, "b": 2, "updated_at": 1}', '{"a": 1, "b": 3, "updated_at": 2}') == [
        ("b", "2", "3")
    ]
    assert changes("60", "45") == [("", "60", "45")]
    assert changes(None, '{"a": "x"}') == [("a", "", "x")]
