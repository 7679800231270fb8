"""What stands around every page: whether it is live, and where one is."""

import asyncio

from tests.browser.eyes import PHONE, Sight
from tests.support.eventually import eventually
from tests.support.scene import Scene


async def test_a_lost_replica_is_told_in_full_and_no_clock_goes_on(
    scene: Scene, console: str, browser: Sight
) -> None:
    await scene.lead("w1", 600)
    eyes = await browser.open(console)
    await eyes.go("/leadership")
    await eyes.page.route("**/*", lambda route: route.abort())
    badge = eyes.page.locator("[data-live-state=''][data-state=lost]")
    await badge.wait_for()
    for size in (None, PHONE):
        if size is not None:
            await eyes.page.set_viewport_size(size)
        cut = await badge.evaluate(
            "node => node.getBoundingClientRect().right"
            " - node.closest('.brand').getBoundingClientRect().right"
        )
        assert cut <= 0
        assert "no answer for" in await badge.inner_text()
    times = "[...document.querySelectorAll('main time, main [data-countdown]')].map(one => one.textContent)"
    was = await eyes.page.evaluate(times)
    said = await badge.inner_text()

    async def counts_on() -> bool:
        return await badge.inner_text() != said

    await eventually(counts_on, what="how long there was no answer")
    await asyncio.sleep(1.5)
    assert was
    assert await eyes.page.evaluate(times) == was, "what is shown is as old as the last answer"
    await eyes.page.unroute_all(behavior="ignoreErrors")
    await eyes.page.locator("[data-state=live]").wait_for()
    assert await eyes.page.evaluate(times) != was


async def test_on_a_phone_the_navigation_shows_where_one_is(console: str, browser: Sight) -> None:
    eyes = await browser.open(console, size=PHONE)
    for path in ("/settings", "/"):
        await eyes.go(path)
        here = await eyes.page.locator("nav [aria-current=page]").bounding_box()
        assert here is not None
        assert here["x"] >= 0, path
        assert here["x"] + here["width"] <= PHONE["width"], path
    faded = await eyes.page.evaluate("getComputedStyle(document.querySelector('.side nav')).maskImage")
    assert "gradient" in faded, "that there is more can be seen"


async def test_the_live_switch_says_what_it_does_and_how_it_stands(console: str, browser: Sight) -> None:
    eyes = await browser.open(console)
    await eyes.go("/")
    switch = eyes.page.locator("[data-live-toggle]")
    assert "drawn again" in (await switch.get_attribute("title") or "")
    on = await switch.evaluate("node => getComputedStyle(node, '::before').backgroundColor")
    await switch.click()
    await eyes.page.locator("[data-live-toggle][aria-pressed=false]").wait_for()
    assert await switch.evaluate("node => getComputedStyle(node, '::before').backgroundColor") != on
