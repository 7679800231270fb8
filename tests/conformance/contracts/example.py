"""The domain of the tests themselves, one table for each kind of contract."""

from collections.abc import Sequence

from tests.conformance.contracts.contract import CREATED, Contract
from tests.support import example_domain

EXAMPLE: Sequence[Contract] = (
    Contract(
        example_domain.JOBS,
        setup=example_domain.migration(),
        insert=f"INSERT INTO example.jobs (kind, created_at) VALUES ('scan', {CREATED})",
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
        insert=f"INSERT INTO example.sessions (user_id, created_at) VALUES (7, {CREATED})",
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
        insert=f"INSERT INTO example.errands (due_at) VALUES ({CREATED})",
        finished="INSERT INTO example.errands (status) SELECT 'done' FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO example.errands (due_at) VALUES ('infinity')",
            "INSERT INTO example.errands (status) VALUES ('failed')",
        ],
    ),
)
