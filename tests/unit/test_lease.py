"""Lease contracts: what seed 000 permits to the letter, and what is refused when a contract is made."""

from dataclasses import replace
from typing import Any

import pytest

from supervisor.lease import BadLease, Lease, Path, Write
from supervisor.lease_sql import grants, render
from supervisor.outcome import Cancel, Done, Retry, Snooze
from supervisor.row_outcome import RowVerdict, of_outcome
from tests.support.example_domain import JOBS, LEASES, SESSIONS, THUMBS

NOW, NULL, COUNT = Write.NOW, Write.NULL, Write.INCREMENT
ERROR = {"error_code": Write.CODE, "error_message": Write.MESSAGE}
UPDATED = {"updated_at": NOW}
ENDED = {"finished_at": NOW, "worker_heartbeat_at": NOW, **UPDATED}
CHECKPOINT = {
    "checkpoint_busy": "integer",
    "checkpoint_log_frames": "bigint",
    "checkpointed_frames": "bigint",
}
BOUND = {"status", "worker_id", "worker_heartbeat_at", "lease_expires_at"}


def thumbnails() -> Lease:
    return Lease(
        table="dedup.thumbnails",
        key={"id": "bigint"},
        order=("id",),
        lease_seconds=60,
        claim=Path(writes={"started_at": NOW, **UPDATED}),
        beat=Path(writes=UPDATED),
        stale=Path(state="pending", writes=UPDATED),
        done=Path(
            state="ready",
            writes={
                "error_code": NULL,
                "error_message": NULL,
                "error_count": Write.ZERO,
                "retry_after": NULL,
                **ENDED,
            },
            sets={"width": "integer", "height": "integer", "bytes_size": "bigint"},
        ),
        retry=Path(state="failed", writes={**ERROR, "error_count": COUNT, "retry_after": Write.DUE, **ENDED}),
        attempts="error_count",
    )


def wal() -> Lease:
    return Lease(
        table="dedup.wal_maintenance_jobs",
        key={"id": "bigint"},
        claimable=("pending", "retryable"),
        ready="t.execute_after <= now() AND (t.retry_after IS NULL OR t.retry_after <= now())",
        order=("execute_after", "id"),
        lease_seconds=60,
        claim=Path(writes={"started_at": NOW, "finished_at": NULL, **UPDATED}),
        beat=Path(),
        stale=Path(
            state="retryable",
            writes={"retry_count": COUNT, "retry_after": Write.DUE, **ERROR, "finished_at": NOW, **UPDATED},
        ),
        done=Path(
            state="completed", writes={"error_code": NULL, "error_message": NULL, **ENDED}, sets=CHECKPOINT
        ),
        retry=Path(
            state="retryable",
            writes={"retry_count": COUNT, "retry_after": Write.DUE, **ERROR, **ENDED},
            sets=CHECKPOINT,
        ),
        cancel=Path(state="failed", writes={**ERROR, **ENDED}),
        attempts="retry_count",
    )


FINISH = {
    "status",
    "error_code",
    "error_message",
    "finished_at",
    "worker_heartbeat_at",
    "lease_expires_at",
    "updated_at",
}
RECOVERY = BOUND | {"error_code", "error_message", "finished_at", "updated_at"}


@pytest.mark.parametrize(
    ("lease", "path", "whitelist"),
    [
        (JOBS, "claim", BOUND | {"started_at", "updated_at"}),
        (
            JOBS,
            "beat",
            {"processed_items", "progress", "worker_heartbeat_at", "lease_expires_at", "updated_at"},
        ),
        (JOBS, "done", FINISH | {"progress"}),
        (JOBS, "retry", FINISH),
        (JOBS, "stale", RECOVERY),
        (thumbnails(), "claim", BOUND | {"started_at", "updated_at"}),
        (thumbnails(), "beat", {"worker_heartbeat_at", "lease_expires_at", "updated_at"}),
        (thumbnails(), "done", FINISH | {"width", "height", "bytes_size", "error_count", "retry_after"}),
        (thumbnails(), "retry", FINISH | {"error_count", "retry_after"}),
        (wal(), "claim", BOUND | {"started_at", "updated_at", "finished_at"}),
        (wal(), "stale", RECOVERY | {"retry_count", "retry_after"}),
        (wal(), "done", FINISH | set(CHECKPOINT)),
        (wal(), "retry", FINISH | {"retry_count", "retry_after"} | set(CHECKPOINT)),
        (wal(), "cancel", FINISH),
    ],
)
def test_the_whitelists_of_the_seed_are_met_to_the_letter(
    lease: Lease, path: str, whitelist: set[str]
) -> None:
    """R000-80 to R000-95 and C-10: nothing more than listed, besides the token."""
    assert lease.written(path) - {"claim_id"} == whitelist


