"""Every page: readable by everybody, on a phone too, with JavaScript and without."""

from pathlib import Path

import pytest
from fastapi import APIRouter, Request, Response

from supervisor.api import ReplicaView
from supervisor.api.tokens import new_secret, shown
from supervisor.console import page
from supervisor.domain import Domain
from supervisor.embedded import Urls
from supervisor.login_codes import LoginCodes
from supervisor.state_dir import make_state_dir
from tests.browser.booth import booth
from tests.browser.eyes import DESK, PHONE, Sight
from tests.support.scene import Scene

pytestmark = pytest.mark.slow


async def furnish(scene: Scene) -> dict[str, int]:
    """A bit of everything a page can show; the runs by their state."""
    await scene.lead("host-11111111-1111-4111-8111-111111111111")
    scene.epoch = await scene.value("SELECT epoch FROM supervisor.leader_epoch")
    for worker in ("w1", "w2"):
        await scene.beat(worker)
    await scene.job("nightly/backup", cron="*/5 * * * *", timezone="Europe/Berlin", max_attempts=2)
    await scene.job("sorting", action="sort", concurrency=1)
    await scene.job("off", enabled=False)
    runs = {
        state: await scene.run_to(state, "nightly/backup")
        for state in ("SUCCEEDED", "FAILED", "CANCELED", "RUNNING", "CONFIRMING", "ORPHANED", "ASSIGNED")
    }
    runs["PENDING"] = await scene.run_to("PENDING", "off")
    claim = await scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", runs["RUNNING"])
    await scene.value(
        "SELECT supervisor.append_log('w1', $1, $2, '{0,1}', '{stdout,stderr}', $3)",
        runs["RUNNING"], claim, ["one line\n", "a complaint\n"],
    )  # fmt: skip
    await scene.value("SELECT supervisor.pause_domain('anna', 'command', true)")
    await scene.value(
        "SELECT id FROM supervisor.post_event('anna', 'order.placed', '{\"id\": 7}', 'order-7')"
    )
    await scene.value(
        """INSERT INTO supervisor.late_finish (claim_id, run_id, worker_id, leader_epoch, state, error_code)
           VALUES (gen_random_uuid(), $1, 'w2', 1, 'TIMED_OUT', 'CONTINUATION_LOST')""",
        runs["FAILED"],
    )
    return runs


def every_page(runs: dict[str, int]) -> list[str]:
    single = [f"/runs/{runs[state]}" for state in ("RUNNING", "FAILED")]
    return [
        "/", "/runs", "/runs?state=FAILED&q=none", *single, "/jobs", "/jobs/nightly/backup", "/workers",
        "/leadership", "/late", "/domains", "/events", "/audit", "/settings",
    ]  # fmt: skip


async def test_every_page_passes_axe_in_both_themes_and_fits_a_phone(
    scene: Scene, console: str, browser: Sight
) -> None:
    """Labels, landmarks, names, headings, sizes and contrast, by axe; and nothing is wider than a phone."""
    runs = await furnish(scene)
    eyes = await browser.open(console)
    complaints = []
    for path in every_page(runs):
        await eyes.go(path)
        complaints += [f"{path} in light: {one}" for one in await eyes.complaints()]
        if path in ("/", "/jobs"):
            await eyes.shoot(f"{name_of(path)}-light")
        await eyes.page.emulate_media(color_scheme="dark")
        complaints += [f"{path} in dark: {one}" for one in await eyes.complaints("color-contrast")]
        await eyes.shoot(f"{name_of(path)}-dark")
        await eyes.page.emulate_media(color_scheme="light")
        await eyes.page.set_viewport_size(PHONE)
        if wider := await eyes.overflow():
            complaints.append(f"{path} is {wider} px wider than a phone")
        await eyes.shoot(f"{name_of(path)}-phone")
        await eyes.page.set_viewport_size(DESK)
    assert not complaints, "\n".join(complaints)


