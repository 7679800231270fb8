"""Fixtures of the browser's tests; where there is no browser, they are reported as not run."""

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest
from playwright.async_api import Browser

from supervisor.embedded import Urls
from tests.browser.booth import booth
from tests.browser.eyes import CHROMIUM, Sight, chromium, shots_in
from tests.support.scene import Scene

FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[FAILED] = report.failed
    return report


@pytest.fixture(scope="package")
async def shared_browser() -> AsyncIterator[Browser]:
    """One chromium for all tests of a process; it ends when the process leaves this folder."""
    if CHROMIUM is None:
        pytest.skip("needs Debian's chromium: apt-get install chromium-headless-shell")
    async with chromium() as opened:
        yield opened


@pytest.fixture
async def browser(
    request: pytest.FixtureRequest, shared_browser: Browser, tmp_path: Path
) -> AsyncIterator[Sight]:
    """Chromium; what its pages did wrong fails the test."""
    sight = Sight(shared_browser, shots_in(tmp_path))
    yield sight
    if request.node.stash.get(FAILED, False):
        await sight.keep_pictures()
    await sight.close()
    assert not sight.faults(), sight.faults()


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    """The database of the test, and hands to fill it."""
    opened = await Scene.open(database)
    yield opened
    await opened.close()


@pytest.fixture
async def console(database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    monkeypatch.chdir(tmp_path)  # no settings from outside
    async with booth(database) as address:
        yield address
