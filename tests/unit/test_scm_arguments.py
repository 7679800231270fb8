"""What svn and git are called with: an address is never where an option could be."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from actors.scm.address import AddressRules, Pinned, parse
from actors.scm.git import GitMirror
from actors.scm.git_repository import GitRepository
from actors.scm.process import Ended, Programs
from actors.scm.svn import SvnOptions, SvnSource

RULES = AddressRules()


class Silent:
    """A program that ends well and says nothing."""

    stderr = ""

    def __aiter__(self) -> "Silent":
        return self

    async def __anext__(self) -> bytes:
        raise StopAsyncIteration

    async def read(self, _limit: int) -> bytes:
        return b""

    async def end(self) -> Ended:
        return Ended(exit_code=0)


class Spy(Programs):
    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch, deadline=0.0, kill_seconds=1.0)
        self.calls: list[list[str]] = []

    @asynccontextmanager
    async def run(self, argv: Sequence[str], *_: Any, **__: Any) -> AsyncIterator[Any]:
        self.calls.append(list(argv))
        yield Silent()


async def ignore(_: object) -> None:
    """Nothing comes."""


async def test_svn_is_asked_for_a_page_behind_two_dashes(tmp_path: Path) -> None:
    """R001-165: no call of `svn log` asks for more than the limit; the URL has its revision behind it."""
    spy = Spy(tmp_path)
    source = SvnSource(spy, Pinned(parse("https://svn.example.com/r@x", "svn", RULES), ("1.2.3.4",)))
    with pytest.raises(Exception, match="no XML"):
        await source.page(1, 900, 900, SvnOptions(diffs=False), ignore)
    (call,) = spy.calls
    assert call[-2:] == ["--", "https://svn.example.com/r@x@900"]
    assert call[call.index("--limit") + 1] == "500"
    assert call[call.index("-r") + 1] == "1:900"


async def test_git_fetches_from_what_stands_behind_two_dashes(tmp_path: Path) -> None:
    spy = Spy(tmp_path)
    pinned = Pinned(parse("https://git.example.com/r.git", "git", RULES), ("1.2.3.4",))
    with pytest.raises(FileNotFoundError):
        async with GitMirror(spy, tmp_path / "mirrors", 1, pinned).open():
            pass
    init, fetch = spy.calls
    assert init[-2] == "--"
    assert fetch[-3:] == ["--", "https://git.example.com/r.git", "+refs/heads/*:refs/heads/*"]
    assert {"--no-tags", "--no-recurse-submodules", "--prune", "--no-auto-maintenance"} <= set(fetch)


async def test_a_mirror_is_asked_for_commits_and_never_for_paths(tmp_path: Path) -> None:
    spy = Spy(tmp_path)
    copy = GitRepository(spy, tmp_path, {})
    await copy.listing(["1" * 40], ["2" * 40])
    await copy.present(["1" * 40])
    assert all(call[-1] == "--" for call in spy.calls)
