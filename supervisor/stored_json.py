"""JSON that the database keeps and others chose. PostgreSQL takes more of it than Python reads.

`decode` is for work: it reads all of it or raises UnreadableJson. `readable` is for what is only shown: what
is nested too deep stands as "...", and a number that is too long as a text that says so.
"""

import json
import math
import re
from typing import Any, Final

from supervisor.errors import TenureError

DEEPEST: Final = 100
LONGEST_NUMBER: Final = 1000
"""Python reads 4300 digits, but a page is no place for them."""
TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)

# `json.loads` looks for much that the database does not send
_decode: Final = json.JSONDecoder().raw_decode


class UnreadableJson(TenureError):
    """the JSON is nested too deep, or holds too long a number, to be read here"""


def decode(text: str) -> Any:
    try:
        return _decode(text)[0]
    except (RecursionError, ValueError):
        raise UnreadableJson from None


def readable(text: str) -> Any:
    return _SHOWN.decode(_shallow(text))


def _number(text: str) -> int | float | str:
    if len(text) > LONGEST_NUMBER:
        return f"{text[:20]}... ({len(text)} characters)"
    if text.lstrip("-").isdigit():
        return int(text)
    value = float(text)
    return value if math.isfinite(value) else str(value)


_SHOWN: Final = json.JSONDecoder(parse_int=_number, parse_float=_number)


def _shallow(text: str) -> str:
    if text.count("[") + text.count("{") <= DEEPEST:
        return text
    parts, depth, done = [], 0, 0
    for token in TOKEN.finditer(text):
        if token[0] in "[{":
            depth += 1
            if depth == DEEPEST + 1:
                parts.append(text[done : token.start()])
        elif token[0] in "]}":
            if depth == DEEPEST + 1:
                parts.append('"..."')
                done = token.end()
            depth -= 1
    return "".join((*parts, text[done:]))
