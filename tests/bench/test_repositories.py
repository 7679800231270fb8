"""What is measured of repositories is also right; once, at a tiny size. No time is asserted."""

import os
import shutil
from pathlib import Path

import pytest

from tests.bench import peers
from tests.bench import svn_facts as svn_module
from tests.bench.arena import Arena
from tests.bench.git_facts import git_facts
from tests.bench.puts import puts
from tests.bench.report import Section
from tests.bench.repositories import SIZES, repositories, size_of
from tests.bench.scale import SCALES
from tests.bench.svn_facts import svn_facts
from tests.bench.upserts import upserts
from tests.support.server import Server
from tests.support.slowness import ROOT
from tests.support.svn_server import needs_svn

TINY = SIZES["tiny"]
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="not installed: git")


@pytest.fixture
def arena(server: Server) -> Arena:
    return Arena(server, Path(os.environ[ROOT]) / "data", peers.NONE)


def measured(section: Section) -> bool:
    assert not section.failed
    return all(target.found is not None for target in section.targets)


@needs_git
async def test_the_facts_are_as_many_as_git_says() -> None:
    assert measured(await git_facts(TINY.commits, 1))


@needs_svn
async def test_the_revisions_are_as_many_as_svn_says() -> None:
    assert measured(await svn_facts(TINY.revisions, 1))


async def test_commits_are_stored_once_and_then_left_alone(arena: Arena) -> None:
    assert measured(await upserts(arena, TINY.rows, 1))


async def test_diffs_are_put_whole() -> None:
    assert measured(await puts(TINY.diffs, 1))


async def test_a_program_that_is_missing_is_named_and_the_rest_goes_on(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(svn_module, "MISSING", ["svnserve"])
    section = await repositories(arena, SCALES["tiny"], 1)
    assert [target.found is None for target in section.targets] == [True, True, True, False, False, False]
    assert "svn facts could not be measured: not installed: svnserve" in section.markdown()
    assert "git facts could not be measured: not installed: git" in section.markdown()


def test_every_scale_has_its_size() -> None:
    assert [size_of(scale) for scale in SCALES.values()] == [SIZES[name] for name in SCALES]
