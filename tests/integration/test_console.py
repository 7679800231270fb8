"""The console's own pages over a database in which it really is so: what they say, without a browser."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest

import schemas
from supervisor import console, why
from supervisor.api import create_app
from supervisor.console.next_step import next_step
from supervisor.console.page import Link
from supervisor.console.waiting import SHORT
from supervisor.embedded import Urls
from supervisor.store import Store
from supervisor.why import Reason, Why
from tests.support.door import guarded, log_in
from tests.support.fake_replica import FakeReplica
from tests.support.kept_figures import forget_figures
from tests.support.lending import Shared
from tests.support.module_place import module_place
from tests.support.scene import Scene

D = timedelta(seconds=30)


@dataclass
class Site:
    http: httpx.AsyncClient
    scene: Scene

    async def html(self, path: str) -> str:
        answer = await self.http.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[:2000]}"
        return answer.text

    async def words(self, path: str) -> str:
        """What can be read on a page, in one line; a part of it by `#id`."""
        path, _, part = path.partition("#")
        text = await self.html(path)
        if part:
            found = re.search(rf'aria-labelledby="{part}".*?</section>', text, re.DOTALL)
            assert found is not None, f"no {part} on {path}"
            text = found[0]
        text = re.sub(r"<(script|style|title).*?</\1>", " ", text, flags=re.DOTALL)
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())

    async def silence(self, worker: str, seconds: int = 600) -> None:
        await self.scene.force(
            "UPDATE supervisor.worker SET heartbeat_at = heartbeat_at - make_interval(secs => $2)"
            " WHERE worker_id = $1",
            worker,
            seconds,
        )


@pytest.fixture(scope="module")
async def module_site(
    module_database: Shared, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Site]:
    with module_place(tmp_path_factory):
        store = Store(module_database.urls.control, name="test", size=4)
        app = create_app(FakeReplica(store, guarded()))
        scene = await Scene.open(module_database.urls)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            yield Site(http, scene)
        await scene.close()
        await store.close()


@pytest.fixture
async def site(module_site: Site, emptied_database: Urls, monkeypatch: pytest.MonkeyPatch) -> Site:
    forget_figures(monkeypatch)
    module_site.http.cookies.clear()
    await log_in(module_site.http)
    scene = Scene(module_site.scene.connection)
    await scene.job()
    await scene.lead("w1")
    await scene.beat("w1")
    return replace(module_site, scene=scene)


def moments(html: str) -> list[datetime]:
    return [datetime.fromisoformat(one) for one in re.findall(r'<time datetime="([^"]+)"', html)]


async def test_until_when_a_silent_worker_is_awaited_after_a_change_of_leader(site: Site) -> None:
    """The deadline stands in the row; the new leader gives nothing up before it has watched for D itself."""
    scene = site.scene
    run = await scene.run_to("RUNNING")
    seq = await scene.value("SELECT beat_seq FROM supervisor.worker")
    await scene.value("SELECT supervisor.confirm($1, '{w1}', $2, 0, 3, 1)", scene.epoch, [seq])
    await scene.value("SELECT supervisor.resign($1, 'w1', 'test')", scene.epoch)
    assert "when a leader has watched it" in await site.words("/late#confirming")
    await scene.lead("w2")
    until = (await scene.value("SELECT since FROM supervisor.leader_epoch")).astimezone(UTC) + D
    page = await site.html("/late")
    assert until in moments(page)
    assert "at most" in page
    page = await site.html(f"/runs/{run}")
    assert until in moments(page)
    assert "until at most" in page


async def test_a_domain_counts_the_replicas_that_are_heard(site: Site) -> None:
    await site.scene.beat("w2")
    await site.scene.beat("dead")
    await site.silence("dead")
    page = await site.html("/domains")
    row = re.search(r'<tr id="domain-command".*?</tr>', page, re.DOTALL)
    assert row is not None
    assert 'data-label="replicas">2<' in row[0]
    rows_only = re.search(r'<tr id="domain-capture".*?</tr>', page, re.DOTALL)
    assert rows_only is not None
    assert "claimed by every replica" in rows_only[0], "it gets no runs, and its rows are worked all the same"


async def test_what_failed_and_what_timed_out_are_found_by_one_link(site: Site) -> None:
    failed, late = await site.scene.run_to("FAILED"), await site.scene.run_to("TIMED_OUT")
    await site.scene.run_to("SUCCEEDED")
    found = re.search(r'data-code="FAILED".*?href="([^"]+)"', await site.html("/"), re.DOTALL)
    assert found is not None
    listed = re.findall(r'<tr id="run-(\d+)"', await site.html(unescape(found[1])))
    assert listed == [str(late), str(failed)]


async def test_a_replica_that_is_not_heard_is_not_asked_to_drain(site: Site) -> None:
    await site.scene.beat("dead")
    await site.silence("dead")
    page = await site.html("/workers")
    assert 'id="drain-w1"' in page
    assert 'id="drain-dead"' not in page


async def test_late_runs_are_listed_with_why_and_the_alarm_leads_there(site: Site) -> None:
    scene = site.scene
    now = datetime.now(UTC)
    await scene.job("one", concurrency=1)
    taken = await scene.run_to("RUNNING", "one")
    late = await scene.enqueue("one", not_before=now - timedelta(minutes=7))
    later = await scene.enqueue("job", not_before=now - timedelta(minutes=2))
    await scene.enqueue("job", not_before=now - timedelta(seconds=5))
    await scene.job("off", enabled=False)
    await scene.enqueue("off", not_before=now - timedelta(minutes=9))
    page = await site.html("/late")
    assert re.findall(r'<tr id="late-(\d+)"', page) == [str(late), str(later)], "the longest waiting first"
    words = await site.words("/late#due")
    assert f"{late} PENDING one 7 min" in words
    assert "runs at most 1 at a time" in words
    assert "It is due" in words
    assert f'(taken by <a href="/runs/{taken}">run {taken}</a>)' in page
    found = re.search(r'data-code="LATE".*?href="([^"]+)"', await site.html("/"), re.DOTALL)
    assert found is not None
    assert found[1] == "/late#due"


async def test_attempts_that_were_lost_are_listed_with_what_followed(site: Site) -> None:
    scene = site.scene
    assert "None within a day" in await site.words("/late#lost")
    lost = await scene.run_to("RUNNING")
    seq = await scene.value("SELECT beat_seq FROM supervisor.worker")
    await scene.value("SELECT supervisor.confirm($1, '{w1}', $2, 0, 3, 1)", scene.epoch, [seq])
    await scene.force("UPDATE supervisor.job_run SET continuation_check_deadline_at = clock_timestamp()")
    version = await scene.value("SELECT version FROM supervisor.job_run")
    await scene.value("SELECT supervisor.expire($1, $2, $3, $4)", scene.epoch, [lost], [version], [seq])
    told = rf"{lost} TIMED OUT job w1 (now|[\d.]+ s ago)"
    assert re.search(f"{told} owed", await site.words("/late#lost"))
    [following] = await scene.next_attempts()
    assert re.search(f"{told} {following} PENDING", await site.words("/late#lost"))


async def test_a_leader_that_was_lost_leaves_a_gap_of_at_most_so_long(site: Site) -> None:
    scene = site.scene
    await scene.force(
        "UPDATE supervisor.leader_lease SET renewed_at = clock_timestamp() - interval '3 h',"
        " expires_at = clock_timestamp() - interval '8 s'"
    )
    await scene.force("UPDATE supervisor.tenure_log SET at = at - interval '5 h'")
    await scene.lead("w2")
    words = await site.words("/leadership#terms")
    assert "lost last renewed 3 h ago" in words
    assert "up to 3 h" in words
    assert 'fill="url(#hatch)"><title>nobody led for up to 3 h' in await site.html("/leadership")


async def test_a_leader_that_does_not_renew_is_not_said_to_lead(site: Site) -> None:
    assert "w1 has led for" in await site.words("/")
    assert "renewed all the time" in await site.words("/#leader")
    await site.scene.force(
        "UPDATE supervisor.leader_lease SET renewed_at = clock_timestamp() - interval '11 h',"
        " expires_at = clock_timestamp() + interval '4 h'"
    )
    for path in ("/", "/leadership"):
        words = await site.words(path)
        assert "w1 has not been heard for 11 h, epoch 1; another replica takes over within" in words, path
        assert "has led for" not in words, path
    assert "renewed all the time" not in await site.words("/")


async def test_runs_are_found_by_the_short_name_of_their_worker(site: Site) -> None:
    """As it is shown everywhere, or a part of it; the whole one always."""
    long = "a-host-with-a-name-longer-than-that-fd39df81-0000-4000-8000-000000000001"
    other = "vm-0badcafe-0000-4000-8000-000000000002"
    mine = {}
    for worker in (long, other):
        await site.scene.beat(worker)
        mine[worker] = [str(await site.scene.run_to(state, worker=worker)) for state in ("FAILED", "RUNNING")]
    shown = re.search(r'title="a-host[^"]+">([^<]+)</a>', await site.html("/runs"))
    assert shown is not None
    for text in (long, shown[1], "fd39df81", "a-host-with"):
        for state, expected in (("", mine[long][::-1]), ("RUNNING", mine[long][1:])):
            page = (await site.http.get("/runs", params={"worker": text, "state": state})).text
            assert re.findall(r'<tr id="run-(\d+)"', page) == expected, (text, state)
    assert "No runs like that" in await site.words("/runs?worker=nobody")
    assert f'<option value="{shown[1]}">' in await site.html("/runs")


async def test_settings_say_what_they_are_between_what_and_whether_they_were_changed(site: Site) -> None:
    page = await site.html("/settings")
    row = re.search(r'<tr id="setting-reassign_after_seconds">.*?</tr>', page, re.DOTALL)
    assert row is not None
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", row[0])).split())
    assert "An ASSIGNED run of a lost worker is taken back after this" in text
    assert "0.1 to 86400 seconds" in text
    assert text.endswith("default")
    assert "0 to 1000000000000 bytes" in await site.words("/settings")
    await site.scene.value("SELECT supervisor.save_setting('ann', 'reassign_after_seconds', '90')")
    assert re.search(r"0.1 to 86400 seconds now default 60", await site.words("/settings"))


async def test_every_setting_is_described_and_its_default_is_what_it_begins_with(site: Site) -> None:
    rows = await site.scene.connection.fetch("SELECT * FROM supervisor.setting")
    assert [row["name"] for row in rows if not row["about"] or row["initial"] != row["value"]] == []
    numbers = [row for row in rows if row["least"] is not None]
    assert [row["name"] for row in numbers if not row["unit"]] == []


async def test_after_a_retry_one_gets_to_the_new_run(site: Site) -> None:
    scene = site.scene
    await scene.job("once", max_attempts=1)
    failed = await scene.run_to("FAILED", "once")
    form = {"do": "retry", "run": str(failed), "next": "/runs"}
    answer = await site.http.post("/runs", data=form, headers={"Origin": "http://127.0.0.1"})
    assert answer.status_code == 303, answer.text
    page = await site.html("/runs")
    assert f'Another attempt was asked for: <a href="/runs/{failed}">run {failed}</a>.' in page
    [following] = await scene.next_attempts()
    row = re.search(rf'<tr id="run-{failed}".*?</tr>', await site.html("/runs"), re.DOTALL)
    assert row is not None
    assert f'<a href="/runs/{following}">run {following}</a>' in row[0]


async def test_what_failed_and_what_timed_out_differ_in_colour() -> None:
    css = (Path(console.__file__).parent / "static/console.css").read_text()
    found = dict(re.findall(r"(?m)^(\.k-[\w, .-]+) \{ --k: var\((--\w+)\)", css))
    colours = {name.strip(): colour for names, colour in found.items() for name in names.split(",")}
    assert len({colours[f".k-{state}"] for state in ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED")}) == 4


async def test_the_headline_is_not_older_than_the_lease(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures are kept for some seconds; who leads is not."""
    kept: dict[str, Any] = (await site.http.get("/status")).json()
    assert kept["leader"]["worker_id"] == "w1"

    async def status(_replica: FakeReplica) -> dict[str, Any]:
        return kept

    monkeypatch.setattr(FakeReplica, "status", status)
    await site.scene.force("UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()")
    words = await site.words("/")
    assert "Nobody leads" in words
    assert "has led for" not in words
    await site.scene.lead("w2")
    assert "w2 has led for" in await site.words("/")
    await site.scene.force("UPDATE supervisor.leader_epoch SET timeline = timeline + 1")
    for path in ("/", "/leadership"):
        assert "w2 has led for" not in await site.words(path), "a lease of another server leads nobody"
    assert "Nobody has led." in " ".join((await site.words("/leadership")).replace(" .", ".").split())


