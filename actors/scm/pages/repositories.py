"""`/scm/repositories`: every source with its lag and its cursor; one of them; and asking for a sync."""

from collections.abc import Sequence
from typing import Annotated, Final

from fastapi import Path, Query, Request, Response

from actors.scm.pages import facts
from actors.scm.pages.standing import KINDS, Repository, object_of, repositories, span
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.forms import Form, Operator, text_of
from supervisor.console.kept import Kept
from supervisor.errors import BadInput, NotFound
from supervisor.store import Record, Store

PAGE: Final = 50
LATELY: Final = 10
METRICS_SECONDS: Final = 5.0
READ_SECONDS: Final = 10.0
NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
SOURCES: Final = ("svn", "git", "gitlab_mr", "gitlab_review")

RepoName = Annotated[str, Path(pattern=NAME)]


def add_to(router: page.PageRouter, replica: ReplicaView) -> None:
    store = replica.store

    async def read_metrics() -> Sequence[Record]:
        return await store.rows("read_scm_metrics", timeout=READ_SECONDS)

    metrics = Kept(read_metrics, METRICS_SECONDS)

    @router.get("/repositories")
    async def list_repositories(
        request: Request, after: Annotated[str, Query(pattern=rf"^$|{NAME}")] = ""
    ) -> Response:
        rows = await store.rows("see_repositories", after, PAGE + 1, None)
        found = repositories(rows, await metrics.get())
        return page.render(
            request,
            "scm/repositories.html",
            now=await store.value("see_clock"),
            repositories=found[:PAGE],
            next_after=found[PAGE - 1].row["name"] if len(found) > PAGE else None,
            is_first=not after,
            kinds=KINDS,
        )

    @router.get("/repositories/{name}")
    async def show(request: Request, name: RepoName) -> Response:
        repository = await _found(store, name, await metrics.get())
        repo_id = repository.row["repo_id"]
        runs = await store.rows("see_sync_runs", repo_id, None, None, LATELY)
        lately = {
            kind: await facts.read(store, kind, repo_id, None, LATELY)
            for kind in facts.kinds_of(repository.kind)
        }
        return page.render(
            request,
            "scm/repository.html",
            now=await store.value("see_clock"),
            repository=repository,
            runs=runs,
            spans={run["run_id"]: span(run) for run in runs},
            lately=lately,
            object_of=object_of,
            titles=facts.TITLES,
            verdicts={},
            kinds=KINDS,
        )

    @router.post("/repositories/{name}")
    async def act(request: Request, name: RepoName, form: Form, operator: Operator) -> Response:
        if text_of(form, "do") != "sync":
            raise BadInput(what="a repository can be synced")
        wanted = text_of(form, "source")
        repository = await _found(store, name, ())
        there = [
            source.row["source_type"] for source in repository.sources if source.row["status"] != "disabled"
        ]
        sources = [wanted] if wanted else there
        if not sources or any(source not in SOURCES for source in sources):
            raise BadInput(what=f"{name} has no source that could be synced")
        made = [await _request(store, operator.name, name, source) for source in sources]
        text = "; ".join(
            f"{run['run_id']} {'is asked for' if run['created'] else 'was open already'}" for run in made
        )
        return page.done(request, page.path_of("scm/repositories", name), f"Sync of {name}: {text}.")


async def _found(store: Store, name: str, metrics: Sequence[Record]) -> Repository:
    found = repositories(await store.rows("see_repositories", "", 1, name), metrics)
    if not found:
        raise NotFound(kind="repo", name=name)
    return found[0]


async def _request(store: Store, actor: str, name: str, source: str) -> Record:
    row = await store.row("request_sync", actor, name, source, None, None)
    assert row is not None  # noqa: S101  it raises where there is none
    return row
