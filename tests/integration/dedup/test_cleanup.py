"""Thumbnails of a group removed: their files, then their rows, and nothing that is not a thumbnail."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from actors.dedup import CLEANUP, cleanup
from supervisor.claim_loop import ClaimLoop
from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.libraries import fingerprint
from tests.support.row_work import at_work
from tests.support.sessions import connected, value
from tests.support.slowness import patient

GROUP = "blake3:" + "ab" * 32


@dataclass
class Cache:
    """A library, and the thumbnails of its one file."""

    urls: Urls
    root: Path

    @property
    def libraries(self) -> Path:
        return self.root / "libraries"

    @property
    def thumbs(self) -> Path:
        return self.root / "state" / "thumbs"

    async def ask(self, query: str, *arguments: object) -> Any:
        return await value(self.urls.admin, query, *arguments)

    async def thumbnail(
        self, number: int, status: str = "ready", *, relpath: str = "", group: str = GROUP
    ) -> str:
        """Its row, and its file where the name is a thumbnail's."""
        key = hashlib.sha256(f"{group}{number}".encode()).hexdigest()
        path = relpath or f"{key[:2]}/{key[2:4]}/{key}.{('jpg', 'webp')[number % 2]}"
        await self.ask(
            """INSERT INTO dedup.thumbnails (thumb_key, file_id, status, group_key, output_relpath)
               SELECT $1, min(id), $2, $3, $4 FROM dedup.library_files""",
            key,
            status,
            group,
            path,
        )
        if not relpath:
            (self.thumbs / path).parent.mkdir(parents=True, exist_ok=True)
            (self.thumbs / path).write_bytes(b"a small picture")
        return path

    async def request(self, group: str = GROUP, delay: float = 0) -> int:
        job: int = await self.ask("SELECT id FROM dedup.schedule_cleanup('test', $1, $2)", group, delay)
        return job

    async def job(self, job: int) -> Mapping[str, Any]:
        async with connected(self.urls.admin) as admin:
            query = "SELECT * FROM dedup.thumbnail_cleanup_jobs WHERE id = $1"
            (row,) = await admin.fetch(query, job)
            return dict(row)

    async def ended(self, job: int) -> Mapping[str, Any]:
        async def row() -> Mapping[str, Any]:
            found = await self.job(job)
            assert found["status"] in {"completed", "failed"}
            return found

        return await eventually(row, timeout=20, what="the cleanup ends")

    async def carried_out(self, job: int) -> Mapping[str, Any]:
        async with self.work():
            return await self.ended(job)

    async def rows(self) -> Sequence[str]:
        async with connected(self.urls.admin) as admin:
            found = await admin.fetch("SELECT output_relpath FROM dedup.thumbnails ORDER BY id")
        return [row["output_relpath"] for row in found]

    def files(self) -> set[str]:
        found = (path for path in self.thumbs.rglob("*") if path.is_file() or path.is_symlink())
        return {str(path.relative_to(self.thumbs)) for path in found}

    def work(self, **more: Any) -> AbstractAsyncContextManager[ClaimLoop]:
        return at_work(
            self.urls, CLEANUP, libraries_dir=self.libraries, state_dir=self.root / "state", **more
        )


@pytest.fixture
async def cache(database: Urls, tmp_path: Path) -> Cache:
    made = Cache(database, tmp_path)
    (made.libraries / "photos").mkdir(parents=True)
    (made.libraries / "photos/x").write_bytes(b"an original")
    made.thumbs.mkdir(parents=True)
    await made.ask("SELECT id FROM dedup.add_library('test', 'photos', 'photos')")
    await made.ask(
        """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns)
           SELECT id, 'x', 11, 1 FROM dedup.library_roots"""
    )
    return made


