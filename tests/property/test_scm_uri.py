"""Addresses of the ledger: what is built parses to what it was, and whatever is typed is answered."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from actors.scm.uri import (
    ArtifactKey,
    AttachmentEvidence,
    BadUri,
    NotOurs,
    PatchEvidence,
    Physical,
    build_attachment_evidence_uri,
    build_evidence_uri,
    key_of_physical,
    parse,
)
from supervisor.artifacts.key import check_key

IDS = st.integers(1, 2**63 - 1)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
COMMITS = (
    st.sampled_from([20, 32]).flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(bytes.hex)
)
SOURCES = st.one_of(
    st.tuples(st.just("svn"), st.tuples(IDS, st.integers(0, 2**63 - 1))),
    st.tuples(st.just("git"), st.tuples(IDS, COMMITS)),
)
NAMES = st.from_regex(r"[a-z0-9_][a-z0-9_.]{0,10}[a-z0-9_]", fullmatch=True)
KEYS = st.lists(NAMES, min_size=1, max_size=5).map("/".join)
HEADS = st.sampled_from(
    ["", "memory://", "memory://patch_blobs/svn/", "memory://attachments/", "s3://b/p/", "file:///mnt/"]
)
PLACES = ("file:///mnt/", "s3://b/p/")


@given(SOURCES, DIGESTS)
def test_evidence_of_a_diff_comes_back(source: tuple[str, tuple[int, object]], digest: str) -> None:
    """R001-036, R001-042"""
    kind, (repo, of) = source
    uri = build_evidence_uri(kind, f"{repo}:{of}", digest)
    found = parse(uri)
    assert found == PatchEvidence(kind, f"{repo}:{of}", digest)
    assert str(found) == uri


@given(IDS, DIGESTS)
def test_evidence_of_an_attachment_comes_back(attachment: int, digest: str) -> None:
    """R001-042"""
    uri = build_attachment_evidence_uri(attachment, digest)
    assert parse(uri) == AttachmentEvidence(attachment, digest)
    assert str(parse(uri)) == uri


@given(KEYS)
def test_a_key_is_itself_wherever_it_lies(key: str) -> None:
    """R001-038, R001-039"""
    assert parse(key) == ArtifactKey(key)
    assert key_of_physical(key, PLACES) == key
    for place in PLACES:
        assert key_of_physical(place + key, PLACES) == key


@given(HEADS, st.text(max_size=120))
def test_whatever_is_typed_is_answered(head: str, rest: str) -> None:
    """R001-037, R001-039: what comes out is a key or an error; never an address, never a way out."""
    text = head + rest
    with suppress(BadUri):
        found = parse(text)
        assert str(found) == text
        assert isinstance(found, ArtifactKey | Physical | PatchEvidence | AttachmentEvidence)
    with suppress(BadUri, NotOurs):
        key = key_of_physical(text, PLACES)
        check_key(key)
        assert ":" not in key
        assert ".." not in key.split("/")
        assert not key.startswith("/")
