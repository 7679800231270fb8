"""The dedup domain: four kinds of jobs in one table, files, thumbnails, cleanups and WAL maintenance."""

from collections.abc import Sequence

from actors.dedup import leases as dedup
from supervisor.lease import Lease
from tests.conformance.contracts.contract import CREATED, Contract

_LIBRARY = "INSERT INTO dedup.library_roots (id, name, root_path) VALUES (7, 'photos', '/libraries/photos')"


def _job(lease: Lease, others: Sequence[str], most: int = 1000) -> Contract:
    """One of the four contracts of a table: the rows of the others are not its own."""
    return Contract(
        lease,
        setup=_LIBRARY,
        insert=f"INSERT INTO dedup.jobs (kind, created_at) VALUES ('{lease.label}', {CREATED})",
        finished="INSERT INTO dedup.jobs (kind, status, claim_id) "
        f"SELECT '{lease.label}', 'completed', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=[
            f"INSERT INTO dedup.jobs (kind, status) VALUES ('{lease.label}', 'retryable')",
            f"INSERT INTO dedup.jobs (kind, status) VALUES ('{lease.label}', 'cancelled')",
            *(f"INSERT INTO dedup.jobs (kind, status, worker_id) VALUES {row}" for row in others),
        ],
        most=most,
    )


_FILE = (
    "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns{}) "
    "SELECT 7, gen_random_uuid()::text, 1, 1{} FROM generate_series(1, {})"
)
_THUMB = (
    f"WITH f AS ({_FILE.format('', '', '{}')} RETURNING id) "
    "INSERT INTO dedup.thumbnails (thumb_key, file_id, group_key{}) "
    "SELECT gen_random_uuid()::text, f.id, 'g'{} FROM f"
)
_ONE = "1 + 0 * $1::integer"

DEDUP: Sequence[Contract] = (
    # a scan or a hash is one of one: the single active job of the table
    _job(dedup.SCAN, ["('delete', 'running', 'stale')", "('hash', 'running', 'stale')"], most=1),
    _job(dedup.HASH, ["('delete', 'running', 'stale')", "('scan', 'pending', NULL)"], most=1),
    _job(dedup.DELETE, ["('thumbnail', 'running', 'stale')", "('scan', 'running', 'stale')"]),
    _job(dedup.THUMBNAIL_JOB, ["('delete', 'pending', NULL)", "('hash', 'running', 'stale')"]),
    Contract(
        dedup.FILES,
        setup=_LIBRARY,
        insert=_FILE.format(", hash_status", ", 'pending'", _ONE),
        finished=_FILE.format(
            ", needs_hash, hash_algorithm, content_hash, hashed_size, hashed_mtime_ns, claim_id",
            ", false, 'blake3', sha256('x'), 1, 1, gen_random_uuid()",
            "$1::integer",
        ),
        others=[_FILE.format("", "", "1")],
    ),
    Contract(
        dedup.THUMBNAILS,
        setup=_LIBRARY,
        insert=_THUMB.format(_ONE, "", ""),
        finished=_THUMB.format("$1::integer", ", status, claim_id", ", 'ready', gen_random_uuid()"),
        others=[
            _THUMB.format("1", ", status, retry_after", ", 'failed', now() - interval '1 day'"),
            _THUMB.format("1", ", status", ", 'ready'"),
        ],
    ),
    Contract(
        dedup.CLEANUP,
        setup=_LIBRARY,
        insert="INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, execute_after) "
        f"VALUES (gen_random_uuid()::text, {CREATED})",
        finished="INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, status, claim_id) "
        "SELECT gen_random_uuid()::text, 'completed', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, execute_after) VALUES ('l', 'infinity')",
            "INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, status) VALUES ('over', 'failed')",
        ],
    ),
    Contract(
        dedup.WAL,
        insert=f"INSERT INTO dedup.wal_maintenance_jobs (execute_after) VALUES ({CREATED})",
        finished="INSERT INTO dedup.wal_maintenance_jobs (status, claim_id) "
        "SELECT 'completed', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO dedup.wal_maintenance_jobs (execute_after) VALUES ('infinity')",
            "INSERT INTO dedup.wal_maintenance_jobs (status, retry_after) VALUES ('retryable', 'infinity')",
            "INSERT INTO dedup.wal_maintenance_jobs (status) VALUES ('failed')",
        ],
    ),
)
