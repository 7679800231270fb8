"""The routes of a replica."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from supervisor.api.gate import Gate
from supervisor.api.problem import problem, problem_of
from supervisor.api.readiness import Readiness
from supervisor.api.view import ReplicaView
from supervisor.errors import OutcomeUnknown, TenureError

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def create_app(replica: ReplicaView) -> FastAPI:
    app = FastAPI(title="Tenure", docs_url=None, redoc_url=None, openapi_url="/api/v1/openapi.json")
    app.add_middleware(Gate, token=replica.settings.api_token)
    app.add_exception_handler(HTTPException, _refuse)
    app.add_exception_handler(RequestValidationError, _refuse_input)
    app.add_exception_handler(TenureError, _explain)
    _add_routes(app, replica, Readiness(replica))
    return app


def _add_routes(app: FastAPI, replica: ReplicaView, readiness: Readiness) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> dict[str, str]:
        return {"status": "ok", "worker_id": replica.worker_id}

    @app.get("/readyz", include_in_schema=False)
    async def readyz() -> Response:
        if (reason := await readiness.complaint()) is not None:
            return problem(503, "not ready", reason, worker_id=replica.worker_id)
        return Response('{"status":"ready"}', media_type="application/json")

    @app.get("/metrics", include_in_schema=False)
    async def metrics() -> Response:
        return Response(replica.metrics.render(), media_type=METRICS_TYPE)

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
