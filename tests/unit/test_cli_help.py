"""What `tenure --help` costs, and what it teaches."""

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from supervisor.cli.advice import advice
from supervisor.cli.app import app
from supervisor.cli.names import did_you_mean
from supervisor.errors import BadInput, Conflict, DatabaseUnreachable, NotFound, OutcomeUnknown, TenureError
from supervisor.jobrun import STATES

LOADED = """
import sys
from supervisor.cli.app import main
assert main(["--help"]) == 0
print(*sys.modules, file=sys.stderr)
"""


@cache
def modules_of_help() -> frozenset[str]:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=root, capture_output=True, text=True, check=True
    )
    assert "completion" in done.stdout
    return frozenset(done.stderr.split())


@pytest.mark.parametrize("heavy", ["fastapi", "httpx", "pyvips", "uvicorn", "PIL", "av", "tesserocr"])
def test_help_loads_nothing_that_only_work_needs(heavy: str) -> None:
    assert heavy not in modules_of_help()


def tree() -> Any:
    return typer.main.get_command(app)


def named(hint: str) -> Iterator[list[str]]:
    """The commands between backticks."""
    for command in re.findall(r"`tenure ([^`]+)`", hint):
        yield command.split()


def exists(words: list[str]) -> bool:
    here = tree()
    for word in words:
        below = getattr(here, "commands", None)
        if below is None or word.startswith("-"):
            return True
        if word not in below:
            return False
        here = below[word]
    return True


def leaves(here: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    below = getattr(here, "commands", None)
    if below is None:
        yield " ".join(path), here
    for name, command in (below or {}).items():
        yield from leaves(command, (*path, name))


def test_every_command_shows_an_example() -> None:
    without = [path for path, command in leaves(tree()) if not re.search(r"Examples?:", command.help)]
    assert not without


@pytest.mark.parametrize(
    ("error", "arguments", "hint"),
    [
        (BadInput(what="x"), ["job", "add", "x"], "`tenure job add --help` shows how it is used"),
        (BadInput(what="x"), ["status", "5"], "`tenure status --help` shows how it is used"),
        (BadInput(what="x"), [], "`tenure --help` shows how it is used"),
        (Conflict(what="x"), ["run", "cancel", "7"], "`tenure run show 7` shows how it stands"),
        (Conflict(what="x"), ["run", "--json", "retry", "7"], "`tenure run show 7` shows how it stands"),
        (Conflict(what="x"), ["leader", "resign"], "`tenure leader resign --help` shows how it is used"),
        (NotFound(kind="run", name=7), ["run", "show", "7"], "`tenure run list` shows what there is"),
        (
            NotFound(kind="setting", name="x"),
            ["setting", "get", "x"],
            "`tenure setting get` shows what there is",
        ),
        (NotFound(kind="group", name="x"), ["x"], "`tenure --help` lists what is"),
        (OutcomeUnknown(name="x", what="y"), ["run", "cancel", "7"], "it may or may not have been done"),
        (DatabaseUnreachable(what="x"), ["status"], "check TENURE_DATABASE_URL"),
        (TenureError(), ["up"], "`tenure doctor` looks for the cause"),
    ],
)
def test_every_error_names_a_command_that_exists(error: TenureError, arguments: list[str], hint: str) -> None:
    found = advice(error, tree(), arguments)
    assert found.startswith(hint)
    assert all(exists(words) for words in named(found))


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("FAILE", STATES, "did you mean FAILED?"),
        ("timedout", STATES, "did you mean TIMED_OUT?"),
        ("nonsense", STATES, ""),
        ("bakcup", ["backup", "report"], "did you mean backup?"),
        ("", ["backup"], ""),
        ("x", [], ""),
    ],
)
def test_did_you_mean(word: str, known: list[str], meant: str) -> None:
    assert did_you_mean(word, known) == meant
