"""What a run of this domain does: it asks for a sync and ends when that has ended.

The sync is asked for under the run, so the next attempt finds the one that is open. One whose worker was lost
has a successor, made by the leader: the run follows it. A run that was asked to stop takes its sync along.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio

from supervisor import Cancel, Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask
from supervisor.clock import jitter
from supervisor.errors import Conflict, NotFound
from supervisor.parameters import NO_ACTION, Parameter, TaskType
from supervisor.store import Record

SOURCES: Final = ("svn", "git", "gitlab_mr", "gitlab_review")
_PARAMETERS: Final = {
    "repo": Parameter(type="text", required=True, max_length=63, description="the name of a repository"),
    "source": Parameter(type="text", required=True, choices=SOURCES),
    "mode": Parameter(type="text", choices=("incremental", "backfill")),
    "range": Parameter(type="object", description="for a backfill: from, to, update_watermark"),
}
TASK_TYPES: Final = tuple(TaskType(action=action, parameters=_PARAMETERS) for action in (NO_ACTION, "sync"))
LOST: Final = frozenset({"LEASE_EXPIRED", "WORKER_LOST"})
FIRST_SECONDS: Final = 0.1
LONGEST_SECONDS: Final = 1.0


def check(payload: Mapping[str, Any]) -> Sequence[str]:
    """What is wrong with a payload; a trigger may bring what is missing."""
    faults = [
        f"unknown field {name}"
        for name in payload
        if name not in {"repo", "source", "mode", "range", "event"}
    ]
    if "source" in payload and payload["source"] not in SOURCES:
        faults.append(f"source is one of {', '.join(SOURCES)}")
    if "repo" in payload and not isinstance(payload["repo"], str):
        faults.append("repo is the name of a repository")
    return faults


async def handle(claim: Claim, tools: Tools) -> Outcome:
    payload = claim.payload
    if claim.action not in {None, "sync"}:
        return Cancel(f"a run of this domain can sync, not {claim.action}")
    if faults := [
        *check(payload),
        *(f"{name} is missing" for name in ("repo", "source") if name not in payload),
    ]:
        return Cancel("; ".join(faults))
    run = Run(claim, tools)
    try:
        return await run.carry_out()
    except (NotFound, Conflict) as refusal:
        return Retry("SYNC_REFUSED", str(refusal))
    except anyio.get_cancelled_exc_class():
        await run.take_along()
        raise


class Run:
    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._token = (claim.run_id, claim.claim_id)
        self._wanted = claim.payload
        self._store = tools.place.store
        self._log = tools.log
        self._kill_seconds = tools.kill_seconds

    async def carry_out(self) -> Outcome:
        while True:
            sync = await self._ended(await self._requested())
            error = json.loads(sync["error_json"] or "{}") or {}
            if sync["status"] == "completed":
                return Done({"run_id": sync["run_id"], **json.loads(sync["stats_json"] or "{}")})
            if sync["status"] == "cancelled":
                return Cancel(f"the sync {sync['run_id']} was cancelled")
            if error.get("code") not in LOST:
                return Retry(
                    str(error.get("code") or "SYNC_FAILED"), str(error.get("message") or sync["status"])
                )
            await anyio.sleep(jitter(LONGEST_SECONDS))

    async def _requested(self) -> Record:
        wanted = self._wanted
        options = json.dumps({name: wanted[name] for name in ("mode", "range") if name in wanted})
        (row,) = await ask(
            self._store, "request_sync_for_run", *self._token, wanted["repo"], wanted["source"], options
        )
        await self._log("stdout", f"sync {row['run_id']} of {wanted['repo']} ({wanted['source']})\n".encode())
        return row

    async def _ended(self, sync: Record) -> Record:
        pause = FIRST_SECONDS
        while not _is_over(sync):
            await anyio.sleep(jitter(pause))
            pause = min(pause * 1.5, LONGEST_SECONDS)
            (sync,) = await ask(self._store, "read_sync_of_run", sync["run_id"])
        return sync

    async def take_along(self) -> None:
        with anyio.move_on_after(self._kill_seconds / 2, shield=True):
            await ask(self._store, "cancel_syncs_for_run", *self._token)


def _is_over(sync: Record) -> bool:
    final = sync["status"] in {"completed", "exhausted", "cancelled"}
    return final or (sync["status"] == "failed" and sync["finished_at"] is not None)
