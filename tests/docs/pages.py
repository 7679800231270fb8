"""What the documentation says, read as a machine can: commands, settings, links. Not a test."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# what ends one command within a line of a shell
AFTER: Final = frozenset({"&&", "||", "|", ";", ">"})


@cache
def text_of(page: Path) -> str:
    return page.read_text()


def prose_of(page: Path) -> str:
    return FENCE.sub("", text_of(page))


def commands_of(page: Path) -> Iterator[list[str]]:
    """Each `tenure ...` of the page, in blocks of code and in the running text, as its words."""
    for kind, block in FENCE.findall(text_of(page)):
        if kind in ("", "console", "sh"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from _commands_in(line)
    for code in re.findall(r"`([^`]+)`", prose_of(page)):
        if re.match(r"(?:[A-Z_]+=\S+ )*tenure\s", code):
            yield from _commands_in(" ".join(code.split()))


def _commands_in(line: str) -> Iterator[list[str]]:
    # what stands between brackets may be left out; the brackets of a quoted JSON are not these
    words = _split(re.sub(r"\[(-[^\]]*)\]", r"\1", line))
    words = words[: words.index("#")] if "#" in words else words
    command: list[str] = []
    for word in [*words, "&&"]:
        if word not in AFTER:
            command.append(word)
            continue
        begins = [number for number, one in enumerate(command) if not re.match(r"\$$|[A-Z_]+=", one)]
        if begins and command[begins[0]] == "tenure":
            yield command[begins[0] + 1 :]
        command = []


def _split(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # an apostrophe of the running text
        return line.split()


def settings_of(page: Path) -> set[str]:
    return set(re.findall(r"\bTENURE_[A-Z0-9_]+", text_of(page)))


def links_of(page: Path) -> set[str]:
    """Targets of links and pictures that are files of ours."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose_of(page)) + re.findall(r'src="([^"]+)"', prose_of(page))
    return {link for link in found if not re.match(r"[a-z]+:", link)}


def paths_of(page: Path) -> set[str]:
    """Files of the repository that the running text names."""
    found = re.findall(r"`((?:deploy|docs|schemas|supervisor|actors|tests)/[\w./-]+)`", text_of(page))
    return set(found)


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """The anchors of its headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)
