"""From one store to another, under the same keys. The source is never changed.

It can be ended at any time and begun again: a put is all or nothing, so what is there with its size was
moved. With `verify` both sides are read and compared, also of what was there. What is there with other
content is never overwritten.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from supervisor.artifacts import (
    ArtifactError,
    ArtifactExists,
    ArtifactMissing,
    Artifacts,
    ChecksumMismatch,
    Entry,
    Overwrite,
)
from supervisor.artifacts.key import TMP_FOLDER
from supervisor.artifacts.parallel import for_each
from supervisor.artifacts.references import Reference, Source, key_of
from supervisor.store import Store

REWRITTEN: Final = 500


@dataclass(slots=True)
class Move:
    scanned: int = 0
    scanned_bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0
    present: int = 0
    verified: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)


async def move(
    source: Artifacts,
    target: Artifacts,
    *,
    prefix: str = "",
    verify: bool = False,
    execute: bool = False,
    recorded: Mapping[str, str] | None = None,
    tell: Callable[[Move], None] = lambda _: None,
) -> Move:
    """`recorded` is what the digests of keys begin with. Without `execute` nothing is written."""
    found = Move()

    async def one(entry: Entry) -> None:
        found.scanned += 1
        found.scanned_bytes += entry.size
        try:
            await _one(source, target, entry, found, verify=verify, execute=execute, recorded=recorded or {})
        except ArtifactError as error:
            found.failed.append((entry.key, str(error)))
        tell(found)

    await for_each(_movable(source, prefix), one)
    return found


async def _one(
    source: Artifacts,
    target: Artifacts,
    entry: Entry,
    found: Move,
    *,
    verify: bool,
    execute: bool,
    recorded: Mapping[str, str],
) -> None:
    key, digest = entry.key, None
    if verify:
        digest = (await source.verify(key)).sha256
        require_recorded(key, digest, recorded.get(key))
    try:
        there = await target.stat(key)
    except ArtifactMissing:
        found.copied += 1
        found.copied_bytes += entry.size
        if not execute:
            return
        async with source.open(key) as pieces:
            await target.put(
                key, pieces, overwrite=Overwrite.SAME, expected_sha256=digest, limit=max(1, entry.size)
            )
    else:
        if there.size != entry.size:
            raise ArtifactExists(key=key) from None
        found.present += 1
    if verify:
        await target.verify(key, digest)
        found.verified += 1


def require_recorded(key: str, found: str, recorded: str | None) -> None:
    if recorded is not None and not found.startswith(recorded):
        raise ChecksumMismatch(key=key, found=found, expected=recorded)


async def _movable(source: Artifacts, prefix: str) -> AsyncIterator[Entry]:
    async for entry in source.entries(prefix):
        # what is parked there is on its way out
        if not entry.key.startswith(TMP_FOLDER):
            yield entry


@dataclass(slots=True)
class Rewriting:
    """Residues: addresses where a table is meant to hold keys."""

    found: int = 0
    changed: int = 0
    unknown: list[tuple[str, str]] = field(default_factory=list)


async def rewrite(
    store: Store, references: AsyncIterator[Reference], stores: tuple[Artifacts, ...], *, execute: bool
) -> Rewriting:
    """Turn the addresses of these stores into keys; an address of none of them stays, and is named."""
    told = Rewriting()
    changes: dict[Source, list[tuple[int, str, str]]] = {}
    async for reference in references:
        if not reference.is_residue:
            continue
        told.found += 1
        keys = [key for one in stores if (key := await key_of(one, reference.ref)) is not None]
        if not keys or reference.source.rewrite is None:
            told.unknown.append((reference.source.name, reference.ref))
            continue
        changes.setdefault(reference.source, []).append((reference.id, reference.ref, keys[0]))
    for source, rows in changes.items():
        assert source.rewrite is not None  # noqa: S101  sorted out above
        for start in range(0, len(rows), REWRITTEN):
            ids, old, new = zip(*rows[start : start + REWRITTEN], strict=True)
            if execute:
                answer = await store.rows(source.rewrite, list(ids), list(old), list(new))
                told.changed += int(answer[0][0])
            else:
                told.changed += len(ids)
    return told
