"""What the console answers, asked without a browser: roles, sizes, addresses."""

from collections.abc import AsyncIterator

import httpx
import pytest

from supervisor.api.tokens import new_secret, shown
from supervisor.embedded import Urls
from tests.browser.booth import booth
from tests.support.door import log_in
from tests.support.scene import Scene
from tests.support.slowness import patient

ROLES = ("view", "operate", "admin")
# each action: its form in the console, and the same in the API
ACTIONS: dict[str, tuple[str, dict[str, str], str, str, dict[str, object]]] = {
    "cancel": ("/runs", {"do": "cancel", "run": "9"}, "POST", "/runs/9/cancel", {}),
    "retry": ("/runs", {"do": "retry", "run": "9"}, "POST", "/runs/9/retry", {}),
    "cancel one": ("/runs/9", {"do": "cancel"}, "POST", "/runs/9/cancel", {}),
    "retry one": ("/runs/9", {"do": "retry"}, "POST", "/runs/9/retry", {}),
    "trigger": ("/jobs/none", {"do": "trigger"}, "POST", "/job-definitions/none/trigger", {}),
    "enable": ("/jobs/none", {"do": "enable"}, "PATCH", "/job-definitions/none", {"enabled": True}),
    "drain": ("/workers", {"worker": "none"}, "POST", "/workers/none/drain", {}),
    "resign": ("/leadership", {"sure": "yes"}, "POST", "/leadership/resign", {}),
    "pause": ("/domains", {"domain": "none", "do": "pause"}, "POST", "/domains/none/pause", {}),
    "resume": ("/domains", {"domain": "none", "do": "resume"}, "POST", "/domains/none/resume", {}),
    "setting": ("/settings", {"name": "none", "value": "1"}, "PUT", "/settings/none", {"value": 1}),
}
PIECES, LENGTH = 400, 20_000
MOST_BYTES = 200 * 1024


@pytest.fixture
async def client(console: str) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=console, timeout=patient(30), trust_env=False) as opened:
        await log_in(opened)
        yield opened


async def token(scene: Scene, role: str) -> str:
    secret, encoded = new_secret()
    made = "SELECT id FROM supervisor.create_token('test', $1, $1, $2, NULL)"
    return shown(await scene.value(made, role, encoded), secret)


async def test_every_action_needs_the_same_role_here_as_in_the_api(database: Urls, scene: Scene) -> None:
    refused = {}
    async with (
        booth(database, api_token="open sesame") as address,
        httpx.AsyncClient(base_url=address, timeout=patient(30), trust_env=False) as client,
    ):
        for role in ROLES:
            headers = {"Authorization": f"Bearer {await token(scene, role)}"}
            for name, (path, form, method, api, body) in ACTIONS.items():
                here = await client.post(path, data=form, headers=headers)
                there = await client.request(method, f"/api/v1{api}", json=body, headers=headers)
                refused[role, name] = (here.status_code == 403, there.status_code == 403)
                assert 401 not in (here.status_code, there.status_code)
    differ = {key: both for key, both in refused.items() if both[0] is not both[1]}
    assert not differ, "(refused by the console, refused by the API)"
    assert {name for (role, name), both in refused.items() if role == "operate" and both[0]} == {
        "resign",
        "setting",
    }


@pytest.mark.parametrize(("role", "offered"), [("operate", 0), ("admin", 1)])
async def test_resigning_is_offered_to_who_may(database: Urls, scene: Scene, role: str, offered: int) -> None:
    await scene.lead("w1", 600)
    async with (
        booth(database, api_token="open sesame") as address,
        httpx.AsyncClient(base_url=address, timeout=patient(30), trust_env=False) as client,
    ):
        headers = {"Authorization": f"Bearer {await token(scene, role)}"}
        page = (await client.get("/leadership", headers=headers)).text
    assert page.count("Make the leader resign") == offered


@pytest.mark.parametrize("piece", ["x", "\u00e9"], ids=["plain", "two bytes each"])
async def test_a_long_log_makes_no_large_page(scene: Scene, client: httpx.AsyncClient, piece: str) -> None:
    """Its end is shown, by size; the newest piece is always there."""
    await scene.lead("w1", 600)
    await scene.beat("w1")
    await scene.job("loud")
    run = await scene.run_to("RUNNING", "loud")
    await scene.force(
        """INSERT INTO supervisor.job_run_log (run_id, seq, stream, body)
           SELECT $1, n, 'stdout', 'piece ' || n || repeat($4, $3)
           FROM generate_series(0, $2::integer - 1) n""",
        run, PIECES, LENGTH, piece,
    )  # fmt: skip
    answer = await client.get(f"/runs/{run}")
    assert answer.status_code == 200
    assert len(answer.content) < MOST_BYTES
    assert f"piece {PIECES - 1}" in answer.text
    assert "The last 4 pieces" in answer.text


async def test_many_short_lines_are_all_shown(scene: Scene, client: httpx.AsyncClient) -> None:
    await scene.lead("w1", 600)
    await scene.beat("w1")
    await scene.job("chatty")
    run = await scene.run_to("RUNNING", "chatty")
    await scene.force(
        """INSERT INTO supervisor.job_run_log (run_id, seq, stream, body)
           SELECT $1, n, 'stdout', 'line ' || n FROM generate_series(0, 499) n""",
        run,
    )
    page = (await client.get(f"/runs/{run}")).text
    assert page.count('class="stdout"') == PIECES
    assert page.index(">line 100<") < page.index(">line 499<"), "oldest first"


async def test_claims_and_slots_of_a_replica_stand_apart(scene: Scene, client: httpx.AsyncClient) -> None:
    """What only waits takes no slot, so there may be more claims than slots."""
    await scene.lead("w1", 600)
    await scene.beat("w1")
    await scene.job("nap")
    await scene.run_to("RUNNING", "nap")
    slots = await scene.value("SELECT slots FROM supervisor.worker WHERE worker_id = 'w1'")
    page = (await client.get("/workers")).text
    assert f'<td class="num" data-label="slots">{slots}</td>' in page
    assert '/runs?state=LIVE&amp;worker=w1">1</a></td>' in page


@pytest.mark.parametrize(
    ("path", "accept", "status", "kind"),
    [
        ("/nonsense", "text/html,*/*", 404, "text/html"),
        ("/dedup/nonsense", "text/html,*/*", 404, "text/html"),
        ("/nonsense", "*/*", 404, "application/problem+json"),
        ("/api/v1/nonsense", "text/html", 404, "application/problem+json"),
        ("/api", "text/html", 404, "application/problem+json"),
        ("/runs", "text/html", 200, "text/html"),
        ("/metrics", "text/html", 200, "text/plain"),
        ("/api/v1/runs", "text/html", 200, "application/json"),
        ("/runs/", "text/html", 307, ""),
    ],
)
async def test_an_address_that_is_none_is_a_page_for_who_looks_and_a_problem_for_others(
    client: httpx.AsyncClient, path: str, accept: str, status: int, kind: str
) -> None:
    answer = await client.get(path, headers={"Accept": accept})
    assert answer.status_code == status
    assert answer.headers.get("content-type", "").startswith(kind)
    if kind == "text/html" and status == 404:
        assert "there is no such page" in answer.text.lower()


async def test_what_does_not_exist_cannot_be_posted_to(client: httpx.AsyncClient) -> None:
    answer = await client.post("/nonsense", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
