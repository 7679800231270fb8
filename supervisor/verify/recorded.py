"""A recorded history: a directory that a test run left behind. `check` reads it and judges it."""

from pathlib import Path

from supervisor.verify.judge import judge
from supervisor.verify.reading import read
from supervisor.verify.report import Report


def check(directory: Path) -> Report:
    """A part that was not recorded makes the properties that need it INCONCLUSIVE, never hold."""
    return judge(read(directory))
