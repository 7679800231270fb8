"""How a replica is, for whoever keeps it running: no token, and `/healthz` never asks the database."""

from typing import Final

from starlette.responses import JSONResponse, Response

from supervisor.api.problem import problem
from supervisor.api.readiness import Readiness
from supervisor.api.view import ReplicaView

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})


def is_probe(method: str, path: str) -> bool:
    """Whether it is answered without the application, and also where nothing else is."""
    return method == "GET" and path in PROBES


class Probes:
    def __init__(self, replica: ReplicaView) -> None:
        self._replica = replica
        self._readiness = Readiness(replica)

    async def healthz(self) -> Response:
        return JSONResponse({"status": "ok", "worker_id": self._replica.worker_id})

    async def readyz(self) -> Response:
        if (reason := await self._readiness.complaint()) is not None:
            return problem(503, "not ready", reason, worker_id=self._replica.worker_id)
        return JSONResponse({"status": "ready"})

    async def metrics(self) -> Response:
        return Response(self._replica.metrics.render(), media_type=METRICS_TYPE)

    async def answer(self, path: str) -> Response:
        match path:
            case "/healthz":
                return await self.healthz()
            case "/readyz":
                return await self.readyz()
            case _:
                return await self.metrics()
