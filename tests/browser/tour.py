"""A page of a browser that goes through a site and notes what must not be there. Not a test."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tests.browser.eyes import Eyes
from tests.support.hostile import LONG, PRODUCT, SHORT, columns_in

SCRIPT: Final = (Path(__file__).parent / "tour.js").read_text().partition("\n")[2]
UNNAMED: Final = (
    "cursor", "before", "after", "since", "hours", "at", "claim", "uri", "verify", "scan_after", "hash_after",
)  # fmt: skip
"""Names in addresses that the pages of a site with few rows do not give away."""


@dataclass
class Tour:
    """What the pages said, by the columns it came from; where they lead; and what is wrong with them."""

    eyes: Eyes
    seen: set[str] = field(default_factory=set)
    links: dict[str, None] = field(default_factory=dict)
    names: dict[str, set[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    async def do(self, name: str, argument: Any = None) -> Any:
        return await self.eyes.page.evaluate(f"(argument) => ({SCRIPT}).{name}(argument)", argument)

    async def visit(self, path: str) -> str:
        """What the page says; nothing where it is no page."""
        answer = await self.eyes.page.goto(self.eyes.base + path)
        assert answer is not None, path
        if answer.status >= 500:
            self.wrong.append(f"{path} answers {answer.status}")
        if not answer.headers["content-type"].startswith("text/html"):
            assert answer.headers["x-content-type-options"] == "nosniff", path
            return ""
        return await self.look(path)

    async def look(self, path: str) -> str:
        sight = await self.do("look")
        said: str = sight["said"]
        self.wrong += [f"{path[:200]}: {one}" for one in [*sight["found"], *self.eyes.faults]]
        if PRODUCT in said:
            self.wrong.append(f"{path}: a template was run")
        self.eyes.faults.clear()
        self.seen |= set(columns_in(said))
        self.links |= dict.fromkeys(link.removeprefix(self.eyes.base) for link in sight["links"])
        for action, name in sight["fields"]:
            self.names.setdefault(action, set()).add(name)
        return said

    async def look_again(self, path: str) -> None:
        """After the page's script has drawn it anew."""
        before = await self.visit(path)
        if not await self.do("wear"):
            return
        await self.eyes.page.clock.fast_forward(60_000)
        await self.eyes.page.locator("main:not([data-worn])").wait_for()
        again = await self.look(f"{path}, drawn again")
        if Counter(columns_in(again)) != Counter(columns_in(before)):
            self.wrong.append(f"{path} is drawn again, and differs")

    def onward(self) -> list[str]:
        """One link to each kind of page that was named."""
        pages = [link for link in self.links if link.startswith("/") and not link.startswith("/api/")]
        return _one_of_each(pages)

    def reflecting(self, paths: Iterable[str]) -> list[str]:
        """Addresses of all kinds of pages, with hostile text in each of their parts."""
        names = {path: set(found) for path, found in self.names.items()}
        for path in [*paths, *self.onward()]:
            parts = urlsplit(path)
            names.setdefault(parts.path, set()).update(name for name, _ in parse_qsl(parts.query))
        kinds = _one_of_each(names)
        asked = [f"{path}?{urlencode({name: SHORT})}" for path in kinds for name in sorted(names[path])]
        asked += [f"{path}?{urlencode(dict.fromkeys(UNNAMED, SHORT))}" for path in kinds]
        inside = {re.sub(r"[^/]*$", quote(LONG, safe=""), path) for path in kinds}
        return [*asked, *sorted(inside), f"/{quote(LONG)}", f"/login?next={quote(LONG)}"]


def _one_of_each(paths: Iterable[str]) -> list[str]:
    return list({_kind_of(path): path for path in paths}.values())


def _kind_of(path: str) -> str:
    parts = urlsplit(path)
    names = sorted(name for name, _ in parse_qsl(parts.query))
    return re.sub(r"[0-9a-f]*\d[0-9a-f-]*", "#", parts.path) + "?" + "&".join(names)
