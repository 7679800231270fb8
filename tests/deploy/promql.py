"""The names in an expression of Prometheus."""

import re
from collections.abc import Iterator

CLAUSE = r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)"
WORDS = {"and", "or", "unless", "bool", "sum", "max", "min", "count", "avg"}


def metrics_in(expression: str) -> Iterator[str]:
    """What is left when strings, matchers, ranges, clauses, functions and keywords are taken away."""
    text = re.sub(r'"[^"]*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\boffset\s+\w+", " ", text)
    text = re.sub(CLAUSE, " ", text)
    for found in re.finditer(r"(?<![\w.:])[a-zA-Z_:][\w:]*(?!\s*\(|[\w:])", text):
        if found[0] not in WORDS:
            yield found[0]


def labels_in(expression: str) -> set[str]:
    """Those that are matched or grouped by."""
    text = re.sub(r'"[^"]*"', '""', expression)
    matchers = {
        name for part in re.findall(r"\{([^}]*)\}", text) for name in re.findall(r"(\w+)\s*[=!]", part)
    }
    grouped = {name.strip() for part in re.findall(CLAUSE, text) for name in part.split(",")}
    return matchers | grouped - {""}
