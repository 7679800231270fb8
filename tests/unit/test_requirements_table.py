"""docs/requirements*.md: every line is there, and every test a row names exists and names the line."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
IDS = [f"R003-{number:02}" for number in range(1, 56)]
NAMED = re.compile(r"`([a-z_/0-9]+\.py)::(test_\w+)`")
RANGE = re.compile(r"(R\d{3})-(\d+)(?: to R\d{3}-| \.\. R\d{3}-|\.\.)(\d+)")
DOMAINS = [
    ("requirements-dedup.md", "R000", range(1, 106)),
    ("requirements-scm.md", "R001", range(1, 195)),
    ("requirements-media.md", "R002", range(1, 53)),
    ("requirements-capture.md", "R004", range(1, 47)),
]


def document(name: str) -> str:
    return (TESTS.parent / "docs" / name).read_text()


TABLE = document("requirements.md")


def proofs(table: str, family: str) -> dict[str, list[tuple[str, str]]]:
    """By line, the tests of its rows."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in table.splitlines():
        if row.startswith(f"| {family}-"):
            found[row.split()[1]] += NAMED.findall(row)
    return found


def proven() -> dict[str, list[tuple[str, str]]]:
    """By line, the tests of the kernel's first table."""
    return proofs(TABLE.split("\n## ", maxsplit=1)[0], "R003")


@cache
def docstrings(path: str) -> dict[str, str]:
    """By test of this file, what it says of itself."""
    tree = ast.parse((TESTS / path).read_text())
    return {
        node.name: ast.get_docstring(node) or ""
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def lines_of(docstring: str) -> set[str]:
    """Each that it names, and those between the ends of a span."""
    spans = {
        f"{family}-{number:0{len(first)}}"
        for family, first, last in RANGE.findall(docstring)
        for number in range(int(first), int(last) + 1)
    }
    return {*re.findall(r"R\d{3}-\d+", docstring), *spans}


def test_every_line_is_in_the_table_once() -> None:
    assert list(proven()) == IDS


@pytest.mark.parametrize("line", IDS)
def test_every_line_has_a_test_that_names_it(line: str) -> None:
    assert proven()[line]
    for path, name in proven()[line]:
        assert name in docstrings(path), f"{path} has no {name}"
        assert line in lines_of(docstrings(path)[name]), f"{path}::{name} does not name {line}"


def test_every_test_that_the_document_names_exists() -> None:
    assert [f"{path}::{name}" for path, name in NAMED.findall(TABLE) if name not in docstrings(path)] == []


@pytest.mark.parametrize(("name", "family", "lines"), DOMAINS)
def test_the_tables_of_the_domains(name: str, family: str, lines: range) -> None:
    """Every line stands there, and each test that is named exists."""
    text = document(name)
    width = len(re.findall(rf"{family}-(\d+)", text)[0])
    assert [n for n in lines if f"{family}-{n:0{width}}" not in text] == []
    named = NAMED.findall(text)
    assert len(named) >= len(lines)
    assert [f"{path}::{test}" for path, test in named if test not in docstrings(path)] == []


@pytest.mark.parametrize(("name", "family", "lines"), DOMAINS)
def test_every_test_of_a_row_names_its_line(name: str, family: str, lines: range) -> None:
    """A search for the line finds both; a row that names a test of something else is found here."""
    found = proofs(document(name), family)
    assert len(found) == len(lines)
    assert [
        f"{path}::{test} does not name {line}"
        for line, tests in found.items()
        for path, test in tests
        if line not in lines_of(docstrings(path)[test])
    ] == []
