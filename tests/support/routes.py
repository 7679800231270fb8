"""Every route of an application, those of the routers that it includes too."""

from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts


def all_routes(app: FastAPI) -> Iterator[RouteContext]:
    """Yield each route as it stands in the application, with its whole path and its dependencies."""
    for route in iter_route_contexts(app.routes):
        if isinstance(route.original_route, APIRoute):
            yield route


def paths_and_methods(app: FastAPI) -> list[tuple[str, str]]:
    return sorted({(route.path or "", method) for route in all_routes(app) for method in route.methods or ()})
