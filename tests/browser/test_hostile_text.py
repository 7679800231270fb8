"""Hostile text in everything that somebody outside can choose, looked at in a browser: it is shown, and
nothing of it happens.

One site for all. Every page is looked at without its policy, so that a payload that came through would run,
and with it, while the page's script draws it again.
"""

import base64
import json
import shlex
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import httpx
import pytest

from actors.dedup.names import to_text
from tests.browser.booth import booth
from tests.browser.eyes import Sight
from tests.browser.test_pages import every_page as pages_of_the_console
from tests.browser.test_pages import furnish
from tests.browser.tour import Tour
from tests.integration.test_domain_pages import DOMAINS, Site, every_page, settings_in
from tests.support.door import log_in
from tests.support.hostile import LONG, SCHEMES, SHORT, poison
from tests.support.lending import Shared
from tests.support.module_place import module_place
from tests.support.scene import Scene
from tests.support.shelf import Shelf
from tests.support.slowness import patient

pytestmark = pytest.mark.slow

DEPTH: Final = 2500
"""PostgreSQL takes JSON of this depth, and Python reads less."""
SHOWN: Final[Mapping[str, str]] = {
    "a": "name",
    "dedup.jobs": "error_code error_message requested_by",
    "dedup.library_files": "hash_error_code hash_error_message relative_path",
    "dedup.library_roots": "root_path",
    "dedup.scan_errors": "code path",
    "dedup.scan_sessions": "error_code error_message",
    "public.media_refs": "created_by role",
    "public.media_write_events": "actor error_code error_message payload role",
    "schedule_ingest.capture_session": "error",
    "schedule_ingest.schedule_version": "payload",
    "scm.git_commits": "author_raw author_user_id message",
    "scm.mrs": "author_raw author_user_id",
    "scm.repos": "project_key url",
    "scm.svn_revisions": "author_raw author_user_id message meta_json",
    "scm.sync_runs": "error_json requested_by watermark_end",
    "supervisor.audit": "action actor after before target",
    "supervisor.domain_pause": "actor",
    "supervisor.event": "dedupe_key payload",
    "supervisor.job_definition": "cron payload schedule_error takes",
    "supervisor.job_run": "action error_code error_message idempotency_key payload result",
    "supervisor.job_run_history": "actor reason",
    "supervisor.job_run_log": "body",
    "supervisor.late_finish": "error_code state",
    "supervisor.tenure_log": "reason",
}
"""Columns with texts from outside that stand on some page: a tour that does not see them sees too little."""


@dataclass(frozen=True)
class Hostile:
    """The site, the paths of its pages, and its runs by their state."""

    site: Site
    base: str
    paths: Sequence[str]
    runs: Mapping[str, int]


@pytest.fixture(scope="module")
async def hostile(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Hostile]:
    """Something of everything a page can show, all of it hostile."""
    urls = module_database.urls
    with module_place(tmp_path_factory) as place:
        shelf, scene = await Shelf.open(urls), await Scene.open(urls)
        async with (
            booth(urls, DOMAINS, **settings_in(place)) as base,
            httpx.AsyncClient(base_url=base, timeout=patient(10), trust_env=False) as http,
        ):
            await log_in(http)
            site = Site(urls, place, http, shelf, diff=LONG.encode())
            runs = await furnish(scene)
            runs["KEYED"] = await ask(scene, runs["SUCCEEDED"])
            paths = [*pages_of_the_console(runs), *await every_page(site)]
            await shelf.file(to_text(b"\xff\xfe\x80" + LONG.encode()))
            await poison(scene.connection)
            await add_what_takes_no_end(scene, runs)
            more = (runs[state] for state in ("KEYED", "SUCCEEDED", "ASSIGNED", "CONFIRMING"))
            paths += ["/jobs/hostile", "/jobs/sorting", *(f"/runs/{run}" for run in more)]
            yield Hostile(site, base, paths, runs)
        await shelf.close()
        await scene.close()


async def ask(scene: Scene, succeeded: int) -> int:
    """A job with hostile parameters and a run with hostile arguments, as callers give them; and a result."""
    spec = {"type": "text", "description": LONG[:1000]}
    await scene.job(
        "hostile",
        action=SHORT,
        payload={"argv": ["true", LONG], "env": {SHORT: LONG}},
        parameters={
            "chosen": {**spec, "choices": [LONG, SHORT], "default": SHORT},
            "needed": {**spec, "required": True},
        },
    )
    await scene.force(
        "UPDATE supervisor.job_run SET result = jsonb_build_object($1::text, $1::text) WHERE id = $2",
        LONG, succeeded,
    )  # fmt: skip
    await scene.force("UPDATE supervisor.job_definition SET schedule_error = 'no' WHERE name = 'hostile'")
    await scene.force(
        """INSERT INTO supervisor.tenure_log (epoch, holder, what, reason)
           VALUES ($1, 'w1', 'RESIGNED', 'no')""",
        scene.epoch,
    )
    arguments = json.dumps({"chosen": LONG, "needed": LONG})
    enqueue = "SELECT id FROM supervisor.enqueue('hostile', $1::text::jsonb, $2, NULL, NULL)"
    return int(await scene.value(enqueue, arguments, SHORT))


