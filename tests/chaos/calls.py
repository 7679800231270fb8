"""What is kept of a call to the database: the ids, claims, epochs and versions, under their names."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from supervisor.store import Record

# by query: the names of its parameters in order; None = not kept (secrets, bodies)
PARAMETERS: Final[Mapping[str, Sequence[str | None]]] = {
    "acquire_tenure": ("worker", "lease", "stop_bound", "epoch_seen", "system_seen", "timeline_seen"),
    "renew_tenure": ("epoch", "worker", "lease"),
    "resign_tenure": ("epoch", "worker", "reason"),
    "assign_runs": ("epoch", "ids", "versions", "workers", "silent_workers", "silent_seqs", "stop_bound"),
    "orphan_runs": ("epoch", "ids", "versions", "silent_workers", "silent_seqs", "confirm_after"),
    "confirm_runs": ("epoch", "silent_workers", "silent_seqs", "confirm_after", "stop_bound", "heartbeat"),
    "expire_runs": ("epoch", "ids", "versions", "beat_seqs"),
    "time_out_runs": ("epoch", "ids", "versions", "stop_bound"),
    "cancel_runs": ("epoch", "leader", "ids", "versions", "stop_bound"),
    "exhaust_runs": ("epoch", "leader", "ids", "versions"),
    "make_next_attempts": ("epoch", "limit"),
    "process_events": ("epoch", "limit"),
    "fire_schedules": (
        *("epoch", "ids", "crons", "timezones", "fired_until", "now", "next", None),
        *("instant_ids", "instants", "skipped_ids", "skipped_first", "skipped_last", "skipped_counts"),
    ),
    "read_assigned": ("worker", None, "after"),
    "start_runs": ("worker", None, "beat_no", "ids", "versions", "claims"),
    "beat_worker": (
        *("worker", None, "beat_no", "epoch_seen", "claims", None, "slots", "stop_bound", "draining"),
    ),
    "confirm_self": ("worker", "claims", "stop_bound"),
    "finish_runs": ("worker", "ids", "claims", "epochs", "states", None, "error_codes", None, "delays"),
    "release_runs": ("worker", "ids", "claims"),
    "leave_worker": ("worker", None),
}
DROPPED: Final = frozenset({"payload", "result", "domains", "held_by", "body", "error_message"})


def arguments(name: str, args: Sequence[Any]) -> dict[str, Any]:
    named = zip(PARAMETERS.get(name, ()), args, strict=False)
    return {parameter: plain(value) for parameter, value in named if parameter is not None}


def answer(name: str, rows: Sequence[Record]) -> dict[str, Any]:
    """The rows of calls whose parameters are kept; of the others, how many."""
    if name not in PARAMETERS:
        return {"count": len(rows)}
    kept = [{key: plain(value) for key, value in row.items() if key not in DROPPED} for row in rows]
    return {"count": len(rows), "rows": kept}


def plain(value: Any) -> Any:
    if isinstance(value, uuid.UUID | datetime):
        return str(value)
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value
