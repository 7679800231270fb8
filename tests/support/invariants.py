"""What holds in every history, whatever was done to the replicas. Each query lists what breaks one rule."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

VIOLATIONS: Final[Mapping[str, str]] = {
    "I1 an epoch that is not greater than the one before it": """
        SELECT epoch, at FROM (SELECT epoch, at, lag(epoch) OVER (ORDER BY id) AS before
                               FROM supervisor.tenure_log WHERE what = 'ACQUIRED') t
        WHERE epoch <= before""",
    "I2 a leader's move under an epoch after the next one was taken": """
        SELECT h.run_id, h.version, h.leader_epoch, h.at, n.at AS next_at
        FROM supervisor.job_run_history h
        JOIN LATERAL (SELECT min(t.at) AS at FROM supervisor.tenure_log t
                      WHERE t.what = 'ACQUIRED' AND t.epoch > h.leader_epoch) n ON true
        WHERE h.actor = 'leader' AND h.at > n.at""",
    "I3 attempts of a root that are not 1, 2, 3, ...": """
        SELECT root_id, attempt, number FROM (
            SELECT root_id, attempt, row_number() OVER (PARTITION BY root_id ORDER BY at) AS number
            FROM supervisor.job_run_history WHERE to_state = 'ASSIGNED' AND from_state <> 'ASSIGNED') t
        WHERE attempt <> number""",
    "I7 versions of a run with a gap, or a history that does not end where the run stands": """
        SELECT r.id, r.version, array_agg(h.version ORDER BY h.version) AS versions
        FROM supervisor.job_run r JOIN supervisor.job_run_history h ON h.run_id = r.id
        GROUP BY r.id, r.version
        HAVING count(*) <> r.version OR max(h.version) <> r.version""",
    "I8 more than one success of a root": """
        SELECT root_id FROM supervisor.job_run_history WHERE to_state = 'SUCCEEDED'
        GROUP BY 1 HAVING count(*) > 1""",
    "more starts than the run was allowed": """
        SELECT id, starts, max_attempts FROM supervisor.job_run WHERE starts > max_attempts""",
    "a claim that moved a run under two workers": """
        SELECT claim_id FROM supervisor.job_run_history WHERE claim_id IS NOT NULL
        GROUP BY 1 HAVING count(DISTINCT worker_id) > 1 OR count(DISTINCT run_id) > 1""",
    "an attempt assigned before the one before it had ended": """
        SELECT n.id, n.assigned_at, p.finished_at FROM supervisor.job_run n
        JOIN supervisor.job_run p ON p.id = n.retry_of_id WHERE n.assigned_at < p.finished_at""",
}


async def violations(rows: Callable[[str], Awaitable[list[Mapping[str, Any]]]]) -> list[str]:
    """Every break there is, a few of each kind."""
    return [f"{name}: {dict(row)}" for name, query in VIOLATIONS.items() for row in (await rows(query))[:5]]
