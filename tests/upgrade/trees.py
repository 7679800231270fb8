"""Two versions of the program side by side: the one released last, out of the history, and the next one.

Both are run by this environment's interpreter, each with its own tree first on the path. Whatever is started
from a tree says first which files it is made of, so that no version can pass for the other.
"""

import asyncio
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from supervisor.embedded import Urls
from tests.support.slowness import patient

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("supervisor", "actors", "schemas")
RELEASED: Final = Path(__file__).with_name("released.txt")
_RUN: Final = """
import json, runpy, sys
import actors, schemas, supervisor
print(json.dumps({"files": [one.__file__ for one in (supervisor, actors, schemas)]}), flush=True)
runpy.run_module("supervisor.cli", run_name="__main__", alter_sys=True)
"""
_COLUMN: Final = """
ALTER TABLE supervisor.job_run ADD COLUMN started_with text;
CREATE INDEX job_run_started_with ON supervisor.job_run (started_with) WHERE started_with IS NOT NULL;
"""
_STARTED: Final = "started_at = clock_timestamp()"


@dataclass(frozen=True)
class Answer:
    code: int
    said: str
    complained: str

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.said)
        return found


@dataclass(frozen=True)
class Tree:
    root: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.root)}

    def command(self, *words: str) -> tuple[str, ...]:
        return (sys.executable, "-c", _RUN, *words)

    def made(self, first_line: str) -> bool:
        """Whether whoever said this is of this tree."""
        files = [str(self.root / name / "__init__.py") for name in PACKAGES]
        return first_line == json.dumps({"files": files})

    async def tenure(self, urls: Urls, *words: str, cwd: Path) -> Answer:
        """One command, with the database as who migrates reaches it."""
        process = await asyncio.create_subprocess_exec(
            *self.command(*words),
            env={**_clean(), **self.environment, **_urls(urls)},
            cwd=cwd,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            said, complained = await process.communicate()
        except BaseException:
            process.kill()
            raise
        first, _, rest = said.decode().partition("\n")
        assert self.made(first), f"not of {self.root}: {first}\n{complained.decode()}"
        return Answer(process.returncode or 0, rest, complained.decode())


def released(directory: Path) -> Tree:
    """The last release, as it was; the test is skipped where the history does not have it."""
    version, commit = RELEASED.read_text().splitlines()[-1].split()
    if shutil.which("git") is None:
        pytest.skip(f"git is not installed: it takes release {version} out of the history")
    command = ["git", "-C", str(ROOT), "archive", commit, "pyproject.toml", *PACKAGES]
    answer = subprocess.run(command, capture_output=True, timeout=patient(60), check=False)
    if answer.returncode != 0:
        reason = answer.stderr.decode(errors="replace").strip()
        pytest.skip(f"release {version} is not in the history of this checkout ({commit[:7]}): {reason}")
    with tarfile.open(fileobj=io.BytesIO(answer.stdout)) as archive:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # Debian 12 has 3.11.2
        archive.extractall(directory, **safely)  # type: ignore[arg-type]  # noqa: S202  our own history
    assert f'version = "{version}"' in (directory / "pyproject.toml").read_text(), RELEASED.name
    return Tree(directory)


def expanded(directory: Path) -> Tree:
    """This version and one more change of the schema: a column, an index, a function that fills it."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, directory / name)
    migrations = directory / "schemas/migrations"
    newest = max(int(file.name[:4]) for file in migrations.glob("*.sql"))
    (migrations / f"{newest + 1:04}_expand.sql").write_text(_COLUMN)
    moves = directory / "schemas/functions/40_worker.sql"
    text, count = re.subn(re.escape(_STARTED), f"{_STARTED}, started_with = 'expanded'", moves.read_text())
    assert count == 1, f"{moves.name} has {count} places where a run starts"
    moves.write_text(text)
    return Tree(directory)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}


def _urls(urls: Urls) -> Mapping[str, str]:
    return {
        "TENURE_MIGRATE_DATABASE_URL": urls.admin,
        "TENURE_DATABASE_URL": urls.control,
        "TENURE_WORKER_DATABASE_URL": urls.worker,
    }
