"""The grammar of addresses: each form by an example, and what is none of them."""

import pytest

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
    parse_evidence,
)

SHA = "ab" * 32
COMMIT = "0123456789" * 4
PLACES = ("file:///mnt/artifacts/proj/", "s3://bucket/engram/proj/", "local://0f0e@")


def test_the_forms() -> None:
    """R001-036, R001-037, R001-042"""
    assert parse("scm/1/svn/r100.diff") == ArtifactKey("scm/1/svn/r100.diff")
    assert parse("scm/proj_a/1/svn/r100/abc123.diff") == ArtifactKey("scm/proj_a/1/svn/r100/abc123.diff")
    assert parse("s3://bucket/a/b.diff") == Physical("s3", "s3://bucket/a/b.diff")
    assert parse("HTTPS://host/a") == Physical("https", "HTTPS://host/a")
    svn = f"memory://patch_blobs/svn/1:100/{SHA}"
    assert parse(svn) == PatchEvidence("svn", "1:100", SHA)
    assert build_evidence_uri("svn", "1:100", SHA) == svn
    git = build_evidence_uri("git", f"2:{COMMIT}", SHA)
    assert git == f"memory://patch_blobs/git/2:{COMMIT}/{SHA}"
    assert parse_evidence(git) == PatchEvidence("git", f"2:{COMMIT}", SHA)
    attached = build_attachment_evidence_uri(7, SHA)
    assert attached == f"memory://attachments/7/{SHA}"
    assert parse(attached) == AttachmentEvidence(7, SHA)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "/etc/passwd",
        "../secret",
        "scm/../../secret",
        "scm//a",
        "scm\\a",
        "scm/%2e%2e/a",
        "a\0b",
        "a\nb",
        "C:/windows",
        "javascript:alert(1)",
        "ftp://host/a",
        "data:text/plain,a",
        "s3:bucket/a",
        "file:/etc/passwd",
        "https://user:secret@host/a",
        "s3://key:secret@bucket/a",
        "https://user:secret@host/a b",
        "https:user:secret@host/a",
        "https://[::1/a",
        "https://host/a b",
        "https://host/\x1b[31m",
        "scm/\ud800",
        "a" * 5000,
        "s3://bucket/" + "a" * 5000,
        f"memory://patch_blobs/svn/1:100/{SHA[:-1]}",
        f"memory://patch_blobs/svn/1:100/{SHA}0",
        f"memory://patch_blobs/svn/1:100/{SHA.upper()}",
        f"memory://patch_blobs/svn/1:100/{SHA}\n",
        f"memory://patch_blobs/svn/1:{COMMIT}/{SHA}",
        f"memory://patch_blobs/svn/01:100/{SHA}",
        f"memory://patch_blobs/svn/1:007/{SHA}",
        f"memory://patch_blobs/svn/0:100/{SHA}",
        f"memory://patch_blobs/svn/1:9999999999999999999/{SHA}",
        f"memory://patch_blobs/svn/1/{SHA}",
        f"memory://patch_blobs/git/1:100/{SHA}",
        f"memory://patch_blobs/git/1:{COMMIT.replace('0', 'G')}/{SHA}",
        f"memory://patch_blobs/hg/1:100/{SHA}",
        f"memory://patch_blobs/svn/../1:100/{SHA}",
        f"memory://patch_blobs/svn/\u0661:100/{SHA}",
        f"memory://attachments/0/{SHA}",
        f"memory://attachments/-1/{SHA}",
        f"memory://attachments/99999999999999999999/{SHA}",
        f"memory://attachments/7/{SHA}?x",
        f"memory://attachments/7/{SHA}/",
        f"MEMORY://attachments/7/{SHA}",
        "memory://",
        "memory://other/1",
    ],
)
def test_what_is_none_of_them(uri: str) -> None:
    """R001-037, R001-042"""
    with pytest.raises(BadUri) as refused:
        parse(uri)
    assert "secret@" not in str(refused.value)
    assert len(str(refused.value)) < 9000


@pytest.mark.parametrize(
    ("source", "number"),
    [("svn", "1"), ("svn", "1:x"), ("mr", "1:1"), ("svn", "svn:1:100"), ("git", "1:abc"), ("svn/1:1", "1:1")],
)
def test_what_cannot_be_named_is_not_built(source: str, number: str) -> None:
    with pytest.raises(BadUri):
        build_evidence_uri(source, number, SHA)
    with pytest.raises(BadUri):
        build_attachment_evidence_uri(0, SHA)
    with pytest.raises(BadUri):
        build_attachment_evidence_uri(1, "x" * 64)


@pytest.mark.parametrize(
    ("uri", "key"),
    [
        ("scm/1/svn/r100.diff", "scm/1/svn/r100.diff"),
        ("file:///mnt/artifacts/proj/scm/1/svn/r100.diff", "scm/1/svn/r100.diff"),
        ("file:///mnt/artifacts/proj/scm/a%20b.diff", "scm/a b.diff"),
        ("s3://bucket/engram/proj/scm/1/svn/r100.diff", "scm/1/svn/r100.diff"),
        ("local://0f0e@host7/scm/1/svn/r100.diff", "scm/1/svn/r100.diff"),
    ],
)
def test_what_lies_in_our_store_becomes_its_key(uri: str, key: str) -> None:
    """R001-039: converted."""
    assert key_of_physical(uri, PLACES) == key


@pytest.mark.parametrize(
    "uri",
    [
        "file:///mnt/artifacts/other/scm/a",
        "file:///mnt/artifacts/proj/../other/a",
        "file:///mnt/artifacts/proj/%2e%2e/other/a",
        "file:///mnt/artifacts/proj/a%00b",
        "file:///mnt/artifacts/proj//etc/passwd",
        "file:///mnt/artifacts/proj/",
        "file:///mnt/artifacts/proj",
        "s3://bucket/engram/projx/scm/a",
        "s3://other/engram/proj/scm/a",
        "https://example.org/scm/1/svn/r100.diff",
        f"memory://attachments/7/{SHA}",
    ],
)
def test_what_lies_elsewhere_is_refused(uri: str) -> None:
    """R001-039: refused."""
    with pytest.raises((NotOurs, BadUri)):
        key_of_physical(uri, PLACES)


def test_a_store_that_was_never_used_has_no_place() -> None:
    with pytest.raises(NotOurs):
        key_of_physical("file:///a", [""])
