"""`/runs`: find runs, and cancel or retry several at once.

A state that is live is read exactly, over its index. Anything else is looked for among the newest runs, LOOK
at a time: a filter that fits nothing costs one look, and the page offers the next.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlencode

from fastapi import Query, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import actions, page
from supervisor.console.forms import Form, Operator, run_ids_of, text_of
from supervisor.console.waiting import reasons
from supervisor.errors import BadInput
from supervisor.jobrun import LIVE, STATES
from supervisor.store import Record, Store

PAGE: Final = 50
LOOK: Final = 20_000
WORKERS: Final = 50
BIGINT: Final = 2**63 - 1
CHOICES: Final = (*STATES, "FAILED_OR_TIMED_OUT", "CONFIRMING", "LATE", "LIVE")
"""Besides the states: both ways not to succeed, confirming ones, those that are due and not started, and all
that have not ended."""

SPECIAL: Final[Mapping[str, frozenset[str]]] = {
    "FAILED_OR_TIMED_OUT": frozenset({"FAILED", "TIMED_OUT"}),
    "CONFIRMING": frozenset({"RUNNING"}),
    "LATE": LIVE - {"RUNNING"},
    "LIVE": LIVE,
}

Text = Annotated[str, Query(max_length=300)]


@dataclass(frozen=True, slots=True)
class Filter:
    state: str = ""
    domain: str = ""
    job: str = ""
    worker: str = ""
    q: str = ""

    @property
    def fields(self) -> dict[str, str]:
        every = {
            "state": self.state,
            "domain": self.domain,
            "job": self.job,
            "worker": self.worker,
            "q": self.q,
        }
        return {name: value for name, value in every.items() if value}

    def path(self, before: int | None = None) -> str:
        query = urlencode(self.fields | ({"before": str(before)} if before is not None else {}))
        return f"/runs?{query}" if query else "/runs"


@dataclass(frozen=True, slots=True)
class Found:
    """`next_before` begins the next page; `reached` is how far was looked when the page is not full."""

    rows: Sequence[Record]
    next_before: int | None = None
    reached: int | None = None


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    @router.get("/runs")
    async def list_runs(
        request: Request,
        state: Text = "",
        domain: Text = "",
        job: Text = "",
        worker: Text = "",
        q: Text = "",
        before: Annotated[int | None, Query(ge=1, le=BIGINT)] = None,
    ) -> Response:
        chosen = Filter(state.upper(), domain.strip(), job.strip(), worker.strip(), q.strip())
        if chosen.state and chosen.state not in CHOICES:
            raise BadInput(what=f"{state} is no state; choose one of {', '.join(CHOICES)}")
        found = await find(replica.store, chosen, before)
        domains = await replica.store.rows("list_domains")
        workers = await replica.store.rows("see_worker_ids", "", "", WORKERS)
        return page.render(
            request,
            "runs.html",
            now=await replica.store.value("see_clock"),
            chosen=chosen,
            found=found,
            reasons=await reasons(replica.store, found.rows, replica.settings.timings),
            before=before,
            choices=CHOICES,
            domains=[row["domain"] for row in domains],
            workers=[row["worker_id"] for row in workers],
        )

    @router.post("/runs")
    async def act(request: Request, form: Form, operator: Operator) -> Response:
        run_ids = run_ids_of(form)
        text, failed = await actions.on_runs(replica.store, operator.name, text_of(form, "do"), run_ids)
        return page.done(request, text_of(form, "next"), text, failed=failed)

    return router


async def find(store: Store, chosen: Filter, before: int | None, limit: int = PAGE) -> Found:
    if chosen.q:
        return await _search(store, chosen, before, limit)
    jobs = await _jobs_named(store, chosen.job) if chosen.job else None
    return await _filtered(store, chosen, jobs, before, limit)


async def _search(store: Store, chosen: Filter, before: int | None, limit: int) -> Found:
    """A number is a run or a piece of work; a text is an idempotency key, or part of a job's name."""
    text = chosen.q.removeprefix("#")
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
    if named := await store.rows("see_named_runs", number, chosen.q, limit):
        return Found(named)
    jobs = [row["id"] for row in await store.rows("see_job_ids", chosen.q)]
    return await _filtered(store, chosen, jobs, before, limit) if jobs else Found([])


async def _jobs_named(store: Store, name: str) -> list[int]:
    return [row["id"] for row in await store.rows("see_jobs_named", name)]


async def _workers_named(store: Store, text: str) -> list[str]:
    """By the whole id, its short name, or a part of it; one that is not known any more by the whole id."""
    host, _, boot = text.rpartition("·")
    found = [row["worker_id"] for row in await store.rows("see_worker_ids", host, boot, WORKERS)]
    return [text] if text in found or not found else found


async def _filtered(
    store: Store, chosen: Filter, jobs: list[int] | None, before: int | None, limit: int
) -> Found:
    state, domain = chosen.state, chosen.domain or None
    workers = await _workers_named(store, chosen.worker) if chosen.worker else None
    states = sorted(SPECIAL.get(state, {state})) if state else None
    if states is not None and LIVE.issuperset(states):
        rows = await store.rows(
            "see_live_runs",
            states,
            domain,
            jobs,
            workers,
            before,
            limit,
            state == "CONFIRMING",
            state == "LATE",
        )
        return Found(rows, rows[-1]["id"] if len(rows) == limit else None)
    look = LOOK if state or domain or workers or jobs is not None else limit
    rows = await store.rows("see_newest_runs", states, domain, jobs, workers, before, limit, look)
    if len(rows) == limit:
        return Found(rows, rows[-1]["id"])
    reached = await store.value("see_reach", before, look)
    return Found(rows, reached, reached)
