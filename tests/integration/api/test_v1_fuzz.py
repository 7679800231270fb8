"""Every route, the kernel's and the domains', asked by schemathesis out of the app's own OpenAPI document.

Nothing that can be sent is an error of the server, and answers are what the document says. The replica
drains, so that streams end by themselves. The database is thrown away: the requests change all they can.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.result import Ok

from actors import DOMAINS
from supervisor.api import create_app, serve
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support.door import BEARER, guarded
from tests.support.fake_replica import LendingReplica
from tests.support.scene import Scene
from tests.support.slowness import patient

ROUTES = 30
EXAMPLES = 3
KERNEL = (
    "/api/v1/runs",
    "/api/v1/job-definitions",
    "/api/v1/workers",
    "/api/v1/leadership",
    "/api/v1/events",
    "/api/v1/settings",
    "/api/v1/audit",
    "/api/v1/domains",
    "/api/v1/late-finishes",
    "/api/v1/orphans",
    "/api/v1/stream",
)
FOR_ALL = ("not_a_server_error",)
OURS = (*FOR_ALL, "status_code_conformance", "content_type_conformance", "response_schema_conformance")


@pytest.fixture
def address(database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The whole app on a port, in a thread of its own, because the fuzzer is synchronous."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "libraries" / "photos").mkdir(parents=True)
    with in_thread(database, tmp_path) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def in_thread(database: Urls, place: Path) -> Iterator[int]:
    ready, over, ports = threading.Event(), threading.Event(), [0]

    async def run() -> None:
        store, work = Store(database.control, name="fuzz"), Store(database.worker, name="fuzz/work")
        chosen = guarded(state_dir=place, libraries_dir=place / "libraries", thumbs_dir=place / "thumbs")
        replica = LendingReplica(store, chosen, draining=True, work_store=work)
        await furnish(database)

        def note(port: int) -> None:
            ports[0] = port
            ready.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(serve, create_app(replica, DOMAINS), "127.0.0.1", 0, note)
            await anyio.to_thread.run_sync(over.wait)
            tasks.cancel_scope.cancel()
        await store.close()
        await work.close()

    thread = threading.Thread(target=anyio.run, args=(run,))
    thread.start()
    try:
        assert ready.wait(patient(120))
        yield ports[0]
    finally:
        over.set()
        thread.join(patient(30))


async def furnish(database: Urls) -> None:
    """A little of everything, so that more than refusals is answered."""
    scene = await Scene.open(database)
    try:
        await scene.lead()
        await scene.beat()
        await scene.job("a", max_attempts=1)
        for state in ("PENDING", "RUNNING", "FAILED", "ORPHANED", "SUCCEEDED", "CONFIRMING"):
            await scene.run_to(state, "a")
        await scene.connection.execute("SELECT dedup.add_library('test', 'photos', 'photos')")
    finally:
        await scene.close()


def checks(names: tuple[str, ...]) -> list[Any]:
    load_all_checks()
    return CHECKS.get_by_names(list(names))


def modes(operation: Any) -> list[GenerationMode]:
    """What takes only texts in its path and its head, or nothing, cannot be asked wrongly."""
    numbers = [one for one in operation.path_parameters if one.definition["schema"].get("type") == "integer"]
    can_be_wrong = bool(list(operation.query) or list(operation.body) or numbers)
    return list(GenerationMode) if can_be_wrong else [GenerationMode.POSITIVE]


def ask_all(address: str) -> Counter[bool]:
    """Ask all routes, and count those of the kernel (True) and of the domains."""
    document = requests.get(f"{address}/api/v1/openapi.json", headers=BEARER, timeout=patient(60)).json()
    schema = schemathesis.openapi.from_dict(document)
    found: Counter[bool] = Counter()
    faults: list[str] = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok)
        operation = result.ok()
        ours = operation.path.startswith(KERNEL)
        found[ours] += 1
        for mode in modes(operation):
            faults += ask(address, operation, mode, checks(OURS if ours else FOR_ALL))
    assert not faults, "\n\n".join(faults)
    return found


def ask(address: str, operation: Any, mode: GenerationMode, expected: list[Any]) -> list[str]:
    """Ask a route some of what fits its description, or of what does not; return what was wrong."""

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def call(case: Any) -> None:
        answer = case.call(base_url=address, headers=BEARER, timeout=patient(20))
        case.validate_response(answer, checks=expected)

    try:
        call()
    except BaseExceptionGroup as group:
        return [str(error) for error in group.exceptions]
    return []


def test_the_kernel_answers_as_it_says_and_no_domain_fails(address: str) -> None:
    """One test for both: they need the same app and the same document."""
    found = ask_all(address)
    assert found[True] == ROUTES
    assert found[False] > 30
