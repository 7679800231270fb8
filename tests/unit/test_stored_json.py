"""JSON of the database that Python does not read: one error for work, and something to look at for pages."""

import json
import math

import pytest

from supervisor.stored_json import UnreadableJson, decode, readable

DEEP = '{"x": ' + "[" * 9000 + "]" * 9000 + "}"
LONG = '{"x": 1' + "0" * 5000 + "}"


@pytest.mark.parametrize("text", [DEEP, LONG, LONG.replace("1", "-1"), "no JSON"])
def test_what_cannot_be_read_is_one_error(text: str) -> None:
    with pytest.raises(UnreadableJson):
        decode(text)


@pytest.mark.parametrize("text", [DEEP, LONG, LONG.replace("}", ".5}"), '{"x": [1e400, -1e400, 7.5e3]}'])
def test_what_is_only_shown_is_always_json_again(text: str) -> None:
    json.dumps(readable(text), allow_nan=False)


def test_a_number_that_is_too_long_says_so() -> None:
    assert readable(LONG) == {"x": "10000000000000000000... (5001 characters)"}


def test_what_can_be_read_is_the_same_for_both() -> None:
    text = '{"a": [1, -2.5, 1e3, null, true, "x"], "b": {"c": 12345678901234567890}}'
    assert decode(text) == readable(text) == json.loads(text)
    assert math.isfinite(decode("1e3"))
