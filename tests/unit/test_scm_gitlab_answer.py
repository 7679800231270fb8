"""Answers of a server that is not trusted, made safe."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from actors.scm.gitlab_answer import (
    MAX_TEXT,
    BadAnswer,
    Incomplete,
    TooLarge,
    clean,
    instant_or_none,
    next_page,
    number,
    parse_json,
    stamp,
    wait_seconds,
)

NOW = datetime(2024, 1, 15, 12, 0, 0, tzinfo=UTC)
HERE = ("gitlab.example.org", "/api/v4/projects/7/merge_requests")


def test_what_postgresql_refuses_is_replaced() -> None:
    given = json.dumps({"a\x00": ["x\x00y", "\ud800", {"bidi": "\u202eabc"}]}).encode()
    assert parse_json(given) == {"a\ufffd": ["x\ufffdy", "\ufffd", {"bidi": "\u202eabc"}]}


def test_a_text_beyond_its_bound_is_cut() -> None:
    assert len(parse_json(json.dumps(["x" * (MAX_TEXT + 9)]).encode())[0]) == MAX_TEXT


def test_a_number_without_an_end_is_none() -> None:
    assert parse_json(b"[1e999, -1e999, 1.5]") == [None, None, 1.5]


@pytest.mark.parametrize(
    "body",
    [
        b"<html></html>",
        b"[NaN]",
        b'{"a": Infinity}',
        b"[" * 100_000,
        b'{"a":}x',
        b"\xff\xfe",
        b"[" + b"9" * 5000 + b"]",
    ],
    ids=["html", "nan", "infinity", "deep", "broken", "binary", "huge number"],
)
def test_what_is_no_json_is_a_bad_answer(body: bytes) -> None:
    with pytest.raises(BadAnswer) as refusal:
        parse_json(body)
    assert refusal.value.trouble.permanent
    assert "html" not in str(refusal.value)


def test_depth_has_a_bound() -> None:
    clean(json.loads("[" * 40 + "]" * 40))
    with pytest.raises(BadAnswer, match="levels"):
        clean(json.loads("[" * 41 + "]" * 41))


@pytest.mark.parametrize("body", [b"[" + b"{}," * 1_000_001 + b"{}]", b"[" + b"0," * 5_000_001 + b"0]"])
def test_values_without_number_are_not_made(body: bytes) -> None:
    with pytest.raises(TooLarge):
        parse_json(body)


@pytest.mark.parametrize("body", [b'[{"id": "', b"[1, 2", b'{"a": 1,', b'{"a"', b"", b"[", b'["\xc3'])
def test_what_only_lacks_its_end_may_come_whole_the_next_time(body: bytes) -> None:
    with pytest.raises(Incomplete):
        parse_json(body)


@pytest.mark.parametrize("value", [True, 0, -1, 1.0, "1", None, 1 << 63, [1]])
def test_an_id_is_a_positive_number(value: Any) -> None:
    with pytest.raises(BadAnswer, match="a note with an id"):
        number(value, "a note with an id")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2024-01-15T12:30:00.123+08:00", "2024-01-15T04:30:00.123Z"),
        ("2024-01-15T12:30:00Z", "2024-01-15T12:30:00.000Z"),
        ("2024-01-15T12:30:00.123999Z", "2024-01-15T12:30:00.123Z"),
        ("0001-01-01T00:00:00+14:00", None),
        ("2024-13-45T00:00:00Z", None),
        ("9999999-01-01T00:00:00Z", None),
        ("2024-01-15", None),
        (1705322400, None),
        (None, None),
        ("x" * 5000, None),
    ],
)
def test_times(value: Any, expected: str | None) -> None:
    found = instant_or_none(value)
    assert (found and stamp(found)) == expected


def test_only_the_page_is_taken_from_a_link() -> None:
    link = (
        '<https://gitlab.example.org/api/v4/projects/7/merge_requests?id=8&page=1>; rel="first", '
        "<https://gitlab.example.org/api/v4/projects/7/merge_requests?page=3&per_page=9999&private_token=x"
        '&cursor=abc&scope=mine>; rel="next"'
    )
    assert next_page(link, *HERE) == {"page": "3", "cursor": "abc"}


def test_the_last_page_has_no_next() -> None:
    assert next_page('<https://gitlab.example.org/x?page=1>; rel="prev"', *HERE) is None
    assert next_page("", *HERE) is None


@pytest.mark.parametrize(
    "url",
    [
        "https://evil.example.org/api/v4/projects/7/merge_requests?page=2",
        "https://gitlab.example.org/api/v4/projects/8/merge_requests?page=2",
        "https://gitlab.example.org@169.254.169.254/api/v4/projects/7/merge_requests?page=2",
        "https://gitlab.example.org/api/v4/projects/7/merge_requests",
        "http://[::1/api",
        "/api/v4/projects/7/merge_requests?page=2",
    ],
)
def test_a_link_that_leads_elsewhere_is_refused(url: str) -> None:
    with pytest.raises(BadAnswer, match="link"):
        next_page(f'<{url}>; rel="next"', *HERE)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "Mon, 15 Jan 2024 12:00:30 GMT"}, 30),
        ({"retry-after": "Mon, 15 Jan 2024 12:00:30 GMT", "date": "Mon, 15 Jan 2024 12:00:10 GMT"}, 20),
        ({"retry-after": "Mon, 15 Jan 2024 11:00:00 GMT"}, 0),
        ({"retry-after": "9" * 40}, 86_400),
        ({"ratelimit-reset": str(int(NOW.timestamp()) + 12)}, 12),
        ({"retry-after": "5", "ratelimit-reset": "99999999999"}, 5),
        ({"retry-after": "soon", "ratelimit-reset": "later"}, None),
        ({"retry-after": "²"}, None),
        ({}, None),
    ],
)
def test_when_a_server_wants_to_be_asked_again(headers: dict[str, str], seconds: float | None) -> None:
    assert wait_seconds(headers, NOW) == seconds
