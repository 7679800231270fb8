"""Uploads that would be programs, under names that would be headers: they come back as what they are, and no
browser runs them.
"""

import re
from collections.abc import Mapping
from html import unescape
from typing import Any, Final

import httpx
import pytest
from playwright.async_api import Error

from supervisor.api.content import content_headers
from tests.browser import test_domain_pages
from tests.browser.eyes import Eyes, Sight
from tests.integration.capture.pictures import DAY as LINES
from tests.integration.capture.pictures import picture
from tests.integration.test_domain_pages import Site, every_page
from tests.support.hostile import LONG
from tests.support.pictures import encoded

pytestmark = pytest.mark.slow

site = test_domain_pages.site

SCRIPT: Final = "window.__pwned='upload'"
HTML: Final = f"<!doctype html><script>{SCRIPT}</script><img src=x onerror={SCRIPT}>{LONG}".encode()
SVG: Final = (
    f'<svg xmlns="http://www.w3.org/2000/svg" onload="{SCRIPT}"><script>{SCRIPT}</script></svg>'.encode()
)
CONTENTS: Final[Mapping[str, bytes]] = {
    "HTML": HTML,
    "HTML behind much text": b"x" * 5000 + HTML,
    "HTML in UTF-16": b"\xff\xfe" + HTML.decode().encode("utf-16-le"),
    "HTML in UTF-7": b"+ADw-script+AD4-window.__pwned+AD0-1+ADw-/script+AD4-",
    "SVG": SVG,
    "SVG behind a comment": b"<!--" + b"x" * 5000 + b"-->" + SVG,
    "XML": b'<?xml version="1.0"?><a xmlns:h="http://www.w3.org/1999/xhtml"><h:script>%s</h:script></a>'
    % SCRIPT.encode(),
    "a style sheet of XML": b'<?xml version="1.0"?><?xml-stylesheet type="text/xsl" href="data:,"?>' + SVG,
    "a document": b"%PDF-1.7\n1 0 obj<</OpenAction<</S/JavaScript/JS(app.alert(1))>>>>endobj\n" + HTML,
    "a script": f"{SCRIPT};self.onfetch=()=>1;export default 1".encode(),
    "a style": b"body{display:none}@import 'http://203.0.113.1/x';",
    "JSON": b'{"start_url":"javascript:1"}',
    "a web archive": b"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
    b"Content-Type: text/html\n\n" + HTML,
    "captions": b"WEBVTT\n\n00:00.000 --> 00:09.000\n<script>window.__pwned=1</script>",
    "WebAssembly": b"\x00asm\x01\x00\x00\x00",
    "an archive and HTML": b"PK\x03\x04" + HTML,
    "an icon and HTML": b"\x00\x00\x01\x00" + HTML,
    "a GIF and a script": f"GIF89a=1;{SCRIPT}//".encode() + HTML,
    "a JPEG and a script": b"\xff\xd8\xff\xe0/*" + b"*/=1;" + SCRIPT.encode() + HTML,
    "a BMP and HTML": b"BM" + bytes(12) + b"\x28\x00\x00\x00" + HTML,
    "a WebP and HTML": b"RIFF\x00\x10\x00\x00WEBP" + HTML,
    "a film and HTML": b"\x00\x00\x00\x18ftypmp42" + HTML,
    "a picture and HTML": encoded("png") + HTML,
}
NAMES: Final = (
    b'a"; filename="b.html',
    b'a.png\\"; x="\r\nX-Evil: 1\r\nContent-Type: text/html',
    b"a\r\n X-Evil: 1",
    b"a\nX-Evil: 1\n\n<script>",
    b"%0d%0aX-Evil:%201.html",
    b"..\\..\\../../etc/passwd.html",
    "ä\u202egnp.exe\u2028\x1b[2J;<img src=x>.svg".encode(),
    b"\xff\xfe\x80.html",
    b"x" * 5000 + b".html",
    b"a.html\"; filename*=UTF-8''b.html; name=\"file",
)
FIXED: Final = re.compile(r'attachment; filename="[0-9a-f]{16}(\.diff)?"')
"""A name of ours, out of the digest."""
SHOWN: Final = re.compile(r"image/(?!svg)[a-z]+|video/[a-z0-9]+|text/plain; charset=utf-8")
USES: Final = """async (url) => {
  const loaded = (node, more) => new Promise((done) => {
    node.onload = () => done(true);
    node.onerror = () => done(false);
    document.head.append(Object.assign(node, more));
  });
  const element = (name) => document.createElement(name);
  return {
    script: await loaded(element("script"), { src: url }),
    module: await loaded(element("script"), { src: url, type: "module" }),
    style: await loaded(element("link"), { href: url, rel: "stylesheet" }),
    service: await navigator.serviceWorker.register(url).then(() => true, () => false),
  };
}"""
"""What a page that somebody else has a say in would make of it."""