async def add_what_takes_no_end(scene: Scene, runs: Mapping[str, int]) -> None:
    """A branch, a setting, a content's type, JSON of great depth, and addresses that are none."""
    await scene.force("UPDATE scm.repos SET default_branch = $1 WHERE repo_type = 'git'", LONG)
    await scene.force("INSERT INTO supervisor.setting (name, value) VALUES ($1, 'true')", SHORT)
    await scene.force("UPDATE public.media_blobs SET mime_type = $1 WHERE mime_type LIKE 'video/%'", SHORT)
    deep = f'{{"deep": {"[" * DEPTH}{"]" * DEPTH}}}'
    for table, column, key in (
        ("job_run", "payload", runs["ASSIGNED"]),
        ("job_run", "result", runs["CONFIRMING"]),
        ("job_definition", "payload", 2),
        ("audit", "after", 1),
    ):
        await scene.force(
            f"UPDATE supervisor.{table} SET {column} = $1::text::jsonb WHERE id = $2", deep, key
        )
    for number, scheme in enumerate(SCHEMES, start=100):
        await scene.force(
            """INSERT INTO scm.mrs (mr_id, repo_id, iid, status, url, run_id, source_updated_at)
               SELECT repo_id || ':' || $1::bigint, repo_id, $1, status, $2, run_id, source_updated_at
                 FROM scm.mrs WHERE iid = 1""",
            number, scheme,
        )  # fmt: skip


async def test_the_payloads_would_run(hostile: Hostile, browser: Sight) -> None:
    """Where nothing is escaped they run, and a look finds them; a page's policy alone stops them too."""
    for policy, outcome in ((False, "ran"), (True, "refused")):
        tour = Tour(await browser.open(hostile.base, policy=policy))
        await tour.visit("/jobs")
        assert await tour.do("insert", LONG) == outcome
        await tour.look("/jobs")
        assert len(tour.wrong) > 10


async def test_hostile_text_is_shown_and_nothing_of_it_happens(hostile: Hostile, browser: Sight) -> None:
    """Without a policy that would stop it."""
    tour = Tour(await browser.open(hostile.base, policy=False))
    for path in hostile.paths:
        await tour.visit(path)
    for path in tour.onward():
        await tour.visit(path)
    for path in tour.reflecting(hostile.paths):
        await tour.visit(path)
    assert not tour.wrong, "\n".join(tour.wrong)
    shown = {f"{table}.{column}" for table, columns in SHOWN.items() for column in columns.split()}
    assert tour.seen >= shown, sorted(shown - tour.seen)


async def test_a_page_that_is_drawn_again_does_nothing_either(hostile: Hostile, browser: Sight) -> None:
    """By its script, out of a page that was asked for behind it; and no policy is broken."""
    tour = Tour(await browser.open(hostile.base))
    await tour.eyes.page.clock.install()
    for path in hostile.paths:
        await tour.look_again(path)
    assert not tour.wrong, "\n".join(tour.wrong)


async def test_what_was_done_is_told_without_doing_it(hostile: Hostile, browser: Sight) -> None:
    """The sentence after a form and the colours stand in cookies, and a neighbour's port can set those."""
    tour = Tour(await browser.open(hostile.base, policy=False))
    message = json.dumps({"failed": True, "text": f"run 7 {LONG}"[:600]}).encode()
    for text in (message, b"[" * DEPTH):
        cookies = {"tenure_flash": base64.urlsafe_b64encode(text).decode(), "tenure_theme": quote(LONG)}
        for name, value in cookies.items():
            await tour.eyes.page.context.add_cookies([{"name": name, "value": value, "url": hostile.base}])
        await tour.visit("/jobs")
        assert await tour.eyes.page.locator("[role=status]").count() == (text is message)
    assert not tour.wrong, "\n".join(tour.wrong)


async def test_a_stream_tells_hostile_text_as_it_is(hostile: Hostile, browser: Sight) -> None:
    """No line of a log and no name of a worker ends an event or begins another."""
    tour, rows = Tour(await browser.open(hostile.base)), hostile.site.shelf.rows
    await tour.visit("/jobs")
    run = hostile.runs["RUNNING"]
    lines = await rows(
        "SELECT seq, stream, body FROM supervisor.job_run_log WHERE run_id = $1 ORDER BY seq", run
    )
    assert all(LONG in line["body"] for line in lines)
    told = await tour.do("listen", [f"/api/v1/runs/{run}/logs?follow=true", "line", len(lines)])
    assert [{name: one[name] for name in ("seq", "stream", "body")} for one in told] == lines
    workers = await rows("SELECT worker_id FROM supervisor.worker ORDER BY worker_id")
    [hello] = await tour.do("listen", ["/api/v1/stream", "hello", 1])
    assert sorted(hello["workers"]) == [one["worker_id"] for one in workers]


async def test_a_command_to_copy_is_one_command(hostile: Hostile, browser: Sight) -> None:
    """Whatever somebody put into the link that led here."""
    tour = Tour(await browser.open(hostile.base))
    for entity in ("post:7;id", "post:$(id)", "post:`id`", "post:'|id"):
        await tour.visit(f"/media/entity?entity={quote(entity)}&workspace={quote(entity)}")
        command = await tour.eyes.text("main .empty code")
        assert shlex.split(command)[4:8] == ["--workspace", entity, "--entity", entity]
