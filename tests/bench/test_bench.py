"""The benchmarks still run: their parts once, at a tiny size, without the peers. No time is asserted."""

import os
from pathlib import Path

import pytest

from tests.bench import cpu, files, peers, pictures, programs, sharp, tables, tenure, thumbnails
from tests.bench.arena import Arena
from tests.bench.contest import Results, contest
from tests.bench.growth import growth
from tests.bench.latency import make_due
from tests.bench.librarian import asked, at_work, groups, value
from tests.bench.libraries import WANTED, section
from tests.bench.load import load
from tests.bench.paths import figures, staged
from tests.bench.report import Section, Target, table
from tests.bench.scale import SCALES
from tests.support.place import connected
from tests.support.server import Server
from tests.support.slowness import ROOT

TINY = SCALES["tiny"]


@pytest.fixture
def arena(server: Server) -> Arena:
    return Arena(server, Path(os.environ[ROOT]) / "data", peers.NONE)


async def test_a_replica_goes_through_all_its_phases(arena: Arena) -> None:
    async with tenure.prepared(arena) as (urls, replica):
        enqueued = await replica.phase("enqueue", jobs=TINY.runs)
        worked = await replica.phase("work", jobs=TINY.runs)
        assert figures(TINY.runs, worked, enqueued)["work/s"] > 0
        async with connected(urls.admin) as admin:
            await tables.pause(admin)  # else they are done before anybody counts
        await tables.add_rows(urls, TINY.rows)
        assert (await replica.phase("rows", jobs=TINY.rows)).wall > 0
        due = await make_due(urls, TINY.definitions)
        asked = await replica.phase("latency", rate=TINY.rate, seconds=TINY.latency_seconds)
        assert len(asked.said["waits"]) == asked.said["asked"]
        jobs = TINY.runs + asked.said["asked"] + TINY.definitions
        assert (await replica.phase("lateness", jobs=jobs, due=due)).said["waits"]
        assert (await replica.phase("enqueue_by_api", jobs=10)).said["jobs"] >= 10


@pytest.mark.parametrize("benchmark", [growth, load])
async def test_figures_come_out_of_what_needs_no_replica(benchmark, arena: Arena) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001  both have one shape
    section: Section = await benchmark(arena, TINY, 1)
    assert all(target.found is not None for target in section.targets)
    assert section.title in section.markdown()


async def test_libraries_are_scanned_and_pictured_by_a_real_replica(arena: Arena, tmp_path: Path) -> None:
    with files.libraries(arena, TINY) as root:
        pictures.make(root / "pictures", TINY.pictures, TINY.picture_width)
        found = {}
        async with at_work(arena, root, *WANTED, "pictures") as (urls, replica):
            for library in WANTED:
                figures = await asked(replica, "scan", Path(library).name, hash=True, mode="duplicates")
                found[library] = Results({"tenure": {name: [cost] for name, cost in figures.items()}}, {})
            true = set().union(*(programs.true_groups(root / library, tmp_path) for library in WANTED))
            assert await groups(urls, root) == true
            await asked(replica, "scan", "pictures")
            await asked(replica, "thumbnails-for-library", "pictures", max_dimension=thumbnails.PIXELS)
            ready = "SELECT count(*) FROM dedup.thumbnails WHERE status = 'ready'"
            assert await value(urls, ready) == TINY.pictures
    text = section(TINY, found, Results({}, {"b3sum": "NotInstalled: it is not installed"}), "").markdown()
    assert "b3sum (media) could not be measured: NotInstalled: it is not installed" in text
    assert "not measured" in text


async def test_who_cannot_be_measured_is_named_and_the_others_go_on(arena: Arena) -> None:
    async def missing() -> dict[str, float]:
        raise ImportError("no such peer")

    results = await contest({"hand": lambda: staged(arena, "hand", TINY.rows), "peer": missing}, 2)
    assert results.ratio("hand", "hand", "work/s") == 1
    section = Section(
        "t", "", table(results, ["hand", "peer"], {"work/s": "{:.0f}"}, "hand"), (), results.failed
    )
    assert "peer could not be measured: ImportError: no such peer" in section.markdown()


def test_a_ratio_is_that_of_the_rounds_and_a_missed_target_says_so() -> None:
    results = Results({"a": {"x": [1.0, 4.0, 3.0]}, "b": {"x": [2.0, 4.0, 4.0]}}, {})
    assert results.ratio("a", "b", "x") == 0.75
    assert "missed" in Target("x", results.ratio("a", "b", "x"), ">=", 1).row()
    assert "not measured" in Target("x", results.ratio("a", "nobody", "x"), ">=", 1).row()


def test_the_time_of_children_counts_also_when_they_have_ended() -> None:
    before = cpu.seconds_of(os.getpid())
    if (child := os.fork()) == 0:
        while cpu.seconds_of(os.getpid()) < 0.1:
            pass
        os._exit(0)
    os.waitpid(child, 0)
    assert cpu.seconds_of(os.getpid()) - before >= 0.09


def test_the_peers_are_pinned_and_no_index_is_named() -> None:
    for lock in peers.LOCKS.values():
        text = lock.read_text()
        assert "--hash=sha256:" in text
        assert "://" not in text
    assert '"integrity": "sha512-' in sharp.LOCK.read_text()
    assert "://" not in sharp.LOCK.read_text()
