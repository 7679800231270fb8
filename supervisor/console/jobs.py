"""`/jobs`: what is to run and when, how it went lately, and the switches."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response
from starlette.datastructures import FormData

from supervisor import operations
from supervisor.api.view import ReplicaView
from supervisor.cli.inputs import parse_payload
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.console.kept import Kept
from supervisor.console.runs import Filter, find
from supervisor.console.waiting import reasons
from supervisor.errors import BadInput, NotFound
from supervisor.jobspec import PAYLOAD_BYTES
from supervisor.store import Record
from supervisor.stored_json import readable

MARKS: Final = 16
LOOK: Final = 20_000
MARK_SECONDS: Final = 2.0
SKIPS: Final = 20
RUNS: Final = 20


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()
    store = replica.store

    async def read_marks() -> Mapping[int, Sequence[Record]]:
        marks: dict[int, list[Record]] = defaultdict(list)
        for row in await store.rows("see_last_runs", LOOK, MARKS):
            marks[row["job_definition_id"]].append(row)
        return marks

    marks = Kept(read_marks, MARK_SECONDS)

    @router.get("/jobs")
    async def list_jobs(request: Request) -> Response:
        jobs = await store.rows("list_jobs")
        now = await store.value("see_clock")
        return page.render(request, "jobs.html", now=now, jobs=jobs, marks=await marks.get())

    @router.get("/jobs/{name:path}")
    async def show(request: Request, name: str) -> Response:
        row = await store.row("show_job", name)
        if row is None:
            raise NotFound(kind="job", name=name)
        job: dict[str, Any] = readable(row["job"])
        found = await find(store, Filter(job=name), None, RUNS)
        return page.render(
            request,
            "job.html",
            now=row["now"],
            job=job,
            at_a_time=at_a_time(job["concurrency"], job["concurrency_policy"]),
            marks=(await marks.get()).get(job["id"], ()),
            skips=await store.rows("see_skipped_fires", job["id"], SKIPS),
            found=found,
            reasons=await reasons(store, found.rows, replica.settings.timings),
        )

    @router.post("/jobs/{name:path}")
    async def act(request: Request, name: str, form: Form, operator: Operator) -> Response:
        what = text_of(form, "do")
        back = text_of(form, "next") or page.path_of("jobs", name)
        if what == "trigger":
            made = await operations.trigger(store, operator.name, name, _arguments(form))
            return page.done(request, page.path_of("runs", made.id), f"Run {made.id} of {name} was made.")
        if what not in ("enable", "disable"):
            raise BadInput(what="a job can be triggered, enabled or disabled")
        await operations.enable_job(store, operator.name, name, enabled=what == "enable")
        return page.done(request, back, f"The job {name} is {what}d.")

    return router


def _arguments(form: FormData) -> Mapping[str, Any]:
    text = text_of(form, "arguments", most=PAYLOAD_BYTES)
    return parse_payload(text, "the arguments") if text else {}


def at_a_time(most: int | None, policy: str) -> str | None:
    """How many of its runs there may be, and what becomes of one more; None = as many as there are slots."""
    if most is None:
        return None
    one = most == 1
    if policy == "forbid":
        return f"at most {most}; while {'it has' if one else f'{most} have'} not ended, no other is made"
    if policy == "replace":
        which = "one before" if one else "oldest"
        return f"at most {most}; a new one takes the place of the {which}, which is cancelled"
    return f"at most {most}; the others wait"
