"""A working directory for all tests of a module: an app keeps its paths, and is made once for them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def module_place(factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Work in a new directory: no settings are read from elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        place = factory.mktemp("module")
        patch.chdir(place)
        yield place


def empty(place: Path) -> None:
    """Remove what is in it and not the directory itself, which processes may be in."""
    for entry in place.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
