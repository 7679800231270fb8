"""A database in use, root by root.

Every root is read in one statement, so in one snapshot: what moves meanwhile is seen before or after, never
half. What spans roots is kept as a few facts an epoch and compared at the end with the log of terms, which
only grows. Memory is bounded by a page of roots and the number of epochs, whatever the database holds.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Final

from supervisor.errors import NotFound
from supervisor.store import Canceled, Record, Store
from supervisor.verify import attempts, epochs, machine, quiesce, rows, schedules
from supervisor.verify.history import Limits
from supervisor.verify.properties import PROPERTIES
from supervisor.verify.records import Move, Root, Run, Schedule, Skip, Tenure, Term, Worker
from supervisor.verify.report import Finding, Findings, Report, Verdict, verdict_of

PAGE: Final = 500
LOST_PAGES: Final = 20
FIRES: Final = 50
PATIENCE_SECONDS: Final = 60.0
LAST_ID: Final = 2**63 - 1
MOVE_COLUMNS: Final = (
    *("roots", "versions", "befores", "states", "continuations", "attempts"),
    *("ats", "workers", "epochs", "claims", "actors", "reasons"),
)
# clocks of servers are set back now and then; then the times alone break nothing
LIMITS: Final = Limits(clock_steps=True)


@dataclass
class Progress:
    roots: int = 0
    moves: int = 0
    about: int = 0


async def check(
    store: Store,
    since: datetime | None = None,
    run: int | None = None,
    tell: Callable[[Progress], None] = lambda _progress: None,
) -> Report:
    """Only reads. `since` leaves out roots that have not moved since then, `run` all but one run's root."""
    look = _Look(store, since, tell)
    if run is None:
        await look.over_all()
    else:
        await look.over_root(run)
    return await look.report()


