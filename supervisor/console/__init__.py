"""The console: pages for people, drawn by the server. Thin, and no SQL.

Reading and acting work without JavaScript; one small module makes the pages live. A domain draws pages of its
own with `supervisor.console.page`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastapi import APIRouter

    from supervisor.api.view import ReplicaView
    from supervisor.domain import Domain


def pages(replica: "ReplicaView", domains: "Sequence[Domain]") -> "APIRouter":
    # the routes of the API include these pages, and these pages use parts of the API
    from supervisor.console.site import make_site  # noqa: PLC0415

    return make_site(replica, domains)