async def test_reading_and_acting_need_no_script(scene: Scene, console: str, browser: Sight) -> None:
    """Filter, cancel several, confirm a drain, change a setting and the theme: plain forms."""
    runs = await furnish(scene)
    eyes = await browser.open(console, script=False)
    for path in every_page(runs):
        await eyes.go(path)
        assert await eyes.page.locator("main h1").count() == 1

    await eyes.go("/runs")
    await eyes.page.get_by_label("State").select_option("ASSIGNED")
    await eyes.page.get_by_role("button", name="Find").click()
    assert await eyes.page.locator("tbody tr").count() == 1
    await eyes.page.get_by_label(f"Choose run {runs['ASSIGNED']}", exact=True).check()
    await eyes.page.get_by_role("button", name="Cancel").click()
    assert f"Cancelling was asked for: run {runs['ASSIGNED']}." in await eyes.text("[role=status]")
    assert "state=ASSIGNED" in eyes.page.url, "one comes back to where one was"
    await eyes.page.reload()
    assert await eyes.page.locator("[role=status]").count() == 0, "it is said once"

    await scene.beat("w2")  # so much later, it would be silent
    await eyes.go("/workers")
    row = eyes.page.locator("tr#w2")
    await row.get_by_text("Drain…").click()
    await row.get_by_role("button", name="Drain it").click()
    assert "w2 was asked to drain" in await eyes.text("[role=status]")

    await eyes.go("/settings")
    await eyes.page.get_by_label("reassign_after_seconds").fill("45")
    await eyes.page.locator("tr", has_text="reassign_after_seconds").get_by_role("button").click()
    assert "reassign_after_seconds is now 45; it was 60." in await eyes.text("[role=status]")
    await eyes.page.get_by_role("button", name="Dark").click()
    assert await eyes.page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert eyes.page.url.endswith("/settings")

    audited = await scene.connection.fetch(
        "SELECT actor, action FROM supervisor.audit ORDER BY id DESC LIMIT 3"
    )
    assert {row["action"] for row in audited} == {"run.cancel", "worker.drain", "setting.set"}
    assert {row["actor"] for row in audited} == {"TENURE_API_TOKEN"}


async def test_a_page_goes_on_by_itself_and_keeps_what_one_does_in_it(
    scene: Scene, console: str, browser: Sight
) -> None:
    """New runs come in; the ticked box, the focus, the typed text and the place stay."""
    await scene.lead("w1", 600)
    await scene.beat("w1")
    await scene.job("nap")
    first = await scene.run_to("PENDING", "nap")
    for _ in range(30):
        await scene.run_to("PENDING", "nap")
    eyes = await browser.open(console)
    await eyes.go("/runs")
    await eyes.page.get_by_label(f"Choose run {first}", exact=True).check()
    await eyes.page.get_by_label("Search").fill("half typed")
    place = await eyes.page.evaluate("scrollTo(0, 200), scrollY")
    await scene.run_to("RUNNING", "nap")
    await eyes.page.locator(".badge", has_text="RUNNING").wait_for()
    assert await eyes.page.get_by_label(f"Choose run {first}", exact=True).is_checked()
    assert await eyes.page.get_by_label("Search").input_value() == "half typed"
    assert await eyes.page.evaluate("document.activeElement.id") == "q"
    assert await eyes.page.evaluate("scrollY") == place > 0
    assert await eyes.text("[data-ticked]") == "1 chosen:"

    await eyes.page.get_by_role("button", name="Live").click()
    assert await eyes.text("[data-live-state]") == "paused"


async def test_the_keyboard_skips_the_navigation_and_focus_can_be_seen(console: str, browser: Sight) -> None:
    eyes = await browser.open(console)
    await eyes.go("/runs")
    await eyes.page.keyboard.press("Tab")
    assert await eyes.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    await eyes.page.keyboard.press("Enter")
    assert await eyes.page.evaluate("document.activeElement.id") == "main"
    await eyes.page.keyboard.press("Tab")
    assert await eyes.page.evaluate("document.activeElement.id") == "q"
    assert await eyes.page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "2px"


async def test_a_token_opens_the_console(browser: Sight, database: Urls, scene: Scene) -> None:
    """Where a token is needed, the login page takes it, and the session acts through its forms."""
    await furnish(scene)
    async with booth(database, api_token="open sesame, open sesame") as address:
        eyes = await browser.open(address, known=False)
        await eyes.page.goto(address + "/workers")
        assert not await eyes.complaints()
        await eyes.shoot("login")
        await eyes.page.get_by_label("Token").fill("wrong")
        await eyes.page.get_by_role("button", name="Log in").click()
        assert "wrong" in await eyes.text("[role=alert]")
        await eyes.page.get_by_label("Token").fill("open sesame, open sesame")
        await eyes.page.get_by_role("button", name="Log in").click()
        await eyes.page.wait_for_url("**/workers")
        await eyes.go("/domains")
        await eyes.page.get_by_role("button", name="Resume").click()
        assert "command goes on." in await eyes.text("[role=status]")

        await eyes.page.get_by_role("button", name="Log out").click()
        await eyes.page.get_by_label("Token").fill(await viewer(scene))
        await eyes.page.get_by_role("button", name="Log in").click()
        await eyes.go("/domains")
        assert await eyes.page.locator("main button").count() == 0, (
            "who may only look is offered nothing to do"
        )
        form = {"csrf": await eyes.page.locator("input[name=csrf]").first.input_value(), "domain": "command"}
        answer = await eyes.page.request.post(f"{address}/domains", form={**form, "do": "pause"})
        assert answer.status == 403
        assert "the role view may not do this" in await answer.text()


