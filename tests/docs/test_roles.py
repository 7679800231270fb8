"""docs/security.md says which role each route needs, as the routes themselves do."""

from collections.abc import Iterator
from pathlib import Path

from fastapi.dependencies.models import Dependant
from fastapi.routing import RouteContext

from actors import DOMAINS
from supervisor.api import create_app
from supervisor.api.gate import OWN, SAFE_METHODS
from supervisor.api.principal import Needs, Role
from supervisor.config import Settings
from tests.support.fake_replica import FakeReplica
from tests.support.routes import all_routes

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- routes by role -->\n", "<!-- end of routes by role -->"
OPEN = {"/healthz", "/readyz", "/metrics", "/login", "/static/{digest}/{name}"}


def demanded(dependant: Dependant) -> Iterator[Role]:
    """The roles that a route asks for by itself."""
    if isinstance(dependant.call, Needs):
        yield dependant.call.role
    for inner in dependant.dependencies:
        yield from demanded(inner)


def role_of(route: RouteContext, method: str) -> Role:
    if route.path in OPEN:
        return Role.NONE
    by_the_gate = Role.VIEW if method in SAFE_METHODS or route.path in OWN else Role.OPERATE
    return max(by_the_gate, *demanded(route.dependant), Role.NONE)


def table() -> str:
    """The routes that change something, by the least role that may."""
    app = create_app(FakeReplica(None, Settings()), DOMAINS)  # type: ignore[arg-type]
    routes = {
        (route.path, method, role_of(route, method))
        for route in all_routes(app)
        for method in route.methods or ()
    }
    lines = ["| role | routes |", "|---|---|"]
    for role in (Role.NONE, Role.VIEW, Role.OPERATE, Role.ADMIN):
        of_role = sorted((path, method) for path, method, least in routes if least is role)
        shown = [
            f"`{method} {path}`"
            for path, method in of_role
            if role is Role.NONE or method not in SAFE_METHODS
        ]
        reads = sum(method in SAFE_METHODS for _, method in of_role) if role is not Role.NONE else 0
        name = "no token" if role is Role.NONE else f"`{role.name.lower()}`"
        lines.append(f"| {name} | {'<br>'.join([f'{reads} that read'] * bool(reads) + shown)} |")
    return "\n".join(lines) + "\n"


def test_the_page_names_each_route_under_the_role_it_needs() -> None:
    text = PAGE.read_text("utf-8")
    written = text[text.index(BEGIN) + len(BEGIN) : text.index(END)]
    assert written == table(), f"docs/security.md needs this between its marks:\n{table()}"


def test_the_table_sees_what_a_route_asks_for() -> None:
    """A route whose role nobody reads would stand under the gate's default."""
    assert "`POST /api/v1/leadership/resign`" in table().split("| `admin` |")[1]
