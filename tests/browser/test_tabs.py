"""Many tabs at one console: a browser has six connections for all of them, and none may be starved."""

import pytest
from playwright.async_api import Page, Request

from tests.browser.eyes import Eyes, Sight
from tests.support.eventually import eventually
from tests.support.scene import Scene

pytestmark = pytest.mark.slow

TABS = 8
HIDE = """hidden => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


class Streams:
    """Which tab listens: the streams that were opened and have not ended."""

    def __init__(self) -> None:
        self._begun: list[Request] = []

    def watch(self, page: Page) -> None:
        page.on("request", lambda request: self._begun.append(request) if is_stream(request) else None)
        page.on("requestfailed", self._ended)
        page.on("requestfinished", self._ended)

    def _ended(self, request: Request) -> None:
        if request in self._begun:
            self._begun.remove(request)

    @property
    def listeners(self) -> list[Page]:
        """Of a tab that is closed nobody says that its requests ended."""
        pages = [request.frame.page for request in self._begun]
        return [page for page in pages if not page.is_closed()]

    async def until(self, count: int) -> None:
        """So many tabs listen."""

        def so_many() -> bool:
            assert len(self.listeners) == count, [page.url for page in self.listeners]
            return True

        await eventually(so_many, what=f"{count} to listen")


def is_stream(request: Request) -> bool:
    return request.headers.get("accept") == "text/event-stream"


async def tabs(first: Eyes, paths: list[str], streams: Streams) -> list[Page]:
    opened: list[Page] = []
    for path in paths:
        tab = first.page if not opened else await first.page.context.new_page()
        streams.watch(tab)
        await tab.goto(first.base + path)
        opened.append(tab)
    return opened


async def live(scene: Scene) -> int:
    await scene.lead("w1", 600)
    await scene.beat("w1")
    await scene.job("nap")
    return await scene.run_to("RUNNING", "nap")


async def test_the_eighth_tab_loads_and_all_of_them_are_live(
    scene: Scene, console: str, browser: Sight
) -> None:
    """One tab listens and tells the others; when it goes or is hidden, another one does."""
    run = await live(scene)
    streams = Streams()
    paths = [f"/runs/{run}", *["/runs"] * (TABS - 1)]
    opened = await tabs(await browser.open(console), paths, streams)
    await streams.until(1)

    await scene.run_to("CANCELED", "nap")
    for tab in opened[1:]:
        await tab.locator(".badge", has_text="CANCELED").first.wait_for()
    await opened[-1].get_by_role("link", name="Replicas", exact=True).click()
    await opened[-1].get_by_role("heading", name="Replicas").wait_for()

    before = streams.listeners[0]
    await before.close()
    await streams.until(1)
    left = [tab for tab in opened if tab is not before]
    looked_at = next(tab for tab in left[:-1] if tab not in streams.listeners)
    for tab in left:
        if tab is not looked_at:
            await tab.evaluate(HIDE, True)
    await eventually(lambda: streams.listeners == [looked_at])
    await scene.run_to("FAILED", "nap")
    await looked_at.locator(".badge", has_text="FAILED").first.wait_for()


async def test_a_tab_that_is_not_looked_at_is_quiet_and_catches_up(
    scene: Scene, console: str, browser: Sight
) -> None:
    await live(scene)
    streams = Streams()
    (tab,) = await tabs(await browser.open(console), ["/runs"], streams)
    await streams.until(1)
    await tab.evaluate(HIDE, True)
    await streams.until(0)
    await scene.run_to("FAILED", "nap")
    assert await tab.locator(".badge", has_text="FAILED").count() == 0
    await tab.evaluate(HIDE, False)
    await tab.locator(".badge", has_text="FAILED").first.wait_for()
    await streams.until(1)


async def test_without_locks_each_tab_that_is_looked_at_listens(
    scene: Scene, console: str, browser: Sight
) -> None:
    """As over plain HTTP to another host: a hidden tab still keeps no connection."""
    await live(scene)
    first = await browser.open(console)
    await first.page.context.add_init_script(
        'Object.defineProperty(Navigator.prototype, "locks", { get: () => undefined })'
    )
    streams = Streams()
    opened: list[Page] = []
    for _ in range(TABS):
        for tab in opened:
            await tab.evaluate(HIDE, True)
        await streams.until(0)
        tab = first.page if not opened else await first.page.context.new_page()
        streams.watch(tab)
        await tab.goto(f"{console}/runs")
        await streams.until(1)
        opened.append(tab)
    await scene.run_to("FAILED", "nap")
    await opened[-1].locator(".badge", has_text="FAILED").first.wait_for()


async def test_the_page_of_a_run_has_one_stream_and_its_log_goes_on(
    scene: Scene, console: str, browser: Sight
) -> None:
    run = await live(scene)
    streams = Streams()
    (tab,) = await tabs(await browser.open(console), [f"/runs/{run}"], streams)
    claim = await scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
    append = "SELECT supervisor.append_log('w1', $1, $2, $3, '{stdout}', $4)"
    for seq in range(2):
        await scene.value(append, run, claim, [seq], [f"line number {seq}\n"])
        await tab.get_by_text(f"line number {seq}").wait_for()
    assert len(streams.listeners) == 1
    await scene.finish(run, "SUCCEEDED", None)
    await tab.locator("h1 .badge", has_text="SUCCEEDED").wait_for()
