"""Rights on existing objects, and who did it: each route that changes something, as nobody and as each role.

Whoever may not changes nothing. What somebody with a named token changes stands in the audit under that name,
whatever the request says; the audit of the media domain is `public.media_write_events`, with its `principal`.
"""

import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from inspect import isawaitable
from typing import Final

import httpx
import pytest

from actors import DOMAINS
from supervisor.api import create_app
from supervisor.api.gate import SAFE_METHODS
from supervisor.api.principal import Role
from supervisor.config import Settings
from tests.integration.api.requests_on_objects import (
    API,
    CONSOLE,
    NOWHERE,
    PROGRAMS,
    READS,
    SLOT,
    UNAUDITED,
    Ask,
    Make,
)
from tests.integration.existing import ROLES, Existing, existing_objects
from tests.support.fake_replica import LendingReplica
from tests.support.lending import Shared
from tests.support.module_place import module_place
from tests.support.routes import all_routes, role_of

REFS: Final = '"public"."media_refs"'


@dataclass(frozen=True)
class Case:
    route: str
    role: str
    make: Make

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    def url(self, ask: Ask) -> str:
        return re.sub(r"{(\w+)[^}]*}", lambda name: str(ask.path[name[1]]), self.route.partition(" ")[2])


def changing() -> dict[str, Role]:
    """The routes that change something, with the least role that may."""
    app = create_app(LendingReplica(None, Settings(), work_store=None), DOMAINS)  # type: ignore[arg-type]
    return {
        f"{method} {route.path}": role_of(route, method)
        for route in all_routes(app)
        for method in route.methods or ()
        if method not in SAFE_METHODS
    }


def at(prefix: str, requests: Mapping[str, Make]) -> dict[str, Make]:
    return {route.replace(" ", f" {prefix}", 1): make for route, make in requests.items()}


REQUESTS: Final = at("/api/v1/", API) | at("/", CONSOLE)
CHANGING: Final = changing()
CASES: Final = [
    *(
        Case(route, CHANGING[route].name.lower(), make)
        for route, make in REQUESTS.items()
        if route in CHANGING
    ),
    *(Case(route, "admin", make) for route, make in at("/api/v1/", PROGRAMS).items()),
]


@pytest.fixture(scope="module")
async def module_objects(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Existing]:
    with module_place(tmp_path_factory) as place:
        async with existing_objects(module_database, place) as made:
            yield made


@pytest.fixture
async def there(module_objects: Existing) -> Existing:
    await module_objects.renew()
    return module_objects


async def send(case: Case, client: httpx.AsyncClient, ask: Ask) -> httpx.Response:
    return await client.request(
        case.method, case.url(ask), json=ask.json, data=ask.data, files=ask.files, params=ask.params
    )


def test_every_route_that_changes_something_is_tried() -> None:
    """A new route is added to REQUESTS; one that leaves no audit row has its reason in UNAUDITED."""
    assert set(REQUESTS) | set(UNAUDITED) == set(CHANGING)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.route} as {case.role}")
async def test_who_may_and_who_did_it(there: Existing, case: Case) -> None:
    """On an existing object: without the role nothing changes; with it, the audit names the token."""
    made = case.make(there)
    ask = await made if isawaitable(made) else made
    before, last = await there.digest(), await there.last()
    for role in (None, *ROLES[: ROLES.index(case.role)]):
        answer = await send(case, there.http[role], ask)
        assert answer.status_code == (401 if role is None else 403), (role, answer.text)
    assert await there.digest() == before
    answer = await send(case, there.http[case.role], ask)
    assert answer.status_code < 400, answer.text
    assert await there.digest() != before, "it is to be tried where it changes something"
    if case.route not in UNAUDITED:
        assert await there.who(last) == [f"token:{case.role}"]


async def test_reading_changes_nothing(there: Existing, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each route that reads, on an existing object: refused without a token, shown to role view."""
    monkeypatch.setattr(there.replica, "draining", True)  # else a stream never ends
    before = await there.digest()
    routes = [(route, method) for route in all_routes(there.app) for method in route.methods or ()]
    reads = {
        (method, str(route.path)): role_of(route, method)
        for route, method in routes
        if method in SAFE_METHODS
    }
    assert set(READS) <= {path for _, path in reads}
    for (method, path), role in reads.items():
        if path in NOWHERE or path == "/readyz":
            continue
        asked = READS[path](there.ids) if path in READS else path
        assert "{" not in asked, f"{path}: say in READS how an existing object is read"
        unknown = await there.http[None].request(method, asked)
        shown = await there.http["view"].request(method, asked)
        assert unknown.status_code == (401 if role > Role.NONE else 200), asked
        assert shown.status_code == 200, f"{method} {asked}: {shown.status_code} {shown.text[:500]}"
    assert await there.digest() == before


@pytest.mark.parametrize("route", ["POST media/blobs", "POST media/refs/move", "DELETE media/refs/{ref_id}"])
async def test_on_whose_behalf_stands_beside_who_did_it(there: Existing, route: str) -> None:
    case = Case(route.replace(" ", " /api/v1/", 1), "operate", API[route])
    ask, (_, last) = case.make(there), await there.last()
    assert isinstance(ask, Ask)
    answer = await send(case, there.http["operate"], ask)
    assert answer.status_code < 400
    events = "SELECT DISTINCT actor, principal FROM public.media_write_events WHERE id > $1"
    rows = await there.shared.connection.fetch(events, last)
    assert [tuple(row) for row in rows] == [("user:7", "token:operate")]
    story = await there.http["view"].get(f"/media/requests/{answer.json()['request_id']}")
    assert "<dd>token:operate</dd>" in story.text
    assert "<dd>user:7</dd>" in story.text


async def test_a_name_in_a_request_lets_nobody_write(there: Existing) -> None:
    """Media took anybody's name: with `actor=user:7` any token wrote where only user:7 might."""
    writers = "SELECT media.save_writers('test', 'w1', $1)"
    await there.value(writers, ["user:7"])
    before = (await there.digest())[REFS]
    attach = Case("POST /api/v1/media/refs", "operate", API["POST media/refs"])

    async def status(role: str, actor: str | None) -> int:
        body = {**SLOT, "blob_hash": there.ids.blob} | ({"actor": actor} if actor else {})
        answer = await send(attach, there.http[role], Ask(json=body))
        if answer.status_code == 403:
            assert answer.json()["code"] == "NOT_PERMITTED"
            assert "tenure media rules" in answer.json()["title"]
        return answer.status_code

    for actor in ("user:7", "token:admin", "admin", None):
        assert await status("operate", actor) == 403
    assert (await there.digest())[REFS] == before
    assert await status("admin", "user:7") == 201
    await there.value(writers, ["user:7", "token:operate"])
    assert [await status("operate", actor) for actor in ("user:8", "user:7", None)] == [403, 200, 200]
    await there.value(writers, ["token:operate"])
    assert await status("operate", "user:8") == 200, "no name bounds it"


async def test_a_login_is_audited(there: Existing) -> None:
    token = there.http["view"].headers["Authorization"].removeprefix("Bearer ")
    last = await there.last()
    answer = await there.http[None].post("/login", data={"token": token})
    assert answer.status_code == 303
    assert await there.who(last) == ["token:view"]
    there.http[None].cookies.clear()
