"""Which artifacts the database refers to. A table that refers to artifacts joins SOURCES, by a line.

A source is a named query `(after, limit)` that lists id, ref, sha256 (what the digest begins with, or NULL)
and size (or NULL), by id. A ref is a key, or the address of an artifact; `addresses` says that addresses
are what the table is meant to hold. Of the others they are residues, which `rewrite` `(ids, old, new)`
turns into keys.
"""

import re
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

from schemas import Query
from supervisor.artifacts import Artifacts, Elsewhere, InvalidKey
from supervisor.artifacts.key import check_key
from supervisor.store import Store

PAGE: Final = 5000
READ_SECONDS: Final = 60.0
SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


@dataclass(frozen=True, slots=True)
class Source:
    name: str
    listing: str | Query
    addresses: bool = False
    rewrite: str | Query | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    source: Source
    id: int
    ref: str
    sha256: str | None
    size: int | None

    @property
    def is_residue(self) -> bool:
        return not self.source.addresses and SCHEME.match(self.ref) is not None


SOURCES: Final[tuple[Source, ...]] = (
    Source("supervisor.job_run.log_ref", "list_log_references", addresses=True),
    Source("supervisor.discarded_artifact.uri", "list_discarded_references", addresses=True),
    Source("scm.patch_blobs.uri", "list_patch_references"),
    Source("logbook.attachments.uri", "list_attachment_references"),
    Source("public.media_blobs.storage_key", "list_media_references"),
    Source("schedule_ingest.capture_image.r2_key", "list_capture_references"),
)


async def list_references(store: Store, sources: Iterable[Source] = SOURCES) -> AsyncIterator[Reference]:
    for source in sources:
        after = -(2**63)
        while rows := await store.rows(source.listing, after, PAGE, timeout=READ_SECONDS):
            for row in rows:
                yield Reference(source, row["id"], row["ref"], row["sha256"], row["size"])
            after = rows[-1]["id"]


async def key_of(artifacts: Artifacts, ref: str) -> str | None:
    """The key of what a ref means in this store; None = it is somewhere else, or never was an artifact."""
    try:
        if SCHEME.match(ref):
            return await artifacts.key_of(ref)
        check_key(ref)
    except (Elsewhere, InvalidKey):
        return None
    return ref


async def protected_keys(artifacts: Artifacts, refs: AsyncIterator[Reference]) -> set[str]:
    """Every key that a ref may mean: of an address that is not of this store, all that it could end with."""
    keys: set[str] = set()
    async for reference in refs:
        if (key := await key_of(artifacts, reference.ref)) is not None:
            keys.add(key)
        else:
            keys.update(_endings(reference.ref))
    return keys


def _endings(ref: str) -> Sequence[str]:
    try:
        path = unquote(urlsplit(ref).path)
    except ValueError:
        path = ref
    names = path.strip("/").split("/")
    return ["/".join(names[start:]) for start in range(len(names))]
