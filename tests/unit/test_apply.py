"""Jobs as a file says them: every fault is found at once, and the difference is field by field."""

import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from supervisor.apply import Difference, difference, read_jobs
from supervisor.jobspec import FIELDS

NOW = datetime(2030, 1, 31, 9, tzinfo=UTC)


def unsuited(domain: str, payload: Mapping[str, Any]) -> Sequence[str]:
    if domain != "command":
        return [f"unknown domain {domain!r}"]
    return [] if "argv" in payload else ["the payload does not suit command"]


def read(text: str) -> tuple[Any, list[str]]:
    return read_jobs(tomllib.loads(text), unsuited, NOW)


def test_a_job_is_read_with_its_defaults() -> None:
    jobs, faults = read('[jobs.a]\ndomain = "command"\npayload = {argv = ["ls"]}\ntimeout = 0\nevent = "x"')
    assert faults == []
    columns = {field.column: field.default for name, field in FIELDS.items() if name != "enabled"}
    assert jobs == {
        "a": {**columns, "domain": "command", "payload": {"argv": ["ls"]}, "event_type": "x"},
    }


def test_a_policy_that_bounds_means_one() -> None:
    jobs, faults = read('[jobs.a]\ndomain = "command"\npayload.argv = ["ls"]\nconcurrency_policy = "forbid"')
    assert (jobs["a"]["concurrency"], faults) == (1, [])


@pytest.mark.parametrize(
    ("table", "fault"),
    [
        ("", "domain is missing"),
        ('domain = "nonsense"', "unknown domain 'nonsense'"),
        ("domain = 1", "domain must be a text"),
        ('domain = "command"\npayload = {}', "does not suit"),
        ('domain = "command"\npayload = "{}"', "payload must be a table"),
        ('domain = "command"\npayload.argv = ["a"]\npayload.at = 2030-01-31', "not JSON"),
        ('domain = "command"\npayload.argv = ["a"]\npayload.x = nan', "not JSON"),
        ('domain = "command"\npayload.argv = ["a\\u0000"]', "NUL"),
        ('domain = "command"\nschedule = "* * * * *"', "unknown key 'schedule'"),
        ('domain = "command"\nmax_attempts = 0', "max_attempts must be between 1 and 1000"),
        ('domain = "command"\nmax_attempts = true', "max_attempts must be a whole number"),
        ('domain = "command"\nmax_attempts = 1.5', "max_attempts must be a whole number"),
        ('domain = "command"\ntimeout = nan', "timeout must be between"),
        ('domain = "command"\nenabled = "yes"', "enabled must be true or false"),
        ('domain = "command"\nmissed = "some"\ncron = "* * * * *"', "missed must be one of"),
        ('domain = "command"\ntimezone = "UTC"', "a cron, which is missing"),
        ('domain = "command"\ncron = "never"', "not a cron expression"),
        ('domain = "command"\ncron = "0 0 30 2 *"', "not a cron expression"),
        ('domain = "command"\ncron = "* * * * *"\ntimezone = "Mars/Base"', "not a time zone"),
        ('domain = "command"\nevent = "two words"', "cannot be an event's type"),
        ('domain = "command"\nconcurrency = 0\nconcurrency_policy = "forbid"', "needs a concurrency"),
        ('domain = "command"\naction = "a\\u0000b"', "NUL"),
    ],
)
def test_what_is_wrong_with_a_job_is_named(table: str, fault: str) -> None:
    _, faults = read(f"[jobs.a]\n{table}")
    assert [one for one in faults if one.startswith("a: ") and fault in one], faults


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "there is no job"),
        ("[jobs]", "there is no job"),
        ("jobs = 1", "must be tables"),
        ("[jobs]\na = 1", "must be a table"),
        ("[job.a]", "unknown table 'job'"),
        ('[jobs."; drop"]\ndomain = "command"', "cannot be a job's name"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(text: str, fault: str) -> None:
    _, faults = read(text)
    assert [one for one in faults if fault in one], faults


def test_every_fault_is_found_at_once() -> None:
    text = (
        '[jobs.a]\ndomain = "nonsense"\ncron = "x"\n[jobs.b]\nnonsense = 1\nmax_attempts = 0\n'
        '[jobs.c]\ndomain = "command"\n[other]'
    )
    _, faults = read(text)
    assert [fault.partition(" ")[0] for fault in faults] == ["unknown", "a:", "a:", "b:", "b:", "b:", "c:"]


def test_the_difference_is_field_by_field() -> None:
    existing: dict[str, dict[str, Any]] = {
        "same": {"cron": None, "priority": 0, "enabled": False, "id": 1},
        "other": {"cron": None, "priority": 1, "enabled": True, "id": 2},
        "gone": {"cron": None, "priority": 0, "enabled": True, "id": 3},
    }
    wanted: dict[str, dict[str, Any]] = {
        "same": {"cron": None, "priority": 0},
        "other": {"cron": "* * * * *", "priority": 1},
        "new": {"cron": None, "priority": 0},
    }
    changed = {"other": {"cron": (None, "* * * * *")}}
    assert difference(wanted, existing, prune=False) == Difference(("new",), changed, (), 1)
    assert difference(wanted, existing, prune=True) == Difference(("new",), changed, ("gone",), 1)
    assert difference({"same": wanted["same"]}, existing, prune=False).empty
    assert not difference({"same": wanted["same"]}, existing, prune=True).empty
