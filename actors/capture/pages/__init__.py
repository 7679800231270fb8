"""The console's pages of the domain: sessions, and one with its pictures beside what was read from them."""

from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response

from actors.capture.pages import session, sessions
from supervisor.api.view import ReplicaView
from supervisor.console import page
from supervisor.console.assets import Assets

__all__ = ["pages"]

HERE: Final = Path(__file__).parent


def pages(replica: ReplicaView) -> APIRouter:
    router = page.PageRouter(
        templates=HERE.parent / "templates", navigation=(page.Link("Schedules", "/sessions"),)
    )
    looks = Assets.read(HERE)
    path = f"/capture/static/{looks.digest}/pictures.css"
    sessions.add_to(router, replica, path)
    session.add_to(router, replica, path)

    @router.get("/static/{digest}/{name}")
    async def static(digest: str, name: str) -> Response:
        return looks.answer(digest, name)

    return router
