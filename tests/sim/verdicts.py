"""What the whole database must look like, now and at the end."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.sim.database import instant
from tests.sim.load import LONGEST_SECONDS
from tests.support.invariants import VIOLATIONS

if TYPE_CHECKING:
    from tests.sim.world import World

BY_TIME: Final = ("I2", "I3", "an attempt assigned before")
"""These order by the database's clock: nothing follows from them when it was set back."""
MARGIN_SECONDS: Final = 10.0
ALL_TOLD_SECONDS: Final = 200.0
GAP_SECONDS: Final = 4.0
LIVE: Final = """
SELECT r.id, r.state, r.continuation_state, r.assigned_worker_id, r.attempt FROM supervisor.job_run r
WHERE r.state IN ('PENDING', 'ASSIGNED', 'RUNNING', 'ORPHANED')
   OR (r.retry_at IS NOT NULL AND r.next_attempt_id IS NULL) ORDER BY r.id"""
DUMPED: Final = (
    "tenure_log", "job_run", "job_run_history", "late_finish", "worker", "leader_epoch", "job_definition",
    "skipped_fire",
)  # fmt: skip


def of_database(world: "World") -> list[str]:
    set_back = world.failovers or any(seconds < 0 for seconds in world.jumped)
    found = []
    for name, query in VIOLATIONS.items():
        if set_back and name.startswith(BY_TIME):
            continue
        found += [f"{name}: {dict(row)}" for row in _rows(world, query)[:1]]
    return found


def quiet(world: "World") -> bool:
    unread = "SELECT 1 FROM supervisor.event WHERE processed_at IS NULL"
    return not _rows(world, LIVE) and not _rows(world, unread)


class Progress:
    """In peace: there is a leader soon, something moves within the bound of P6, and all of it ends."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._moves = -1
        self._moved_at = self._led_at = world.t

    def complaints(self) -> list[str]:
        world, now, timings = self._world, self._world.t, self._world.timings
        moves = _rows(world, "SELECT count(*) AS n FROM supervisor.job_run_history")[0]["n"]
        if moves != self._moves:
            self._moves, self._moved_at = moves, now
        if _rows(world, "SELECT 1 FROM supervisor.leader_lease WHERE expires_at > sim.now()"):
            self._led_at = now
        found = []
        waiting = -sum(seconds for seconds in world.jumped if seconds < 0)
        if now - self._led_at > timings.leader_lease + GAP_SECONDS + waiting:
            found.append(f"nobody has led for {now - self._led_at:.0f} s of peace")
        if now - self._moved_at > bound_seconds(world) or now - world.healed_at > ALL_TOLD_SECONDS + waiting:
            runs = [dict(row) for row in _rows(world, LIVE)[:5]]
            found.append(f"nothing has moved for {now - self._moved_at:.0f} s of peace: {runs}")
        return found


def bound_seconds(world: "World") -> float:
    """P6. A clock that was set back makes what is due wait, and a failover holds assignments back for D."""
    timings = world.timings
    waiting = -sum(seconds for seconds in world.jumped if seconds < 0)
    lost = max(timings.stop_bound, world.reassign_seconds) + timings.confirm_after + MARGIN_SECONDS
    return lost + LONGEST_SECONDS + waiting + (timings.stop_bound if world.failovers else 0.0)


def busiest_seconds(world: "World") -> float:
    """For how long, in peace, a job of which one run at a time may execute kept its others waiting."""
    peace = instant(world.healed_at + world.database_offset).isoformat()
    busy = f"""
SELECT coalesce(max(seconds), 0) AS seconds FROM (
    SELECT extract(epoch FROM sum(r.finished_at - greatest(r.assigned_at, '{peace}')))::float8 AS seconds
    FROM supervisor.job_run r JOIN supervisor.job_definition d ON d.id = r.job_definition_id
    WHERE d.concurrency = 1 AND r.finished_at > '{peace}' GROUP BY d.id) x"""
    return float(_rows(world, busy)[0]["seconds"])


def of_end(world: "World") -> list[str]:
    found = []
    rows = {row["id"]: row["state"] for row in _rows(world, "SELECT id, state FROM supervisor.job_run")}
    for run, state in world.witness.outcomes.items():
        kept = rows.get(run)
        if kept != state and state not in ("time_out_runs", "cancel_runs"):
            found.append(f"run {run} was recorded {state} and is {kept}")
    found += [f"run {run} was acknowledged and is lost" for run in world.load.acknowledged if run not in rows]
    return found + _schedule(world)


def _schedule(world: "World") -> list[str]:
    """Every minute of the database's clock fired or was told as skipped, once."""
    if world.failovers or any(seconds < 0 for seconds in world.jumped):
        return []
    fired = _rows(
        world, "SELECT scheduled_for FROM supervisor.job_run WHERE scheduled_for IS NOT NULL ORDER BY 1"
    )
    skipped = _rows(world, "SELECT coalesce(sum(instants), 0) AS n FROM supervisor.skipped_fire")[0]["n"]
    until = instant(world.t + world.database_offset) - timedelta(seconds=3)
    first = instant(0).replace(second=0) + timedelta(minutes=1)
    expected = max(0, int((until - first).total_seconds() // 60) + 1) if until >= first else 0
    late = len(fired) + skipped
    if not expected <= late <= expected + 1:
        return [f"{expected} minutes passed, {len(fired)} fired and {skipped} were skipped"]
    return []


def tables(world: "World") -> dict[str, Iterable[str]]:
    dumped: dict[str, Iterable[str]] = {}
    for name in DUMPED:
        rows = _rows(world, f"SELECT row_to_json(x)::text AS line FROM supervisor.{name} x")
        dumped[f"database/{name}"] = [row["line"] for row in rows]
    return dumped


def _rows(world: "World", sql: str) -> Any:
    return world.look(sql)
