"""The one grammar of addresses in the ledger. Pure: nothing is looked up, nothing is repaired.

- An artifact key, `scm/1/svn/r100.diff`: a relative path. The only form that columns `uri` hold, because it
  means the same in every store.
- A physical address, `file://`, `s3://`, `http(s)://` (and `local://`, of a store on one host): where a key
  lies in one store. `key_of_physical` turns it into the key, or refuses it.
- An evidence URI: `memory://patch_blobs/<svn|git>/<repo_id>:<revision|sha>/<sha256>`, or
  `memory://attachments/<attachment_id>/<sha256>`. It names a row, and the content that row must have.

Every text has one meaning and every meaning one text: what parses is built again as it was.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from supervisor.artifacts.errors import InvalidKey
from supervisor.artifacts.key import check_key, key_in
from supervisor.errors import BadInput

__all__ = [
    "ArtifactKey",
    "AttachmentEvidence",
    "BadUri",
    "Evidence",
    "NotOurs",
    "PatchEvidence",
    "Physical",
    "build_attachment_evidence_uri",
    "build_evidence_uri",
    "key_of_physical",
    "parse",
    "parse_evidence",
]

MAX_URI: Final = 4096
SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
PHYSICAL: Final = frozenset({"file", "s3", "http", "https", "local"})
EVIDENCE: Final = "memory"
_ID: Final = r"[1-9][0-9]{0,18}"
_SHA256: Final = r"[0-9a-f]{64}"
PATCH: Final = re.compile(
    rf"memory://patch_blobs/(?:(svn)/({_ID}:(?:0|{_ID}))|(git)/({_ID}:(?:[0-9a-f]{{40}}|{_SHA256})))/({_SHA256})"
)
ATTACHMENT: Final = re.compile(rf"memory://attachments/({_ID})/({_SHA256})")
BIGINT: Final = 2**63 - 1


class BadUri(BadInput):
    """{uri!r} is no address of the ledger: {what}"""

    hint = (
        "a key (scm/1/svn/r100.diff), or memory://patch_blobs/... and memory://attachments/... for evidence"
    )


class NotOurs(BadInput):
    """{uri!r} does not lie in this artifact store, and only keys are kept"""

    hint = "put it into the store first; after a move, TENURE_ARTIFACTS_FORMER_PLACES names the old store"


@dataclass(frozen=True, slots=True)
class ArtifactKey:
    key: str

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, slots=True)
class Physical:
    """Where something lies; never stored."""

    scheme: str
    uri: str

    def __str__(self) -> str:
        return self.uri


@dataclass(frozen=True, slots=True)
class PatchEvidence:
    """The diff of a revision or commit, with this content."""

    source_type: str
    source_id: str
    sha256: str

    def __str__(self) -> str:
        return f"memory://patch_blobs/{self.source_type}/{self.source_id}/{self.sha256}"


@dataclass(frozen=True, slots=True)
class AttachmentEvidence:
    """What is attached to an item of the logbook, with this content."""

    attachment_id: int
    sha256: str

    def __str__(self) -> str:
        return f"memory://attachments/{self.attachment_id}/{self.sha256}"


Evidence: TypeAlias = PatchEvidence | AttachmentEvidence


def parse(uri: str) -> ArtifactKey | Physical | Evidence:
    """What an address means, or BadUri."""
    if len(uri) > MAX_URI:
        raise BadUri(uri=f"{uri[:60]}...", what=f"it is longer than {MAX_URI} characters")
    found = SCHEME.match(uri)
    if found is None:
        return _key(uri)
    scheme = found[1].lower()
    if scheme == EVIDENCE:
        return parse_evidence(uri)
    if scheme in PHYSICAL:
        return _physical(uri, scheme)
    raise BadUri(uri=uri, what="its scheme is none of ours")


def parse_evidence(uri: str) -> Evidence:
    """The evidence it names, or BadUri; spelt in one way only."""
    if (patch := PATCH.fullmatch(uri)) is not None:
        return _patch(uri, patch[1] or patch[3], patch[2] or patch[4], patch[5])
    if (attached := ATTACHMENT.fullmatch(uri)) is not None and int(attached[1]) <= BIGINT:
        return AttachmentEvidence(int(attached[1]), attached[2])
    shown = uri if len(uri) <= MAX_URI else f"{uri[:60]}..."
    raise BadUri(uri=shown, what="evidence is memory://patch_blobs/<svn|git>/<repo_id>:<rev>/<sha256>, "
                 "or memory://attachments/<id>/<sha256>")  # fmt: skip


def build_evidence_uri(source_type: str, source_id: str, sha256: str) -> str:
    """Of the diff of a revision or commit: R001-036."""
    return str(parse_evidence(f"memory://patch_blobs/{source_type}/{source_id}/{sha256}"))


def build_attachment_evidence_uri(attachment_id: int, sha256: str) -> str:
    return str(parse_evidence(f"memory://attachments/{attachment_id}/{sha256}"))


def key_of_physical(uri: str, places: Iterable[str]) -> str:
    """The key to store for an address: its own where it is a key, that in our store where it lies there.

    `places` are how the addresses of our store begin (`Artifacts.place`), and of those that were moved here.
    Everything else is refused: NotOurs, or BadUri.
    """
    match parse(uri):
        case ArtifactKey(key):
            return key
        case Physical():
            return _key_in(uri, places)
        case PatchEvidence() | AttachmentEvidence():
            raise BadUri(uri=uri, what="evidence names a row, not where content lies")


def _key_in(uri: str, places: Iterable[str]) -> str:
    for place in places:
        if place and uri.startswith(place):
            try:
                return key_in(uri, place)
            except InvalidKey as invalid:
                raise BadUri(uri=uri, what=str(invalid)) from None
    raise NotOurs(uri=uri)


def _key(text: str) -> ArtifactKey:
    try:
        check_key(text)
    except InvalidKey as invalid:
        raise BadUri(uri=text, what=f"as a key, it {invalid.facts['what']}") from None
    return ArtifactKey(text)


def _physical(uri: str, scheme: str) -> Physical:
    # what stands before an @ may be a secret; of a local store it is which one
    suspect = scheme != "local" and "@" in uri
    shown = f"{scheme}://..." if suspect else uri
    if not uri.isprintable() or any(char.isspace() for char in uri):
        raise BadUri(uri=shown, what="it has blanks or control characters in it")
    if not uri[len(scheme) + 1 :].startswith("//"):
        raise BadUri(uri=shown, what=f"it is not of the form {scheme}://...")
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise BadUri(uri=shown, what="it is no URL") from None
    if suspect and "@" in parts.netloc:
        raise BadUri(uri=shown, what="it has a user or a password in it")
    return Physical(scheme, uri)


def _patch(uri: str, source_type: str, source_id: str, sha256: str) -> PatchEvidence:
    numbers = source_id.split(":") if source_type == "svn" else source_id.split(":")[:1]
    if any(int(number) > BIGINT for number in numbers):
        raise BadUri(uri=uri, what="it has a number that no row has")
    return PatchEvidence(source_type, source_id, sha256)
