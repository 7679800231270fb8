"""The lease contract of a capture session.

A session that nobody finishes stays in processing until another worker takes it over; there is no way back
to pending, and a failure is final. What ends it and the version that it makes are one statement.
"""

from typing import Final

from schemas import lease_templates
from supervisor.lease import Lease, Path, Write

_UNLOCKED = {"locked_at": Write.NULL, "locked_by": Write.NULL}

SESSIONS: Final = Lease(
    table="schedule_ingest.capture_session",
    key={"id": "uuid"},
    state="state",
    state_type="schedule_ingest.capture_session_state",
    running="processing",
    order=("created_at", "id"),
    owner="locked_by",
    heartbeat="locked_at",
    expiry=None,
    lease_seconds=300,
    timeout_seconds=1800,
    stale=Path(),
    done=Path(
        state="done",
        writes=_UNLOCKED,
        gives={
            "schedule_date": "date",
            "payload": "jsonb",
            "payload_hash": "text",
            "skip_unchanged": "boolean",
        },
        also=lease_templates()["insert_schedule_version"].sql,
    ),
    retry=Path(state="failed", writes={**_UNLOCKED, "error": Write.PROBLEM}),
    release=Path(),
    columns=("user_id", "created_at"),
)
