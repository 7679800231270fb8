"""The capture domain: a session that nobody finishes waits in processing for another worker."""

from collections.abc import Sequence
from datetime import date

from actors.capture.leases import SESSIONS
from tests.conformance.contracts.contract import CREATED, Contract

CAPTURE: Sequence[Contract] = (
    Contract(
        SESSIONS,
        insert=f"INSERT INTO schedule_ingest.capture_session (user_id, created_at) VALUES (7, {CREATED})",
        finished="INSERT INTO schedule_ingest.capture_session (user_id, state, claim_id) "
        "SELECT 7, 'done', gen_random_uuid() FROM generate_series(1, $1::integer)",
        others=[
            "INSERT INTO schedule_ingest.capture_session (user_id, state, error) VALUES (7, 'failed', 'x')"
        ],
        gives={
            "schedule_date": date(2026, 11, 16),
            "payload": '{"entries": []}',
            "payload_hash": "44",
            "skip_unchanged": False,
        },
        always_bound=True,
    ),
)
