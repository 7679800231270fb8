"""Media over HTTP: what goes in, what comes out, and what is refused."""

from typing import Any
from uuid import uuid4

import httpx
import pytest
from blake3 import blake3

from actors.media.api import form
from tests.integration.dedup.api_scene import is_problem
from tests.integration.media import api_scene
from tests.integration.media.api_scene import Scene
from tests.support.door import HOLDER
from tests.support.pictures import encoded, quadrants

module_scene, scene = api_scene.module_scene, api_scene.shared_scene

PNG = encoded("png")
OTHER = encoded("png", quadrants(64, 32))
NAMED = {"workspace": "w1", "entity": "post:7", "role": "cover"}
HTML = b"<!doctype html><script>alert(1)</script>"
SVG = b'<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


FORM = {"Content-Type": "multipart/form-data; boundary=xx"}
FILE = b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n'
ZERO = b', "role": "cover", "blob_hash": "' + b"0" * 64 + b'"}'


def hash_of(content: bytes) -> str:
    return blake3(content).hexdigest()


async def test_an_upload_is_kept_and_attached(scene: Scene) -> None:
    """R002-33: one call; the type is read from the bytes, whatever the sender says."""
    answer = await scene.upload(PNG, **NAMED, name="evil.html")
    assert answer.status_code == 201
    body = answer.json()
    assert (body["decision"], body["result"], body["is_replay"]) == ("INSERT", "OK_INSERTED", False)
    assert (body["mime_type"], body["file_size"], body["blob_hash"]) == ("image/png", len(PNG), hash_of(PNG))
    content = await scene.http.get(body["content_url"])
    assert content.content == PNG
    ref = (await scene.get(f"/refs/{body['ref_id']}")).json()
    assert (ref["role"], ref["position"], ref["created_by"]) == ("cover", 0, HOLDER)
    [kept] = scene.artifacts()
    assert kept.relative_to(scene.shelf).parts[:3] == ("media", hash_of(PNG)[:2], hash_of(PNG)[2:4])


async def test_an_upload_that_comes_again_adds_nothing(scene: Scene) -> None:
    """R002-50, R002-10, R002-08: the existing ref; neither a row nor an artifact is added."""
    first = await scene.attached(PNG)
    before = await scene.world.tables()
    again = await scene.attached(PNG)
    assert (again["decision"], again["result"]) == ("DUPLICATE", "OK_RETURN_EXISTING")
    assert again["ref_id"] == first["ref_id"]
    assert await scene.world.tables() == before
    assert len(scene.artifacts()) == 1
    elsewhere = await scene.attached(PNG, "gallery", 4)
    assert elsewhere["decision"] == "INSERT"
    assert len(scene.artifacts()) == 1, "the content is kept once"


async def test_a_content_is_shared(scene: Scene) -> None:
    """R002-04, R002-24, R002-52: the end of one ref is the end of that ref, and of nothing else."""
    first = await scene.attached(PNG)
    body = {**NAMED, "blob_hash": hash_of(PNG)}
    others = [
        (await scene.post("/refs", {**body, **place})).json()["ref_id"]
        for place in ({"role": "gallery", "position": 2}, {"entity": "post:8"}, {"workspace": "w2"})
    ]
    answer = await scene.delete(first["ref_id"])
    assert (answer.status_code, answer.json()["result"]) == (200, "OK_REPLACED")
    for other in others:
        assert (await scene.get(f"/refs/{other}")).json()["deleted_at"] is None
    assert (await scene.get(f"/blobs/{hash_of(PNG)}")).content == PNG
    assert (await scene.get(f"/refs/{first['ref_id']}")).json()["deleted_at"] is not None
    for other in others:
        await scene.delete(other)
    assert (await scene.get(f"/blobs/{hash_of(PNG)}")).content == PNG, "R002-23: it stays without any ref"


async def test_another_content_replaces(scene: Scene) -> None:
    """R002-14, R002-18"""
    await scene.attached(PNG)
    body = await scene.attached(OTHER)
    assert (body["decision"], body["result"]) == ("REPLACE", "OK_REPLACED")
    listed = (await scene.get("/refs", workspace="w1", entity="post:7")).json()
    assert [(ref["id"], ref["blob_hash"]) for ref in listed["items"]] == [(body["ref_id"], hash_of(OTHER))]


