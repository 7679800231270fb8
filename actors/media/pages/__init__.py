"""The console's pages of the domain: the newest media, what an entity has, a content, the story of a write.

A picture is shown by its rendition where there is one. Contents come from the API's route, which never lets a
browser run any of them.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from actors.media.pages import gallery, story
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.assets import Assets

__all__ = ["pages"]

HERE: Final = Path(__file__).parent


def pages(replica: ReplicaView) -> APIRouter:
    router = page.PageRouter(templates=HERE.parent / "templates", navigation=(page.Link("Media", ""),))
    looks = Assets.read(HERE)
    path = f"/media/static/{looks.digest}/pictures.css"
    gallery.add_to(router, replica, path)
    story.add_to(router, replica, path)

    @router.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        return looks.answer(digest, name)

    return router