async def test_a_process_is_called_a_replica_on_every_page(site: Site) -> None:
    """What is read; addresses, fields and the records' own names stay."""
    scene = site.scene
    await scene.job("one", concurrency=1)
    runs = [await scene.run_to(state, "one") for state in ("FAILED", "ASSIGNED", "PENDING")]
    runs += [await scene.run_to(state) for state in ("RUNNING", "CONFIRMING", "SUCCEEDED")]
    await scene.value("SELECT supervisor.request_cancel('ann', $1)", runs[3])
    pages = ["/", "/runs", "/jobs", "/jobs/one", "/workers", "/leadership", "/late", "/domains"]
    for path in (*pages, *(f"/runs/{run}" for run in runs)):
        words = await site.words(path)
        assert not re.search("worker", words, re.IGNORECASE), (path, words)
    assert "Replicas" in await site.words("/workers")


async def test_the_job_page_and_the_lag_say_what_they_mean(site: Site) -> None:
    await site.scene.job("one", concurrency=1)
    assert "At a time at most 1; the others wait" in await site.words("/jobs/one#facts")
    words = await site.words("/#lag")
    assert "has waited for its start; a full bar is 30 s." in words
    assert 'width="0.0%"' in await site.html("/")


async def headline(site: Site, run: int) -> str:
    found = re.search(r'<p class="sentence".*?</p>', await site.html(f"/runs/{run}"), re.DOTALL)
    assert found is not None
    return re.sub(r"<time[^>]*>|</time>", "", found[0])


