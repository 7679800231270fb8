"""A link that logs in is shown where only its user reads it."""

import os
import pty
from pathlib import Path

import pytest

from supervisor.login_codes import is_for_us_alone


@pytest.mark.parametrize(("mode", "alone"), [(0o600, True), (0o640, False), (0o604, False)])
def test_a_file_is_for_us_alone_where_it_is_closed(tmp_path: Path, mode: int, alone: bool) -> None:
    with (tmp_path / "output").open("w") as output:
        os.fchmod(output.fileno(), mode)
        assert is_for_us_alone(output) == alone


def test_a_terminal_is_and_a_pipe_is_not() -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(ours, "w"), os.fdopen(theirs, "w") as terminal:
        assert is_for_us_alone(terminal)
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "w") as pipe:
        assert not is_for_us_alone(pipe)
