"""The domains' pages in a browser: readable by everybody, on a phone too, and their pictures can be seen."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from supervisor.embedded import Urls
from tests.browser.booth import booth
from tests.browser.eyes import DESK, PHONE, Eyes, Sight
from tests.integration.test_domain_pages import DOMAINS, Site, every_page, settings_in
from tests.support.door import log_in
from tests.support.shelf import Shelf
from tests.support.slowness import patient

pytestmark = pytest.mark.slow

UNSEEN = """async () => {
  const pictures = [...document.querySelectorAll("main img")];
  for (const one of pictures) one.loading = "eager";
  await Promise.all(pictures.map((one) => one.decode().catch(() => {})));
  return pictures.filter((one) => !one.naturalWidth).map((one) => one.src);
}"""


@pytest.fixture
async def site(database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    """Behind a real socket, with something of everything in it."""
    monkeypatch.chdir(tmp_path)  # no settings from outside
    shelf = await Shelf.open(database)
    async with (
        booth(database, DOMAINS, **settings_in(tmp_path)) as address,
        httpx.AsyncClient(base_url=address, timeout=patient(10)) as http,
    ):
        await log_in(http)
        yield Site(database, tmp_path, http, shelf)
    await shelf.close()


async def test_domain_pages_pass_axe_in_both_themes_and_fit_a_phone(site: Site, browser: Sight) -> None:
    """By axe; nothing is wider than a phone, no picture is missing, and nothing of hostile names happens."""
    paths = one_of_each(await every_page(site), site)
    eyes = await browser.open(str(site.http.base_url).rstrip("/"))
    complaints: list[str] = []
    pictures = 0
    for number, path in enumerate(paths):
        await eyes.go(path)
        complaints += [f"{path} does not show {one}" for one in await eyes.page.evaluate(UNSEEN)]
        pictures += await eyes.page.locator("main img").count()
        complaints += [f"{path}: {one}" for one in await look(eyes, f"{number:02}-{name_of(path)}")]
    assert not complaints, "\n".join(complaints)
    assert pictures >= 10


async def test_work_is_asked_for_without_a_script(site: Site, browser: Sight) -> None:
    """Plain forms: a scan, a sync and a refusal, each told on the page one comes back to."""
    await site.shelf.library("archive")
    await site.fill_scm()
    await site.fill_capture()
    eyes = await browser.open(str(site.http.base_url).rstrip("/"), script=False)
    await eyes.go("/dedup/libraries/archive")
    await eyes.page.get_by_role("button", name="Scan and hash").click()
    assert "of archive: run 1." in await eyes.text("[role=status]")
    await eyes.go("/scm/repositories/code")
    await eyes.page.get_by_role("button", name="Sync now").click()
    assert "is asked for" in await eyes.text("[role=status]")
    await eyes.go(f"/capture/sessions/{site.sessions[2]}")
    await eyes.page.get_by_label("Not to be read").fill("the wrong person")
    await eyes.page.get_by_role("button", name="Refuse it").click()
    assert "refused" in await eyes.text("[role=status]")
    assert "Not read: the wrong person" in await eyes.text()


async def look(eyes: Eyes, name: str) -> list[str]:
    """At a desk in both themes, and on a phone."""
    found = [f"in light: {one}" for one in await eyes.complaints()]
    await eyes.shoot(f"{name}-light")
    await eyes.page.emulate_media(color_scheme="dark")
    found += [f"in dark: {one}" for one in await eyes.complaints("color-contrast")]
    await eyes.shoot(f"{name}-dark")
    await eyes.page.emulate_media(color_scheme="light")
    await eyes.page.set_viewport_size(PHONE)
    if wider := await eyes.overflow():
        found.append(f"{wider} px wider than a phone")
    await eyes.shoot(f"{name}-phone")
    await eyes.page.set_viewport_size(DESK)
    return found


def one_of_each(paths: list[str], site: Site) -> list[str]:
    """Of contents one is enough; of sessions, one that made a second version and one that waits."""
    blobs = [path for path in paths if path.startswith("/media/blobs/")][1:]
    sessions = [f"/capture/sessions/{site.sessions[number]}" for number in (0, 3)]
    return [path for path in paths if path not in (*blobs, *sessions, "/scm/repositories/web/runs")]


def name_of(path: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", path.partition("?")[0].strip("/").lower())[:60]