async def test_the_headline_of_what_failed_says_what_follows_and_when(site: Site) -> None:
    scene = site.scene
    failed = await scene.run_to("RUNNING")
    await scene.finish(failed, "FAILED", "EXIT_1", delay=3600)
    assert "has yet to make the next attempt, due in 59 min" in await headline(site, failed)
    assert "Retry due in 59 min" in await site.words(f"/runs/{failed}#facts")
    [following] = await scene.next_attempts()
    link = f'<a href="/runs/{following}">run {following}</a>'
    assert f"{link} is the next attempt, due in 59 min" in await headline(site, failed)
    assert f'<a href="/runs/{failed}">run {failed}</a>' in await headline(site, following)
    await scene.force("UPDATE supervisor.job_run SET not_before = clock_timestamp() WHERE id = $1", following)
    await scene.force("UPDATE supervisor.job_run SET retry_at = clock_timestamp() WHERE id = $1", failed)
    assert f"{link} is the next attempt.</p>" in await headline(site, failed), "it is not due, it is at work"
    facts = await site.words(f"/runs/{failed}#facts")
    assert re.search(rf"Retried (now|\d+ s ago) as run {following}", facts)
    assert "Retry due" not in facts


async def next_of(site: Site, run: int) -> str:
    found = re.search(r'<div class="next">.*?</div>', await site.html(f"/runs/{run}"), re.DOTALL)
    assert found is not None
    return found[0]


