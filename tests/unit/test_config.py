"""Settings are refused when the relations between the timings do not hold."""

from dataclasses import replace

import pytest

from supervisor.config import Timings, load_settings
from supervisor.errors import BadSettings

TEST_TIMINGS = Timings(6, 3, 0.5, 0.5, 1.5, 4, 1, 7)


def test_the_defaults_and_the_tests_timings_hold() -> None:
    assert Timings().complaints() == []
    assert TEST_TIMINGS.complaints() == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("leader_lease", 3 * 1.02 + 2),
        ("renew_deadline", 0.6),
        ("confirm_after", 1.49),
        ("self_stop", 1.5),
        ("stop_bound", 4 * 1.02 + 1 + 2 * 0.5 - 0.01),
        ("kill", 0),
    ],
)
def test_each_broken_relation_is_named(name: str, value: float) -> None:
    assert len(replace(TEST_TIMINGS, **{name: value}).complaints()) == 1


def test_start_up_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_STOP_BOUND_SECONDS", "20")
    with pytest.raises(BadSettings, match="stop bound 20 must be at least"):
        load_settings()


def test_a_bad_value_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_HTTP_PORT", "s3cret")
    with pytest.raises(BadSettings) as refusal:
        load_settings()
    assert "TENURE_HTTP_PORT" in str(refusal.value)
    assert "s3cret" not in str(refusal.value)
