"""A payload is encoded once, for its faults and for being sent; what is refused is as it was."""

import json
from typing import Any

import pytest

from supervisor import client
from supervisor.errors import BadInput
from supervisor.jobspec import PAYLOAD_BYTES, encode_payload, payload_faults
from supervisor.operations import DEPTH, _encoded


def nested(levels: int, innermost: Any) -> dict[str, Any]:
    value = innermost
    for _ in range(levels):
        value = {"in": value}
    assert isinstance(value, dict)
    return value


@pytest.mark.parametrize("payload", [{}, {"a": [1, {"b": None}]}, {"text": "é\U0001f600", "{": "[[["}])
def test_what_is_sent_is_the_payload(payload: dict[str, Any]) -> None:
    text, faults = encode_payload(payload)
    assert json.loads(text) == payload
    assert text.isascii()
    assert faults == []
    assert json.loads(_encoded(payload)) == payload


def test_the_limit_is_in_bytes_not_in_escapes() -> None:
    room = PAYLOAD_BYTES - len('{"a": ""}')
    assert payload_faults({"a": "é" * (room // 2)}) == []
    assert "over the limit" in payload_faults({"a": "é" * (room // 2 + 1)})[0]
    assert "over the limit" in payload_faults({"a": "x" * (room + 1)})[0]


@pytest.mark.parametrize(
    ("payload", "fault"),
    [({"a": "\0"}, "NUL"), ({"a": float("nan")}, "not JSON"), ({"a": object()}, "not JSON")],
)
def test_faults_are_named(payload: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        _encoded(payload)


@pytest.mark.parametrize("levels", [DEPTH + 1, 100_000])
def test_what_is_nested_too_deeply_is_called_that(levels: int) -> None:
    with pytest.raises(BadInput, match=f"deeper than {DEPTH} levels"):
        _encoded(nested(levels, 1))
    _encoded(nested(DEPTH - 1, 1))


def test_one_object_again_and_again_is_one_text() -> None:
    same, other = {"a": 1}, {"a": 2}
    texts = client._all_encoded([same, same, other, {}, same])
    assert [json.loads(text) for text in texts] == [same, same, other, {}, same]
    assert texts[0] is texts[1]
