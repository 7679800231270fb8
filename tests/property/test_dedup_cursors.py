"""Cursors and keys: what we write comes back as it was, and nothing else is taken for one of ours."""

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.dedup.api.cursors import (
    ALGORITHMS,
    CURSOR_CHARACTERS,
    ID_MOST,
    GroupCursor,
    GroupKey,
    InvalidCursor,
    InvalidGroupKey,
    parse_cleanup_key,
    parse_group_cursor,
    parse_group_key,
    parse_id_cursor,
    parse_job_cursor,
    parse_name_cursor,
    parse_path_cursor,
    path_cursor,
)

HASHES = st.binary(min_size=32, max_size=32)
CURSORS = st.integers(2, ID_MOST).flatmap(
    lambda count: st.builds(
        GroupCursor,
        st.just(count),
        st.integers(0, count * ID_MOST),
        st.sampled_from(ALGORITHMS),
        HASHES.map(bytes.hex),
    )
)
GOOD: dict[str, Any] = {
    "file_count": 2,
    "total_size_bytes": 0,
    "hash_algorithm": "blake3",
    "content_hash_hex": "0f" * 32,
}
PARSERS = [parse_group_cursor, parse_id_cursor, parse_job_cursor, parse_name_cursor, parse_path_cursor]


def encoded(what: Any) -> str:
    text = what if isinstance(what, bytes) else json.dumps(what).encode()
    return base64.urlsafe_b64encode(text).decode()


@given(CURSORS)
def test_a_cursor_comes_back_as_it_was(cursor: GroupCursor) -> None:
    """R000-70: base64url of JSON with exactly these four fields; any decoder reads it, padded or not."""
    text = cursor.encode()
    assert parse_group_cursor(text) == cursor
    assert "=" not in text
    assert len(text) <= CURSOR_CHARACTERS
    assert json.loads(base64.urlsafe_b64decode(text)) == {
        "file_count": cursor.file_count,
        "total_size_bytes": cursor.total_size_bytes,
        "hash_algorithm": cursor.hash_algorithm,
        "content_hash_hex": cursor.content_hash_hex,
    }


def test_a_cursor_of_empty_files_is_one() -> None:
    """R000-70, R000-74: empty files have no size, and the page behind them is reached all the same."""
    assert parse_group_cursor(encoded(GOOD)).total_size_bytes == 0


@given(CURSORS, st.data())
def test_a_cut_or_changed_cursor_is_refused_or_another(cursor: GroupCursor, data: st.DataObject) -> None:
    """R000-74: whatever is done to the text, it is refused or read as exactly one cursor."""
    text = cursor.encode()
    cut = data.draw(st.integers(0, len(text) - 5))
    with pytest.raises(InvalidCursor):
        parse_group_cursor(text[:cut])
    place = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters())
    changed = text[:place] + other + text[place + 1 :]
    try:
        read = parse_group_cursor(changed)
    except InvalidCursor:
        return
    assert read != cursor or changed == text or changed.rstrip("gIA") == text.rstrip("gIA")


@pytest.mark.parametrize(
    "facts",
    [
        {**GOOD, "file_count": 1},
        {**GOOD, "file_count": -2},
        {**GOOD, "file_count": True},
        {**GOOD, "file_count": 2.0},
        {**GOOD, "file_count": "2"},
        {**GOOD, "file_count": None},
        {**GOOD, "file_count": ID_MOST + 1},
        {**GOOD, "total_size_bytes": -1},
        {**GOOD, "total_size_bytes": False},
        {**GOOD, "total_size_bytes": 0.0},
        {**GOOD, "total_size_bytes": float("nan")},
        {**GOOD, "total_size_bytes": float("inf")},
        {**GOOD, "total_size_bytes": 2 * ID_MOST + 1},
        {**GOOD, "total_size_bytes": []},
        {**GOOD, "hash_algorithm": "md5"},
        {**GOOD, "hash_algorithm": "BLAKE3"},
        {**GOOD, "hash_algorithm": ["blake3"]},
        {**GOOD, "hash_algorithm": None},
        {**GOOD, "content_hash_hex": "0f" * 31},
        {**GOOD, "content_hash_hex": "0f" * 33},
        {**GOOD, "content_hash_hex": "0F" * 32},
        {**GOOD, "content_hash_hex": "0g" * 32},
        {**GOOD, "content_hash_hex": "0f" * 32 + "\n"},
        {**GOOD, "content_hash_hex": 7},
        {**GOOD, "more": 1},
        {key: GOOD[key] for key in list(GOOD)[1:]},
        {},
        [],
        [GOOD],
        None,
        7,
        "blake3",
        b"",
        b" ",
        b"\xff\xfe",
        b"\x00",
        b"{}{}",
        b"NaN",
        json.dumps(GOOD).encode()[:-1],
        json.dumps(GOOD).encode() + b"x",
        json.dumps(GOOD).encode() + b" " * CURSOR_CHARACTERS,
        json.dumps(GOOD).encode().replace(b"{", b'{"file_count": 3, ', 1),
        json.dumps(GOOD).encode().replace(b"2", b"9" * 200, 1),
        b"[" * 300,
    ],
    ids=lambda facts: repr(facts)[:60],
)
def test_a_forged_cursor_is_refused(facts: Any) -> None:
    """R000-74."""
    with pytest.raises(InvalidCursor):
        parse_group_cursor(encoded(facts))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text + "=",
        lambda text: text + "====",
        lambda text: "=" + text,
        lambda text: text + " ",
        lambda text: " " + text,
        lambda text: text + "\n",
        lambda text: text + "\0",
        lambda text: text.replace(text[5], "+", 1),
        lambda text: text.replace(text[5], "/", 1),
        lambda text: text.replace(text[5], "é", 1),
        lambda text: text * 3,
        lambda text: text + "A" * CURSOR_CHARACTERS,
        lambda text: "",
        lambda text: text + "A",
    ],
)
def test_a_text_that_is_not_base64url_is_refused(spoil: Callable[[str], str]) -> None:
    """R000-74."""
    text = GroupCursor(**GOOD).encode()
    assert parse_group_cursor(text) == GroupCursor(**GOOD)
    with pytest.raises(InvalidCursor):
        assert parse_group_cursor(spoil(text)) is None