def is_inert(answer: httpx.Response) -> bool:
    headers = answer.headers
    policy = headers.get("content-security-policy", "").split("; ")
    is_shown = SHOWN.fullmatch(headers["content-type"]) and "content-disposition" not in headers
    return (
        headers.get("x-content-type-options") == "nosniff"
        and "default-src 'none'" in policy
        and not any("unsafe" in one for one in policy)
        and bool(is_shown or FIXED.fullmatch(headers.get("content-disposition", "")))
        and "text/html" not in headers["content-type"]
        and "x-evil" not in headers
    )


async def attached(site: Site, content: bytes, name: bytes, position: int) -> httpx.Response:
    fields = {"workspace": "w1", "entity": "post:7", "role": "attachment", "position": str(position)}
    parts = b"".join(
        b'--xx\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (one.encode(), value.encode())
        for one, value in fields.items()
    )
    head = b'--xx\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\n' % name
    body = parts + head + b"Content-Type: text/html\r\n\r\n" + content + b"\r\n--xx--\r\n"
    kind = {"Content-Type": "multipart/form-data; boundary=xx"}
    return await site.http.post("/api/v1/media/blobs", content=body, headers=kind)


async def test_an_upload_is_no_program(site: Site, browser: Sight) -> None:
    """Looked at by itself, or used by a page: nothing of it runs, whatever it looks like."""
    eyes = await browser.open(str(site.http.base_url).rstrip("/"))
    await eyes.go("/jobs")
    wrong = []
    for position, (what, content) in enumerate(CONTENTS.items()):
        stored = await attached(site, content, b"a.html", position)
        assert stored.status_code == 201, f"{what}: {stored.text}"
        path = stored.json()["content_url"]
        for headers in ({}, {"Range": "bytes=0-99"}, {"Accept": "text/html"}):
            answer = await site.http.get(path, headers=headers)
            assert answer.content == content[: 100 if "Range" in headers else None]
            if not is_inert(answer):
                wrong.append(f"{what}: {dict(answer.headers)}")
        uses: dict[str, Any] = await eyes.page.evaluate(USES, path)
        wrong += [f"{what} is used as a {use}" for use, is_used in uses.items() if is_used]
        if await eyes.page.evaluate("window.__pwned"):
            wrong.append(f"{what} ran in a page")
            await eyes.go("/jobs")
        if not await opened(eyes, path):
            wrong.append(f"{what} is a page of this site where it is opened")
    eyes.faults.clear()  # each refusal is told
    assert not wrong, "\n".join(wrong)


async def opened(eyes: Eyes, path: str) -> bool:
    """By itself, in a tab: whether it stayed a thing to look at or to keep."""
    tab = await eyes.page.context.new_page()
    try:
        await tab.goto(eyes.base + path)
        return bool(await tab.evaluate("window.origin === 'null' && !window.__pwned"))
    except Error as error:
        return "Download is starting" in str(error)
    finally:
        await tab.close()


async def test_a_name_of_an_upload_is_no_header(site: Site) -> None:
    """A name is refused with its form, or forgotten."""
    kept = 0
    for number, name in enumerate(NAMES):
        stored = await attached(site, HTML + bytes([number]), name, number)
        assert stored.status_code in (201, 422), f"{name!r}: {stored.status_code}"
        if stored.status_code == 201:
            assert is_inert(await site.http.get(stored.json()["content_url"])), name
            kept += 1
    assert kept >= 5


async def test_pictures_and_evidence_are_no_programs_either(site: Site) -> None:
    shot = picture(*LINES) + HTML
    submitted = await site.http.post(
        "/api/v1/capture/sessions",
        files=[("images", ('a.png"; x="\r\nX-Evil: 1', shot, "text/html"))],
        data={"user": "7"},
    )
    assert submitted.status_code == 201, submitted.text
    site.diff = HTML
    paths = await every_page(site)
    sources = {
        unescape(one)
        for path in paths
        for one in re.findall(r'(?:src|href)="(/api/v1/[^"]+)"', await site.get(path))
    }
    sources.add(f"/api/v1/capture/sessions/{submitted.json()['session_id']}/images/1")
    given = {source: answer for source in sources if (answer := await site.http.get(source)).is_success}
    assert {source.split("/")[3] for source in given} == {"capture", "media", "scm", "thumbs"}
    for source, answer in given.items():
        assert is_inert(answer), f"{source}: {dict(answer.headers)}"


@pytest.mark.parametrize(
    "kind",
    [
        "text/javascript",
        "text/css",
        "application/rss+xml",
        "text/plain\r\nX-Evil: 1",
        "image/svg+xml",
        "Text/HTML",
        "",
    ],
)
def test_a_type_that_nobody_thought_of_is_no_type(kind: str) -> None:
    """Whoever writes the rows: a script of this origin is what the pages' policy would let run."""
    headers = content_headers({"mime_type": kind, "file_hash": "0" * 64})
    assert headers["Content-Type"] == "application/octet-stream"
    assert FIXED.fullmatch(headers["Content-Disposition"])
