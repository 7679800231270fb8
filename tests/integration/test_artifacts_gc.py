"""`tenure artifacts gc` over every backend: what it finds, what it removes, and what it must never remove."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from supervisor.artifacts import Artifacts, Overwrite
from supervisor.artifacts.collector import Collection, Rules, collect
from supervisor.artifacts.local import LocalArtifacts
from supervisor.embedded import Urls
from supervisor.errors import BadInput
from tests.support.artifacts import World, artifact_world, use_s3
from tests.support.place import value

BACKENDS = ["local", "file", "object"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "object":
        use_s3(monkeypatch)
    return str(request.param)


@pytest.fixture
async def world(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[World]:
    async with artifact_world(database, monkeypatch, tmp_path) as world:
        yield world


async def filled(world: World, backend: str) -> None:
    """Two orphans of a hundred days, one of ten, and two old ones with a row: by address and by key."""
    await world.put(backend, "scm/1/svn/r1.diff", b"orphan", days=100)
    await world.put(backend, "exports/1", b"orphan too", days=100)
    await world.put(backend, "scm/1/svn/r2.diff", b"young", days=10)
    await world.refer(await world.put(backend, "scm/1/svn/r3.diff", b"by address", days=200))
    await world.put(backend, "attachments/1/2.log", b"by key", days=200)
    await world.refer("attachments/1/2.log")


ALL = {"scm/1/svn/r1.diff", "exports/1", "scm/1/svn/r2.diff", "scm/1/svn/r3.diff", "attachments/1/2.log"}


async def test_a_dry_run_lists_orphans_and_removes_nothing(world: World, backend: str) -> None:
    """R001-078, R001-096, R001-101: without --execute nothing goes, with any of its spellings"""
    await filled(world, backend)
    for spelling in ([], ["--dry-run"], ["--list-orphans"]):
        found = (
            await world.cli("gc", "--backend", backend, "--orphan-days", "90", *spelling, "--json")
        ).json()
        assert {entry["key"] for entry in found["entries"]} == {"scm/1/svn/r1.diff", "exports/1"}
        assert (found["dry_run"], found["scanned"], found["referenced"], found["young"]) == (True, 5, 2, 1)
        assert (found["orphans"], found["orphan_bytes"], found["removed"]) == (2, 16, 0)
    shown = await world.cli("gc", "--backend", backend)
    assert "scm/1/svn/r1.diff" in shown.out
    assert "dry run" in shown.out
    assert await world.keys(backend) == ALL


async def test_only_old_orphans_go(world: World, backend: str) -> None:
    """R001-097, R001-102: --delete-orphans --orphan-days 90 leaves the young and all with a row"""
    await filled(world, backend)
    found = (
        await world.cli(
            "gc",
            "--backend",
            backend,
            "--delete-orphans",
            "--orphan-days",
            "90",
            "--force-hard-delete",
            "--json",
        )
    ).json()
    assert (found["removed"], found["removed_bytes"], found["failed"]) == (2, 16, [])
    assert await world.keys(backend) == ALL - {"scm/1/svn/r1.diff", "exports/1"}
    again = (await world.cli("gc", "--backend", backend, "--delete", "--force-hard-delete", "--json")).json()
    assert (again["orphans"], again["removed"]) == (0, 0)


async def test_a_trash_takes_what_is_removed(world: World, backend: str) -> None:
    """R001-098, R001-101: moved below the trash prefix, within --prefix only, and left alone there"""
    await filled(world, backend)
    options = ("--backend", backend, "--prefix", "scm/", "--trash-prefix", ".trash/", "--require-trash")
    found = (await world.cli("gc", *options, "--delete", "--json")).json()
    assert (found["scanned"], found["removed"]) == (3, 1)
    assert await world.keys(backend) == ALL - {"scm/1/svn/r1.diff"} | {".trash/scm/1/svn/r1.diff"}
    assert await world.store(backend).get(".trash/scm/1/svn/r1.diff") == b"orphan"
    # it is young there, so the trash is kept for its time as well
    hard = ("--backend", backend, "--prefix", ".trash", "--force-hard-delete", "--execute", "--json")
    assert (await world.cli("gc", *hard)).json()["removed"] == 0
    whole = (await world.cli("gc", "--backend", backend, "--trash-prefix", ".trash", "--json")).json()
    assert whole["scanned"] == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--require-trash", "--execute"], "--require-trash"),
        (["--require-trash", "--force-hard-delete", "--execute"], "--require-trash"),
        (["--execute"], "--force-hard-delete"),
        (["--delete"], "--force-hard-delete"),
        (["--orphan-days", "0.5", "--force-hard-delete", "--execute"], "--orphan-days"),
        (["--trash-prefix", "../out", "--execute"], "INVALID_KEY"),
        (["--trash-prefix", "/", "--execute"], ""),
        (["--prefix", "../", "--execute", "--force-hard-delete"], "INVALID_KEY"),
        (["--execute", "--dry-run", "--force-hard-delete"], "exclude"),
    ],
)
async def test_what_is_not_said_plainly_is_refused(world: World, options: list[str], complaint: str) -> None:
    """R001-099, R001-100: no deletion for good without a word for it"""
    await world.put("local", "a", b"orphan", days=400)
    answer = await world.cli("gc", *options, "--json")
    assert answer.code == 2, answer
    assert complaint in json.loads(answer.err)["error"]
    assert await world.keys("local") == {"a"}


async def test_what_is_put_again_is_young_again(world: World, backend: str) -> None:
    """The race of a collector: an old orphan is put once more (SAME), and its row is not committed yet"""
    await world.put(backend, "logs/1", b"content", days=100)
    store = world.store(backend)
    await store.put("logs/1", b"content", overwrite=Overwrite.SAME)
    found = (await world.cli("gc", "--backend", backend, "--force-hard-delete", "--execute", "--json")).json()
    assert (found["orphans"], found["young"]) == (0, 1)
    assert await store.get("logs/1") == b"content"


async def test_what_is_put_between_look_and_removal_stays(world: World, backend: str) -> None:
    """The same, in the moment after the list was made"""
    await world.put(backend, "logs/1", b"content", days=100)
    await world.put(backend, "logs/2", b"content", days=100)
    store = world.store(backend)
    turns = 0

    async def referenced() -> set[str]:
        nonlocal turns
        turns += 1
        if turns == 2:
            await store.put("logs/1", b"content", overwrite=Overwrite.SAME)
        return set()

    found = await collect(store, referenced, Rules(execute=True, force_hard_delete=True), lambda _: None)
    assert (len(found.orphans), found.removed, found.spared) == (2, 1, 1)
    assert await world.keys(backend) == {"logs/1"}


async def test_references_are_read_again_before_each_batch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-102: a row that is committed while the collector looks keeps its artifact"""
    monkeypatch.setattr("supervisor.artifacts.collector.BATCH", 2)
    for n in range(6):
        await world.put("local", f"scm/{n}", b"x", days=100)
    turns = 0

    async def referenced() -> set[str]:
        nonlocal turns
        turns += 1
        return {"scm/5"} if turns == 4 else set()

    store = world.store("local")
    found = await collect(store, referenced, Rules(execute=True, force_hard_delete=True), lambda _: None)
    assert (turns, found.removed, found.spared) == (4, 5, 1)
    assert await world.keys("local") == {"scm/5"}


