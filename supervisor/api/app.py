"""The routes of a replica."""

from collections.abc import Sequence
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from supervisor.api import login, v1
from supervisor.api.access import Access
from supervisor.api.gate import Gate
from supervisor.api.probes import Probes
from supervisor.api.problem import problem, problem_of
from supervisor.api.view import ReplicaView
from supervisor.clock import Clock
from supervisor.console import pages
from supervisor.domain import Domain
from supervisor.errors import OutcomeUnknown, TenureError


def create_app(
    replica: ReplicaView, domains: Sequence[Domain] = (), *, clock: Clock | None = None
) -> FastAPI:
    app = FastAPI(title="Tenure", docs_url=None, redoc_url=None, openapi_url=None)
    body_bytes = {path: most for domain in domains for path, most in domain.body_bytes.items()}
    access = Access(replica.settings, replica.store, clock)
    proxies = replica.settings.proxies
    app.add_middleware(Gate, access=access, body_bytes=body_bytes, proxies=proxies)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_input)
    app.add_exception_handler(TenureError, _explain)
    _add_routes(app, replica, Probes(replica))
    app.include_router(v1.routes(replica), prefix="/api/v1")
    app.include_router(login.routes(access))
    app.include_router(pages(replica, domains))
    for domain in domains:
        if domain.routes is not None:
            app.include_router(domain.routes(replica), prefix="/api/v1")
    return app


def _add_routes(app: FastAPI, replica: ReplicaView, probes: Probes) -> None:
    for path, probe in (
        ("/healthz", probes.healthz),
        ("/readyz", probes.readyz),
        ("/metrics", probes.metrics),
    ):
        app.add_api_route(path, probe, include_in_schema=False)

    @app.get("/api/v1/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        # made once, in a thread: it takes a while, and a replica has leases to keep
        return JSONResponse(await run_sync(app.openapi))

    @app.get("/status")
    async def status() -> dict[str, Any]:
        """The leader, the replicas, the runs by state, and what waits."""
        return await replica.status()


async def _refuse(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  registered for it
    return problem(error.status_code, str(error.detail), headers=error.headers)


async def _refuse_input(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101  registered for it
    faults = [{"where": ".".join(map(str, fault["loc"])), "what": fault["msg"]} for fault in error.errors()]
    return problem(422, "the request does not fit", faults=faults)


async def _explain(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TenureError)  # noqa: S101  registered for it
    return problem_of(error, 503 if isinstance(error, OutcomeUnknown) else None)
