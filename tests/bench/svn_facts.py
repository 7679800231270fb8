"""Revisions with their paths, as a sync reads them from svnserve, beside `svn log` of the same repository."""

import asyncio
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from actors.scm.address import AddressRules, parse, resolve
from actors.scm.process import Programs
from actors.scm.svn import SvnOptions, SvnSource
from actors.scm.svn_batches import SvnStart, svn_batches
from supervisor.clock import boottime
from tests.bench.contest import Figures, Results, contest
from tests.bench.git_facts import KILL_SECONDS, PATIENCE_SECONDS
from tests.bench.report import Section, Target, table
from tests.bench.watch import Watch
from tests.support.svn_server import MISSING, SvnServer, load, many, svn_server

OURS, PLAIN = "svn facts", "svn log"
FIGURES: Final = {"wall s": "{:.2f}", "CPU us a revision": "{:,.0f}"}
REPOSITORY: Final = "many"
RULES: Final = AddressRules(allow_private=True)


async def svn_facts(revisions: int, rounds: int) -> Section:
    if MISSING:
        return _section(Results({}, {OURS: f"not installed: {', '.join(MISSING)}"}))
    with tempfile.TemporaryDirectory(prefix="tenure-bench-") as directory:
        root = Path(directory)
        load(root / REPOSITORY, many(revisions))
        (root / "scratch").mkdir()
        with svn_server(root) as server:
            paths = _paths_told_by_svn(server, revisions)
            turns = {
                OURS: partial(_ours, root / "scratch", server.url(REPOSITORY), revisions, paths),
                PLAIN: partial(_plain, server, revisions),
            }
            return _section(await contest(turns, rounds))


def _section(results: Results) -> Section:
    return Section(
        "Facts of svn",
        "A whole repository over svnserve on this machine by `svn_batches`, without diffs, as records; "
        "beside one `svn log --xml -v` of all of it that is written to nowhere.",
        table(results, (OURS, PLAIN), FIGURES, OURS),
        [Target("svn facts: wall, of svn log", results.ratio(OURS, PLAIN, "wall s"), "<=", 2)],
        results.failed,
    )


async def _ours(scratch: Path, url: str, revisions: int, paths: int) -> Figures:
    programs = Programs(scratch, deadline=boottime() + PATIENCE_SECONDS, kill_seconds=KILL_SECONDS)
    source = SvnSource(programs, await resolve(parse(url, "svn", RULES), RULES))
    found = found_paths = 0
    with Watch() as watch:
        async with svn_batches(source, SvnStart(), SvnOptions(diffs=False)) as batches:
            async for batch in batches:
                found += len(batch.records)
                found_paths += sum(len(revision.changed_paths) for revision in batch.records)
                batch.close()
    assert (found, found_paths) == (revisions, paths), f"{found}, {found_paths} of {revisions}, {paths}"
    return _figures(watch, revisions)


async def _plain(server: SvnServer, revisions: int) -> Figures:
    with Watch() as watch:
        process = await asyncio.create_subprocess_exec(*_log(server), stdout=subprocess.DEVNULL)
        assert await process.wait() == 0
    return _figures(watch, revisions)


def _log(server: SvnServer) -> tuple[str, ...]:
    config = ("--config-dir", str(server.root / "config"), "--non-interactive")
    return ("svn", "log", "--xml", "-v", "-r", "1:HEAD", *config, server.url(REPOSITORY))


def _figures(watch: Watch, revisions: int) -> Figures:
    return {"wall s": watch.wall, "CPU us a revision": watch.micros(revisions)}


def _paths_told_by_svn(server: SvnServer, revisions: int) -> int:
    log = ET.fromstring(subprocess.run(_log(server), check=True, capture_output=True).stdout)  # noqa: S314  our own
    assert len(log.findall("logentry")) == revisions
    return len(log.findall("logentry/paths/path"))
