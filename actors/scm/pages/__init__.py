"""The console's pages of the domain: repositories, how far their sources are read, and what was read.

Evidence is verified when somebody asks for it, never believed: a page shows a diff only after its
SHA-256 has been compared.
"""

from pathlib import Path
from typing import Final

from fastapi import APIRouter

from actors.scm.pages import evidence, facts, repositories
from actors.scm.pages.checking import Shelf
from supervisor.api.view import ReplicaView
from supervisor.console import page

__all__ = ["pages"]

TEMPLATES: Final = Path(__file__).parent.parent / "templates"


def pages(replica: ReplicaView) -> APIRouter:
    router = page.PageRouter(templates=TEMPLATES, navigation=(page.Link("Repositories", "/repositories"),))
    shelf = Shelf(replica.settings)
    repositories.add_to(router, replica)
    facts.add_to(router, replica, shelf)
    evidence.add_to(router, replica, shelf)
    return router
