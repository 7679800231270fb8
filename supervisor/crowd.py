"""Who could take work, and how much of it each holds.

To count all that is held means to read all of it, and with an old transaction open (skim.py) much that is no
longer held. Between two counts the leader reckons: what a worker held, and was given since, less what has
ended since. It errs on the side of too little room, and only until the next count. Pure.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor.plan import Worker

Share = tuple[str, str]
"""A worker and a domain."""


class Crowd:
    def __init__(self) -> None:
        self._workers: Sequence[Worker] = ()
        self._given: Counter[Share] = Counter()

    def counted(self, workers: Sequence[Worker]) -> None:
        self._workers = workers
        self._given.clear()

    def given(self, shares: Iterable[Share]) -> None:
        self._given.update(shares)

    def reckoned(self, ended: Mapping[Share, int]) -> list[Worker]:
        """What they must hold by now, with so many ends since the count."""
        return [
            replace(
                worker,
                held_by={
                    domain: held - ended.get((worker.worker_id, domain), 0)
                    for domain, held in self._held(worker).items()
                    if held > ended.get((worker.worker_id, domain), 0)
                },
            )
            for worker in self._workers
        ]

    def _held(self, worker: Worker) -> Counter[str]:
        held = Counter(worker.held_by)
        for domain in worker.domains:
            held[domain] += self._given[worker.worker_id, domain]
        return held
