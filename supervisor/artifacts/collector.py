"""Artifacts that nothing refers to: found, and on demand removed.

A writer puts the artifact first and commits the row after, so what has no row yet must stay. Two things
keep it: only what was last put `orphan_days` ago counts (a put that finds its content there makes it young
again), and that is compared once more with the removal itself; and the references are read again right
before each batch of removals.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from supervisor.artifacts import ArtifactError, Artifacts, Entry
from supervisor.artifacts.key import check_prefix
from supervisor.artifacts.parallel import for_each
from supervisor.errors import BadInput

BATCH: Final = 500
LEAST_DAYS: Final = 1.0

Referenced = Callable[[], Awaitable[set[str]]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What to look at, and how to remove. Refused where that is not said plainly."""

    prefix: str = ""
    orphan_days: float = 90
    trash: str | None = None
    require_trash: bool = False
    force_hard_delete: bool = False
    execute: bool = False

    def check(self) -> None:
        check_prefix(self.prefix)
        if self.orphan_days < LEAST_DAYS:
            raise BadInput(what=f"--orphan-days is at least {LEAST_DAYS:g}: younger ones may have no row yet")
        if self.trash is not None:
            check_prefix(self.trash)
            if not self.trash.strip("/"):
                raise BadInput(what="--trash-prefix is a folder, such as .trash/")
            return
        if self.execute and self.require_trash:
            raise BadInput(what="--require-trash: nothing is deleted without --trash-prefix")
        if self.execute and not self.force_hard_delete:
            raise BadInput(
                what="without --trash-prefix this deletes for good: confirm with --force-hard-delete"
            )


@dataclass(slots=True)
class Collection:
    """What was found and done; counts and bytes."""

    scanned: int = 0
    scanned_bytes: int = 0
    referenced: int = 0
    young: int = 0
    orphans: list[Entry] = field(default_factory=list)
    removed: int = 0
    removed_bytes: int = 0
    spared: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def orphan_bytes(self) -> int:
        return sum(entry.size for entry in self.orphans)


async def collect(
    artifacts: Artifacts, referenced: Referenced, rules: Rules, tell: Callable[[Collection], None]
) -> Collection:
    """Find the orphans, and remove them where the rules say so. `referenced` reads all keys with a row."""
    rules.check()
    found = Collection()
    before = await artifacts.now() - timedelta(days=rules.orphan_days)
    keys = await referenced()
    trash = None if rules.trash is None else "".join(f"{name}/" for name in check_prefix(rules.trash))
    async for entry in artifacts.entries(rules.prefix):
        if trash is not None and entry.key.startswith(trash):
            continue
        found.scanned += 1
        found.scanned_bytes += entry.size
        if entry.key in keys:
            found.referenced += 1
        elif entry.modified_at >= before:
            found.young += 1
        else:
            found.orphans.append(entry)
        tell(found)
    if not rules.execute:
        return found

    async def remove(entry: Entry) -> None:
        try:
            gone = await artifacts.delete(entry.key, trash=trash, before=before)
        except ArtifactError as error:
            found.failed.append((entry.key, str(error)))
            return
        found.removed += gone
        found.removed_bytes += entry.size if gone else 0
        found.spared += not gone
        tell(found)

    for start in range(0, len(found.orphans), BATCH):
        batch = found.orphans[start : start + BATCH]
        keys = await referenced()
        found.spared += sum(entry.key in keys for entry in batch)
        await for_each(_all(entry for entry in batch if entry.key not in keys), remove)
    return found


async def _all(entries: Iterable[Entry]) -> AsyncIterator[Entry]:
    for entry in entries:
        yield entry
