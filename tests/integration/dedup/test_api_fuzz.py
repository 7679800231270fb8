"""All routes of the domain, with whatever somebody may send: an answer or a refusal, no error of ours."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote, urlencode

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.dedup import api_scene
from tests.integration.dedup.api_scene import DIGEST, Scene
from tests.support.slowness import patient

module_scene, library_scene = api_scene.module_scene, api_scene.library_scene

KEY = f"blake3:{DIGEST.hex()}"
NOUNS = ("jobs", "duplicates", "thumbs", "maintenance", "libraries", "scan-sessions")
METHODS = {"get", "post", "put", "delete", "head", "patch"}
NASTY_TEXTS = [
    "",
    "photos",
    KEY,
    "0" * 64,
    "00000000-0000-0000-0000-000000000000",
    "1",
    str(2**63),
    "9" * 5000,
    "-1",
    "1e309",
    "NaN",
    "null",
    "\0",
    "..",
    "~",
    "$HOME",
    "photos/../x",
    "2150-01-01T00:00:00Z",
    "9999-12-31T23:59:59-14:00",
    "scan",
    "delete",
    "failed",
    "' OR 1=1 --",
    "eyJmaWxlX2NvdW50IjoyfQ",
]
TEXTS = st.text(max_size=40) | st.sampled_from(NASTY_TEXTS)
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([0, -1, 1, 2**31, 2**63 - 1, 2**63, 2**64, 10**400, float("nan"), float("inf"), -0.0]),
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
NASTY_BODIES = [
    b"",
    b"{",
    b"nul",
    b"\xff",
    b"[" * 5000,
    b'{"kind":"scan","kind":"hash"}',
    b'{"\\ud800":1}',
    b"9" * 5000,
]
RAW = st.sampled_from(NASTY_BODIES) | st.binary(max_size=30)


@pytest.fixture
async def scene(library_scene: Scene) -> Scene:
    await library_scene.files("photos", ["a.jpg", "b.jpg", "c.txt"])
    (library_scene.libraries / "photos").mkdir()
    return library_scene


def operations(
    document: dict[str, Any], nouns: Sequence[str] = NOUNS
) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The domain's own: the kernel's routes are tried elsewhere, and some of those never end."""
    for path, methods in document["paths"].items():
        if path.startswith(tuple(f"/api/v1/{noun}" for noun in nouns)):
            yield from ((method, path, facts) for method, facts in methods.items() if method in METHODS)


def fields(document: dict[str, Any], facts: dict[str, Any]) -> list[str]:
    """The names a body has in any of its forms."""
    found: set[str] = set()
    waiting = [facts.get("requestBody", {})]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            found |= set(part.get("properties", ()))
            if "$ref" in part:
                waiting.append(document["components"]["schemas"][part["$ref"].rpartition("/")[2]])
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part
    return sorted(found)


def bodies(names: list[str]) -> st.SearchStrategy[bytes]:
    if not names:
        return RAW
    shaped = st.dictionaries(st.sampled_from(names), VALUES, max_size=len(names))
    return st.one_of(
        shaped.map(lambda body: json.dumps(body).encode()), VALUES.map(lambda b: json.dumps(b).encode()), RAW
    )


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
async def test_whatever_is_sent_it_is_answered_or_refused(scene: Scene, data: st.DataObject) -> None:
    """R000-64, R000-72, R000-74: no answer is an error of the server; refusals are documented problems."""
    document = scene.app.openapi()
    method, path, facts = data.draw(st.sampled_from(sorted(operations(document), key=lambda one: one[:2])))
    query = {}
    for parameter in facts.get("parameters", ()):
        value = data.draw(TEXTS | st.integers().map(str))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe="") or "%20")
        elif data.draw(st.booleans()):
            query[parameter["name"]] = value
    content = data.draw(bodies(fields(document, facts))) if method == "post" else b""
    headers = {"Content-Type": data.draw(st.sampled_from(["application/json", "text/plain", ""]))}
    async with asyncio.timeout(patient(30)):
        answer = await scene.http.request(
            method, f"{path}?{urlencode(query, errors='surrogatepass')}", content=content, headers=headers
        )
    check(answer, facts)


def check(answer: httpx.Response, facts: dict[str, Any]) -> None:
    assert answer.status_code < 500, (answer.request.url, answer.text)
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json"
        is_no_route = answer.status_code in {404, 405} and "code" not in answer.json()
        assert is_no_route or str(answer.status_code) in facts["responses"], answer.text


async def test_every_route_takes_what_is_known_to_hurt(scene: Scene) -> None:
    """R000-64, R000-72, R000-74: each parameter of each route with each of the texts, and each body."""
    document = scene.app.openapi()
    for method, path, facts in sorted(operations(document), key=lambda one: one[:2]):
        names = {parameter["name"]: parameter["in"] for parameter in facts.get("parameters", ())}
        usual = {name: quote(KEY if name == "group_key" else "1", safe="") for name in names}
        for name, place in names.items():
            for text in NASTY_TEXTS:
                values = {**usual, name: quote(text, safe="") or "%20"}
                where = path.format_map(values)
                query = f"?{name}={quote(text, safe='')}" if place == "query" else ""
                check(await scene.http.request(method, where + query), facts)
        for body in NASTY_BODIES if "requestBody" in facts else ():
            headers = {"Content-Type": "application/json"}
            check(
                await scene.http.request(method, path.format_map(usual), content=body, headers=headers), facts
            )


async def test_every_route_says_what_it_is_and_what_it_refuses(scene: Scene) -> None:
    """R000-65, R000-75: the document has a summary, an example and the refusals of each of them."""
    document = scene.app.openapi()
    found = {(method, path.removeprefix("/api/v1")) for method, path, _ in operations(document)}
    assert found == {
        ("get", "/jobs"),
        ("post", "/jobs"),
        ("get", "/jobs/{job_id}"),
        ("post", "/jobs/{job_id}/cancel"),
        ("post", "/jobs/{job_id}/reset"),
        ("post", "/jobs/recover-stale"),
        ("post", "/jobs/scan-hash/claim"),
        ("post", "/jobs/{job_id}/heartbeat"),
        ("post", "/jobs/{job_id}/finish"),
        ("get", "/duplicates/groups"),
        ("get", "/duplicates/groups/{group_key}/files"),
        ("post", "/thumbs/request"),
        ("get", "/thumbs/metrics"),
        ("get", "/thumbs/{key}"),
        ("get", "/thumbs/{key}/content"),
        ("post", "/thumbs/cleanup/group"),
        ("post", "/maintenance/wal/checkpoint"),
        ("get", "/maintenance/wal/checkpoint/latest"),
        ("get", "/maintenance/wal/metrics"),
        ("get", "/libraries"),
        ("post", "/libraries"),
        ("get", "/libraries/{name}"),
        ("delete", "/libraries/{name}"),
        ("get", "/libraries/{name}/sessions"),
        ("get", "/scan-sessions/{session_id}"),
        ("get", "/scan-sessions/{session_id}/errors"),
    }
    for _, path, facts in operations(document):
        assert facts["summary"], path
        assert {"401", "422"} <= facts["responses"].keys(), path
        for status, response in facts["responses"].items():
            if status.startswith("4"):
                assert list(response["content"]) == ["application/problem+json"], path
