"""All routes of media, with whatever somebody may send: an answer or a refusal, no error of ours."""

from typing import Any
from urllib.parse import quote, urlencode

from blake3 import blake3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.dedup.test_api_fuzz import NASTY_BODIES, TEXTS, bodies, check, fields, operations
from tests.integration.media import api_scene
from tests.integration.media.api_scene import Scene

module_scene, scene = api_scene.module_scene, api_scene.shared_scene

KNOWN = ["w1", "post:7", "cover", "1", "-1", "attach", blake3(b"x").hexdigest()]
VALUES = TEXTS | st.sampled_from(KNOWN)


def routes(scene: Scene) -> list[tuple[str, str, dict[str, Any]]]:
    found = sorted(operations(scene.app.openapi(), ["media/"]), key=lambda one: one[:2])
    assert found
    return found


@given(data=st.data())
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
async def test_whatever_is_sent_it_is_answered_or_refused(scene: Scene, data: st.DataObject) -> None:
    """R002-15, R002-43: no answer is an error of the server; refusals are documented problems."""
    method, path, facts = data.draw(st.sampled_from(routes(scene)))
    query = {}
    for parameter in facts.get("parameters", ()):
        value = data.draw(VALUES | st.integers().map(str))
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", quote(value, safe="") or "%20")
        elif data.draw(st.booleans()):
            query[parameter["name"]] = value
    content = data.draw(bodies(fields(scene.app.openapi(), facts))) if method == "post" else b""
    kinds = ["application/json", "multipart/form-data; boundary=xx", "multipart/form-data", ""]
    answer = await scene.http.request(
        method,
        f"{path}?{urlencode(query, errors='surrogatepass')}",
        content=content,
        headers={"Content-Type": data.draw(st.sampled_from(kinds))},
    )
    check(answer, facts)


async def test_every_route_takes_what_is_known_to_hurt(scene: Scene) -> None:
    """R002-15"""
    for method, path, facts in routes(scene):
        where = path.replace("{hash_}", "0" * 64).replace("{ref_id}", "1").replace("{request_id}", "1")
        for body in NASTY_BODIES if method == "post" else ():
            for kind in ("application/json", "multipart/form-data; boundary=xx"):
                headers = {"Content-Type": kind}
                check(await scene.http.request(method, where, content=body, headers=headers), facts)
        for value in ("bytes=" + "9" * 4000 + "-", "bytes=?-", "x" * 4000, "bytes=0-" + "9" * 19):
            headers = dict.fromkeys(("Range", "If-None-Match", "If-Range"), value)
            check(await scene.http.request(method, where, headers=headers), facts)
