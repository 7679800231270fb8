"""Every route of an application, those of the routers that it includes too, and who may use it."""

from collections.abc import Iterator
from typing import Final

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from supervisor.api.gate import OWN, SAFE_METHODS
from supervisor.api.principal import Needs, Role

OPEN: Final = {"/healthz", "/readyz", "/metrics", "/login", "/static/{digest}/{name}"}


def all_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Yield each route as it stands in the application, with its whole path and its dependencies."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def paths_and_methods(app: FastAPI) -> list[tuple[str, str]]:
    return sorted({(route.path or "", method) for route in all_routes(app) for method in route.methods or ()})


def role_of(route: RouteContext, method: str) -> Role:
    """Return the least role that may use it: what the gate asks for, and what the route itself does."""
    if route.path in OPEN:
        return Role.NONE
    by_the_gate = Role.VIEW if method in SAFE_METHODS or route.path in OWN else Role.OPERATE
    return max(by_the_gate, *_demanded(route.dependant), Role.NONE)


def _demanded(dependant: Dependant) -> Iterator[Role]:
    if isinstance(dependant.call, Needs):
        yield dependant.call.role
    for inner in dependant.dependencies:
        yield from _demanded(inner)
