"""A lease contract for those who only have work and no table yet.

`plain_lease` is the contract, `plain_migration` the SQL that makes the table and grants its rights: rows go
pending -> running -> done or failed; a failure puts a row back after a back-off, a lost lease at once,
until `max_failures`; the author's own columns are what a handler sees, and `sets` what its Done may fill.
"""

from collections.abc import Mapping

from schemas import lease_templates
from supervisor.lease import Backoff, Lease, Path, Write
from supervisor.lease_sql import grants

_ERROR = {"error_code": Write.CODE, "error_message": Write.MESSAGE}
_FAILED = {**_ERROR, "failures": Write.INCREMENT}
_OVER = {"finished_at": Write.NOW}


def plain_lease(
    table: str,
    columns: Mapping[str, str],
    *,
    sets: Mapping[str, str] | None = None,
    lease_seconds: float = 60,
    max_failures: int = 5,
    timeout_seconds: float | None = None,
    backoff: Backoff | None = None,
) -> Lease:
    """`columns`: the author's own, with their SQL types; a jsonb column arrives parsed."""
    return Lease(
        table=table,
        key={"id": "bigint"},
        ready="t.due_at <= now()",
        order=("due_at", "id"),
        lease_seconds=lease_seconds,
        timeout_seconds=timeout_seconds,
        stale=Path(state="pending", writes=_FAILED),
        done=Path(
            state="done",
            writes={"error_code": Write.NULL, "error_message": Write.NULL, **_OVER},
            sets=sets or {},
        ),
        retry=Path(state="pending", writes={**_FAILED, "due_at": Write.DUE}),
        exhausted=Path(state="failed", writes={**_FAILED, **_OVER}),
        cancel=Path(state="failed", writes={**_ERROR, **_OVER}),
        snooze=Path(state="pending", writes={"due_at": Write.DUE}),
        release=Path(state="pending"),
        attempts="failures",
        max_attempts=max_failures,
        backoff=backoff or Backoff(),
        columns=tuple(columns),
        json_columns=tuple(name for name, kind in columns.items() if kind.split(" ")[0] in {"json", "jsonb"}),
    )


def plain_migration(lease: Lease, columns: Mapping[str, str]) -> str:
    """`columns` with their whole definitions ("text NOT NULL"); the schema must be there already."""
    text = lease_templates()["create_plain"].sql.format(
        table=lease.table,
        name=lease.table.partition(".")[2],
        columns=",\n    ".join(f"{name} {kind}" for name, kind in columns.items()),
    )
    return f"{text};\n{grants(lease)}"
