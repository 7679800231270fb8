"""Are the artifacts what the database and the store recorded? Read, hashed, compared; nothing is changed."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from supervisor.artifacts import ArtifactError, ArtifactMissing, Artifacts, Entry
from supervisor.artifacts.errors import SizeMismatch
from supervisor.artifacts.key import allowed, check_prefix
from supervisor.artifacts.move import require_recorded
from supervisor.artifacts.parallel import for_each
from supervisor.artifacts.references import Reference, key_of


@dataclass(slots=True)
class Inspection:
    checked: int = 0
    checked_bytes: int = 0
    referenced: int = 0
    elsewhere: int = 0
    missing: list[tuple[str, str]] = field(default_factory=list)
    wrong: list[tuple[str, str]] = field(default_factory=list)
    residues: list[tuple[str, str]] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        return not (self.missing or self.wrong or self.residues)


@dataclass(slots=True)
class _Record:
    where: str
    sha256: str | None
    size: int | None


async def inspect(
    artifacts: Artifacts,
    references: AsyncIterator[Reference],
    *,
    prefix: str = "",
    quick: bool = False,
    tell: Callable[[Inspection], None] = lambda _: None,
) -> Inspection:
    """All that is below the prefix, and all that is referred to; `quick` looks at existence and size only."""
    told = Inspection()
    records = await _records(artifacts, references, prefix, told)

    async def one(entry: Entry) -> None:
        record = records.pop(entry.key, None)
        told.checked += 1
        told.checked_bytes += entry.size
        try:
            await _one(artifacts, entry, record, quick=quick)
        except ArtifactMissing:
            # it went away while we looked; with a record, that is what is told
            if record is not None:
                records[entry.key] = record
        except ArtifactError as error:
            told.wrong.append((entry.key, str(error)))
        tell(told)

    await for_each(artifacts.entries(prefix), one)
    for key, record in list(records.items()):
        # a listing may be older than the rows
        try:
            await one(await artifacts.stat(key))
        except ArtifactMissing:
            told.missing.append((key, record.where))
        except ArtifactError as error:
            told.wrong.append((key, str(error)))
    return told


async def _one(artifacts: Artifacts, entry: Entry, record: _Record | None, *, quick: bool) -> None:
    if record is not None and record.size is not None and record.size != entry.size:
        raise SizeMismatch(key=entry.key, found=entry.size, expected=record.size)
    if not quick:
        found = (await artifacts.verify(entry.key)).sha256
        require_recorded(entry.key, found, record.sha256 if record is not None else None)


async def _records(
    artifacts: Artifacts, references: AsyncIterator[Reference], prefix: str, told: Inspection
) -> dict[str, _Record]:
    folder = check_prefix(prefix)
    records: dict[str, _Record] = {}
    async for reference in references:
        where = f"{reference.source.name} {reference.id}"
        if reference.is_residue:
            told.residues.append((reference.ref, where))
        key = await key_of(artifacts, reference.ref)
        if key is None:
            told.elsewhere += 1
        elif not folder or allowed(tuple(key.split("/")), [folder]):
            told.referenced += 1
            known = records.get(key)
            records[key] = _Record(
                where,
                reference.sha256 or (known.sha256 if known else None),
                reference.size if reference.size is not None else (known.size if known else None),
            )
    return records
