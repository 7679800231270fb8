"""Ranges and types, whatever somebody sends or asks for."""

from contextlib import suppress
from io import BytesIO

import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from actors.media.content import ContentTooLarge, examine
from actors.media.sniff import sniff
from supervisor.api.content import Span, Unsatisfiable, span_of


@given(st.text(max_size=30) | st.from_regex(r"bytes=\d{0,4}-\d{0,4}", fullmatch=True), st.integers(0, 5000))
def test_a_range_is_inside_the_content(header: str, size: int) -> None:
    with suppress(Unsatisfiable):
        span = span_of(header, size)
        assert span is None or (span.length > 0 and span.start >= 0 and span.start + span.length <= size)


@given(st.integers(1, 3000), st.data())
def test_a_good_range_is_what_a_slice_is(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first, 2 * size))
    assert span_of(f"bytes={first}-{last}", size) == Span(first, min(last, size - 1) - first + 1)
    assert span_of(f"bytes={first}-", size) == Span(first, size - first)
    suffix = data.draw(st.integers(1, 2 * size))
    assert span_of(f"bytes=-{suffix}", size) == Span(size - min(suffix, size), min(suffix, size))
    with pytest.raises(Unsatisfiable):
        span_of(f"bytes={size}-", size)


@given(st.binary(max_size=300))
def test_any_bytes_have_a_type(head: bytes) -> None:
    """And what a browser would take for a document is not called text or a picture."""
    kind = sniff(head)
    assert "/" in kind
    assert not (b"<script" in head.lower() and kind == "text/plain")


@given(st.binary(max_size=5000), st.integers(0, 5000))
def test_a_content_is_known_by_all_its_bytes(content: bytes, limit: int) -> None:
    if len(content) > limit:
        with pytest.raises(ContentTooLarge):
            examine(BytesIO(content), limit)
        return
    found = examine(BytesIO(content), limit)
    assert (found.hash, found.size) == (blake3(content).hexdigest(), len(content))
