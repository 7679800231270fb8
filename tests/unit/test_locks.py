"""The lock files: everything pinned with hashes, nothing that names an index, nothing that was forgotten."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = ("build", "dev", "runtime")


def locked(name: str) -> dict[str, set[str]]:
    """Which versions; more than one where they differ by the version of Python."""
    text = (ROOT / "deploy" / "lock" / f"{name}.txt").read_text()
    versions: dict[str, set[str]] = {}
    for package, version in re.findall(r"^([a-z0-9-]+)==(\S+)", text, re.MULTILINE):
        versions.setdefault(package, set()).add(version)
    return versions


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_names_no_index_and_hashes_everything(name: str) -> None:
    text = (ROOT / "deploy" / "lock" / f"{name}.txt").read_text()
    assert not re.search(r"://|--(extra-)?index|--find-links|file:", text)
    entries = re.split(r"\n(?=[a-z])", text)
    assert len(entries) == sum(map(len, locked(name).values())) > 5
    assert all("--hash=sha256:" in entry for entry in entries)


def test_what_the_project_asks_for_is_locked_and_the_locks_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = {
        "runtime": project["project"]["dependencies"],
        "dev": project["project"]["dependencies"] + project["dependency-groups"]["dev"],
        "build": project["dependency-groups"]["build"] + project["build-system"]["requires"],
    }
    for name in LOCKS:
        names = {re.match(r"[\w-]+", line)[0] for line in wanted[name]}  # type: ignore[index]  # each has a name
        assert names <= locked(name).keys(), f"{name}.txt is old: run `make lock`"
    for package, version in locked("runtime").items():
        assert locked("dev")[package] == version
        assert locked("build").get(package, version) == version
