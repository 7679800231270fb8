"""Every lease contract there is. A new one joins the list and passes the suite."""

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.lease import Lease
from tests.support import example_domain


@dataclass(frozen=True)
class Contract:
    """A lease, and how to fill its table. The statements are run by the administrator.

    `insert`: one claimable row; a larger $1 (integer) comes later in the claim order. `finished`: $1 rows
    whose work is over. `others`: rows that must not be claimed, each for another reason. `most`: how many
    claimable rows the table permits at a time. `setup`: what no migration has created yet.
    """

    lease: Lease
    insert: str
    finished: str
    others: Sequence[str] = ()
    most: int = 1000
    setup: str = ""

    @property
    def name(self) -> str:
        return self.lease.name


_CREATED = "timestamptz '2026-01-01 00:00:00+00' + $1::integer * interval '1 second'"

CONTRACTS: Sequence[Contract] = (
    Contract(
        example_domain.JOBS,
        setup=example_domain.migration(),
        insert=f"INSERT INTO example.jobs (kind, created_at) VALUES ('scan', {_CREATED})",
        finished="INSERT INTO example.jobs (kind, status, claim_id) "
        "SELECT 'hash', 'completed', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO example.jobs (kind) VALUES ('delete')",
            "INSERT INTO example.jobs (kind, status, worker_id) VALUES ('delete', 'running', 'stale')",
            "INSERT INTO example.jobs (kind, status) VALUES ('scan', 'retryable')",
        ],
    ),
    Contract(
        example_domain.SESSIONS,
        setup=example_domain.migration(),
        insert=f"INSERT INTO example.sessions (user_id, created_at) VALUES (7, {_CREATED})",
        finished="INSERT INTO example.sessions (user_id, state, claim_id) "
        "SELECT 7, 'done', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=["INSERT INTO example.sessions (user_id, state, error) VALUES (7, 'failed', 'x')"],
    ),
    Contract(
        example_domain.THUMBS,
        setup=example_domain.migration(),
        insert="INSERT INTO example.thumbs (library_id, file_id, priority) "
        "VALUES (1, $1::integer, -$1::integer)",
        finished="INSERT INTO example.thumbs (library_id, file_id, status, claim_id) "
        "SELECT 1, 10000000 + n, 'ready', gen_random_uuid() FROM generate_series(1, $1::integer) AS n",
        others=[
            "INSERT INTO example.thumbs (library_id, file_id, retry_after) VALUES (2, 1, 'infinity')",
            "INSERT INTO example.thumbs (library_id, file_id, status) VALUES (2, 2, 'dead')",
        ],
    ),
    Contract(
        example_domain.ERRANDS,
        setup=example_domain.migration(),
        insert=f"INSERT INTO example.errands (due_at) VALUES ({_CREATED})",
        finished="INSERT INTO example.errands (status) SELECT 'done' FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO example.errands (due_at) VALUES ('infinity')",
            "INSERT INTO example.errands (status) VALUES ('failed')",
        ],
    ),
)
