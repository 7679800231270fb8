"""One sync of one repository and source: batches from the cursor on, each written down in one transaction.

Diffs are stored first, under keys of their own; the batch that names them, the watermark and the source's
memory follow in one call, and a call without an answer is repeated with the same number. So a sync that is
killed anywhere goes on behind its last batch, and what it stored twice is stored once. A batch of many bytes
takes several calls, of which the last has the watermark. A backfill leaves the source's memory alone: it says
of a range what is not true of all before it.

A passing trouble is a Retry after the configured delay, or what the server asked for; one that only an
operator heals (address, right, configuration, a record that the ledger refuses) ends the run for good. With
the mode best_effort a record that cannot be read or stored, and a diff that cannot be stored, are failures in
the run's statistics, and the sync goes on behind them.
"""

import json
import random
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread

from actors.scm import facts
from actors.scm.backoff import Trouble, delay_seconds
from actors.scm.config import for_task, sync_config
from actors.scm.diffs import Diff
from actors.scm.facts import Fact
from actors.scm.gitlab_answer import BadAnswer
from actors.scm.keeping import keep
from actors.scm.process import Programs
from actors.scm.records import Batch, SourceFailed, Unreadable
from actors.scm.scratch import scratch_under
from actors.scm.sources import SOURCES, Source, Task
from actors.scm.writing import Part, RecordRefused, Writer
from supervisor import Cancel, Claim, Done, Outcome, Retry, Tools
from supervisor.artifacts import ArtifactError
from supervisor.asking import ask
from supervisor.errors import BadSettings
from supervisor.store import Record

PAUSE_SECONDS: Final = 0.1


async def handle(claim: Claim, tools: Tools) -> Outcome:
    base = sync_config()
    (row,) = await ask(tools.place.store, "begin_sync", claim.key, claim.claim_id, base.retry_count)
    try:
        config, overlap = for_task(base, row["source_type"], json.loads(row["config"] or "{}"))
    except BadSettings as error:
        return Cancel(str(error), Trouble.BAD_CONFIG.value)
    task = task_of(row, config, overlap)
    if task.config.diff_fetch_enabled and SOURCES[task.source_type].key and tools.place.artifacts is None:
        return Cancel("no place for diffs: set TENURE_ARTIFACTS_DIR or [artifacts]", "no_artifacts")
    try:
        async with scratch_under(tools.place.settings.state_dir / "scm") as scratch:
            await Sync(claim, tools, task, row["batches"]).run(scratch)
    except (SourceFailed, BadAnswer) as failure:
        return failed(failure, task, claim.attempt)
    except RecordRefused as failure:
        return Cancel(str(failure), "record_refused")
    except ArtifactError as failure:
        return Retry(
            "artifact_error", str(failure), delay_seconds(task.config.retry_rules, claim.attempt, _roll())
        )
    return Done()


def failed(failure: SourceFailed | BadAnswer, task: Task, attempt: int) -> Outcome:
    trouble = failure.trouble
    if trouble.permanent:
        return Cancel(str(failure), trouble.value)
    after = delay_seconds(task.config.retry_rules, attempt, _roll(), retry_after=failure.retry_after)
    return Retry(trouble.value, str(failure), after)


def task_of(row: Record, config: Any, overlap: int) -> Task:
    own = json.loads(row["repo_config"] or "{}")
    return Task(
        repo_id=row["repo_id"],
        repo=row["repo"],
        url=own.get("gitlab_url") or row["url"],
        ref=row["default_branch"],
        source_type=row["source_type"],
        project_id=own.get("project_id"),
        token_env=own.get("token_env"),
        user=own.get("user", ""),
        config=config,
        overlap=overlap,
        watermark=None if row["watermark"] is None else json.loads(row["watermark"]),
        state=None if row["state"] is None else json.loads(row["state"]),
        backfill=row["mode"] == "backfill",
        range=json.loads(row["range"] or "{}") or {},
    )


