"""The leader's decisions. Pure: no clock, no database, no randomness.

What is decided here is proposed to the database, which compares versions and beat counts again and does
nothing where they have moved on.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from supervisor import pools
from supervisor.pools import Pool, pool_of, size_of
from supervisor.watch import Watch


@dataclass(frozen=True, slots=True)
class Worker:
    """`held_by` counts the runs it was given and has not ended, by their domain."""

    worker_id: str
    state: str
    domains: frozenset[str]
    slots: int
    beat_seq: int
    stop_bound_seconds: float
    silent_seconds: float
    held_by: Mapping[str, int] = field(default_factory=dict)
    running: int = 0

    def free_in(self, pool: Pool, waiting: frozenset[str]) -> int:
        return pools.free_in(pool, self.slots, self.held_by, waiting) if self.state == "active" else 0


@dataclass(frozen=True, slots=True)
class Due:
    """A run that could be assigned; `room` is what its definition's concurrency still allows."""

    id: int
    version: int
    domain: str
    job_definition_id: int
    room: int | None = None


@dataclass(frozen=True, slots=True)
class Attention:
    """A live run that asks for a decision; what `seconds` means depends on why."""

    why: str
    id: int
    version: int
    state: str
    worker_id: str | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Assignment:
    id: int
    version: int
    domain: str
    worker_id: str


@dataclass(frozen=True, slots=True)
class Expiry:
    """`beat_seq` is what was watched standing still; None = the row's version was."""

    id: int
    version: int
    beat_seq: int | None


def rooms(workers: Iterable[Worker], waiting: frozenset[str]) -> dict[str, int]:
    """How many runs of each domain could be taken now."""
    free: dict[str, int] = defaultdict(int)
    for worker in workers:
        for domain in worker.domains:
            free[domain] += worker.free_in(pool_of(domain, waiting), waiting)
    return {domain: count for domain, count in sorted(free.items()) if count > 0}


def assign(due: Sequence[Due], workers: Iterable[Worker], waiting: frozenset[str]) -> list[Assignment]:
    """In claim order, each run to the worker of its domain whose pool is least loaded; ties go round."""
    free: dict[tuple[str, Pool], int] = {}
    able: dict[str, list[Worker]] = defaultdict(list)
    for worker in sorted(workers, key=lambda one: one.worker_id):
        for domain in worker.domains:
            able[domain].append(worker)
            pool = pool_of(domain, waiting)
            free[worker.worker_id, pool] = worker.free_in(pool, waiting)
    left: dict[int, int] = {}
    chosen: list[Assignment] = []
    for run in due:
        room = left.setdefault(run.job_definition_id, run.room) if run.room is not None else 1
        pool = pool_of(run.domain, waiting)
        crowd = able[run.domain]
        candidates = [
            (-places / size_of(pool, worker.slots), (place - run.id) % len(crowd), worker.worker_id)
            for place, worker in enumerate(crowd)
            if (places := free[worker.worker_id, pool]) > 0
        ]
        if room <= 0 or not candidates:
            continue
        *_, best = min(candidates)
        free[best, pool] -= 1
        if run.room is not None:
            left[run.job_definition_id] = room - 1
        chosen.append(Assignment(run.id, run.version, run.domain, best))
    return chosen


def silent(workers: Iterable[Worker], watch: Watch[str, int], now: float, seconds: float) -> list[Worker]:
    """Workers without a beat for `seconds`, by the database's clock and by the leader's own watch."""
    return [
        worker
        for worker in workers
        if worker.silent_seconds >= seconds and watch.stood(worker.worker_id, worker.beat_seq, now) >= seconds
    ]


def stopped(workers: Iterable[Worker], watch: Watch[str, int], now: float, bound: float) -> list[Worker]:
    """Workers silent for so long that whatever they executed has stopped by itself."""
    return [
        worker for worker in workers if silent((worker,), watch, now, max(bound, worker.stop_bound_seconds))
    ]


def expire(
    asking: Iterable[Attention],
    gone: Iterable[Worker],
    runs: Watch[int, int],
    now: float,
    bound: float,
) -> list[Expiry]:
    """Runs past their deadline whose worker stood still for D, or that themselves stood unconfirmed for D."""
    still = {worker.worker_id: worker.beat_seq for worker in gone}
    expiries = []
    for run in asking:
        if run.why != "CONFIRMING" or run.seconds > 0:
            continue
        if run.worker_id in still:
            expiries.append(Expiry(run.id, run.version, still[run.worker_id]))
        elif runs.stood(run.id, run.version, now) >= bound:
            expiries.append(Expiry(run.id, run.version, None))
    return expiries


def cancel(asking: Iterable[Attention], runs: Watch[int, int], now: float, bound: float) -> list[Attention]:
    """Not started: at once. Running: when its worker had D to end it, by both clocks."""
    return [
        run
        for run in asking
        if run.why == "CANCEL"
        and (run.state != "RUNNING" or min(run.seconds, runs.stood(run.id, run.version, now)) >= bound)
    ]


def overdue(asking: Iterable[Attention], runs: Watch[int, int], now: float, bound: float) -> list[Attention]:
    """Long over their time. The watch must have lasted that time too: a stepped clock ends no healthy run."""
    return [
        run
        for run in asking
        if run.why == "OVERDUE" and runs.stood(run.id, run.version, now) >= max(bound, run.seconds)
    ]


def only(asking: Iterable[Attention], why: str) -> list[Attention]:
    return [run for run in asking if run.why == why]