class _Look:
    def __init__(self, store: Store, since: datetime | None, tell: Callable[[Progress], None]) -> None:
        self._store = store
        self._since = since
        self._tell = tell
        self._progress = Progress()
        self._reigns = epochs.Reigns()
        self._findings = Findings()
        self._doubts: list[str] = []
        self._back = 0.0
        self._schedules: int | None = None

    async def over_root(self, run: int) -> None:
        root = await self._store.value("find_root", run)
        if root is None:
            raise NotFound(kind="run", name=run)
        await self._look_at([root])

    async def over_all(self) -> None:
        self._progress.about = await self._store.value("count_histories") or 0
        after = looked_until = pages = 0
        while page := await self._store.rows(
            "list_roots", after, PAGE, self._since, timeout=PATIENCE_SECONDS
        ):
            await self._look_at([row["root_id"] for row in page if row["wanted"]])
            after, pages = page[-1]["root_id"], pages + 1
            if pages % LOST_PAGES == 0:
                await self._look_for_lost(looked_until, after)
                looked_until = after
        await self._look_for_lost(looked_until, LAST_ID)
        await self._look_at_schedules()

    async def _look_at(self, roots: Sequence[int]) -> None:
        if not roots:
            return
        try:
            found = await self._store.rows("read_histories", roots, timeout=PATIENCE_SECONDS)
        except Canceled:
            # too much for this login's statement_timeout
            if len(roots) == 1:
                raise
            await self._look_at(roots[: len(roots) // 2])
            await self._look_at(roots[len(roots) // 2 :])
            return
        for root in _roots(found):
            self._judge(root)
        self._tell(self._progress)

    def _judge(self, root: Root) -> None:
        self._progress.roots += 1
        self._reigns.add(root)
        for of_root in (epochs.order_of_reigns, machine.check, attempts.check, quiesce.check):
            self._findings.add(of_root(root, LIMITS))
        for moves in root.moves.values():
            self._progress.moves += len(moves)
            for one, other in pairwise(moves):
                self._back = max(self._back, one.at - other.at)

    async def _look_for_lost(self, after: int, until: int) -> None:
        lost = await self._store.rows("find_lost_runs", after, until, self._since, timeout=PATIENCE_SECONDS)
        self._findings.add(Finding("K3", f"run {row['run_id']} has a history and no row") for row in lost)

    async def _look_at_schedules(self) -> None:
        after, self._schedules = 0, 0
        while page := await self._store.rows(
            "read_fires", after, self._since, FIRES, timeout=PATIENCE_SECONDS
        ):
            for row in page:
                self._schedules += 1
                try:
                    self._findings.add(schedules.check(_schedule(row)))
                except ValueError as error:
                    self._doubts.append(f"K13 cannot read the schedule of {row['name']}: {error}")
            after = page[-1]["id"]

    async def report(self) -> Report:
        """The log of terms is read last: it has every epoch under which anything seen was done."""
        terms = await self._store.row("read_terms", timeout=PATIENCE_SECONDS)
        assert terms is not None  # noqa: S101  one row, always
        tenures, term = _tenures(terms)
        self._findings.add(epochs.terms_grow(tenures, term))
        self._findings.add(epochs.reigns_end(self._reigns, tenures))
        taken = [one for one in tenures if one.what == "ACQUIRED"]
        back = max([self._back, *(one.at - other.at for one, other in pairwise(tenures))])
        told = self._findings.beyond(back)
        broken = {finding.property for finding in told}
        results: dict[str, Verdict] = {
            one.id: "BROKEN" if one.id in broken else "HOLDS"
            for one in PROPERTIES
            if one.live and (one.id != "K13" or self._schedules is not None)
        }
        figures = {
            "roots": self._progress.roots,
            "moves": self._progress.moves,
            "epochs": len(taken),
            "schedules": self._schedules or 0,
            "clock_went_back": back,
        }
        if self._doubts and "K13" not in broken:
            results["K13"] = "INCONCLUSIVE"
        return Report(verdict_of(told, ()), tuple(told), results, tuple(self._doubts), figures)


def _roots(found: Sequence[Record]) -> Iterator[Root]:
    """Rows of one root come together, by attempt."""
    begin = 0
    for place in range(1, len(found) + 1):
        if place == len(found) or found[place]["root_id"] != found[begin]["root_id"]:
            yield _root(found[begin:place])
            begin = place


def _root(found: Sequence[Record]) -> Root:
    runs: list[Run] = []
    moves: dict[int, tuple[Move, ...]] = {}
    workers: dict[str, Worker] = {}
    for row in found:
        runs.append(rows.run_of(row))
        if row["stop_bound_seconds"] is not None:
            workers[row["assigned_worker_id"]] = Worker(
                row["assigned_worker_id"], rows.wall(row["heartbeat_at"]), row["stop_bound_seconds"]
            )
        if row["versions"] is not None:
            moves[row["id"]] = tuple(_moves(row))
    return Root(runs[0].root, tuple(runs), moves, workers)


def _moves(row: Record) -> Iterator[Move]:
    run = row["id"]
    for values in zip(*(row[name] for name in MOVE_COLUMNS), strict=True):
        yield Move(run, *values)


def _tenures(row: Record) -> tuple[list[Tenure], Term]:
    columns = ("ids", "ats", "epochs", "holders", "whats", "systems", "timelines")
    lines = zip(*(row[name] or () for name in columns), strict=True)
    return [Tenure(n, at.timestamp(), *rest) for n, at, *rest in lines], rows.term_of(row)


def _schedule(row: Record) -> Schedule:
    skips = zip(row["firsts"], row["lasts"], row["counts"], strict=True)
    return Schedule(
        job=row["name"],
        cron=row["cron"],
        timezone=row["timezone"],
        missed=row["missed"],
        since=row["since"].timestamp(),
        until=row["fired_until"].timestamp(),
        fired=tuple(instant.timestamp() for instant in row["fired"]),
        skips=tuple(Skip(first.timestamp(), last.timestamp(), count) for first, last, count in skips),
    )
