"""docs/requirements.md: every line is there, and every test it names exists and names the line."""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
TABLE = (TESTS.parent / "docs/requirements.md").read_text()
IDS = [f"R003-{number:02}" for number in range(1, 56)]
NAMED = re.compile(r"`([a-z_/]+\.py)::(test_\w+)`")
RANGE = re.compile(r"R003-(\d\d) to R003-(\d\d)")


def proofs() -> dict[str, list[tuple[str, str]]]:
    """By line, the tests of the first table."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for row in TABLE.split("\n## ", maxsplit=1)[0].splitlines():
        if row.startswith("| R003-"):
            found[row[2:9]] += NAMED.findall(row)
    return found


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
    spans = (range(int(first), int(last) + 1) for first, last in RANGE.findall(docstring))
    return {*re.findall(r"R003-\d\d", docstring), *(f"R003-{n:02}" for span in spans for n in span)}


def test_every_line_is_in_the_table_once() -> None:
    assert list(proofs()) == IDS


@pytest.mark.parametrize("line", IDS)
def test_every_line_has_a_test_that_names_it(line: str) -> None:
    assert proofs()[line]
    for path, name in proofs()[line]:
        assert name in docstrings(path), f"{path} has no {name}"
        assert line in lines_of(docstrings(path)[name]), f"{path}::{name} does not name {line}"


def test_every_test_that_the_document_names_exists() -> None:
    assert [f"{path}::{name}" for path, name in NAMED.findall(TABLE) if name not in docstrings(path)] == []
