"""The lease contracts of the domain: who may write what when, as the protocol of this domain's tables says.

On `dedup.jobs` a stale scan or hash becomes `retryable` (the leader returns it to `pending` when its time
has come); a stale delete or thumbnail job stays where it is and is taken over by the next claim, because
doing its steps again does no harm. The worker's rights in the database are rendered from these, so nothing
else is permitted; `claim_id` is the token, and the recovery columns are those of the claim's own recovery.
"""

from dataclasses import replace
from typing import Final

from supervisor import Lease
from supervisor.lease import Backoff, Path, Write

LEASE_SECONDS: Final = 60.0

_NOW, _NULL = Write.NOW, Write.NULL
_UPDATED = {"updated_at": _NOW}
_ERROR = {"error_code": Write.CODE, "error_message": Write.MESSAGE}
_NO_ERROR = {"error_code": _NULL, "error_message": _NULL}
_ENDED = {"finished_at": _NOW, "worker_heartbeat_at": _NOW, **_UPDATED}
_LOST = "its worker fell silent: the lease ran out before the work was reported"

SCAN: Final = Lease(
    table="dedup.jobs",
    label="scan",
    key={"id": "uuid"},
    only="t.kind = 'scan'",
    order=("created_at", "id"),
    lease_seconds=LEASE_SECONDS,
    claim=Path(writes={"started_at": _NOW, **_UPDATED}),
    beat=Path(writes=_UPDATED, sets={"processed_items": "bigint", "progress": "double precision"}),
    stale=Path(state="retryable", writes={**_ERROR, **_UPDATED}),
    done=Path(state="completed", writes={**_NO_ERROR, **_ENDED}, sets={"progress": "double precision"}),
    retry=Path(state="failed", writes={**_ERROR, **_ENDED}),
    cancel=Path(state="failed", writes={**_ERROR, **_ENDED}),
    release=Path(state="pending", writes=_UPDATED),
    stale_message=_LOST,
    columns=("kind", "library_id", "dry_run", "payload", "total_items", "processed_items"),
    json_columns=("payload",),
)
HASH: Final = replace(SCAN, label="hash", only="t.kind = 'hash'")
DELETE: Final = replace(SCAN, label="delete", only="t.kind = 'delete'", stale=Path())
THUMBNAIL_JOB: Final = replace(SCAN, label="thumbnail", only="t.kind = 'thumbnail'", stale=Path())

FILES: Final = Lease(
    table="dedup.library_files",
    key={"id": "bigint"},
    state="hash_status",
    order=("id",),
    lease_seconds=LEASE_SECONDS,
    stale=Path(state="pending"),
    done=Path(state="idle"),
    retry=Path(
        state="idle",
        writes={
            "hash_error_count": Write.INCREMENT,
            "hash_error_code": Write.CODE,
            "hash_error_message": Write.MESSAGE,
            "hash_retry_after": Write.DUE,
        },
    ),
    release=Path(state="pending"),
    attempts="hash_error_count",
    backoff=Backoff(first_seconds=30, cap_seconds=3600),
    columns=("hash_until", "hash_files"),
)
"""A batch of files: the lease stands in the first of them. Hashes are written by a function that knows it."""

THUMBNAILS: Final = Lease(
    table="dedup.thumbnails",
    key={"id": "bigint"},
    order=("id",),
    lease_seconds=LEASE_SECONDS,
    claim=Path(writes={"started_at": _NOW, **_UPDATED}),
    beat=Path(writes=_UPDATED),
    stale=Path(state="pending", writes=_UPDATED),
    done=Path(
        state="ready",
        writes={**_NO_ERROR, "error_count": Write.ZERO, "retry_after": _NULL, **_ENDED},
        sets={"width": "integer", "height": "integer", "bytes_size": "bigint"},
    ),
    retry=Path(
        state="failed",
        writes={**_ERROR, "error_count": Write.INCREMENT, "retry_after": Write.DUE, **_ENDED},
    ),
    release=Path(state="pending", writes=_UPDATED),
    attempts="error_count",
    backoff=Backoff(first_seconds=30, cap_seconds=1800),
    columns=(
        "thumb_key",
        "file_id",
        "group_key",
        "media_type",
        "format",
        "max_dimension",
        "source_size",
        "source_mtime_ns",
        "output_relpath",
    ),
)

CLEANUP: Final = Lease(
    table="dedup.thumbnail_cleanup_jobs",
    key={"id": "bigint"},
    ready=(
        "t.execute_after <= now() AND NOT EXISTS (SELECT FROM dedup.thumbnails AS x"
        " WHERE x.group_key = t.group_key AND x.status IN ('pending', 'running'))"
    ),
    order=("execute_after", "id"),
    lease_seconds=LEASE_SECONDS,
    claim=Path(writes={"finished_at": _NULL, **_UPDATED}),
    beat=Path(writes=_UPDATED),
    stale=Path(state="pending", writes=_UPDATED),
    done=Path(state="completed", writes={**_NO_ERROR, **_ENDED}),
    retry=Path(state="failed", writes={**_ERROR, **_ENDED}),
    release=Path(state="pending", writes=_UPDATED),
    columns=("group_key",),
)

_CHECKPOINT = {
    "checkpoint_busy": "integer",
    "checkpoint_log_frames": "bigint",
    "checkpointed_frames": "bigint",
}

WAL: Final = Lease(
    table="dedup.wal_maintenance_jobs",
    key={"id": "bigint"},
    claimable=("pending", "retryable"),
    ready="t.execute_after <= now() AND (t.retry_after IS NULL OR t.retry_after <= now())",
    order=("execute_after", "id"),
    lease_seconds=LEASE_SECONDS,
    claim=Path(writes={"started_at": _NOW, "finished_at": _NULL, **_UPDATED}),
    beat=Path(writes=_UPDATED),
    stale=Path(
        state="retryable",
        writes={
            **_ERROR,
            "retry_count": Write.INCREMENT,
            "retry_after": Write.DUE,
            "finished_at": _NOW,
            **_UPDATED,
        },
    ),
    done=Path(state="completed", writes={**_NO_ERROR, **_ENDED}, sets=_CHECKPOINT),
    # busy: somebody else is at it, or a backup is running; a failure of the work itself is a Cancel
    retry=Path(
        state="retryable",
        writes={**_ERROR, "retry_count": Write.INCREMENT, "retry_after": Write.DUE, **_ENDED},
        sets=_CHECKPOINT,
    ),
    cancel=Path(state="failed", writes={**_ERROR, **_ENDED}),
    attempts="retry_count",
    backoff=Backoff(first_seconds=120, cap_seconds=3600),
    stale_message=_LOST,
    columns=("requested_mode", "reason"),
)