async def test_a_link_opens_the_console_once(browser: Sight, database: Urls, tmp_path: Path) -> None:
    """Followed as it is, and by the page of `tenure open --browser`, which is not the console's."""
    async with booth(database, state_dir=tmp_path / "state") as address:
        make_state_dir(tmp_path / "state")
        codes = LoginCodes(tmp_path / "state")
        link = codes.link(f"{address}/")
        eyes = await browser.open(address, known=False)
        await eyes.page.goto(link)
        assert eyes.page.url == f"{address}/"
        await eyes.page.get_by_role("button", name="Log out").click()
        await eyes.page.goto(link)
        assert "tenure open" in await eyes.text("[role=alert]")
        assert not await eyes.complaints()

        elsewhere = await eyes.page.context.new_page()
        await elsewhere.goto(codes.page(codes.link(f"{address}/")).as_uri())
        await elsewhere.wait_for_url(f"{address}/")
        await elsewhere.get_by_role("button", name="Log out").wait_for()


async def viewer(scene: Scene) -> str:
    """A token that may only look."""
    secret, encoded = new_secret()
    made = "SELECT id FROM supervisor.create_token('test', 'viewer', 'view', $1, NULL)"
    return shown(await scene.value(made, encoded), secret)


async def test_errors_are_pages_that_say_what_to_do(scene: Scene, console: str, browser: Sight) -> None:
    runs = await furnish(scene)
    eyes = await browser.open(console, script=False)  # a live page would take the button away in time
    for path, status, words in (
        ("/runs/999999", 404, "no run 999999"),
        ("/runs/99999999999999999999", 422, "does not fit"),
        ("/runs?state=ASLEEP", 400, "is no state"),
        ("/runs?q=%00", 400, ""),
        ("/jobs/none", 404, "See which jobs there are"),
        ("/late?claim=x", 422, "claim"),
    ):
        answer = await eyes.page.goto(console + path)
        assert answer is not None
        assert (answer.status, answer.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
        assert words in await eyes.text()
    await eyes.go(f"/runs/{runs['FAILED']}")
    await scene.value("SELECT supervisor.request_retry('other', $1)", runs["FAILED"])
    await scene.next_attempts()
    await eyes.page.get_by_role("button", name="Retry").click()
    assert "has a newer attempt" in await eyes.text(".flash.failed")


async def test_a_domain_draws_pages_of_its_own(browser: Sight, database: Urls, tmp_path: Path) -> None:
    """Its templates, in the console's frame, below its name, with an entry in the navigation."""
    (tmp_path / "shelf.html").write_text(
        '{% extends "page.html" %}{% block title %}Shelf{% endblock %}'
        "{% block content %}<h1>Shelf</h1><p>{{ name|inert }} {{ m.badge('RUNNING') }}</p>{% endblock %}"
    )

    def pages(_replica: ReplicaView) -> APIRouter:
        router = page.PageRouter(templates=tmp_path, navigation=[page.Link("Books", "/shelf")])

        @router.get("/shelf")
        async def shelf(request: Request) -> Response:
            return page.render(request, "reading/shelf.html", name="<b>\u202eevil")

        return router

    async with booth(database, [Domain(name="reading", pages=pages)]) as address:
        eyes = await browser.open(address)
        await eyes.go("/")
        await eyes.page.get_by_role("link", name="Books").click()
        await eyes.page.wait_for_url("**/reading/shelf")
        assert "<b>\\u202eevil" in await eyes.text()
        assert not await eyes.complaints()


def name_of(path: str) -> str:
    return path.partition("?")[0].strip("/").replace("/", "_") or "overview"