async def test_a_taken_slot_says_what_to_do(scene: Scene) -> None:
    """R002-51, R002-43: a conflict for people, not an error of the server."""
    first = await scene.attached(PNG)
    answer = await scene.upload(OTHER, **NAMED, on_occupied="reject")
    assert is_problem(answer, 409, "SLOT_OCCUPIED")
    assert f"ref {first['ref_id']}" in answer.json()["title"]
    assert "replace it, or move it" in answer.json()["title"]
    assert len(scene.artifacts()) == 1, "nothing is stored of what is rejected"


@pytest.mark.parametrize(
    ("content", "fields", "status", "code"),
    [
        (PNG, {"role": "nonsense"}, 422, "ROLE_NOT_ALLOWED"),
        (PNG, {"position": 1}, 422, "POSITION_OUT_OF_RANGE"),
        (PNG, {"position": -1}, 422, "POSITION_OUT_OF_RANGE"),
        (b"plain", {}, 415, "TYPE_NOT_ALLOWED"),
        (HTML, {}, 415, "TYPE_NOT_ALLOWED"),
        (PNG, {"workspace": "closed", "actor": "carl"}, 403, "NOT_PERMITTED"),
    ],
)
async def test_a_rejection_is_the_clients_affair(
    scene: Scene, content: bytes, fields: dict[str, Any], status: int, code: str
) -> None:
    """R002-43, R002-34: 4xx, told by its id, and nothing is kept."""
    await scene.world.control.execute("SELECT media.save_writers('root', 'closed', '{berta}')")
    request = uuid4()
    answer = await scene.upload(content, **{**NAMED, **fields, "request_id": request})
    assert is_problem(answer, status, code)
    assert answer.json()["result"] == "REJECTED"
    story = await scene.story(request)
    assert (story["decision"], story["result"]) == ("REJECT", "REJECTED")
    assert story["events"][-1]["error_code"] == code
    assert scene.artifacts() == []
    assert await scene.world.tables() == [[], []]


async def test_who_writes_is_said(scene: Scene) -> None:
    """R002-34: on behalf of whom."""
    await scene.world.control.execute("SELECT media.save_writers('root', 'closed', '{berta}')")
    place = {**NAMED, "workspace": "closed"}
    assert (await scene.upload(PNG, **place, actor="berta")).status_code == 201
    assert is_problem(await scene.upload(OTHER, **place, actor="carl"), 403, "NOT_PERMITTED")


async def test_a_request_is_answered_again_and_told(scene: Scene) -> None:
    """R002-35, R002-47: under its id the same answer, and its story."""
    request = uuid4()
    first = await scene.upload(PNG, **NAMED, request_id=request)
    again = await scene.upload(PNG, **NAMED, request_id=request)
    assert (again.json()["is_replay"], again.json()["ref_id"]) == (True, first.json()["ref_id"])
    story = await scene.story(request)
    assert [event["event_type"] for event in story["events"]] == [
        "WRITE_REQUEST",
        "WRITE_DECISION",
        "WRITE_DB",
        "WRITE_DB",
        "WRITE_RESULT",
    ]
    assert is_problem(await scene.upload(OTHER, **NAMED, request_id=request), 409, "CONFLICT")
    assert is_problem(await scene.get(f"/requests/{uuid4()}"), 404, "NOT_FOUND")
    assert len(scene.artifacts()) == 1, "what was refused is not kept"


async def test_refs_change_places(scene: Scene) -> None:
    """R002-21"""
    one, other = await scene.attached(PNG, "gallery", 0), await scene.attached(OTHER, "gallery", 1)
    answer = await scene.post("/refs/move", {"ref_id": one["ref_id"], "position": 1})
    assert (answer.status_code, answer.json()["decision"]) == (200, "REPLACE")
    items = (await scene.get("/refs", workspace="w1", entity="post:7", role="gallery")).json()["items"]
    assert [(ref["id"], ref["position"]) for ref in items] == [(other["ref_id"], 0), (one["ref_id"], 1)]
    move = {"ref_id": one["ref_id"], "position": 0, "on_occupied": "reject"}
    assert is_problem(await scene.post("/refs/move", move), 409, "SLOT_OCCUPIED")
    assert is_problem(await scene.post("/refs/move", {"ref_id": 999, "position": 0}), 404, "REF_UNKNOWN")
    assert is_problem(await scene.delete(999), 404, "REF_UNKNOWN")