def test_bits_of_no_byte_are_no_second_spelling() -> None:
    """R000-74: two texts of one cursor would be two cursors."""
    text = encoded({**GOOD, "file_count": 33}).rstrip("=")
    assert len(text) % 4, "choose facts whose length leaves bits over"
    last = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    twin = text[:-1] + last[last.index(text[-1]) + 1]
    assert base64.urlsafe_b64decode(twin + "==") == base64.urlsafe_b64decode(text + "==")
    with pytest.raises(InvalidCursor):
        parse_group_cursor(twin)


@pytest.mark.parametrize("parser", PARSERS)
@given(text=st.text() | st.text(alphabet="0123456789abcdef-+_ ٣²\0"))
def test_any_text_is_read_or_refused(parser: Callable[[str], object], text: str) -> None:
    """R000-64, R000-74: no other error than the one that becomes 422."""
    with suppress(InvalidCursor):
        parser(text)


@given(st.integers(1, ID_MOST))
def test_an_id_comes_back_as_it_was(number: int) -> None:
    """R000-77: the last id as a decimal number."""
    assert parse_id_cursor(str(number)) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "-1",
        "+1",
        "01",
        " 1",
        "1 ",
        "1\n",
        "1.0",
        "1e3",
        "0x1",
        "1_0",
        "٣",
        "²",
        str(ID_MOST + 1),
        "9" * 5000,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    """R000-77."""
    with pytest.raises(InvalidCursor):
        parse_id_cursor(text)


@given(st.uuids())
def test_a_job_comes_back_as_it_was(job: Any) -> None:
    """R000-59."""
    assert parse_job_cursor(str(job)) == job
    for other in (job.hex, f"{{{job}}}", job.urn, f"{job} ", str(job)[:-1], f"{job}0"):
        with pytest.raises(InvalidCursor):
            parse_job_cursor(other)


@given(st.sampled_from(ALGORITHMS), HASHES)
def test_a_group_key_comes_back_as_it_was(algorithm: str, content_hash: bytes) -> None:
    """R000-71, R000-72: the algorithm, a colon, 64 digits; capital ones are read, small ones written."""
    key = GroupKey(algorithm, content_hash)
    assert str(key) == f"{algorithm}:{content_hash.hex()}"
    assert parse_group_key(str(key)) == key
    assert parse_group_key(f"{algorithm}:{content_hash.hex().upper()}") == key
    assert parse_cleanup_key(str(key)) == str(key)


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "blake3",
        "blake3:",
        "0f" * 32,
        f"md5:{'0f' * 32}",
        f"BLAKE3:{'0f' * 32}",
        f" blake3:{'0f' * 32}",
        f"blake3:{'0f' * 31}",
        f"blake3:{'0f' * 32}0",
        f"blake3:{'0f' * 33}",
        f"blake3:{'0g' * 32}",
        f"blake3:{'0f' * 32}\n",
        f"blake3: {'0f' * 32}",
        f"blake3::{'0f' * 32}",
        f"blake3:0x{'0f' * 31}",
        f"blake3:{'٣' * 64}",
        f"blake3:{'İ' * 32}",
        f"sha256:{'0f' * 32}:1",
        f"sha256\0:{'0f' * 32}",
    ],
)
def test_what_is_no_group_key_is_refused(text: str) -> None:
    """R000-72."""
    with pytest.raises(InvalidGroupKey):
        parse_group_key(text)
    with pytest.raises(InvalidGroupKey):
        parse_cleanup_key(text)


@given(st.text())
def test_any_text_is_a_group_key_or_refused(text: str) -> None:
    """R000-72."""
    for parser in (parse_group_key, parse_cleanup_key):
        with suppress(InvalidGroupKey):
            parser(text)


@pytest.mark.parametrize(
    ("text", "fits"), [("file:7", True), ("file:0", False), ("file:", False), (f"file:{2**63}", False)]
)
def test_a_file_without_a_hash_has_a_key_for_its_thumbnails(text: str, fits: bool) -> None:
    if fits:
        assert parse_cleanup_key(text) == text
    else:
        with pytest.raises(InvalidGroupKey):
            parse_cleanup_key(text)


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_a_path_has_a_cursor_of_one_length(path: str) -> None:
    assert len(parse_path_cursor(path_cursor(path))) == 32
