"""The programs of others that find duplicates or hash, each as it comes; from the system's packages."""

import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.bench.contest import Figures
from tests.support.libraries import Groups, duplicates_in, parsed_jdupes

THREADS: Final = os.cpu_count() or 1
# jdupes and fdupes compare byte by byte what hashes alike, unless told not to; what is found is only listed
FINDERS: Final[Mapping[str, Callable[[Path], Sequence[str]]]] = {
    "jdupes": lambda _scratch: ("--quiet", "--recurse"),
    "rmlint": lambda scratch: ("--types", "duplicates", "--output", f"json:{scratch / 'rmlint.json'}"),
    "fdupes": lambda _scratch: ("--quiet", "--recurse"),
    "rdfind": lambda scratch: ("-dryrun", "true", "-outputname", str(scratch / "rdfind.txt")),
}


class NotInstalled(Exception):
    """A program that is not here."""


def found(name: str) -> str:
    if (program := shutil.which(name)) is None:
        raise NotInstalled(f"{name} is not installed")
    return program


def version(name: str) -> str | None:
    """The first number it says when asked."""
    if (program := shutil.which(name)) is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, check=False, text=True)
    words = (said.stdout + said.stderr).split()
    return next((word.strip("v,") for word in words if word.strip("v")[:1].isdigit()), None)


def find(name: str, root: Path, scratch: Path) -> Figures:
    return timed([found(name), *FINDERS[name](scratch), str(root)], scratch)[0]


def hash_all(root: Path, scratch: Path) -> Figures:
    """Every file by b3sum, with as many threads as the machine has cores."""
    files = sorted(str(path) for path in root.rglob("*") if path.is_file())
    return timed([found("b3sum"), "--num-threads", str(THREADS), *files], scratch)[0]


def timed(command: Sequence[str], scratch: Path) -> tuple[Figures, str]:
    """What it costs, from its start to its end, and what it said."""
    before, began = _cpu_of_children(), time.monotonic()
    done = subprocess.run(command, cwd=scratch, capture_output=True, check=True, text=True)
    wall = time.monotonic() - began
    return {"s": wall, "CPU s": _cpu_of_children() - before}, done.stdout


def true_groups(root: Path, scratch: Path) -> Groups:
    """Those that jdupes finds; without it, those that whole contents say."""
    if shutil.which("jdupes") is None:
        return duplicates_in(root)
    return parsed_jdupes(timed([found("jdupes"), *FINDERS["jdupes"](scratch), str(root)], scratch)[1])


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