async def press(site: Site, html: str) -> httpx.Response:
    """The form in it, sent; the page one comes to."""
    action = re.search(r'action="([^"]+)"', html)
    assert action is not None
    fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', html))
    origin = {"Origin": "http://127.0.0.1"}
    return await site.http.post(action[1], data=fields, headers=origin)


async def test_what_a_page_does_is_offered_as_a_link_or_a_button(site: Site) -> None:
    """Where the command line is told a command."""
    scene = site.scene
    failed = await scene.run_to("RUNNING")
    assert "Follow its log" in await next_of(site, failed)
    await scene.finish(failed, "FAILED", "EXIT_1", delay=3600)
    [following] = await scene.next_attempts()
    done, given = await scene.run_to("SUCCEEDED"), await scene.run_to("ASSIGNED")
    await scene.job("once", max_attempts=1)
    last = await scene.run_to("FAILED", "once")
    assert f'<a href="/runs/{following}">See run {following}</a>' in await next_of(site, failed)
    assert '<a href="#log">Its log</a>' in await next_of(site, last)
    assert '<a href="/workers#w1">Drain the replica</a>' in await next_of(site, given)
    for run in (failed, done, given, last):
        assert "<code>" not in await next_of(site, run)
    queued = await scene.enqueue()
    for held in (
        "UPDATE supervisor.job_definition SET enabled = false",
        "SELECT supervisor.pause_domain('ann', 'command', true)",
    ):
        await scene.value(held)
        button = await next_of(site, queued)
        assert "<code>" not in button
        answer = await press(site, button)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{queued}"), answer.text
        assert 'data-reason="IN_LINE"' in await headline(site, queued)


async def test_who_may_only_look_is_shown_the_place(site: Site) -> None:
    reason = Reason("JOB_DISABLED", "it is off", "`tenure job enable a b`")
    step = next_step(Why(7, "PENDING", "NONE", datetime.now(UTC), reason), "a b", "command")
    assert (step.link, step.words) == (Link("Go to the job", "/jobs/a%20b"), "")
    assert "See which jobs there are" in (await site.http.get("/jobs/none")).text


