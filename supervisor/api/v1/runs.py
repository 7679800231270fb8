"""Runs: what ran, what runs, why something does not; and what an operator does about it."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from supervisor import operations
from supervisor.api.principal import Actor, Role
from supervisor.api.v1.paging import BIGINT, Cursor, Limit, Page, decode
from supervisor.api.v1.route import Filter, Hanger, Moment, RunId, answer
from supervisor.api.v1.run_models import (
    CancelAnswer,
    OutcomesAnswer,
    RetryAnswer,
    RunListed,
    RunsAsked,
    RunShown,
    WhyShown,
)
from supervisor.api.v1.run_search import Wanted, find_runs
from supervisor.api.view import ReplicaView
from supervisor.jobrun import State
from supervisor.sight import joined, read_run
from supervisor.why import explain


class Runs:
    def __init__(self, replica: ReplicaView) -> None:
        self._store = replica.store
        self._timings = replica.settings.timings

    async def list_runs(
        self,
        *,
        limit: Limit = 50,
        cursor: Cursor = None,
        state: Annotated[list[State] | None, Query(max_length=8, description="one of these")] = None,
        domain: Filter = None,
        job: Filter = None,
        worker: Filter = None,
        root: Annotated[int | None, Query(ge=1, le=BIGINT, description="all attempts at one thing")] = None,
        since: Annotated[Moment | None, Query(description="created then or later")] = None,
        until: Annotated[Moment | None, Query(description="created before")] = None,
    ) -> Response:
        """Newest first. Filters that few runs match look through a long history page by page: such a page can
        be short, or empty, and has a `next` all the same."""
        before = decode(cursor, int)[0] if cursor is not None else None
        states: Any = list(state) if state else None
        wanted = Wanted(states, domain, job, worker, root, since, until)
        ids, following = await find_runs(self._store, wanted, before, limit)
        rows = await self._store.rows("read_runs_listed", ids) if ids else []
        return answer({"items": list(rows), "next": following})

    async def show_run(self, run_id: RunId) -> Response:
        """Every column, what it went through, late completions, and the attempts of its root."""
        run = await read_run(self._store, run_id)
        return answer(joined(run, attempts=list(await self._store.rows("list_attempts", run_id))))

    async def explain_run(self, run_id: RunId) -> Response:
        """The one reason why it is not running, until when, and on what evidence."""
        found = await explain(self._store, run_id, self._timings)
        return answer(found.answer())

    async def cancel_run(self, run_id: RunId, who: Actor) -> Response:
        """Its worker stops it, or the leader ends it before it starts. Refused when it has ended."""
        return answer(await operations.cancel(self._store, who, run_id))

    async def retry_run(self, run_id: RunId, who: Actor) -> Response:
        """Another attempt at what ended without success, also when its attempts are used up. Refused when it
        has not ended, has succeeded, or has a newer attempt."""
        return answer(await operations.retry(self._store, who, run_id))

    async def cancel_runs(self, asked: RunsAsked, who: Actor) -> Response:
        """Each for itself: one that is refused leaves the others as they are."""
        return answer({"items": await operations.cancel_many(self._store, who, asked.ids)})

    async def retry_runs(self, asked: RunsAsked, who: Actor) -> Response:
        """Each for itself: one that is refused leaves the others as they are."""
        return answer({"items": await operations.retry_many(self._store, who, asked.ids)})


def routes(replica: ReplicaView) -> APIRouter:
    runs, hanger = Runs(replica), Hanger("runs")
    operate = Role.OPERATE
    hanger.add("GET", "/runs", runs.list_runs, Page[RunListed], "List runs", 400, 404)
    hanger.add(
        "POST", "/runs/cancel", runs.cancel_runs, OutcomesAnswer, "Cancel many runs", 400, role=operate
    )
    hanger.add("POST", "/runs/retry", runs.retry_runs, OutcomesAnswer, "Retry many runs", 400, role=operate)
    hanger.add("GET", "/runs/{run_id}", runs.show_run, RunShown, "Show a run", 404)
    hanger.add("GET", "/runs/{run_id}/why", runs.explain_run, WhyShown, "Say why a run is not running", 404)
    hanger.add(
        "POST", "/runs/{run_id}/cancel", runs.cancel_run, CancelAnswer, "Cancel a run", 404, 409, role=operate
    )
    hanger.add(
        "POST", "/runs/{run_id}/retry", runs.retry_run, RetryAnswer, "Retry a run", 404, 409, role=operate
    )
    return hanger.router
