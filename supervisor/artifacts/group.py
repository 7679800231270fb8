"""Small puts that come at the same time, taken to the disk together.

A flush costs about the same for one file as for many that are ready: the file system writes its journal once
for all of them. So a put stands in a line, and whoever is first does, in a thread, what has come by then: all
are written, all are flushed and read back, all get their names, and each directory is flushed once. What a
put promises and what it refuses is the same as alone, and its error is its own.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio.to_thread import run_sync

from supervisor.artifacts import Overwrite
from supervisor.artifacts.draft import Draft
from supervisor.artifacts.tree import TMP, Names, Tree

TOGETHER: Final = 128
FLUSHING: Final = 8
SMALL_BYTES: Final = 1 << 16
"""What is longer goes alone: nobody waits for its bytes."""


@dataclass(eq=False, slots=True)
class Wanted:
    """One put, and its answer: the SHA-256 of what is stored, or an error."""

    names: Names
    content: bytes
    overwrite: Overwrite
    expected_sha256: str | None
    sha256: str | None = None
    error: BaseException | None = None

    @property
    def answered(self) -> bool:
        return self.sha256 is not None or self.error is not None

    def answer(self) -> str:
        if self.error is not None:
            raise self.error
        assert self.sha256 is not None  # noqa: S101  there is an answer
        return self.sha256

    @contextmanager
    def answering(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:  # noqa: BLE001  raised where it is waited for
            self.error = error


class Group:
    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._waiting: deque[Wanted] = deque()
        self._over: anyio.Event | None = None
        """The end of what somebody does now."""

    async def put(self, *some: Wanted) -> None:
        """All of them have an answer."""
        # as with a thread of one's own, what was begun comes to its end before the caller goes on
        with anyio.CancelScope(shield=True):
            small = [wanted for wanted in some if len(wanted.content) <= SMALL_BYTES]
            self._waiting.extend(small)
            for wanted in some:
                if len(wanted.content) > SMALL_BYTES:
                    await run_sync(self._take, [wanted])
            for wanted in small:
                while not wanted.answered:
                    await self._turn()

    async def _turn(self) -> None:
        """One group is taken, by this put or by another."""
        if self._over is not None:
            await self._over.wait()
            return
        self._over = over = anyio.Event()
        try:
            await run_sync(self._take_waiting)
        finally:
            self._over = None
            over.set()

    def _take_waiting(self) -> None:
        self._take([self._waiting.popleft() for _ in range(min(TOGETHER, len(self._waiting)))])

    def _take(self, some: Sequence[Wanted]) -> None:
        try:
            self._store(some)
        except BaseException as error:  # noqa: BLE001  nobody is left without an answer
            for wanted in some:
                wanted.error = wanted.error or error

    def _store(self, some: Sequence[Wanted]) -> None:
        drafts: dict[Wanted, Draft] = {}
        with self._tree.faults((TMP,)), self._tree.directory((TMP,), make=True) as tmp:
            for wanted in some:
                with wanted.answering():
                    drafts[wanted] = Draft(self._tree, wanted.names, limit=len(wanted.content), tmp=tmp)
                    drafts[wanted].write(wanted.content)
                    drafts[wanted].expect(wanted.expected_sha256)
                    drafts[wanted].hurry()
        _flush(_well(drafts))
        for wanted, draft in _well(drafts):
            with wanted.answering():
                draft.check()
        self._name(drafts)
        for wanted, draft in drafts.items():
            with wanted.answering():
                draft.discard()
                wanted.sha256 = draft.sha256

    def _name(self, drafts: Mapping[Wanted, Draft]) -> None:
        folders: dict[Names, dict[Wanted, Draft]] = defaultdict(dict)
        for wanted, draft in _well(drafts):
            folders[wanted.names[:-1]][wanted] = draft
        for names, inside in folders.items():
            try:
                with self._tree.directory(names, make=True) as directory:
                    for wanted, draft in inside.items():
                        with wanted.answering(), self._tree.faults(wanted.names):
                            draft.name(directory, wanted.overwrite)
                    self._tree.flush(directory)
            except Exception:
                # of the directory, and so of everybody who has a name in it
                for wanted, _ in _well(inside):
                    with wanted.answering(), self._tree.faults(wanted.names):
                        raise


def _well(drafts: Mapping[Wanted, Draft]) -> list[tuple[Wanted, Draft]]:
    return [(wanted, draft) for wanted, draft in drafts.items() if wanted.error is None]


def _flush(drafts: Sequence[tuple[Wanted, Draft]]) -> None:
    """Side by side: those who wait for the disk at the same time wait for one writing of its journal."""

    def one_by_one(some: Sequence[tuple[Wanted, Draft]]) -> None:
        for wanted, draft in some:
            with wanted.answering():
                draft.flush()

    if len(drafts) < 2:
        one_by_one(drafts)
        return
    threads = min(FLUSHING, len(drafts))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(one_by_one, [drafts[first::threads] for first in range(threads)]))
