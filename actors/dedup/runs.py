"""What a run of this domain does: it asks for jobs, one after the other, and ends when they have ended.

The jobs are asked for under the root of the run, so the next attempt finds those that are there and goes on
waiting for them. Only one scan or hash is active at a time: where another has the place, the run waits for
it. A job that is `retryable` is alive, the leader returns it. A run that was asked to stop takes its jobs
along; one that is lost, drained or over its time leaves them to its next attempt.
"""

import json
from typing import Final

import anyio

from actors.dedup import jobs_here
from actors.dedup.orders import Step, check, faults, steps
from supervisor import Cancel, Claim, Done, Outcome, Retry, Tools
from supervisor.asking import ask
from supervisor.clock import boottime, jitter
from supervisor.errors import Conflict, NotFound
from supervisor.store import Record

__all__ = ["check", "handle"]

ALIVE: Final = frozenset({"pending", "running", "retryable"})
BUSY_SECONDS: Final = 0.7
SPEAK_SECONDS: Final = 10.0
SPEAK_SHARE: Final = 0.05
_FIGURES: Final = ("files_new", "files_changed", "files_moved", "files_missing", "error_count")
_COUNTED: Final = {"scan": "files", "hash": "hashed", "thumbnail": "thumbnails"}


async def handle(claim: Claim, tools: Tools) -> Outcome:
    action = claim.action or ""
    if complaints := faults(claim.action, claim.payload):
        return Cancel("; ".join(complaints))
    libraries = [row["name"] for row in await ask(tools.place.store, "list_library_names")]
    run = Run(claim, tools)
    try:
        for step in steps(action, claim.payload, libraries):
            await run.carry_out(step)
            # a missing or broken library of many does not keep the others from being looked at
            if run.failures and action != "rescan-all":
                break
    except anyio.get_cancelled_exc_class():
        await run.take_jobs_along()
        raise
    return run.outcome()


class Run:
    """One attempt: the counts of the jobs that ended well, and what became of the others."""

    def __init__(self, claim: Claim, tools: Tools) -> None:
        self._token = (claim.run_id, claim.claim_id)
        self._store = tools.place.store
        self._log = tools.log
        self._kill_seconds = tools.kill_seconds
        self.counts: dict[str, int] = {}
        self.failures: list[tuple[Step, str, str]] = []
        self.cancelled = ""

    async def carry_out(self, step: Step) -> None:
        if self.cancelled:
            return
        try:
            job = await self._ended(step, await self._requested(step))
        except NotFound as gone:
            self.failures.append((step, "LIBRARY_GONE", str(gone)))
            return
        if job["status"] == "completed":
            self._count(step, job)
        elif job["status"] == "cancelled":
            self.cancelled = job["error_message"] or f"the {step.kind} was cancelled"
        else:
            self.failures.append((step, job["error_code"] or "JOB_FAILED", job["error_message"] or ""))
        await self._say(f"{_title(step)}: {job['status']}{_reason(job)}")

    async def take_jobs_along(self) -> None:
        """Only where the run was to be cancelled: the database knows."""
        with anyio.move_on_after(self._kill_seconds / 2, shield=True):
            await ask(self._store, "cancel_dedup_for_run", *self._token)

    def outcome(self) -> Outcome:
        if self.cancelled:
            return Cancel(self.cancelled, "CANCELLED")
        if self.failures:
            told = "; ".join(f"{_title(step)}: {message or code}" for step, code, message in self.failures)
            return Retry(self.failures[0][1], told)
        return Done(self.counts)

    async def _requested(self, step: Step) -> Record:
        told = False
        while True:
            try:
                (job,) = await ask(
                    self._store,
                    "request_dedup_for_run",
                    *self._token,
                    step.kind,
                    step.library,
                    json.dumps(step.payload),
                )
                return job
            except Conflict as busy:
                if not told:
                    await self._say(f"{_title(step)} waits: {busy}")
                    told = True
                await anyio.sleep(jitter(BUSY_SECONDS))

    async def _ended(self, step: Step, job: Record) -> Record:
        began, share, status, speak_at = boottime(), 0.0, "", 0.0
        while True:
            rows = await ask(self._store, "read_job_of_run", job["id"])
            if not rows:
                raise NotFound(kind="library", name=step.library or "")
            job = rows[0]
            if job["status"] not in ALIVE:
                return job
            moved = job["status"] != status or job["progress"] - share >= SPEAK_SHARE
            if moved or boottime() >= speak_at:
                share, status, speak_at = job["progress"], job["status"], boottime() + SPEAK_SECONDS
                await self._say(f"{_title(step)}: {_standing(job)}")
            await jobs_here.pause(job["id"], boottime() - began)

    def _count(self, step: Step, job: Record) -> None:
        self._add(_COUNTED[step.kind], job["items"])
        if job["files_hashed"]:
            self._add("hashed", job["files_hashed"])
        for name in _FIGURES if step.kind == "scan" else ():
            self._add(name, job[name])

    def _add(self, name: str, count: int | None) -> None:
        self.counts[name] = self.counts.get(name, 0) + (count or 0)

    async def _say(self, line: str) -> None:
        await self._log("stdout", f"{line}\n".encode())


def _title(step: Step) -> str:
    return f"{step.kind} of {step.library or 'all libraries'}"


def _standing(job: Record) -> str:
    done = (
        f"{job['processed_items']} of {job['total_items']}" if job["total_items"] else job["processed_items"]
    )
    return f"{job['status']}, {done} files, {job['progress']:.0%}{_reason(job)}"


def _reason(job: Record) -> str:
    return f" ({job['error_code']}: {job['error_message'] or ''})" if job["error_code"] else ""
