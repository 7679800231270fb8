"""Carries out a checkpoint of the write-ahead log, in one of three modes:

    passive     CHECKPOINT
    restart     and pg_switch_wal(): a new segment is begun, the old ones can be archived
    truncate    and VACUUM of the tables that are claimed from; while dedup_allow_wal_truncate is on

One at a time: while another row runs under a live lease, or a base backup runs, the answer is "busy" and the
row is due again later. The figures are the server's own: `checkpoint_log_frames` are the pages of 8 KiB
between the redo position and the end of the log before the checkpoint, `checkpointed_frames` those by which
the redo position moved on. The server may make a checkpoint of its own at the same time; the figures have it
in them then.

It runs as `tenure_maintenance`, the role that may CHECKPOINT and read nothing. A refusal by the server is the
end of the job, told with what to grant. A checkpoint takes as long as it takes: the claim's own deadline
stops it.
"""

from collections.abc import Mapping
from typing import Any, Final

from supervisor import Cancel, Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask
from supervisor.store import Store

LONGEST_SECONDS: Final = 86400.0
FAILED: Final = "WAL_CHECKPOINT_FAILED"


class Refused(Exception):
    """The job cannot be carried out here."""


async def handle(claim: Claim, tools: Tools) -> Outcome:
    mode: str = claim.payload["requested_mode"]
    maintenance = tools.place.maintenance
    try:
        await _check(mode, tools)
        before = await _one(maintenance, "read_wal_position")
        if busy := await _busy_with(claim, tools):
            figures = _figures(busy=1, log=before["pages"], checkpointed=0)
            return Retry("WAL_CHECKPOINT_BUSY", busy, result=figures)
        return Done(await _carry_out(mode, maintenance, before))
    except Exception as error:  # noqa: BLE001  whatever the server says is why this job failed, not a reason to repeat it
        return Cancel(f"{mode}: {error}", error_code=FAILED)


async def _check(mode: str, tools: Tools) -> None:
    rights = await _one(tools.place.maintenance, "read_maintenance_rights")
    lacking = [
        what
        for what, has in (
            ("CHECKPOINT (the role pg_checkpoint)", rights["may_checkpoint"]),
            ("EXECUTE on pg_control_checkpoint()", rights["may_read"]),
            ("EXECUTE on pg_switch_wal()", rights["may_switch"] or mode == "passive"),
        )
        if not has
    ]
    if lacking:
        raise Refused(
            f"{rights['name']} lacks {', '.join(lacking)}; set TENURE_MAINTENANCE_DATABASE_URL to a login of "
            "tenure_maintenance, and let an administrator run `tenure migrate` where that lacks it too"
        )
    if mode == "truncate" and not (await ask(tools.place.store, "read_truncate_allowed"))[0]["allowed"]:
        raise Refused("switched off (setting dedup_allow_wal_truncate)")


async def _busy_with(claim: Claim, tools: Tools) -> str | None:
    """Who is at it; None: nobody."""
    if others := await ask(tools.place.store, "find_checkpoint_worker", claim.key):
        return f"checkpoint {others[0]['id']} is being carried out by {others[0]['worker_id']}"
    if backups := await tools.place.maintenance.rows("find_base_backup"):
        return f"a base backup is running (process {backups[0]['pid']})"
    return None


async def _carry_out(mode: str, maintenance: Store, before: Mapping[str, Any]) -> Mapping[str, int]:
    await maintenance.rows("checkpoint_wal", timeout=LONGEST_SECONDS)
    after = await _one(maintenance, "read_wal_advance", before["redo"])
    figures = _figures(busy=0, log=before["pages"], checkpointed=after["pages"])
    if mode in {"restart", "truncate"}:
        await maintenance.rows("switch_wal")
    if mode == "truncate":
        await _vacuum(maintenance, figures)
    return figures


async def _vacuum(maintenance: Store, figures: Mapping[str, int]) -> None:
    if tables := [row["name"] for row in await maintenance.rows("find_unvacuumable_tables")]:
        raise Refused(
            f"the checkpoint was made ({figures['checkpointed_frames']} of "
            f"{figures['checkpoint_log_frames']} pages) and a new segment begun; not vacuumed: "
            f"{', '.join(tables)}, for which the login lacks the right (MAINTAIN, since PostgreSQL 17; "
            "before that only the owner of a table may)"
        )
    await maintenance.rows("vacuum_queues", timeout=LONGEST_SECONDS)


async def _one(store: Store, query: str, *args: Any) -> Mapping[str, Any]:
    row = await store.row(query, *args)
    if row is None:
        raise Refused(f"{query} answered nothing")
    return dict(row)


def _figures(*, busy: int, log: int, checkpointed: int) -> Mapping[str, int]:
    return {
        "checkpoint_busy": busy,
        "checkpoint_log_frames": log,
        "checkpointed_frames": checkpointed,
    }