async def test_a_stored_content_is_attached_by_its_hash(scene: Scene) -> None:
    """R002-33"""
    kept = await scene.upload(PNG)
    assert (kept.status_code, kept.json()["ref_id"]) == (201, None)
    body = {**NAMED, "blob_hash": hash_of(PNG)}
    assert (await scene.post("/refs", body)).status_code == 201
    assert (await scene.post("/refs", body)).json()["decision"] == "DUPLICATE"
    unknown = {**body, "blob_hash": hash_of(b"?")}
    assert is_problem(await scene.post("/refs", unknown), 404, "BLOB_UNKNOWN")
    replace = {**body, "action": "replace", "position": 0, "entity": "post:9"}
    assert is_problem(await scene.post("/refs", replace), 409, "SLOT_EMPTY")


async def test_the_refs_of_an_entity_by_pages(scene: Scene) -> None:
    """R002-20: by role and position."""
    for position in range(5):
        await scene.attached(PNG, "gallery", position)
    await scene.attached(PNG, "cover")
    found, cursor = [], None
    for _ in range(10):
        query: dict[str, Any] = {"workspace": "w1", "entity": "post:7", "limit": 2}
        page = (await scene.get("/refs", **query | ({"cursor": cursor} if cursor else {}))).json()
        found += [(ref["role"], ref["position"]) for ref in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [("cover", 0), *(("gallery", n) for n in range(5))]
    for cursor in ("gallery:99999999999:1", "gallery:1:9999999999999999999", "gallery:1", "::", "x"):
        bad = await scene.get("/refs", workspace="w1", entity="post:7", cursor=cursor)
        assert is_problem(bad, 422, "INVALID_CURSOR")
    await scene.upload(PNG, **{**NAMED, "workspace": "w2", "entity": "post:7"})
    assert len((await scene.get("/refs", entity="post:7")).json()["items"]) == 7, "in all workspaces"
    assert (await scene.get("/refs", workspace="w3", entity="post:7")).json()["items"] == []


async def test_a_write_that_failed_is_ours(scene: Scene) -> None:
    """R002-36: 500, with its id; the content that was put for it does not stay."""
    await scene.world.admin.execute(
        "CREATE FUNCTION public.fail() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE EXCEPTION 'no'; END $$; CREATE TRIGGER fail BEFORE INSERT ON public.media_refs "
        "FOR EACH ROW EXECUTE FUNCTION public.fail()"
    )
    try:
        answer = await scene.upload(PNG, **NAMED)
    finally:
        await scene.world.admin.execute("DROP FUNCTION public.fail() CASCADE")
    assert is_problem(answer, 500, "WRITE_FAILED")
    assert (await scene.story(answer.json()["request_id"]))["result"] == "FAILED"
    assert scene.artifacts() == []


@pytest.mark.parametrize(
    ("header", "status", "part"),
    [
        ("bytes=0-3", 206, slice(0, 4)),
        ("bytes=4-", 206, slice(4, None)),
        ("bytes=-5", 206, slice(-5, None)),
        ("bytes=2-999999999", 206, slice(2, None)),
        ("bytes=-999999999", 206, slice(None)),
        ("bytes=0-0,2-3", 200, slice(None)),
        ("bytes=5-2", 200, slice(None)),
        ("lines=1-2", 200, slice(None)),
        ("bytes=-", 200, slice(None)),
        ("bytes=99999999-", 416, None),
        ("bytes=-0", 416, None),
    ],
)
async def test_a_range_of_a_content(scene: Scene, header: str, status: int, part: slice | None) -> None:
    await scene.attached(PNG)
    answer = await scene.get(f"/blobs/{hash_of(PNG)}", {"Range": header})
    assert answer.status_code == status
    if part is None:
        assert answer.headers["content-range"] == f"bytes */{len(PNG)}"
        assert is_problem(answer, 416, "RANGE_NOT_SATISFIABLE")
        return
    wanted = PNG[part]
    assert answer.content == wanted
    assert answer.headers["content-length"] == str(len(wanted))
    if status == 206:
        start = PNG.index(wanted)
        assert answer.headers["content-range"] == f"bytes {start}-{start + len(wanted) - 1}/{len(PNG)}"


async def test_a_content_that_is_known_is_not_sent(scene: Scene) -> None:
    await scene.attached(PNG)
    path, tag = f"/blobs/{hash_of(PNG)}", f'"{hash_of(PNG)}"'
    whole = await scene.get(path)
    assert (whole.headers["etag"], whole.headers["accept-ranges"]) == (tag, "bytes")
    for known in (tag, f'"x", W/{tag}', "*"):
        answer = await scene.get(path, {"If-None-Match": known})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
    assert (await scene.get(path, {"If-None-Match": '"other"'})).status_code == 200
    assert (await scene.get(path, {"Range": "bytes=0-1", "If-Range": tag})).status_code == 206
    assert (await scene.get(path, {"Range": "bytes=0-1", "If-Range": '"other"'})).content == PNG
    head = await scene.http.head(f"/api/v1/media{path}")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(PNG)))
    assert is_problem(await scene.get(f"/blobs/{hash_of(b'?')}"), 404, "NOT_FOUND")
    scene.artifacts()[0].unlink()
    assert is_problem(await scene.get(path), 404, "CONTENT_MISSING")
    assert (await scene.http.head(f"/api/v1/media{path}")).status_code == 404


