"""Moves duplicates to the trash, or finds out what it would move.

For each file to go, both it and the file that stays are read whole and compared with the hash of the group.
Only then, and not in a dry run, the database is asked for leave (`trash_file`): it gives it while real
deletion is allowed, the job is under this claim and the file that stays is there; with the leave the row is
marked as trashed by this job. Then the file is moved (trash.py). What could not be moved gets its row back.

A job that was cut goes on: a file with leave whose move did not happen is looked into and moved, one that
lies in the trash already is left there. A file that is not what it was is skipped and told, the others go
on; if that is the file that stays, nothing more is moved.
"""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

from actors.dedup.digest import Digest, Failure
from actors.dedup.trash import Copy, Trash, same_file
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask, ask_one
from supervisor.errors import Conflict
from supervisor.threads import in_thread

NAMED: Final = 10


class Stopped(Exception):
    """Nothing more may be moved by this job."""

    def __init__(self, code: str, why: str) -> None:
        self.code = code
        super().__init__(why)


async def handle(claim: Claim, tools: Tools) -> Outcome:
    libraries = tools.place.settings.libraries_dir
    if libraries is None:
        return Retry("LIBRARIES_DIR_UNSET", "TENURE_LIBRARIES_DIR is not set on the replica")
    rows = await ask(tools.place.store, "read_deletion", claim.key, claim.claim_id)
    if not rows or not rows[0]["keep"]:
        return Retry("KEEPER_CHANGED", "the file that stays is in no library any more; nothing was moved")
    keeper, *others = [Copy.of_row(claim.key, row) for row in rows]
    trash = Trash(libraries, rows[0]["hash_algorithm"], rows[0]["content_hash"])
    return await Deletion(claim, tools, trash, keeper).run(others)


class Deletion:
    def __init__(self, claim: Claim, tools: Tools, trash: Trash, keeper: Copy) -> None:
        self._token: tuple[UUID, UUID] = (claim.key, claim.claim_id)
        self._dry_run: bool = claim.payload["dry_run"]
        self._wanted: Sequence[int] = claim.payload["payload"]["remove"]
        self._tools, self._store = tools, tools.place.store
        self._trash, self._keeper = trash, keeper
        self._skipped: dict[str, list[int]] = defaultdict(list)

    async def run(self, others: Sequence[Copy]) -> Outcome:
        for lost in set(self._wanted) - {copy.id for copy in others}:
            self._skipped["NOT_FOUND"].append(lost)  # its library was removed
        handled = 0
        try:
            for copy in others:
                if code := await self._deal_with(copy):
                    self._skipped[code].append(copy.id)
                handled += 1
                self._tell(handled)
        except (Stopped, Conflict) as error:
            await self._withdraw(others[handled:])
            code = error.code if isinstance(error, Stopped) else "DELETE_REFUSED"
            return Retry(code, f"{error}; {self._summary()}")
        return Retry("DELETE_INCOMPLETE", self._summary()) if self._skipped else Done({"progress": 1.0})

    async def _deal_with(self, copy: Copy) -> str | None:
        """Why it was skipped; None: it is away, or would be."""
        kept = await self._look_at_keeper()
        if copy.gone:
            return "NOT_FOUND"
        if copy.allowed and await in_thread(partial(self._trash.is_there, copy)):
            return None
        seen = await in_thread(lambda stop: self._trash.look_into(copy, stop, as_scanned=True))
        code = seen.code if isinstance(seen, Failure) else await self._one_file_twice(copy, seen, kept)
        if code is not None:
            if copy.allowed and code != "NOT_FOUND":
                await ask_one(self._store, "untrash_file", *self._token, copy.id)
            return code
        assert isinstance(seen, Digest)  # noqa: S101  for the types: a Failure has a code
        return None if self._dry_run else await self._move(copy, seen, kept)

    async def _look_at_keeper(self) -> Digest:
        keeper = self._keeper
        kept = await in_thread(lambda stop: self._trash.look_into(keeper, stop, as_scanned=False))
        if isinstance(kept, Failure):
            raise Stopped(
                "KEEPER_CHANGED", f"file {keeper.id}, which stays, is not what it was ({kept.code})"
            )
        return kept

    async def _one_file_twice(self, copy: Copy, seen: Digest, kept: Digest) -> str | None:
        """A hard link may go: a path less, and no content lost. The only name there is may not."""
        if not same_file(seen, kept):
            return None
        if await in_thread(lambda _stop: self._trash.links(copy)) < 2:
            return "SAME_FILE"
        text = f"file {copy.id} is a hard link of file {self._keeper.id}, which stays: no space is gained"
        await self._tools.log("stdout", text.encode())
        return None

    async def _move(self, copy: Copy, seen: Digest, kept: Digest) -> str | None:
        if not await ask_one(self._store, "trash_file", *self._token, copy.id, copy.trash_path):
            return "LEAVE_REFUSED"
        away, code = await in_thread(lambda stop: self._trash.move(copy, seen, self._keeper, kept, stop))
        if not away:
            await ask_one(self._store, "untrash_file", *self._token, copy.id)
        if code == "KEEPER_CHANGED":
            raise Stopped(code, f"file {self._keeper.id}, which stays, went while file {copy.id} was moved")
        return code

    async def _withdraw(self, others: Sequence[Copy]) -> None:
        """Leave that was given to an earlier attempt and not used."""
        for copy in others:
            if copy.allowed and not await in_thread(partial(self._trash.is_there, copy)):
                await ask_one(self._store, "untrash_file", *self._token, copy.id)

    def _tell(self, handled: int) -> None:
        self._tools.progress(processed_items=handled, progress=handled / len(self._wanted))

    def _summary(self) -> str:
        count = sum(map(len, self._skipped.values()))
        parts = [f"{code}: {_some(ids)}" for code, ids in sorted(self._skipped.items())]
        return f"{count} of {len(self._wanted)} files skipped" + (f" ({'; '.join(parts)})" if parts else "")


def _some(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids[:NAMED])) + (f" and {len(ids) - NAMED} more" if len(ids) > NAMED else "")