async def test_an_address_of_elsewhere_protects_what_it_could_mean(world: World) -> None:
    """R001-102: a physical address that this store does not know keeps every key that it ends with"""
    for key in ("scm/1/r1.diff", "proj_a/scm/1/r1.diff", "scm/1/r2.diff"):
        await world.put("local", key, b"x", days=100)
    await world.refer("s3://elsewhere/engram/proj_a/scm/1/r1.diff")
    found = (await world.cli("gc", "--json")).json()
    assert [entry["key"] for entry in found["entries"]] == ["scm/1/r2.diff"]


async def test_the_log_of_a_run_is_referenced(world: World) -> None:
    """R001-102: by the address in its row, also when the volume was on another host"""
    store = LocalArtifacts(world.directory / "local", host="another")
    uri = (await store.put("logs/2026/01/1-00.jsonl.gz", b"x")).uri
    world.age("local", "logs/2026/01/1-00.jsonl.gz", 400)
    found = (await world.cli("gc", "--json")).json()
    assert found["orphans"] == 1
    await world.refer_by_run(uri)
    found = (await world.cli("gc", "--json")).json()
    assert (found["orphans"], found["referenced"]) == (0, 1)


async def test_diffs_and_attachments_are_referenced(world: World, backend: str) -> None:
    """R001-102, R001-037: by their keys in scm.patch_blobs and logbook.attachments"""
    await world.put(backend, "scm/1/svn/r100.diff", b"diff", days=400)
    await world.put(backend, "attachments/1/2.log", b"log", days=400)
    options = ("--backend", backend, "--force-hard-delete", "--execute", "--json")
    await world.refer_by_patch(100, "scm/1/svn/r100.diff", b"diff")
    await world.refer_by_attachment("attachments/1/2.log", b"log")
    found = (await world.cli("gc", *options)).json()
    assert (found["referenced"], found["orphans"], found["removed"]) == (2, 0, 0)
    assert (await world.cli("verify", "--backend", backend, "--json")).json()["referenced"] == 2
    for table in ("scm.patch_blobs", "logbook.attachments"):
        query = (
            f"SELECT count(*) FROM {table} WHERE uri LIKE 's3://%' OR uri LIKE 'file://%' OR uri LIKE 'http%'"
        )
        assert await value(world.urls.admin, query) == 0
    assert await world.keys(backend) == {"scm/1/svn/r100.diff", "attachments/1/2.log"}


async def test_one_that_cannot_be_removed_does_not_stop_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(3):
        await world.put("local", f"scm/{n}", b"x", days=100)
    (world.path("local", "scm/1")).unlink()
    (world.path("local", "scm/1")).symlink_to("/etc/passwd")
    real = LocalArtifacts.entries

    async def with_a_link(self: Artifacts, prefix: str = "") -> AsyncIterator[object]:
        async for entry in real(self, prefix):  # type: ignore[arg-type]
            yield entry
            if entry.key == "scm/0":
                yield type(entry)("scm/1", 1, entry.modified_at - timedelta(days=1))

    monkeypatch.setattr(LocalArtifacts, "entries", with_a_link)
    answer = await world.cli("gc", "--force-hard-delete", "--execute", "--json")
    assert answer.code == 1
    found = json.loads(answer.out)
    assert (found["removed"], [one["key"] for one in found["failed"]]) == (2, ["scm/1"])


async def test_the_database_is_asked_as_a_role_that_may_only_read_references(world: World) -> None:
    """Collecting changes no row."""
    await filled(world, "local")
    before = await value(world.urls.admin, "SELECT count(*) FROM supervisor.discarded_artifact")
    await world.cli("gc", "--execute", "--force-hard-delete", "--json")
    assert await value(world.urls.admin, "SELECT count(*) FROM supervisor.discarded_artifact") == before


async def test_rules_are_checked_also_without_a_command_line(tmp_path: Path) -> None:
    async def nothing() -> set[str]:
        return set()

    with pytest.raises(BadInput):
        await collect(LocalArtifacts(tmp_path), nothing, Rules(execute=True), lambda _: None)
    found = await collect(LocalArtifacts(tmp_path), nothing, Rules(), lambda _: None)
    assert found == Collection()
