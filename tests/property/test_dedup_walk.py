"""Random trees: the walk is the sorted listing, and a walk resumed anywhere is the rest of it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.dedup import listing
from actors.dedup.confine import Beneath, library_root
from actors.dedup.names import to_text
from actors.dedup.walk import batches

# Names that begin like each other and end around `/` in the order; some that are no UTF-8 or need escapes.
NAMES = [
    b"a",
    b"a-",
    b"a.",
    b"a0",
    b"a!",
    b"ab",
    b"b",
    b"b-",
    b"\xff",
    b"a\xff",
    "\uf7e9".encode(),
    "ä".encode(),
]
trees = st.lists(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(tuple), max_size=20)


def grow(at: bytes, tree: list[tuple[bytes, ...]]) -> None:
    """Each path a file; where one leads through another, that one is a directory."""
    for parts in sorted(tree, key=len, reverse=True):
        path = b"/".join((at, *parts))
        os.makedirs(b"/".join((at, *parts[:-1])), exist_ok=True)  # noqa: PTH103  the names are bytes
        if not os.path.isdir(path):  # noqa: PTH112
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


@contextmanager
def library(tree: list[tuple[bytes, ...]]) -> Iterator[tuple[Beneath, list[str]]]:
    """The tree on a disk, and what os.walk says of it."""
    with tempfile.TemporaryDirectory() as place:
        inside = os.fsencode(place) + b"/library"
        Path(os.fsdecode(inside)).mkdir()
        grow(inside, tree)
        found = [
            to_text(folder[len(inside) + 1 :] + b"/" + file if folder != inside else file)
            for folder, _, files in os.walk(inside)
            for file in files
        ]
        with library_root(Path(place), "library") as root:
            yield root, sorted(found)


@settings(max_examples=150, deadline=None)
@given(trees, st.integers(1, 6), st.integers(1, 4), st.sampled_from([1, 3, 5000]))
def test_the_walk_is_the_sorted_listing(
    tree: list[tuple[bytes, ...]], size: int, threads: int, stretch: int
) -> None:
    listing.STRETCH, usual = stretch, listing.STRETCH
    try:
        with library(tree) as (root, wanted):
            walked = list(batches(root, size=size, threads=threads))
    finally:
        listing.STRETCH = usual
    assert [path for batch in walked for path in batch.paths] == wanted
    assert walked[-1].final
    assert not any(batch.final for batch in walked[:-1])
    for one, other in pairwise(walked):
        assert one.upto == other.after
        assert one.after < one.upto
    for batch in walked:
        covered = [path for path in wanted if path > batch.after and (batch.final or path <= batch.upto)]
        assert batch.paths == covered


@settings(max_examples=100, deadline=None)
@given(trees, st.integers(1, 6), st.text("ab.-0/ä\uf7ff", max_size=6))
def test_resumed_anywhere_it_is_the_rest(tree: list[tuple[bytes, ...]], size: int, anywhere: str) -> None:
    with library(tree) as (root, wanted):
        ends = [batch.upto for batch in batches(root, size=size)]
        for after in {*wanted, *ends, anywhere, ""}:
            rest = [path for batch in batches(root, after, size=size) for path in batch.paths]
            assert rest == [path for path in wanted if path > after]
        whole = sum(batch.directories for batch in batches(root))
        first = next(batches(root, size=1))
        again = sum(batch.directories for batch in batches(root, first.upto)) if not first.final else 0
        assert first.directories + again == whole
