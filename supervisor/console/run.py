"""`/runs/{id}`: what happened to a run, why it is where it is, and what can be done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Final

from fastapi import Path, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import actions, page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.console.inert import RUN, process, short_worker
from supervisor.console.next_step import next_step
from supervisor.console.runs import BIGINT
from supervisor.console.timeline import timeline
from supervisor.errors import NotFound
from supervisor.jobrun import TERMINAL
from supervisor.stored_json import readable
from supervisor.why import DUE, Why, explain

LOG_LINES: Final = 400
LOG_LENGTH: Final = 20_000
LOG_BYTES: Final = 96 * 1024
ATTEMPTS: Final = 60
STEPS: Final = 600
RunId = Annotated[int, Path(ge=1, le=BIGINT)]

WORDS: Final[Mapping[str, str]] = {
    "runs": "taken by",
    "run_id": "attempt before",
    "retry_of_id": "attempt before",
    "next_attempt_id": "next attempt",
    "worker_id": "replica",
    "ahead": "before it",
}


@dataclass(frozen=True, slots=True)
class Fact:
    """A piece of evidence: a time, runs to look at, or words."""

    name: str
    text: str = ""
    at: datetime | None = None
    runs: Sequence[int] = ()
    worker: str | None = None


def routes(replica: ReplicaView) -> page.PageRouter:
    router = page.PageRouter()

    @router.get("/runs/{run_id}")
    async def show(request: Request, run_id: RunId) -> Response:
        store = replica.store
        row = await store.row("show_run", run_id)
        if row is None:
            raise NotFound(kind="run", name=run_id)
        run: dict[str, Any] = readable(row["run"])
        why = await explain(store, run_id, replica.settings.timings)
        attempts = await store.rows("see_attempts", run["root_id"], ATTEMPTS)
        steps = await store.rows("see_steps", [one["id"] for one in attempts], STEPS)
        log = (await store.rows("see_log_tail", run_id, LOG_LINES, LOG_LENGTH, LOG_BYTES))[::-1]
        return page.render(
            request,
            "run.html",
            now=row["now"],
            run=run,
            job=row["job"],
            why=why,
            facts=facts_of(why),
            sentence=sentence_of(why),
            due=why.reason.until if why.reason.code in DUE else None,
            following=next((one for one in attempts if one["id"] == run["next_attempt_id"]), None),
            step=next_step(why, row["job"], run["domain"]),
            attempts=attempts,
            steps=steps,
            timeline=timeline([dict(step) for step in steps], row["now"]),
            late=readable(row["late_finishes"]),
            log=log,
            ended=run["state"] in TERMINAL,
            may_retry=run["state"] in TERMINAL - {"SUCCEEDED"} and run["next_attempt_id"] is None,
        )

    @router.post("/runs/{run_id}")
    async def act(request: Request, run_id: RunId, form: Form, operator: Operator) -> Response:
        text, failed = await actions.on_runs(replica.store, operator.name, text_of(form, "do"), [run_id])
        return page.done(request, f"/runs/{run_id}", text, failed=failed)

    return router


def facts_of(why: Why) -> list[Fact]:
    """The evidence, each piece as what it is; when the next attempt is due stands in the headline."""
    timed = why.reason.until is not None and why.reason.code not in DUE
    found = [Fact(why.reason.until_when, at=why.reason.until)] if timed else []
    for name, value in why.reason.evidence.items():
        words = WORDS.get(name, name.replace("_", " "))
        if isinstance(value, datetime):
            found.append(Fact(words, at=value))
        elif name in ("runs", "run_id", "next_attempt_id", "retry_of_id") and not isinstance(value, Mapping):
            found.append(Fact(words, runs=value if isinstance(value, list) else [value]))
        elif name in ("worker_id", "waits_for", "leader", "last_leader"):
            found.append(Fact(words, worker=str(value)))
        elif isinstance(value, Mapping):
            found.append(
                Fact(words, ", ".join(f"{key}: {_words(one)}" for key, one in value.items()) or "none")
            )
        else:
            found.append(Fact(words, process(value) if name == "finished_by" else _words(value)))
    return found


def sentence_of(why: Why) -> str:
    """With replicas by their short names: the evidence has the whole ones."""
    sentence = why.reason.sentence
    for fact in facts_of(why):
        if fact.worker:
            sentence = sentence.replace(fact.worker, short_worker(fact.worker))
    return sentence


def unnamed_runs(why: Why) -> list[Fact]:
    """What the evidence names and the sentence does not."""
    named = set(RUN.findall(why.reason.sentence))
    return [
        fact for fact in facts_of(why) if fact.runs and not named.issuperset(map("run {}".format, fact.runs))
    ]


def _words(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
