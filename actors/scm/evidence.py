"""Evidence: from its URI to its content, which is verified before anybody sees it.

The URI names a row and a digest. The row must still have that digest, and the store's content must have it
too; else ChecksumMismatch (`CHECKSUM_MISMATCH`), and nothing of the content is handed out.
"""

import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import IO, Final, assert_never

from anyio import to_thread

from actors.scm.uri import SCHEME, AttachmentEvidence, Evidence, PatchEvidence, parse_evidence
from supervisor.artifacts import ArtifactError, ArtifactMissing, Artifacts, ChecksumMismatch
from supervisor.artifacts.errors import SizeMismatch
from supervisor.artifacts.parallel import for_each
from supervisor.artifacts.reading import reported
from supervisor.errors import NotFound
from supervisor.store import Record, Store

__all__ = ["Located", "NoEvidence", "Resolved", "Verification", "fetch", "locate", "resolve", "verify"]

MAX_BYTES: Final = 64 * 1024 * 1024
PAGE: Final = 1000
READ_SECONDS: Final = 60.0
IN_MEMORY_BYTES: Final = 1 << 20


class NoEvidence(NotFound):
    """no evidence {name}"""

    hint = "nothing in the ledger has this address; `tenure evidence verify` reads what there is"


@dataclass(frozen=True, slots=True)
class Located:
    """What the ledger says of evidence; `key` as it stands there."""

    uri: str
    key: str
    sha256: str
    size_bytes: int

    async def place(self, artifacts: Artifacts) -> str:
        """The key it is kept under in this store."""
        return await _key(artifacts, self.key)


@dataclass(frozen=True, slots=True)
class Resolved:
    uri: str
    key: str
    sha256: str
    content: bytes = field(repr=False)


@dataclass(slots=True)
class Verification:
    checked: int = 0
    checked_bytes: int = 0
    wrong: list[tuple[str, str]] = field(default_factory=list)
    missing: list[tuple[str, str]] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.wrong or self.missing)


async def locate(uri: str, store: Store) -> Located:
    """Its row, or an error: BadUri, NoEvidence, CHECKSUM_MISMATCH."""
    evidence = parse_evidence(uri)
    row = await _row(evidence, store)
    if row is None:
        raise NoEvidence(kind="evidence", name=uri)
    if row["sha256"] != evidence.sha256:
        raise ChecksumMismatch(key=row["uri"], found=row["sha256"], expected=evidence.sha256)
    return Located(uri, row["uri"], row["sha256"], row["size_bytes"])


async def resolve(uri: str, store: Store, artifacts: Artifacts) -> Resolved:
    """The content, or an error: also NOT_FOUND."""
    located = await locate(uri, store)
    key = await located.place(artifacts)
    content = await artifacts.get(key, sha256=located.sha256, limit=MAX_BYTES)
    return Resolved(uri, key, located.sha256, content)


async def fetch(located: Located, artifacts: Artifacts) -> IO[bytes]:
    """The content in a file of its own, at its beginning, read once and verified. The caller closes it."""
    key = await located.place(artifacts)
    file = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115  the caller's
    try:
        digest, size = hashlib.sha256(), 0
        async with artifacts.open(key) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > located.size_bytes:
                    break
                digest.update(piece)
                await to_thread.run_sync(file.write, piece)
        _compare(located, size, digest.hexdigest())
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def _compare(located: Located, size: int, sha256: str) -> None:
    with reported(located.key):
        if size != located.size_bytes:
            raise SizeMismatch(key=located.key, found=size, expected=located.size_bytes)
        if sha256 != located.sha256:
            raise ChecksumMismatch(key=located.key, found=sha256, expected=located.sha256)


async def verify(
    store: Store,
    artifacts: Artifacts,
    repo: str | None = None,
    tell: Callable[[Verification], None] = lambda _: None,
) -> Verification:
    """Every diff (of one repository), and without one every attachment too: read, hashed, compared."""
    told = Verification()

    async def one(row: Record) -> None:
        told.checked += 1
        told.checked_bytes += row["size_bytes"]
        try:
            found = await artifacts.verify(await _key(artifacts, row["uri"]), row["sha256"])
            if found.size != row["size_bytes"]:
                raise SizeMismatch(key=row["uri"], found=found.size, expected=row["size_bytes"])
        except ArtifactMissing as error:
            told.missing.append((row["evidence_uri"], str(error)))
        except ArtifactError as error:
            told.wrong.append((row["evidence_uri"], str(error)))
        tell(told)

    await for_each(_recorded(store, repo), one)
    return told


async def _recorded(store: Store, repo: str | None) -> AsyncIterator[Record]:
    after = 0
    while rows := await store.rows("walk_evidence", repo, after, PAGE, timeout=READ_SECONDS):
        for row in rows:
            yield row
        after = rows[-1]["id"]
    after = 0
    while repo is None and (
        rows := await store.rows("walk_attached_evidence", after, PAGE, timeout=READ_SECONDS)
    ):
        for row in rows:
            yield row
        after = rows[-1]["id"]


async def _row(evidence: Evidence, store: Store) -> Record | None:
    match evidence:
        case PatchEvidence(source_type, source_id):
            return await store.row("read_patch_blob", source_type, source_id)
        case AttachmentEvidence(attachment_id):
            return await store.row("read_attachment", attachment_id)
        case _:
            assert_never(evidence)


async def _key(artifacts: Artifacts, ref: str) -> str:
    """Rows hold keys. One that came from elsewhere with an address is read where that lies in our store."""
    return await artifacts.key_of(ref) if SCHEME.match(ref) else ref
