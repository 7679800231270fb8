"""A browser that looks at a console: Debian's chromium, driven by playwright. Not a test.

Every look is strict: an error of the page, a dialog, a refused script or style, or a request to anywhere but
the console itself fails the test that made it.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from shutil import which
from typing import Any, Final

from playwright.async_api import Browser, BrowserContext, Error, Page, Request, ViewportSize, async_playwright

from tests.support.door import TOKEN
from tests.support.slowness import patient

CHROMIUM: Final = which("chromium-headless-shell") or which("chromium")
"""The first has no windows, and takes half the processor time."""
ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--js-flags=--no-opt --no-maglev",  # pages live too briefly for it: axe in test_pages takes 14 s, not 15
)
DESK: Final[ViewportSize] = {"width": 1280, "height": 900}
PHONE: Final[ViewportSize] = {"width": 390, "height": 844}
AXE: Final = files("axe_playwright_python") / "axe.min.js"
PICTURES: Final = "TENURE_TEST_SCREENSHOTS"
"""Names the directory for pictures of the pages."""
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


@dataclass
class Eyes:
    """One page of a browser at one console."""

    page: Page
    base: str
    shots: Path
    faults: list[str] = field(default_factory=list)

    async def go(self, path: str) -> None:
        answer = await self.page.goto(self.base + path)
        assert answer is not None
        assert answer.ok, f"{path} answers {answer.status}"

    async def text(self, selector: str = "main") -> str:
        return re.sub(r"\s+", " ", await self.page.locator(selector).first.inner_text()).strip()

    async def shoot(self, name: str) -> None:
        """Keep a picture, if the run asks for pictures: to draw a whole page costs as much as to load it."""
        if os.environ.get(PICTURES):
            await self.keep_picture(name)

    async def keep_picture(self, name: str) -> None:
        self.shots.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=self.shots / f"{name}.png", full_page=True)

    async def complaints(self, *rules: str) -> list[str]:
        """What axe finds wrong, as one line each; by all rules of its tags, or by these."""
        if not await self.page.evaluate("typeof axe === 'object'"):
            await self.page.evaluate(AXE.read_text())
        only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": TAGS}
        options = {"resultTypes": ["violations"], "runOnly": only}
        # what is in order is a long list, and nobody reads it
        run = "async options => (await axe.run(document, options)).violations"
        found: list[dict[str, Any]] = await self.page.evaluate(run, options)
        return [
            f"{fault['id']}: {node['target']} {node['failureSummary']}"
            for fault in found
            for node in fault["nodes"]
        ]

    async def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        return int(await self.page.evaluate(width))


@dataclass
class Sight:
    """The browser as one test has it: in contexts of its own, which share nothing with other tests."""

    browser: Browser
    shots: Path
    opened: list[Eyes] = field(default_factory=list)

    async def open(
        self,
        base: str,
        *,
        scheme: str = "light",
        size: ViewportSize = DESK,
        script: bool = True,
        known: bool = True,
        policy: bool = True,
    ) -> Eyes:
        """`known`: it has logged in. Without `policy`, what a page forbids its content happens."""
        context: BrowserContext = await self.browser.new_context(
            color_scheme="dark" if scheme == "dark" else "light",
            viewport=size,
            java_script_enabled=script,
            bypass_csp=not policy,
            reduced_motion="reduce",  # else each live tab draws all the time: 2.5 s of 17 s in test_tabs
        )
        context.set_default_timeout(1000 * patient(30))
        if known:
            await context.request.post(f"{base}/login", form={"token": TOKEN}, max_redirects=0)
        eyes = Eyes(await context.new_page(), base, self.shots)
        self._watch(eyes)
        self.opened.append(eyes)
        return eyes

    def _watch(self, eyes: Eyes) -> None:
        def requested(request: Request) -> None:
            if not request.url.startswith((eyes.base + "/", "data:")):
                eyes.faults.append(f"a request left the console: {request.url}")

        eyes.page.on("request", requested)
        eyes.page.on("pageerror", lambda error: eyes.faults.append(f"script error: {error}"))
        eyes.page.on("dialog", lambda dialog: _dismiss(eyes, dialog))
        eyes.page.on("console", lambda said: _note(eyes, said.type, said.text))

    def faults(self) -> Sequence[str]:
        return [fault for eyes in self.opened for fault in eyes.faults]

    async def keep_pictures(self) -> None:
        """Show what a test that failed saw last."""
        for number, eyes in enumerate(self.opened):
            with suppress(Error):  # the page may be gone
                await eyes.keep_picture(f"failed-{number}")

    async def close(self) -> None:
        for eyes in self.opened:
            await eyes.page.context.close()


_tasks: set[asyncio.Task[None]] = set()


def _dismiss(eyes: Eyes, dialog: Any) -> None:
    eyes.faults.append(f"a dialog opened: {dialog.message}")
    task = asyncio.ensure_future(dialog.dismiss())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _note(eyes: Eyes, kind: str, text: str) -> None:
    # a replica that is killed under the page is what some tests are about
    if kind == "error" and "net::ERR_" not in text and "Failed to load resource" not in text:
        eyes.faults.append(f"console: {text}")


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """A browser and its driver; to start both costs more than most tests."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=CHROMIUM, args=list(ARGUMENTS), timeout=1000 * patient(30)
        )
        try:
            yield browser
        finally:
            await browser.close()


def shots_in(directory: Path) -> Path:
    """Where pictures are kept: TENURE_TEST_SCREENSHOTS, or the test's own directory."""
    return Path(os.environ.get(PICTURES) or directory / "screenshots")