def test_the_rights_are_the_union_of_the_paths_and_of_the_contracts() -> None:
    other = replace(JOBS, label="other", done=Path(state="completed", writes={"result": NOW}))
    text = grants(JOBS, other)
    (update,) = [
        line for line in text.splitlines() if line.startswith("GRANT UPDATE") and "tenure_worker" in line
    ]
    columns = set(update[update.index("(") + 1 : update.index(")")].split(", "))
    assert columns == JOBS.writable() | {"result"}
    with pytest.raises(ValueError, match="one by one"):
        grants(JOBS, THUMBS)


@pytest.mark.parametrize("lease", LEASES, ids=lambda lease: lease.name)
def test_every_placeholder_is_filled(lease: Lease) -> None:
    sql = render(lease)
    statements = [sql.claim, sql.beat, *sql.finish.values(), sql.recover]
    assert not any("{" in one.sql or "}" in one.sql for one in statements)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"table": "jobs"}, "schema.table"),
        ({"table": "example.jobs; DROP TABLE x"}, "schema.table"),
        ({"owner": "worker id"}, "not a column"),
        ({"key": {"id": "bigint); --"}}, "not a type"),
        ({"claimable": ("pen'ding",)}, "not a state"),
        ({"order": ("created_at; SELECT 1",)}, "not a order"),
        ({"only": "true; DELETE FROM x"}, "fragment"),
        ({"ready": "true -- or not"}, "fragment"),
        ({"only": "t.x = $1"}, "fragment"),
        ({"claimable": ("running",)}, "not claimable"),
        ({"lease_seconds": 0}, "greater than 0"),
        ({"done": Path()}, "needs a state"),
        ({"done": Path(state="running")}, "needs a state"),
        ({"stale": Path(state="running")}, "without a state"),
        ({"done": Path(state="done", writes={"id": NOW})}, "key or the token"),
        ({"done": Path(state="done", sets={"claim_id": "uuid"})}, "key or the token"),
        ({"done": Path(state="done", sets={"status": "text"})}, "contract writes"),
        ({"done": Path(state="done", writes={"worker_id": Write.OWNER})}, "implies"),
        ({"stale": Path(state="retryable", also="SELECT 1")}, "no outcome"),
        ({"max_attempts": 3}, "go together"),
        ({"max_attempts": 3, "exhausted": Path(state="failed")}, "column that counts"),
        ({"retry": Path(state="failed", writes={"retry_after": Write.DUE})}, "DUE needs"),
        ({"json_columns": ("elsewhere",)}, "some of the columns"),
        ({"claim": Path(state="running")}, "running state"),
    ],
)
def test_a_contract_that_cannot_hold_is_refused(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadLease, match=complaint):
        replace(JOBS, **change)


def test_messages_are_quoted() -> None:
    sql = render(replace(JOBS, stale_message="it's gone")).recover.sql
    assert "'it''s gone'" in sql


def test_outcomes_take_the_path_their_table_has() -> None:
    assert of_outcome(JOBS, Done({"progress": 1})) == RowVerdict("done", values={"progress": 1})
    assert of_outcome(JOBS, Done({"kind": "x"})).code == "OUTCOME_REFUSED"
    assert of_outcome(wal(), Retry("BUSY", result={"checkpoint_busy": 1})).values == {"checkpoint_busy": 1}
    assert of_outcome(JOBS, Retry("E", result={"progress": 1})).code == "OUTCOME_REFUSED"
    assert of_outcome(JOBS, Cancel("no")).path == "cancel"
    assert of_outcome(SESSIONS, Cancel("no")) == RowVerdict("retry", "CANCELED_BY_HANDLER", "no")
    assert of_outcome(THUMBS, Snooze(5)) == RowVerdict("snooze", after_seconds=5)
    assert of_outcome(JOBS, Snooze(5)).code == "SNOOZE_UNSUPPORTED"
    assert of_outcome(JOBS, Retry("E", "m\x00", 3)) == RowVerdict("retry", "E", "m\u2400", 3)
