"""Replicas' HTTP edges over one database, beyond loopback, with a clock that the test moves."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import asyncpg
import httpx
from fastapi import Depends, FastAPI, Request
from starlette.datastructures import FormData
from starlette.responses import HTMLResponse

from supervisor.api import create_app
from supervisor.api.csrf import checked_form, csrf_of
from supervisor.api.principal import Needs, Principal, Role, principal_of
from supervisor.api.tokens import new_secret, shown
from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support.fake_clock import FakeClock
from tests.support.fake_replica import FakeReplica
from tests.support.sessions import borrow, give_back

HOST = "replica.example:8080"
SHARED_TOKEN = "the token of the environment"
CHANGING = ("POST", "PUT", "PATCH", "DELETE")


def replica_app(replica: FakeReplica, clock: FakeClock) -> FastAPI:
    """The real app, with a page to read and things to change."""
    app = create_app(replica, clock=clock)

    async def name(request: Request) -> str:
        return principal_of(request).name

    async def administer(asking: Annotated[Principal, Depends(Needs(Role.ADMIN))]) -> str:
        return asking.name

    async def page(request: Request) -> HTMLResponse:
        return HTMLResponse(csrf_of(request))

    async def send(form: Annotated[FormData, Depends(checked_form)]) -> list[str]:
        return [str(value) for key, value in form.multi_items() if key != "csrf"]

    app.add_api_route("/t/name", name, methods=["GET", *CHANGING])
    app.add_api_route("/t/admin", administer, methods=["GET"])
    app.add_api_route("/t/page", page, methods=["GET"])
    app.add_api_route("/t/form", send, methods=["POST"])
    return app


@dataclass
class Scene:
    app: FastAPI
    clock: FakeClock
    store: Store
    admin: asyncpg.Connection

    def client(self, address: str = "192.0.2.1", app: FastAPI | None = None) -> httpx.AsyncClient:
        transport = httpx.ASGITransport(app or self.app, client=(address, 50000))
        return httpx.AsyncClient(transport=transport, base_url=f"http://{HOST}")

    def another(self, **settings: Any) -> FastAPI:
        """A second replica on the same database."""
        return replica_app(FakeReplica(self.store, Settings(http_host="0.0.0.0", **settings)), self.clock)

    async def token(self, name: str, role: str, seconds: float | None = None) -> str:
        secret, encoded = new_secret()
        row = await self.store.row("create_token", "cli:test", name, role, encoded, seconds)
        assert row is not None
        return shown(row["id"], secret)

    async def revoke(self, name: str) -> None:
        await self.store.row("revoke_token", "cli:test", name)

    async def log_in(self, http: httpx.AsyncClient, token: str) -> str:
        """The form's token of the new session; its cookie is the client's."""
        answer = await http.post("/login", data={"token": token, "next": "/t/page"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/t/page"), answer.text
        return (await http.get("/t/page")).text

    async def sessions(self) -> int:
        count = await self.admin.fetchval("SELECT count(*) FROM supervisor.console_session")
        assert isinstance(count, int)
        return count


@asynccontextmanager
async def scene_of(urls: Urls, **settings: Any) -> AsyncIterator[Scene]:
    store, clock = Store(urls.control, name="test", size=4), FakeClock()
    admin = await borrow(urls.admin)
    try:
        replica = FakeReplica(store, Settings(**{"http_host": "0.0.0.0", **settings}))
        yield Scene(replica_app(replica, clock), clock, store, admin)
    finally:
        await give_back(admin)
        await store.close()


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def raw(headers: Mapping[str, str]) -> dict[bytes, bytes]:
    """Characters up to 255 as the bytes they stand for."""
    return {name.encode(): value.encode("latin-1") for name, value in headers.items()}