async def test_files_and_rows_of_the_group_go_and_no_others(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R000-36, R000-40, R000-41, R000-102, R000-103: in pages; originals and other groups stay."""
    monkeypatch.setattr(cleanup, "PAGE", 3)
    for number in range(8):
        await cache.thumbnail(number, "failed" if number == 5 else "ready")
    other = await cache.thumbnail(99, group="blake3:" + "cd" * 32)
    missing = next(iter(cache.files() - {other}))
    (cache.thumbs / missing).unlink()  # gone already: no failure
    originals = fingerprint(cache.libraries)
    row = await cache.carried_out(await cache.request())
    assert (row["status"], row["error_code"]) == ("completed", None)
    assert row["finished_at"] is not None
    assert row["lease_expires_at"] is None
    assert await cache.rows() == [other]
    assert cache.files() == {other}
    assert fingerprint(cache.libraries) == originals


async def test_a_thumbnail_that_is_asked_for_meanwhile_stays(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R000-41: only ready and failed ones are deleted, also when one became pending after it was read."""
    await cache.thumbnail(0)
    failed = await cache.thumbnail(1, "failed")
    unlink = cleanup.unlink_outputs
    read, go_on = threading.Event(), threading.Event()

    def meanwhile(thumbs: Path, page: Any, should_stop: Any) -> dict[int, str | None]:
        read.set()
        go_on.wait(patient(20))
        return unlink(thumbs, page, should_stop)

    monkeypatch.setattr(cleanup, "unlink_outputs", meanwhile)
    job = await cache.request()
    async with cache.work():
        assert await anyio.to_thread.run_sync(read.wait, patient(20))
        await cache.ask("UPDATE dedup.thumbnails SET status = 'pending' WHERE status = 'failed'")
        await cache.thumbnail(2, "pending")
        go_on.set()
        assert (await cache.ended(job))["status"] == "completed"
    assert len(await cache.rows()) == 2
    assert failed in await cache.rows()


async def test_it_waits_for_its_time_and_for_thumbnails_that_are_being_made(cache: Cache) -> None:
    """R000-36, R000-37, R000-38: what is not due is not claimed, nor a group with work in it."""
    busy, later = "blake3:" + "01" * 32, "blake3:" + "02" * 32
    await cache.thumbnail(0, "pending", group=busy)
    await cache.thumbnail(1, group=busy)
    await cache.thumbnail(2, group=later)
    await cache.thumbnail(3)
    waiting = [await cache.request(busy), await cache.request(later, 3600)]
    now = await cache.request()
    before = cache.files()
    async with cache.work():
        assert (await cache.ended(now))["status"] == "completed"
        assert [(await cache.job(job))["status"] for job in waiting] == ["pending", "pending"]
        assert len(before - cache.files()) == 1
        await cache.ask("UPDATE dedup.thumbnails SET status = 'running' WHERE status = 'pending'")
        await cache.ask("UPDATE dedup.thumbnails SET status = 'ready' WHERE status = 'running'")
        assert (await cache.ended(waiting[0]))["status"] == "completed"
    assert len(cache.files()) == 1


HOSTILE = (
    "../../libraries/photos/x",
    "/etc/hostname",
    "photos/x",
    "",
    ".",
    "ab/cd/../../../../libraries/photos/x",
    "ab/cd/" + "ab" * 32,
    "ab/cd/" + "ab" * 32 + ".jpg",
    "ab/cd/abcd" + "0" * 60 + ".png",
    "ab/cd/abcd" + "0" * 60 + ".jpg\n",
    "AB/CD/ABCD" + "0" * 60 + ".jpg",
)


async def test_whatever_stands_in_the_table_only_thumbnails_are_unlinked(cache: Cache) -> None:
    """R000-102, R000-103: a name of another form is refused and told, the real ones go on."""
    outside = cache.root / "libraries/photos"
    for number, path in enumerate(HOSTILE, start=1):
        await cache.thumbnail(number, relpath=path or " ")
        aim = cache.thumbs / path
        if path.startswith(("ab/", "AB/", "photos/")) and ".." not in path:
            aim.parent.mkdir(parents=True, exist_ok=True)
            aim.write_bytes(b"not a thumbnail")
    kept = cache.files()
    await cache.thumbnail(100)
    originals, hostname = fingerprint(cache.libraries), Path("/etc/hostname").exists()
    row = await cache.carried_out(await cache.request())
    assert (row["status"], row["error_code"]) == ("failed", "THUMB_CLEANUP_FAILED")
    assert f"1 thumbnails removed; not removed: REFUSED {len(HOSTILE)}" in row["error_message"]
    assert "libraries" not in row["error_message"]
    assert fingerprint(cache.libraries) == originals
    assert (outside / "x").read_bytes() == b"an original"
    assert Path("/etc/hostname").exists() == hostname
    assert cache.files() == kept
    assert len(await cache.rows()) == len(HOSTILE)


@pytest.mark.parametrize("level", [0, 1])
async def test_a_directory_that_leads_elsewhere_is_not_entered(cache: Cache, level: int) -> None:
    """R000-103: an original under the very name of a thumbnail, behind a link in the cache, stays."""
    relpath = await cache.thumbnail(0)
    parts = relpath.split("/")
    original = cache.libraries / "photos" / "/".join(parts[level + 1 :])
    original.parent.mkdir(parents=True, exist_ok=True)
    (cache.thumbs / relpath).rename(original)
    linked = cache.thumbs / "/".join(parts[: level + 1])
    if level == 0:
        (linked / parts[1]).rmdir()
    linked.rmdir()
    linked.symlink_to(cache.libraries / "photos")
    originals = fingerprint(cache.libraries)
    row = await cache.carried_out(await cache.request())
    assert (row["status"], row["error_code"]) == ("failed", "THUMB_CLEANUP_FAILED")
    assert "ESCAPES_LIBRARY 1" in row["error_message"]
    assert fingerprint(cache.libraries) == originals
    assert await cache.rows() == [relpath]


async def test_a_link_in_the_place_of_a_thumbnail_goes_and_what_it_names_stays(cache: Cache) -> None:
    """R000-103"""
    relpath = await cache.thumbnail(0)
    (cache.thumbs / relpath).unlink()
    (cache.thumbs / relpath).symlink_to(cache.libraries / "photos/x")
    assert (await cache.carried_out(await cache.request()))["status"] == "completed"
    assert cache.files() == set()
    assert (cache.libraries / "photos/x").read_bytes() == b"an original"


async def test_what_cannot_be_unlinked_keeps_its_row(cache: Cache) -> None:
    """R000-40: its file is still there, so its row is too; the job is failed and says why."""
    stuck, _ = await cache.thumbnail(0), await cache.thumbnail(1)
    (cache.thumbs / stuck).unlink()
    (cache.thumbs / stuck).mkdir()
    row = await cache.carried_out(await cache.request())
    assert (row["status"], row["error_code"]) == ("failed", "THUMB_CLEANUP_FAILED")
    assert "1 thumbnails removed; not removed: " in row["error_message"]
    assert await cache.rows() == [stuck]


async def test_a_cache_that_was_never_made_has_only_rows(cache: Cache) -> None:
    key = hashlib.sha256(b"x").hexdigest()
    await cache.thumbnail(0, "failed", relpath=f"{key[:2]}/{key[2:4]}/{key}.jpg")
    cache.thumbs.rmdir()
    assert (await cache.carried_out(await cache.request()))["status"] == "completed"
    assert await cache.rows() == []


async def test_a_cleanup_that_was_cut_is_done_again(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """R000-39: between file and row its worker dies; the row is claimable again and the rest is removed."""
    for number in range(4):
        await cache.thumbnail(number)
    job = await cache.request()
    reached, unlink = threading.Event(), cleanup.unlink_outputs

    def cut(thumbs: Path, page: Any, should_stop: Any) -> dict[int, str | None]:
        answers = unlink(thumbs, page[:2], should_stop)
        reached.set()
        while not should_stop():
            threading.Event().wait(0.01)
        return answers

    monkeypatch.setattr(cleanup, "unlink_outputs", cut)
    async with cache.work(worker="first"):
        assert await anyio.to_thread.run_sync(reached.wait, patient(20))
    assert (len(cache.files()), len(await cache.rows())) == (2, 4)
    assert (await cache.job(job))["status"] == "running"
    monkeypatch.setattr(cleanup, "unlink_outputs", unlink)
    async with cache.work(worker="second"):
        row = await cache.ended(job)
    assert (row["status"], row["worker_id"]) == ("completed", "second")
    assert (cache.files(), await cache.rows()) == (set(), [])


async def test_a_worker_that_lost_its_claim_removes_no_row(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R000-102: the token is compared when rows are removed, not only when the work begins."""
    await cache.thumbnail(0)
    await cache.request()
    claimed, unlink = threading.Event(), cleanup.unlink_outputs
    go_on = threading.Event()

    def late(thumbs: Path, page: Any, should_stop: Any) -> dict[int, str | None]:
        claimed.set()
        go_on.wait(patient(20))
        return unlink(thumbs, page, lambda: False)

    monkeypatch.setattr(cleanup, "unlink_outputs", late)
    async with cache.work() as loop:
        assert await anyio.to_thread.run_sync(claimed.wait, patient(20))
        async with connected(cache.urls.admin, session_replication_role="replica") as admin:
            await admin.execute(
                """UPDATE dedup.thumbnail_cleanup_jobs SET claim_id = gen_random_uuid(),
                          worker_id = 'somebody', lease_expires_at = now() + interval '1 h'"""
            )
        go_on.set()
        await eventually(lambda: loop.held == 0, what="the end of what was claimed")
        assert len(await cache.rows()) == 1


PURGE = "SELECT dedup.purge((SELECT epoch FROM supervisor.leader_epoch))"


async def test_thumbnails_of_a_removed_library_go_with_their_files(cache: Cache) -> None:
    """Rows stay until their files are unlinked; those of another library's file of the same group stay."""
    await cache.ask("SELECT dedup.add_library('test', 'music', 'music')")
    kept_file = await cache.ask(
        """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns)
           SELECT id, 'x', 11, 1 FROM dedup.library_roots WHERE name = 'music' RETURNING id"""
    )
    kept = await cache.thumbnail(9)
    async with connected(cache.urls.admin, session_replication_role="replica") as admin:
        await admin.execute("UPDATE dedup.thumbnails SET file_id = $1", kept_file)
    for number, status in enumerate(("ready", "failed", "pending")):
        await cache.thumbnail(number, status)
    await cache.ask("SELECT count(*) FROM supervisor.acquire('l1', 600, 7, 0, NULL, NULL)")
    assert await cache.ask(PURGE) == 0
    originals = fingerprint(cache.libraries)
    await cache.ask("SELECT dedup.remove_library('test', 'photos')")
    assert len(await cache.rows()) == len(cache.files()) == 4
    assert await cache.ask(PURGE) == 1
    assert await cache.ask(PURGE) == 0, "one at a time"
    row = await cache.carried_out(await cache.ask("SELECT id FROM dedup.thumbnail_cleanup_jobs"))
    assert (row["status"], row["error_code"], row["requested_by"]) == ("completed", None, "leader")
    assert (await cache.rows(), cache.files()) == ([kept], {kept})
    assert fingerprint(cache.libraries) == originals
    assert await cache.ask(PURGE) == 0
