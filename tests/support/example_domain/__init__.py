"""An example domain with tables of its own, as an author would write one: SQL, leases, a handler.

JOBS sets stale work aside for an operator, SESSIONS leaves it where it is for another owner (and knows no
expiry, only when it was locked), THUMBS puts it back a bounded number of times and has a key of two columns,
ERRANDS is the plain contract.
"""

from collections.abc import Sequence
from pathlib import Path as FilePath

from supervisor import Actor, Claim, Done, Lease, Outcome, Tools
from supervisor.lease import Backoff, Path, Write
from supervisor.lease_sql import grants
from supervisor.plain_lease import plain_lease, plain_migration

NOW, NULL = Write.NOW, Write.NULL
ERROR = {"error_code": Write.CODE, "error_message": Write.MESSAGE}
NO_ERROR = {"error_code": NULL, "error_message": NULL}
UPDATED = {"updated_at": NOW}
ENDED = {"finished_at": NOW, "worker_heartbeat_at": NOW, **UPDATED}

JOBS = Lease(
    table="example.jobs",
    key={"id": "bigint"},
    only="t.kind IN ('scan', 'hash')",
    order=("created_at", "id"),
    lease_seconds=30,
    claim=Path(writes={"started_at": NOW, **UPDATED}),
    beat=Path(writes=UPDATED, sets={"processed_items": "bigint", "progress": "double precision"}),
    stale=Path(state="retryable", writes={**ERROR, "finished_at": NOW, **UPDATED}),
    done=Path(
        state="completed",
        writes={**NO_ERROR, **ENDED},
        sets={"progress": "double precision"},
    ),
    retry=Path(state="failed", writes={**ERROR, **ENDED}),
    cancel=Path(state="cancelled", writes={**ERROR, **ENDED}),
    release=Path(state="pending", writes=UPDATED),
    columns=("kind", "payload"),
    json_columns=("payload",),
)

UNLOCKED = {"locked_at": NULL, "locked_by": NULL}
SESSIONS = Lease(
    table="example.sessions",
    key={"id": "uuid"},
    state="state",
    state_type="example.session_state",
    running="processing",
    order=("created_at", "id"),
    owner="locked_by",
    heartbeat="locked_at",
    expiry=None,
    lease_seconds=30,
    stale=Path(),
    done=Path(
        state="done",
        writes=UNLOCKED,
        gives={"body": "text"},
        also="INSERT INTO example.notes (session_id, body) SELECT r.id, r.body FROM recorded AS r "
        "WHERE r.body IS NOT NULL",
    ),
    retry=Path(state="failed", writes={**UNLOCKED, "error": Write.PROBLEM}),
    release=Path(),
    columns=("user_id",),
)

THUMBS = Lease(
    table="example.thumbs",
    key={"library_id": "integer", "file_id": "bigint"},
    ready="t.retry_after IS NULL OR t.retry_after <= now()",
    order=("priority DESC", "library_id", "file_id"),
    lease_seconds=30,
    claim=Path(writes=UPDATED),
    beat=Path(writes=UPDATED),
    stale=Path(state="pending", writes={"error_count": Write.INCREMENT, **UPDATED}),
    done=Path(
        state="ready",
        writes={**NO_ERROR, "error_count": Write.ZERO, "retry_after": NULL, **UPDATED},
        sets={"width": "integer", "height": "integer"},
    ),
    retry=Path(
        state="pending",
        writes={**ERROR, "error_count": Write.INCREMENT, "retry_after": Write.DUE, **UPDATED},
    ),
    exhausted=Path(state="dead", writes={**ERROR, "error_count": Write.INCREMENT, **UPDATED}),
    snooze=Path(state="pending", writes={"retry_after": Write.DUE, **UPDATED}),
    release=Path(state="pending", writes=UPDATED),
    attempts="error_count",
    max_attempts=3,
    backoff=Backoff(first_seconds=2, cap_seconds=60),
    columns=("path", "priority"),
    rights=("DELETE",),
)

ERRAND_COLUMNS = {"payload": "jsonb NOT NULL DEFAULT '{}'", "answer": "text"}
ERRANDS = plain_lease(
    "example.errands", {"payload": "jsonb"}, sets={"answer": "text"}, lease_seconds=30, max_failures=3
)

LEASES: Sequence[Lease] = (JOBS, SESSIONS, THUMBS, ERRANDS)


def migration() -> str:
    """What the domain's own migration would hold."""
    tables = FilePath(__file__).with_name("tables.sql").read_text()
    publish = "GRANT INSERT ON example.notes TO tenure_worker;\n"
    rights = "".join(grants(lease) for lease in (JOBS, SESSIONS, THUMBS))
    return tables + rights + publish + plain_migration(ERRANDS, ERRAND_COLUMNS)


async def handle(claim: Claim, _tools: Tools) -> Outcome:
    return Done({"progress": 1.0} if claim.payload["kind"] == "hash" else None)


ACTOR = Actor(domain="example", handle=handle, lease=JOBS)
