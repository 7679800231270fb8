"""docs/security.md says which role each route needs, as the routes themselves do."""

from pathlib import Path

from actors import DOMAINS
from supervisor.api import create_app
from supervisor.api.gate import SAFE_METHODS
from supervisor.api.principal import Role
from supervisor.config import Settings
from tests.support.fake_replica import LendingReplica
from tests.support.routes import all_routes, role_of

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- routes by role -->\n", "<!-- end of routes by role -->"


def table() -> str:
    """The routes that change something, by the least role that may."""
    app = create_app(LendingReplica(None, Settings(), work_store=None), DOMAINS)  # type: ignore[arg-type]
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
