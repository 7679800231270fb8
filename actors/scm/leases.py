"""The lease contracts of the domain: the row of a running sync is the lock of its repository and source.

At most one run of a task is open (an index sees to it), so a claim needs no look at other runs. A failure
that is not final is decided on by the table's own trigger, in the same transaction: `failed` becomes
`retrying`, or `exhausted` where the attempts are used up. What a handler answers:

- `Done()`: completed; watermark and figures are those of the batches it recorded;
- `Retry(code, message, after_seconds)`: this attempt failed, the delay is the configuration's formula;
- `Cancel(reason, code)`: an error that no repetition heals (configuration, permission): failed for good.

A run whose worker fell silent is failed for good too, and the leader makes another at once, which goes on
where the cursor stands. A worker that leaves gives its run back.
"""

from dataclasses import replace
from typing import Final

from supervisor import Lease
from supervisor.lease import Backoff, Path, Write

LEASE_SECONDS: Final = 60.0

_NOW, _NULL = Write.NOW, Write.NULL
_ERROR = {"error_code": Write.CODE, "error_message": Write.MESSAGE}

SYNC: Final = Lease(
    table="scm.sync_runs",
    key={"run_id": "text"},
    claimable=("pending", "retrying"),
    ready="t.retry_after IS NULL OR t.retry_after <= now()",
    order=("priority DESC", "created_at", "run_id"),
    lease_seconds=LEASE_SECONDS,
    claim=Path(
        writes={
            "started_at": _NOW,
            "finished_at": _NULL,
            "retry_after": _NULL,
            "attempts": Write.INCREMENT,
        }
    ),
    stale=Path(state="failed", writes={**_ERROR, "finished_at": _NOW}),
    done=Path(state="completed", writes={"error_code": _NULL, "error_message": _NULL, "finished_at": _NOW}),
    retry=Path(state="failed", writes={**_ERROR, "retry_after": Write.DUE}),
    cancel=Path(state="failed", writes={**_ERROR, "finished_at": _NOW}),
    release=Path(state="pending"),
    attempts="attempts",
    backoff=Backoff(first_seconds=5, cap_seconds=60),
    stale_message="its worker fell silent: the lease ran out before the work was reported",
    columns=("task_id", "source_type", "mode"),
)


def of_source(source: str) -> Lease:
    """The same rows, those of one source alone: a pool of workers for each kind of place."""
    return replace(
        SYNC,
        label=source,
        only=f"t.source_type = '{source}'",
    )