@pytest.mark.parametrize(
    ("content", "kind", "download"),
    [
        (PNG, "image/png", False),
        (b"just text", "text/plain; charset=utf-8", False),
        (HTML, "application/octet-stream", True),
        (b"\xef\xbb\xbf  \n<HTML><body>", "application/octet-stream", True),
        (SVG, "application/octet-stream", True),
        (b"%PDF-1.7\n", "application/pdf", True),
        (b"\x00\x01\x02", "application/octet-stream", True),
        (b"", "application/octet-stream", True),
    ],
)
async def test_nothing_that_is_sent_runs_in_a_browser(
    scene: Scene, content: bytes, kind: str, download: bool
) -> None:
    await scene.attached(content, "attachment")
    answer = await scene.get(f"/blobs/{hash_of(content)}")
    assert answer.content == content
    assert answer.headers["content-type"] == kind
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers.get("content-disposition", "").startswith("attachment") is download
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_a_content_that_is_not_what_was_said(scene: Scene) -> None:
    """R002-15: told as bad input, and nothing is kept."""
    for wrong in ({"expected_hash": hash_of(b"other")}, {"expected_size": 3}):
        assert is_problem(await scene.upload(PNG, **NAMED, **wrong), 422, "CONTENT_DIFFERS")
    assert scene.artifacts() == []
    right: dict[str, Any] = {"expected_hash": hash_of(PNG), "expected_size": len(PNG)}
    assert (await scene.upload(PNG, **NAMED, **right)).status_code == 201


async def streamed(scene: Scene, body: bytes) -> httpx.Response:
    async def pieces() -> Any:
        for at in range(0, len(body), 4096):
            yield body[at : at + 4096]

    kind = "multipart/form-data; boundary=xx"
    return await scene.http.post("/api/v1/media/blobs", content=pieces(), headers={"Content-Type": kind})