async def test_runs_are_named_as_runs(site: Site) -> None:
    scene = site.scene
    await scene.job("one", concurrency=1)
    taken = await scene.run_to("RUNNING", "one")
    waits = await scene.enqueue("one")
    link = f'<a href="/runs/{taken}">run {taken}</a>'
    assert f"<dt>taken by</dt><dd>{link}</dd>" in await site.html(f"/runs/{waits}")
    assert f"<li>{link}" in await site.html("/workers")


async def test_a_minute_that_is_over_keeps_its_figure(site: Site) -> None:
    """The buckets are whole minutes: they do not move with the moment at which somebody looks."""
    scene = site.scene
    run = await scene.run_to("SUCCEEDED")
    minute = "SELECT date_trunc('minute', clock_timestamp())"
    cases = [(1, 0.0), (1, 59.9), (2, 59.9), (59, 0.0), (60, 59.9)]
    while cases:
        begun = await scene.value(minute)
        minutes, second = cases[0]
        ended = begun - timedelta(minutes=minutes) + timedelta(seconds=second)
        await scene.force("UPDATE supervisor.job_run SET finished_at = $2 WHERE id = $1", run, ended)
        rows = await scene.connection.fetch(schemas.queries()["see_outcomes"].sql, 100)
        if begun != await scene.value(minute):
            continue
        assert [row["minutes_ago"] for row in rows] == ([minutes] if minutes < 60 else []), ended
        cases.pop(0)


async def test_a_list_says_of_each_run_that_waits_why(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many they are, it is asked once for all of them."""
    scene = site.scene
    await scene.job("one", concurrency=1)
    await scene.run_to("RUNNING", "one")
    await scene.job("off", enabled=False)
    later = datetime.now(UTC) + timedelta(hours=1)
    failed = await scene.run_to("RUNNING")
    await scene.finish(failed, "FAILED", "EXIT_1", delay=3600)
    [again] = await scene.next_attempts()
    given = await scene.run_to("ASSIGNED")
    expected = {
        again: "back-off, due in 59 min",
        given: "about to start",
        await scene.enqueue("one"): "job at its limit",
        await scene.enqueue("job", not_before=later): "due in 59 min",
        await scene.enqueue("off"): "job disabled",
        await scene.enqueue(): "in line",
    }
    asked: list[str] = []
    plain = Store.rows

    async def rows(store: Store, query: Any, *args: Any, **more: Any) -> Any:
        asked.append(str(query))
        return await plain(store, query, *args, **more)

    monkeypatch.setattr(Store, "rows", rows)
    page = await site.html("/runs")
    for run, words in expected.items():
        row = re.search(rf'<tr id="run-{run}".*?</tr>', page, re.DOTALL)
        assert row is not None
        found = re.search(r'<td class="reason">(.*?)</td>', row[0], re.DOTALL)
        assert found is not None, row[0]
        assert re.sub(r"<[^>]+>", "", found[1]).startswith(words), found[1]
    for _ in range(20):
        await scene.enqueue("one")
    asked.clear()
    page = await site.html("/runs")
    assert page.count(">job at its limit<") == 21
    about = {"read_why", "list_occupants", "list_candidates", "count_ahead"}
    assert [query for query in asked if query in about] == ["read_why", "list_occupants", "list_candidates"]
    assert page.count("data-reason") > (await site.html("/jobs/one")).count("data-reason") == 20
    assert "data-reason" not in await site.html("/runs?state=RUNNING"), "what runs needs no excuse"


async def test_every_reason_to_wait_has_a_short_form() -> None:
    codes = set(re.findall(r'Reason\(\s*"([A-Z_]+)"', Path(why.__file__).read_text()))
    assert codes - SHORT.keys() == {"ENDED", "NEXT_ATTEMPT_OWED", "RUNNING", "CANCELLING", "CONFIRMING"}
    assert SHORT.keys() <= codes


@pytest.mark.parametrize(
    "path",
    ["/no%1b[31m/such%e2%80%aepage", *(f"/{page}=%1b[31m%e2%80%aeevil" for page in (
        "runs?q", "runs?job", "runs?worker", "runs?domain", "audit?target", "events?type"
    ))],
)  # fmt: skip
async def test_what_an_address_says_is_shown_as_what_it_is(site: Site, path: str) -> None:
    """A terminal sequence and a mark that turns text around stood raw in the page."""
    text = (await site.http.get(path, headers={"Accept": "text/html"})).text
    assert "</html>" in text
    assert not set(text) & {"\x1b", "\u202e"}
