"""Figures that the console keeps for some seconds: tests that share an app must not see each other's."""

from itertools import count

import pytest

from supervisor.clock import boottime
from supervisor.console import kept

_TESTS = count(1)


def forget_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test begin an hour after the one before it."""
    hours = next(_TESTS)
    monkeypatch.setattr(kept, "boottime", lambda: boottime() + hours * 3600)