class Sync:
    def __init__(self, claim: Claim, tools: Tools, task: Task, batches: int) -> None:
        self._token = (claim.key, claim.claim_id)
        self._tools = tools
        self._store = tools.place.store
        self._task = task
        self._source: Source = SOURCES[task.source_type]
        self._writer = Writer(self._store, self._token, self._source.query, batches, tolerant=task.tolerant)

    async def run(self, scratch: Path) -> None:
        tools = self._tools
        programs = Programs(scratch, deadline=tools.stop_deadline(), kill_seconds=tools.kill_seconds)
        tools.on_stop_deadline(programs.rearm)
        mirrors = tools.place.settings.state_dir / "scm" / "mirrors"
        async with self._source.open(self._task, programs, mirrors) as batches:
            async for batch in batches:
                try:
                    await self._take(batch)
                finally:
                    batch.close()
                if batch.has_more:
                    await anyio.sleep(PAUSE_SECONDS)

    async def _take(self, batch: Batch[Any]) -> None:
        patches = await self._store_diffs(batch)
        parts = await to_thread.run_sync(self._facts, batch, patches)
        for failure in batch.unreadable:
            await self._writer.note(failure)
        reached = batch.watermark
        mark = (
            None
            if reached is None
            else json.dumps(reached if isinstance(reached, int) else facts.iso(reached))
        )
        state = None if self._task.backfill or not batch.position else json.dumps(facts.clean(batch.position))
        await self._writer.write(parts, mark, state)
        if not batch.has_more and mark is not None:
            when = max((record.ts for record in batch.records if getattr(record, "ts", None)), default=None)
            await ask(self._store, "note_sync_head", *self._token, mark, when)

    def _facts(self, batch: Batch[Any], patches: dict[str, Fact]) -> list[Part]:
        """What each call takes, in their order; in a thread, because it may be megabytes."""
        if self._task.source_type == "gitlab_review":
            mrs = facts.lists([one.mr.fact() for one in batch.records])
            events = facts.lists([event.fact() for one in batch.records for event in one.events])
            calls = [(part, "[]") for part in mrs[:-1]]
            with_events = mrs[-1:] + ["[]"] * (len(events) - 1)
            return [*calls, *zip(with_events, events, strict=True)]
        source, diffs = self._source, {diff.of: diff for diff in batch.diffs}
        names = [source.name(record) if source.key else "" for record in batch.records]
        found = zip(names, batch.records, strict=True)
        large = self._task.config.bulk.diff_size_threshold
        all_ = [source.fact(record, patches.get(name), diffs.get(name), large) for name, record in found]
        return [(part,) for part in facts.lists(all_)]

    async def _store_diffs(self, batch: Batch[Any]) -> dict[str, Fact]:
        """By what the diff is of. Those that could not be stored are told of where the mode allows it."""
        source, artifacts = self._source, self._tools.place.artifacts
        if not batch.diffs or source.key is None or artifacts is None:
            return {}
        keys = {source.name(record): source.key(self._task.repo_id, record) for record in batch.records}
        diffs = [(keys[diff.of], diff) for diff in batch.diffs if not diff.degraded]
        patches: dict[str, Fact] = {}
        async with aclosing(keep(artifacts, diffs, self._task.config.diff_limit_bytes)) as kept:
            async for diff, answer in kept:
                if isinstance(answer, ArtifactError):
                    await self._tolerate(diff, answer)
                else:
                    patches[diff.of] = facts.patch_of(answer, diff)
        return patches

    async def _tolerate(self, diff: Diff, error: ArtifactError) -> None:
        if not self._task.tolerant:
            raise error
        await self._writer.note(Unreadable(f"diff of {diff.of}", "artifact_error", str(error)))


def _roll() -> float:
    return random.uniform(-1.0, 1.0)  # noqa: S311  spreads retries, keeps no secret
