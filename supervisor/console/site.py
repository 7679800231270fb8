"""All pages as one router: the console's own, those of the domains, and one that there is no such page."""

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from supervisor.api.view import ReplicaView
from supervisor.console import (
    audit,
    domains_page,
    events,
    jobs,
    late,
    leadership,
    nowhere,
    overview,
    run,
    runs,
    settings,
    theme,
    workers,
)
from supervisor.console.assets import Assets
from supervisor.console.page import Console, PageRouter
from supervisor.domain import Domain
from supervisor.errors import TenureError

OWN = (overview, runs, run, jobs, workers, leadership, late, domains_page, events, audit, settings, theme)


def make_site(replica: ReplicaView, domains: Sequence[Domain]) -> APIRouter:
    assets = Assets.read()
    mounted = {domain.name: _pages_of(domain, replica) for domain in domains if domain.pages is not None}
    console = Console.make(assets, mounted)

    async def prepare(request: Request) -> None:
        request.state.console = console
        request.state.replica_id = replica.worker_id
        request.state.summary = await _summary(replica)

    site = APIRouter(include_in_schema=False)
    for module in OWN:
        site.include_router(module.routes(replica), dependencies=[Depends(prepare)])
    for name, router in mounted.items():
        site.include_router(router, prefix=f"/{name}", dependencies=[Depends(prepare)])

    @site.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        return assets.answer(digest, name)

    site.include_router(nowhere.routes(replica), dependencies=[Depends(prepare)])
    return site


def _pages_of(domain: Domain, replica: ReplicaView) -> PageRouter:
    assert domain.pages is not None  # noqa: S101  asked for those that have some
    router = domain.pages(replica)
    assert isinstance(router, PageRouter), f"the pages of {domain.name} are made with page.PageRouter"  # noqa: S101
    return router


async def _summary(replica: ReplicaView) -> dict[str, Any] | None:
    """Who leads, on every page; a page that needs the database says itself when it is not there."""
    try:
        return await replica.status()
    except TenureError:
        return None
