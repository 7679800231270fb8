"""Every name has one text, every text one name, and the texts of paths keep the order the database has."""

from hypothesis import example, given
from hypothesis import strategies as st

from actors.dedup.names import to_bytes, to_text

# Random bytes hardly ever make a private-use character: mix them with its pieces.
PIECES = [
    b"\xef",
    b"\xef\x9e",
    b"\x9f",
    b"\x80",
    b"\xbf",
    "\uf780".encode(),
    "\uf7ff".encode(),
    b"\xed\xa0\x80",
    "ä".encode(),
    b"/",
]
name = (
    st.lists(st.one_of(st.sampled_from(PIECES), st.binary(max_size=4)))
    .map(b"".join)
    .map(lambda raw: raw.replace(b"\0", b""))
)
text = st.text(st.one_of(st.characters(), st.characters(min_codepoint=0xF770, max_codepoint=0xF80F)))


@given(name)
@example(b"\xef\x9e\x80")
def test_round_trip(raw: bytes) -> None:
    as_text = to_text(raw)
    assert "\0" not in as_text
    as_text.encode()  # no surrogates: PostgreSQL takes it
    assert to_bytes(as_text) == raw


@given(name, name)
def test_different_names_have_different_texts(one: bytes, other: bytes) -> None:
    assert (to_text(one) == to_text(other)) == (one == other)


@given(text)
def test_a_text_is_refused_or_is_the_text_of_its_name(given_text: str) -> None:
    try:
        raw = to_bytes(given_text)
    except ValueError:
        return
    assert to_text(raw) == given_text


@given(name, name)
def test_a_path_is_escaped_component_by_component(one: bytes, other: bytes) -> None:
    assert to_text(one + b"/" + other) == to_text(one) + "/" + to_text(other)


@given(name, name)
def test_the_order_of_texts_is_that_of_their_bytes(one: bytes, other: bytes) -> None:
    first, second = to_text(one), to_text(other)
    assert (first < second) == (first.encode() < second.encode())
