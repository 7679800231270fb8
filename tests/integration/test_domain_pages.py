"""The domains' pages of the console, over their real tables: what they show, and what they ask for.

`Site` is the whole app with all four domains; its `fill_*` are also what the browser looks at.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from actors import capture, dedup, media, scm
from schemas import queries
from supervisor.api import create_app
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.capture.pictures import DAY as LINES
from tests.integration.capture.pictures import picture
from tests.integration.capture.world import DAY
from tests.integration.capture.world import World as CaptureWorld
from tests.integration.media.world import World as MediaWorld
from tests.integration.media.world import blob
from tests.integration.scm.ledger import Ledger, commit, instant, opened, revision
from tests.support.door import guarded, log_in
from tests.support.fake_replica import FakeReplica
from tests.support.kept_figures import forget_figures
from tests.support.lending import Shared
from tests.support.module_place import empty, module_place
from tests.support.pictures import encoded, quadrants
from tests.support.sessions import connected
from tests.support.shelf import Shelf

DOMAINS = (dedup.DOMAIN, scm.DOMAIN, media.DOMAIN, capture.DOMAIN)
HOSTILE = "</a><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe\x1b[31m{{7919*7907}}"
INERT = "</a><script>alert(1)</script><img src=x onerror=alert(2)>\\u202egnp.exe\\x1b[31m{{7919*7907}}"
DIFF = b"Index: a.txt\n-old\n+new \x1b[31mred\n"
SAME, OTHER = bytes(range(32)), bytes(range(1, 33))


@dataclass
class Site:
    """Pages are asked for as a browser does it; what fills them acts as workers and people do."""

    urls: Urls
    place: Path
    http: httpx.AsyncClient
    shelf: Shelf
    sessions: list[str] = field(default_factory=list)
    diff: bytes = DIFF

    async def get(self, path: str, status: int = 200) -> str:
        answer = await self.http.get(path)
        assert answer.status_code == status, f"{path}: {answer.status_code} {answer.text[:2000]}"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        return answer.text

    async def words(self, path: str, status: int = 200) -> str:
        return words(await self.get(path, status))

    async def post(self, path: str, **fields: str) -> httpx.Response:
        return await self.http.post(path, data=fields, headers={"Origin": "http://127.0.0.1"})

    async def walk(self, path: str, pattern: str) -> list[str]:
        """What the pattern finds on this page and all behind it."""
        found: list[str] = []
        for _ in range(50):
            text = await self.get(path)
            found += re.findall(pattern, text)
            following = re.search(r'<a href="([^"]+)" rel="next"', text)
            if following is None:
                return found
            path = unescape(following[1])
        raise AssertionError("the pages do not end")

    async def fill_dedup(self) -> str:
        """Two groups, one with a picture: its key; a walk with an error, and one that goes on."""
        await self.shelf.library("photos")
        await self.shelf.library("archive")
        ended = await self.shelf.job("scan")
        walk = await self.shelf.walked(ended, files_seen=400, bytes_seen=9_000_000, error_count=1)
        await self.shelf.end(ended, "failed", "ROOT_GONE")
        await self.shelf.connection.execute(
            "INSERT INTO dedup.scan_errors (session_id, path, code) VALUES ($1, $2, 'EACCES')", walk, HOSTILE
        )
        file = await self.shelf.file(f"2024/{HOSTILE}.jpg", SAME, size=3_000_000)
        await self.shelf.file("2024/copy.jpg", SAME, library="archive", size=3_000_000)
        for number in range(3):
            await self.shelf.file(f"small-{number}.txt", OTHER, size=2000)
        await self.shelf.file("gone.txt", None, missing=True)
        await self.shelf.connection.execute(
            "UPDATE dedup.library_files SET hash_error_code = 'EIO' WHERE relative_path = 'small-1.txt'"
        )
        await self._thumbnail(file, encoded("webp", quadrants(256, 128)))
        going = await self.shelf.job("scan")
        await self.shelf.begin(going)
        await self.shelf.connection.execute(
            "INSERT INTO dedup.scan_sessions (library_id, job_id, files_seen, bytes_seen) "
            "SELECT library_id, id, 100, 2000000 FROM dedup.jobs WHERE id = $1",
            going,
        )
        return f"blake3:{SAME.hex()}"

    async def _thumbnail(self, file: int, content: bytes) -> None:
        key = await self.shelf.value("SELECT thumb_key FROM dedup.request_thumbnail($1, 'webp', 256)", file)
        await self.shelf.connection.execute(
            "UPDATE dedup.thumbnails SET status = 'running' WHERE thumb_key = $1", key
        )
        relpath = await self.shelf.value(
            "UPDATE dedup.thumbnails SET status = 'ready', bytes_size = $2, width = 256, height = 128 "
            "WHERE thumb_key = $1 RETURNING output_relpath",
            key,
            len(content),
        )
        path = self.place / "thumbs" / relpath
        path.parent.mkdir(parents=True)
        path.write_bytes(content)

    async def fill_scm(self) -> None:
        """A repository with revisions and evidence, one of GitLab, and one whose sync failed."""
        async with opened(self.urls) as ledger:
            code = await ledger.repo("code")
            patches = [self._stored(f"scm/{code}/svn/r{number}.diff", self.diff) for number in (1, 2)]
            held = await ledger.begun("code")
            await ledger.begin(held)
            facts = [
                revision(1, patch=patches[0]),
                revision(2, patch=patches[1], message=HOSTILE, author=HOSTILE),
            ]
            degraded = revision(3, meta={"diff": {"degraded": "too_large"}})
            await ledger.record(held, 1, [*facts, degraded], 3)
            async with ledger.as_worker() as worker:
                await worker.execute(
                    "SELECT scm.note_head($1, $2, '5', '2024-01-01T01:00:03Z')", held.run, held.claim
                )
            await ledger.finish(held)
            await self._fill_gitlab(ledger)
            await ledger.repo("lost", "git")
            held = await ledger.begun("lost", "git")
            await ledger.begin(held)
            await ledger.finish(held, "retry", "AUTH_FAILED")

    async def _fill_gitlab(self, ledger: Ledger) -> None:
        await ledger.repo("web", "gitlab", project_id=42)
        held = await ledger.begun("web", "git")
        await ledger.begin(held)
        await ledger.record(held, 1, [commit(number) for number in range(1, 4)], instant(3), kind="git")
        await ledger.finish(held)
        held = await ledger.begun("web", "gitlab_mr")
        await ledger.begin(held)
        requests = [
            {
                "iid": number, "author": "bob", "status": status, "url": url, "created_at": instant(number),
                "updated_at": instant(number), "meta": {"title": f"Change {number} {HOSTILE}"},
            }
            for number, status, url in (
                (1, "merged", "https://gitlab.example/1"),
                (2, "opened", "javascript:x()"),
            )
        ]  # fmt: skip
        await ledger.record(held, 1, requests, instant(2), kind="mrs")
        await ledger.finish(held)

    def _stored(self, key: str, content: bytes) -> dict[str, Any]:
        path = self.place / ".tenure" / "artifacts" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return {"uri": key, "sha256": hashlib.sha256(content).hexdigest(), "size_bytes": len(content)}

    async def fill_media(self, entity: str = "post:7") -> UUID:
        """An entity with pictures, one of hostile names, and a write that was rejected: its request."""
        for position, colour in enumerate(("teal", "orange", "purple")):
            content = encoded("png", quadrants(320 + 80 * position, 200)) + colour.encode()
            fields = {"workspace": "w1", "entity": entity, "role": "gallery", "position": str(position)}
            answer = await self.http.post(
                "/api/v1/media/blobs", files={"file": ("a.png", content, "image/png")}, data=fields
            )
            assert answer.status_code == 201, answer.text
        world = await MediaWorld.open(self.urls)
        rejected = uuid4()
        try:
            hostile = blob("hostile", mime_type="video/mp4", size=123_456)
            await world.write("attach", (HOSTILE[:60], "<b>post", HOSTILE, "video", 0), hostile)
            await world.write(
                "attach", ("w1", "post", "7", "nope", 0), blob("x"), request=rejected, actor=HOSTILE
            )
        finally:
            await world.close()
        return rejected

    async def fill_capture(self) -> None:
        """Two versions of a day, a session that waits and one that failed: `sessions`, in this order."""
        pictures = [picture(*LINES), picture(LINES[0], ("19:00 - 20:00", "Choir"))]
        entries: list[dict[str, Any]] = [
            {"start": "08:00", "end": "12:00", "title": "Pottery class", "location": None},
            {"start": "13:30", "end": "14:00", "title": "Dentist", "location": "Main street"},
        ]
        later: list[dict[str, Any]] = [
            {**entries[0], "end": "11:30"},
            {"start": "19:00", "end": None, "title": HOSTILE},
        ]
        world = await CaptureWorld.open(self.urls)
        try:
            for shots, found in ((pictures[:1], entries), (pictures, later)):
                session = await self._submitted(*shots)
                await world.claim(session)
                payload = {"schedule_date": DAY.isoformat(), "entries": found, "notes": [HOSTILE]}
                await world.version(session, payload=json.dumps(payload), hash_=uuid4().hex)
                await world.move(session, "done", locked_by=None, locked_at=None)
            await self._submitted(pictures[0], user=8)
            failed = await self._submitted(pictures[0])
            await world.move(failed, "failed", error=HOSTILE)
        finally:
            await world.close()

    async def _submitted(self, *pictures: bytes, user: int = 7) -> UUID:
        answer = await self.http.post(
            "/api/v1/capture/sessions",
            files=[("images", ("a.png", content, "image/png")) for content in pictures],
            data={"user": str(user)},
        )
        assert answer.status_code == 201, answer.text
        self.sessions.append(answer.json()["session_id"])
        return UUID(self.sessions[-1])


def words(html: str) -> str:
    """The text of a page's content, as one reads it."""
    main = html[html.index("<main") : html.index("</main>")]
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", main))).strip()


