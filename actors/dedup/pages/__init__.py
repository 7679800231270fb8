"""The console's pages of the domain: libraries and what they hold, and the groups of equal files.

They read what pages.sql names and ask for work through the functions that the command line uses. A library's
files are counted now and then (counts.py). A page of groups reads the whole index: it is not refreshed.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from actors.dedup.pages import duplicates, libraries, library
from actors.dedup.pages.counts import Counts
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.assets import Assets

__all__ = ["pages"]

HERE: Final = Path(__file__).parent


def pages(replica: ReplicaView) -> APIRouter:
    router = page.PageRouter(
        templates=HERE.parent / "templates",
        navigation=(page.Link("Libraries", "/libraries"), page.Link("Duplicates", "/duplicates")),
    )
    counts, looks = Counts(replica.store), Assets.read(HERE)
    libraries.add_to(router, replica, counts)
    library.add_to(router, replica, counts)
    duplicates.add_to(router, replica, f"/dedup/static/{looks.digest}/pictures.css")

    @router.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        return looks.answer(digest, name)

    return router
