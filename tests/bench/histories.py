"""A history that is as much work for git as one that people wrote, told to fast-import as it is made up.

Files of some hundred lines in a few dozen folders; a commit rewrites a piece in the middle of one to four of
them. Where files are tiny, git has nothing to do, and what is measured is how programs are started.
"""

import random
import subprocess
from pathlib import Path
from typing import Final

from tests.support.git_server import ENV, Story, bare

FILES: Final = 400
FOLDERS: Final = 40
LINES: Final = (60, 300)
BEGIN: Final = 1_500_000_000
TOLD: Final = 200
"""Commits handed over at once."""


class Author:
    """Who has all files in mind, and the same ideas each time."""

    def __init__(self) -> None:
        self._random = random.Random(1)  # noqa: S311  it keeps no secret
        self._files = {b"src/part%02d/file%d.py" % (n % FOLDERS, n): self._lines(LINES) for n in range(FILES)}
        self._known = list(self._files)

    def edited(self) -> dict[bytes, bytes | None]:
        return {
            name: self._edit(self._files[name])
            for name in self._random.sample(self._known, self._random.randint(1, 4))
        }

    def _edit(self, lines: list[bytes]) -> bytes:
        """One piece goes and another comes, about as long."""
        at = self._random.randrange(len(lines))
        lines[at : at + self._random.randint(1, 12)] = self._lines((1, 13))
        return b"".join(lines)

    def _lines(self, between: tuple[int, int]) -> list[bytes]:
        draw = self._random.randrange
        return [
            b"    value_%d = compute(%d, %d)\n" % (draw(1000), draw(10**6), draw(100))
            for _ in range(self._random.randint(*between))
        ]


def made_up(repository: Path, commits: int) -> Path:
    """A bare repository with that many commits, the same each time; every hundredth is a merge."""
    importing = ("git", f"--git-dir={bare(repository)}", "fast-import", "--quiet")
    with subprocess.Popen(importing, env=ENV, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        story, author = Story(), Author()
        for number in range(commits):
            _tell(story, author, number)
            if len(story.lines) == TOLD or number == commits - 1:
                process.stdin.write(b"".join(story.lines))
                story.lines.clear()
    assert process.returncode == 0
    return repository


def _tell(story: Story, author: Author, number: int) -> None:
    date, message = BEGIN + number * 60, b"Change %d\n\nWith a body of some words,\nand two lines.\n" % number
    who = b"Dev %d <dev%d@example.com>" % (number % 20, number % 20)
    match number % 100:
        case 50:
            story.commit("side", date, message, {b"side/%d" % number: b"aside\n"}, parents=[story.marks])
        case 52:
            story.commit(
                "main", date, message, author.edited(), parents=[story.marks, story.marks - 1], author=who
            )
        case _:
            story.commit("main", date, message, author.edited(), author=who)