class Strangers(HTMLParser):
    """Elements and attributes that no page of ours has in its content."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(html[html.index("<main") : html.index("</main>")])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        sources = given.get("src", "/api/v1/"), given.get("href", "/")
        is_ours = sources[0].startswith("/api/v1/") and sources[1].startswith(
            ("/", "https://gitlab.example/")
        )
        if tag in ("script", "style", "b") or not is_ours or any(name.startswith("on") for name in given):
            self.found.append(f"{tag} {given}")


def settings_in(place: Path) -> dict[str, Any]:
    return {
        "state_dir": place / ".tenure",
        "libraries_dir": place / "libraries",
        "thumbs_dir": place / "thumbs",
    }


@pytest.fixture(scope="module")
async def module_site(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    urls = module_database.urls
    with module_place(tmp_path_factory) as place:
        store = Store(urls.control, name="test", size=4)
        app = create_app(FakeReplica(store, guarded(**settings_in(place))), DOMAINS)
        shelf = await Shelf.open(urls)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            yield Site(urls, place, http, shelf)
        await shelf.close()
        await store.close()


@pytest.fixture
async def site(module_site: Site, emptied_database: Urls, monkeypatch: pytest.MonkeyPatch) -> Site:
    forget_figures(monkeypatch)
    module_site.http.cookies.clear()
    await log_in(module_site.http)
    for place in (module_site.place / "thumbs", module_site.place / ".tenure" / "artifacts"):
        if place.exists():
            empty(place)
    return replace(module_site, sessions=[])


async def test_an_empty_page_says_which_command_comes_first(site: Site) -> None:
    for path, command in (
        ("/dedup/libraries", "tenure library add"),
        ("/dedup/duplicates", "--hash --only-duplicates"),
        ("/scm/repositories", "tenure repo add"),
        ("/media", "tenure media attach"),
        ("/capture/sessions", "tenure capture submit"),
    ):
        assert command in await site.words(path)


async def test_libraries_show_their_files_errors_and_work(site: Site) -> None:
    await site.fill_dedup()
    text = await site.words("/dedup/libraries")
    assert "photos photos running scan, 25 % 100 files, 2.0 MB" in text, "measured by the last whole scan"
    assert "Files were counted" in text
    html = await site.get("/dedup/libraries")
    assert re.search(r'aria-label="scan: 25 % done".*?width="25%"', html)
    text = await site.words("/dedup/libraries/photos")
    assert f"{INERT} EACCES" in text
    assert "Files 4 Size 3.0 MB Hashed 4 To hash 0 Missing 1 Not hashable 1" in text
    assert "failed" in text
    assert "ROOT_GONE it broke" in text
    text = await site.words("/dedup/libraries/photos/errors")
    assert f"{INERT} EACCES" in text
    assert "small-1.txt EIO" in text
    assert "tenure library list" in await site.words("/dedup/libraries/none", 404)


async def test_a_job_that_was_quicker_than_a_beat_has_done_all_there_was(site: Site) -> None:
    await site.shelf.library("photos")
    for kind in ("hash", "scan"):
        job = await site.shelf.job(kind)
        if kind == "scan":
            await site.shelf.walked(job, files_seen=400)
        else:
            await site.shelf.begin(job)
            await site.shelf.connection.execute("UPDATE dedup.jobs SET total_items = 317 WHERE id = $1", job)
        await site.shelf.end(job, "completed")
    text = await site.words("/dedup/libraries/photos")
    assert re.search(r"hash completed .* 317 of 317", text), text
    assert re.search(r"scan completed [^|]*? 400 ", text), text


async def test_duplicates_come_by_what_can_be_reclaimed(site: Site) -> None:
    key = await site.fill_dedup()
    html = await site.get("/dedup/duplicates")
    assert "3.0 MB can be reclaimed from 2 groups of equal files" in words(html)
    assert re.findall(r'id="g-(\w{8})', html) == [SAME.hex()[:8], OTHER.hex()[:8]]
    [source] = re.findall(r'<img src="([^"]+)" width="256" height="128" loading="lazy"', html)
    answer = await site.http.get(source)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")

    within = await site.words("/dedup/duplicates?library=photos")
    assert "4.0 kB can be reclaimed from 1 group of equal files in photos" in within
    assert "No two files in archive" in await site.words("/dedup/duplicates?library=archive")
    text = await site.words(f"/dedup/duplicates/{key}")
    assert "2 equal files" in text
    assert f"2024/{INERT}.jpg photos 3.0 MB" in text
    assert "2024/copy.jpg archive 3.0 MB" in text
    assert "no file with the content" in await site.words(f"/dedup/duplicates/blake3:{bytes(32).hex()}", 404)


async def test_pages_of_groups_and_files_miss_nothing_and_repeat_nothing(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where many groups would free the same."""
    from actors.dedup.pages import duplicates

    monkeypatch.setattr(duplicates, "PAGE", 4)
    monkeypatch.setattr(duplicates, "FILES", 2)
    await site.shelf.library("photos")
    digests = [bytes([number]) * 32 for number in range(11)]
    for number, digest in enumerate(digests):
        for copy in range(2):
            await site.shelf.file(f"{number}-{copy}", digest, size=1000 * (1 + number // 5))
    for copy in range(5):
        await site.shelf.file(f"many-{copy}", SAME, size=1)
    for path in ("/dedup/duplicates", "/dedup/duplicates?library=photos"):
        seen = await site.walk(path, r'id="g-(\w{64})"')
        assert seen == [digest.hex() for digest in (digests[10], *digests[5:10], *digests[:5], SAME)], path
    files = await site.walk(f"/dedup/duplicates/blake3:{SAME.hex()}", r'id="file-(\d+)"')
    assert len(files) == len(set(files)) == 5


async def test_what_takes_too_long_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are counted and compared for so long; then a page says which command has more time."""
    from actors.dedup.pages import counts, duplicates

    await site.fill_dedup()
    monkeypatch.setattr(counts, "COUNT_SECONDS", 0)
    monkeypatch.setattr(duplicates, "GROUPS_SECONDS", 0)
    text = await site.words("/dedup/libraries")
    assert "too many files to be counted for a page: tenure library status" in text
    assert "photos" in text
    assert "400 9.0 MB not counted" in text, "as the last scan saw them"
    assert "tenure duplicates --csv" in await site.words("/dedup/duplicates", 503)


async def test_a_library_is_scanned_from_its_page(site: Site) -> None:
    """A run of the domain, made by whoever asked, and one comes back to the library."""
    await site.shelf.library("photos")
    answer = await site.post("/dedup/libraries/photos", do="hash")
    assert (answer.status_code, answer.headers["location"]) == (303, "/dedup/libraries/photos")
    [run] = await site.shelf.rows("SELECT action, domain, payload FROM supervisor.job_run")
    assert (run["domain"], run["action"]) == ("dedup", "scan")
    assert json.loads(run["payload"]) == {"library": "photos", "hash": True}
    assert (await site.post("/dedup/libraries/photos", do="destroy")).status_code == 400
    assert (await site.post("/dedup/libraries/none", do="scan")).status_code == 404
    foreign = await site.http.post(
        "/dedup/libraries/photos", data={"do": "scan"}, headers={"Origin": "http://elsewhere.example"}
    )
    assert foreign.status_code == 403
    assert len(await site.shelf.rows("SELECT FROM supervisor.job_run")) == 1


async def test_repositories_show_lag_cursor_and_the_last_sync(site: Site) -> None:
    await site.fill_scm()
    text = await site.words("/scm/repositories")
    assert re.search(r"code svn svn 1 h 3 .* completed .* 3 inserted by hand lost", text), text
    assert "lost git git not known yet at the beginning retrying" in text
    assert "AUTH_FAILED: it failed" in text
    assert "web gitlab git" in text
    text = await site.words("/scm/repositories/code")
    assert "the beginning to 3" in text
    assert f"r2 {INERT[:50]}" in text
    assert "r3 change 3 alice" in text
    assert "too_large" in text
    assert "tenure repo list" in await site.words("/scm/repositories/none", 404)


async def test_evidence_is_verified_when_it_is_looked_at(site: Site) -> None:
    """What is stored is believed only after its SHA-256 has been compared."""
    await site.fill_scm()
    html = await site.get("/scm/repositories/code/revisions?verify=true")
    assert "All 2 diffs on this page were read" in words(html)
    [_, first] = [unescape(one) for one in re.findall(r'href="(/scm/evidence[^"]+)"', html)]
    text = await site.words(first)
    assert "Evidence verified" in text
    assert "+new red" in text, "colours are left out"

    [path] = (site.place / ".tenure" / "artifacts").rglob("r1.diff")
    path.write_bytes(DIFF.replace(b"new", b"bad"))
    assert "1 of 2 diffs" in await site.words("/scm/repositories/code/revisions?verify=true")
    text = await site.words(first, 409)
    assert "Evidence wrong" in text
    assert "bad" not in text
    path.unlink()
    assert "Evidence missing" in await site.words(first, 404)
    assert "is no address" in await site.words("/scm/evidence?uri=memory://patch_blobs/x", 400)


async def test_pages_of_what_was_read_miss_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.scm.pages import facts

    monkeypatch.setattr(facts, "PAGE", 2)
    await site.fill_scm()
    path = "/scm/repositories"
    assert await site.walk(f"{path}/code/revisions", r">(r\d)<") == ["r3", "r2", "r1"]
    assert len(set(await site.walk(f"{path}/web/commits", r'<span title="([0-9a-f]{40})">'))) == 3
    assert await site.walk(f"{path}/web/merge-requests", r"(!\d)<") == ["!2", "!1"]
    assert len(set(await site.walk(f"{path}/web/runs", r'id="(sync-[^"]+)"'))) == 2
    html = await site.get(f"{path}/web/merge-requests")
    assert 'href="https://gitlab.example/1"' in html
    assert "javascript:" not in html


async def test_a_repository_is_synced_from_its_page(site: Site) -> None:
    await site.fill_scm()
    answer = await site.post("/scm/repositories/web", do="sync", source="gitlab_review")
    assert (answer.status_code, answer.headers["location"]) == (303, "/scm/repositories/web")
    [run] = await site.shelf.rows(
        "SELECT source_type, requested_by FROM scm.sync_runs WHERE status = 'pending'"
    )
    assert run == {"source_type": "gitlab_review", "requested_by": "TENURE_API_TOKEN"}
    assert (await site.post("/scm/repositories/web", do="sync", source="svn")).status_code == 404
    assert (await site.post("/scm/repositories/web", do="sync", source="nope")).status_code == 400
    assert (await site.post("/scm/repositories/web", do="drop")).status_code == 400


async def test_media_are_shown_by_entity_content_and_write(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actors.media.pages import gallery

    rejected = await site.fill_media()
    html = await site.get("/media")
    sources = re.findall(r'<img src="([^"]+)" loading="lazy" decoding="async" alt="gallery', html)
    assert len(sources) == 3
    assert (await site.http.get(sources[0])).headers["content-type"] == "image/png"
    assert f"<b>post:{INERT}" in words(html)
    assert len(re.findall(r'id="ref-', await site.get("/media?workspace=w1&entity=post"))) == 3
    assert "No media like that" in await site.words("/media?workspace=w2")

    text = await site.words("/media?workspace=w1&entity=post:7")
    assert "post:7 Media of an entity in the workspace w1 gallery 0 ref 1 image/png" in text
    assert "ROLE" in text, "the write that was rejected"
    text = await site.words(f"/media/requests/{rejected}")
    assert re.search(
        r"Story of a write rejected .* request attach .* decision reject .* result rejected", text
    ), text
    assert "no write was asked for" in await site.words(f"/media/requests/{uuid4()}", 404)
    hash_ = sources[0].rpartition("/")[2]
    assert "Used 1 time" in await site.words(f"/media/blobs/{hash_}")

    monkeypatch.setattr(gallery, "PAGE", 2)
    monkeypatch.setattr(gallery, "SLOTS", 2)
    assert await site.walk("/media?workspace=w1", r'id="ref-(\d+)"') == ["3", "2", "1"]
    assert await site.walk("/media/entity?entity=post:7", r'id="ref-(\d+)"') == ["1", "2", "3"]
    monkeypatch.setattr(gallery, "LOOK", 1)
    assert await site.walk("/media?workspace=w1", r'id="ref-(\d+)"') == ["3", "2", "1"], "look by look"


async def test_a_picture_stands_beside_what_was_read_from_it(site: Site) -> None:
    await site.fill_capture()
    first, second, waiting, failed = site.sessions
    text = await site.words("/capture/sessions")
    assert re.search(rf"{second[:8]} done 7 2026-11-16 version 2 2 2 ", text), text
    assert f"{failed[:8]} failed 7 1 " in text
    assert INERT in text
    html = await site.get(f"/capture/sessions/{second}")
    sources = re.findall(r'<img src="([^"]+/images/\d)" loading', html)
    assert [(await site.http.get(one)).headers["content-type"] for one in sources] == ["image/png"] * 2
    text = words(html)
    assert "Entries, compared with version 1" in text
    assert "08:00 12:00 11:30 Pottery class changed" in text
    assert f"19:00 {INERT} new" in text
    assert "13:30 14:00 Dentist Main street gone" in text
    assert re.search(r"Versions of 2026-11-16 .* 2 this one 2 .* 1 2 .* shown", text), text
    text = await site.words(f"/capture/sessions/{first}?since=2")
    assert "11:30 12:00 Pottery class changed" in text
    assert "user 7 has no version 9" in await site.words(f"/capture/sessions/{first}?since=9", 404)
    assert f"Not read: {INERT}" in await site.words(f"/capture/sessions/{failed}")
    assert "tenure capture list" in await site.words(f"/capture/sessions/{uuid4()}", 404)
    assert "Refuse it" in await site.words(f"/capture/sessions/{waiting}")


async def test_sessions_are_found_by_state_and_user(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    from actors.capture.pages import sessions

    await site.fill_capture()
    monkeypatch.setattr(sessions, "PAGE", 1)
    every = list(reversed(site.sessions))
    of_seven = [one for one in every if one != site.sessions[2]]
    for look in (10_000, 1):
        monkeypatch.setattr(sessions, "LOOK", look)
        assert await site.walk("/capture/sessions", r'id="s-([^"]+)"') == every
        assert await site.walk("/capture/sessions?user=7", r'id="s-([^"]+)"') == of_seven
        assert await site.walk("/capture/sessions?state=done", r'id="s-([^"]+)"') == every[2:]


async def test_a_session_that_waits_is_refused_from_its_page(site: Site) -> None:
    await site.fill_capture()
    path = f"/capture/sessions/{site.sessions[2]}"
    assert (await site.post(path, do="refuse", reason=" ")).status_code == 400
    assert (await site.post(path, do="refuse", reason="x" * 501)).status_code == 400
    assert (await site.post(path, do="refuse", reason=HOSTILE)).headers["location"] == path
    assert f"Not read: {INERT}" in await site.words(path)
    assert (await site.post(path, do="refuse", reason="again")).status_code == 409
    [row] = await site.shelf.rows("SELECT actor FROM supervisor.audit WHERE action = 'capture.refuse'")
    assert row == {"actor": "TENURE_API_TOKEN"}


async def every_page(site: Site) -> list[str]:
    """Of a site with everything in it."""
    key, rejected = await site.fill_dedup(), await site.fill_media()
    await site.fill_scm()
    await site.fill_capture()
    gallery = await site.get("/media")
    linked = {unescape(one) for one in re.findall(r'href="(/media/(?:blobs|entity)[^"]+)"', gallery)}
    code = await site.get("/scm/repositories/code")
    linked |= {unescape(one) for one in re.findall(r'href="(/scm/evidence[^"]+)"', code)[:1]}
    return [
        "/dedup/libraries", "/dedup/libraries/photos", "/dedup/libraries/photos/errors", "/dedup/duplicates",
        f"/dedup/duplicates/{key}", "/scm/repositories", "/scm/repositories/code", "/scm/repositories/web",
        "/scm/repositories/lost", "/scm/repositories/code/revisions?verify=true",
        "/scm/repositories/web/runs", "/scm/repositories/web/merge-requests", "/media",
        f"/media/requests/{rejected}",
        "/capture/sessions", *(f"/capture/sessions/{one}" for one in site.sessions), *sorted(linked),
    ]  # fmt: skip


async def test_hostile_names_are_shown_and_do_nothing(site: Site) -> None:
    shown = ""
    for path in await every_page(site):
        html = await site.get(path)
        assert not Strangers(html).found, path
        assert not re.findall(r"[\x00-\x08\x0b-\x1f\u202a-\u202e]", html), path
        shown += words(html)
    assert shown.count(INERT) > 15
    assert "{{7919*7907}}" in shown
    assert str(7919 * 7907) not in shown


async def test_a_page_asks_the_same_however_much_it_shows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No statement for each row: more rows, as many statements."""
    asked: list[str] = []
    rows = Store.rows

    async def counting(self: Store, query: Any, *args: Any, **more: Any) -> Any:
        asked.append(str(query))
        return await rows(self, query, *args, **more)

    async def statements() -> dict[str, int]:
        counts = {}
        for path in ("/dedup/duplicates", "/scm/repositories", "/media", "/capture/sessions"):
            asked.clear()
            await site.get(path)
            counts[path] = len([one for one in asked if one != "read_scm_metrics"])  # kept for a while
        return counts

    monkeypatch.setattr(Store, "rows", counting)
    await every_page(site)
    before = await statements()
    for number in range(8):
        for copy in range(2):
            await site.shelf.file(f"more-{number}-{copy}", bytes([number]) * 32)
    await site.fill_media("post:8")
    await site.fill_capture()
    async with opened(site.urls) as ledger:
        for number in range(8):
            await ledger.repo(f"more-{number}")
    assert await statements() == before


INDEXES = {
    "see_libraries": ("scan_sessions_library",),
    "see_library_work": ("jobs_running", "jobs_claim", "jobs_retryable"),
    "see_library_jobs": ("jobs_list",),
    "see_hash_errors": ("library_files_path",),
    "see_duplicates": ("ix_library_files_dedup_group", "thumbnails_group"),
    "see_duplicate": ("ix_library_files_dedup_group", "thumbnails_group"),
    "see_sync_runs": ("idx_sync_runs_task_started",),
    "see_revisions": ("svn_revisions_pkey", "patch_blobs_source_type_source_id_key"),
    "see_commits": ("git_commits_ts", "patch_blobs_source_type_source_id_key"),
    "see_merge_requests": ("mrs_updated", "review_events_mr_id_source_event_id_key"),
    "see_media": ("media_refs_pkey", "media_refs_source"),
    "see_media_reach": ("media_refs_pkey",),
    "see_entity_slots": ("media_refs_entity", "media_refs_source"),
    "see_blob_writes": ("media_write_events_blob",),
    "see_captures": ("capture_session_newest", "capture_image_order"),
    "see_user_captures": ("capture_session_of_user",),
    "see_capture_reach": ("capture_session_newest",),
    "see_user_capture_reach": ("capture_session_of_user",),
}


async def test_pages_are_read_in_the_order_of_an_index(database: Urls) -> None:
    """So a page costs the same however much there is; of groups, each one reads the whole index."""
    switches = {f"enable_{one}": "off" for one in ("seqscan", "bitmapscan", "hashjoin", "mergejoin")}
    async with connected(database.admin, plan_cache_mode="force_generic_plan", **switches) as connection:
        for name, indexes in INDEXES.items():
            sql = queries()[name].sql
            arguments = ", ".join(["NULL"] * max(int(one) for one in re.findall(r"\$(\d+)", sql)))
            await connection.execute(f"PREPARE {name} AS {sql}")
            rows = await connection.fetch(f"EXPLAIN (COSTS off) EXECUTE {name} ({arguments})")
            plan = "\n".join(row[0] for row in rows)
            for index in indexes:
                assert index in plan, f"{name}\n{plan}"


BAD_ADDRESSES = (
    "/dedup/libraries?after=%00", "/dedup/libraries/%2e%2e", "/dedup/libraries/a?before=0",
    "/dedup/duplicates?library=%27", "/dedup/duplicates?cursor=x",
    "/dedup/duplicates?cursor=WyItMSIsIngiXQ", "/dedup/duplicates/blake3:zz",
    "/scm/repositories?after=%00", "/scm/repositories/%00", "/scm/repositories/x/secrets",
    "/scm/repositories/x/runs?cursor=!", "/scm/evidence?uri=file:///etc/passwd", "/scm/evidence",
    "/media?before=-1", "/media?workspace=%00", "/media/entity?entity=x",
    "/media/entity?entity=a:b&cursor=a:b:c", "/media/entity?entity=a:b&cursor=WyJhIiwyMTQ3NDgzNjQ4LDFd",
    "/media/blobs/xyz", "/media/requests?id=7", "/media/requests/7", "/capture/sessions?user=x",
    "/capture/sessions?user=99999999999999999999", "/capture/sessions?state=x", "/capture/sessions?cursor=x",
    "/capture/sessions/7",
)  # fmt: skip


async def test_a_bad_address_is_a_page_that_says_so(site: Site) -> None:
    for path in BAD_ADDRESSES:
        answer = await site.http.get(path)
        assert answer.status_code in (400, 404, 422), f"{path}: {answer.status_code}"
        assert "<main" in answer.text
        assert "root:" not in answer.text