@pytest.mark.parametrize("declared", [True, False])
async def test_a_content_over_the_limit(
    scene: Scene, declared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R002-34: the setting bounds it, whether or not its length is told; more is not read."""
    monkeypatch.setattr(form, "MARGIN_BYTES", 1000)
    await scene.world.set("media_max_bytes", "5000")
    for size, status in ((5000, 201), (5001, 413), (600_000, 413)):
        content = b"x" * size
        part = b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n%s\r\n--xx--\r\n'
        answer = await (scene.upload(content) if declared else streamed(scene, part % content))
        assert answer.status_code == status, answer.text
        assert status == 201 or is_problem(answer, 413, "TOO_LARGE")
    assert len(scene.artifacts()) == 1


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Type": "application/json"}, b"{}"),
        ({"Content-Type": "multipart/form-data"}, b"x"),
        (FORM, b""),
        (FORM, b"--yy\r\n\r\n"),
        (
            FORM,
            b"--xx\r\nContent-Disposition: form-data\r\n\r\n",
        ),
        (
            FORM,
            b'--xx\r\nContent-Disposition: form-data; name="file"\r\n\r\nno file name\r\n--xx--\r\n',
        ),
        (
            FORM,
            b'--xx\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx\r\n' * 2
            + b"--xx--\r\n",
        ),
        (
            FORM,
            b'--xx\r\nContent-Disposition: form-data; name="other"; filename="a"\r\n\r\nx\r\n--xx--\r\n',
        ),
    ],
)
async def test_what_is_no_upload(scene: Scene, headers: dict[str, str], body: bytes) -> None:
    """R002-15: refused, and no error of ours."""
    answer = await scene.http.post("/api/v1/media/blobs", headers=headers, content=body)
    assert is_problem(answer, 422, "INVALID_INPUT")
    assert scene.artifacts() == []


@pytest.mark.parametrize(
    "fields",
    [
        {"workspace": "w1"},
        {"workspace": "w1", "entity": "post"},
        {**NAMED, "entity": ":7"},
        {**NAMED, "position": "one"},
        {**NAMED, "position": "99999999999"},
        {**NAMED, "request_id": "7"},
        {**NAMED, "role": "r" * 300},
        {**NAMED, "unknown": "1"},
        {**NAMED, "role": "a\0b"},
        {**NAMED, "actor": ""},
        {**NAMED, "on_occupied": "burn"},
        {"expected_hash": "x"},
    ],
)
async def test_fields_that_do_not_fit(scene: Scene, fields: dict[str, str]) -> None:
    """R002-15"""
    assert is_problem(await scene.upload(PNG, **fields), 422, "INVALID_INPUT")
    assert scene.artifacts() == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (
            "/refs",
            b'{"workspace": "\\ud800", "entity": "a:b", "role": "cover", "blob_hash": "' + b"0" * 64 + b'"}',
        ),
        (
            "/refs",
            b'{"workspace": "w", "entity": "a:\\u0000", "role": "cover", "blob_hash": "' + b"0" * 64 + b'"}',
        ),
        ("/refs", b"[1, 2]"),
        ("/refs", b"\xff\xfe"),
        ("/refs", b'{"workspace": "w", "entity": "a:b", "role": "cover", "blob_hash": "../../x"}'),
        ("/refs/move", b'{"ref_id": 1e400, "position": 1}'),
        ("/refs/move", b'{"ref_id": "1", "position": 1}'),
        ("/refs/move", b'{"ref_id": 99999999999999999999, "position": 1}'),
        ("/refs/move", b'{"ref_id": 1, "position": 99999999999}'),
    ],
)
async def test_bodies_that_do_not_fit(scene: Scene, path: str, body: bytes) -> None:
    """R002-15"""
    answer = await scene.http.post(
        f"/api/v1/media{path}", content=body, headers={"Content-Type": "application/json"}
    )
    assert is_problem(answer, 422, "INVALID_INPUT")


@pytest.mark.parametrize(
    "path",
    [
        "/blobs/..%2f..%2fetc%2fpasswd",
        "/blobs/" + "0" * 63,
        "/blobs/" + "A" * 64,
        "/refs/0",
        "/refs/x",
        "/refs?workspace=w&entity=nonsense",
        "/refs?workspace=w&entity=a:b&limit=0",
        "/refs?workspace=w&entity=a:b&cursor=%00:1",
        "/refs?workspace=%00&entity=a:b",
        "/requests/7",
    ],
)
async def test_addresses_that_do_not_fit(scene: Scene, path: str) -> None:
    """R002-15"""
    answer = await scene.http.get(f"/api/v1/media{path}")
    assert answer.status_code in (404, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_the_routes_are_documented(scene: Scene) -> None:
    paths = (await scene.http.get("/api/v1/openapi.json")).json()["paths"]
    found = {(path.removeprefix("/api/v1/media"), method) for path, item in paths.items() for method in item}
    assert {
        ("/blobs", "post"),
        ("/blobs/{hash_}", "get"),
        ("/refs", "post"),
        ("/refs", "get"),
        ("/refs/move", "post"),
        ("/refs/{ref_id}", "delete"),
        ("/refs/{ref_id}", "get"),
        ("/requests/{request_id}", "get"),
        ("/health", "get"),
    } <= found
