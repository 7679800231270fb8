"""Duplicates on their way to the trash: what goes, what stays, and what happens when it is cut."""

import hashlib
import json
import os
import threading
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import anyio.to_thread
import pytest
from blake3 import blake3

from actors.dedup import DELETE, trash
from actors.dedup.confine import library_root
from actors.dedup.digest import Digest, Failure
from schemas import Query
from supervisor.claim_loop import ClaimLoop
from supervisor.embedded import Urls
from supervisor.errors import OutcomeUnknown
from supervisor.store import Store
from tests.support.eventually import eventually
from tests.support.row_work import at_work
from tests.support.sessions import connected, value
from tests.support.slowness import patient

CONTENT = b"the same picture" * 50
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Library:
    """A directory of libraries with their rows, as a scan and a hash would have left them."""

    urls: Urls
    directory: Path

    async def ask(self, query: str, *arguments: object) -> Any:
        return await value(self.urls.admin, query, *arguments)

    async def add(self, name: str = "photos") -> None:
        (self.directory / name).mkdir(parents=True, exist_ok=True)
        await self.ask("SELECT id FROM dedup.add_library('test', $1, $1)", name)

    async def put(self, path: str, content: bytes = CONTENT, algorithm: str = "blake3") -> int:
        name, _, relative = path.partition("/")
        file = self.directory / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists():
            file.write_bytes(content)
        facts = file.stat()
        digest = blake3(content).digest() if algorithm == "blake3" else hashlib.sha256(content).digest()
        made: int = await self.ask(
            """INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, inode,
                      device, needs_hash, hash_algorithm, content_hash, hashed_size,
                      hashed_mtime_ns, hashed_at)
               SELECT l.id, $2, $3, $4, $5, $6, false, $7, $8, $3, $4, now()
                 FROM dedup.library_roots l WHERE l.name = $1 RETURNING id""",
            name,
            relative,
            facts.st_size,
            facts.st_mtime_ns,
            facts.st_ino,
            facts.st_dev,
            algorithm,
            digest,
        )
        return made

    async def allow(self, *, on: bool = True) -> None:
        await self.ask(
            "UPDATE supervisor.setting SET value = $1::jsonb WHERE name = 'dedup_allow_real_delete'",
            json.dumps(on),
        )

    async def request(
        self,
        keep: int,
        *remove: int,
        dry_run: bool = False,
        algorithm: str = "blake3",
        content: bytes = CONTENT,
    ) -> UUID:
        digest = blake3(content).digest() if algorithm == "blake3" else hashlib.sha256(content).digest()
        job: UUID = await self.ask(
            "SELECT id FROM dedup.request_delete('test', $1, $2, $3, $4, $5)",
            algorithm,
            digest,
            keep,
            list(remove),
            dry_run,
        )
        return job

    async def job(self, job: UUID) -> Mapping[str, Any]:
        async with connected(self.urls.admin) as admin:
            (row,) = await admin.fetch("SELECT * FROM dedup.jobs WHERE id = $1", job)
            return dict(row)

    async def ended(self, job: UUID) -> Mapping[str, Any]:
        async def row() -> Mapping[str, Any]:
            found = await self.job(job)
            assert found["status"] in ENDED
            return found

        return await eventually(row, timeout=20, what="the job ends")

    async def file(self, file: int) -> Mapping[str, Any]:
        async with connected(self.urls.admin) as admin:
            (row,) = await admin.fetch("SELECT * FROM dedup.library_files WHERE id = $1", file)
            return dict(row)

    def tree(self) -> dict[str, bytes]:
        """Every file beneath, by path."""
        return {
            str(path.relative_to(self.directory)): path.read_bytes()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file() and not path.is_symlink()
        }

    def work(self, **more: Any) -> AbstractAsyncContextManager[ClaimLoop]:
        return at_work(self.urls, DELETE, libraries_dir=self.directory, **more)

    async def carried_out(self, job: UUID) -> Mapping[str, Any]:
        async with self.work():
            return await self.ended(job)


@pytest.fixture
async def library(database: Urls, tmp_path: Path) -> Library:
    made = Library(database, tmp_path / "libraries")
    await made.add()
    await made.allow()
    return made


def in_trash(job: UUID, path: str) -> str:
    name, _, relative = path.partition("/")
    return f"{name}/.tenure-trash/{job}/{relative}"


@pytest.mark.parametrize("algorithm", ["blake3", "sha256"])
async def test_duplicates_go_to_the_trash_and_the_keeper_stays(library: Library, algorithm: str) -> None:
    """R000-97, C-13: moved within its own library, never unlinked; the file that stays is not touched."""
    await library.add("more")
    keep = await library.put("photos/a.jpg", algorithm=algorithm)
    one = await library.put("photos/deep/er/b c.jpg", algorithm=algorithm)
    other = await library.put("more/caf\u00e9.jpg", algorithm=algorithm)
    stays = (library.directory / "photos/a.jpg").stat()
    job = await library.request(keep, one, other, algorithm=algorithm)
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"], row["progress"]) == ("completed", None, 1.0)
    assert library.tree() == {
        "photos/a.jpg": CONTENT,
        in_trash(job, "photos/deep/er/b c.jpg"): CONTENT,
        in_trash(job, "more/caf\u00e9.jpg"): CONTENT,
    }
    after = (library.directory / "photos/a.jpg").stat()
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        stays.st_ino,
        stays.st_mtime_ns,
        stays.st_ctime_ns,
    )
    gone = await library.file(one)
    assert gone["is_missing"]
    assert (gone["trashed_by"], gone["trash_path"]) == (job, f".tenure-trash/{job}/deep/er/b c.jpg")
    assert not (await library.file(keep))["is_missing"]


async def test_a_dry_run_reads_everything_and_moves_nothing(library: Library) -> None:
    """C-13: without a word to the contrary a deletion is a dry run; it still finds what has changed."""
    keep, same = await library.put("photos/a"), await library.put("photos/b")
    other = await library.put("photos/c")
    before = library.tree()
    row = await library.carried_out(await library.request(keep, same, dry_run=True))
    assert row["status"] == "completed"
    assert library.tree() == before
    assert not (await library.file(same))["is_missing"]

    (library.directory / "photos/c").write_bytes(b"another picture")
    before = library.tree()
    row = await library.carried_out(await library.request(keep, same, other, dry_run=True))
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert f"1 of 2 files skipped (FILE_CHANGED: {other})" in row["error_message"]
    assert library.tree() == before


async def test_what_is_not_as_it_was_is_skipped_and_the_others_go_on(library: Library) -> None:
    """R000-98: changed with its old size and time, changed openly, gone, a link, a directory: none goes."""
    keep = await library.put("photos/a")
    names = ["forged", "grown", "lost", "linked", "turned", "same"]
    files = {name: await library.put(f"photos/{name}") for name in names}
    photos = library.directory / "photos"
    facts = (photos / "forged").stat()
    (photos / "forged").write_bytes(CONTENT[:-1] + b"?")
    os.utime(photos / "forged", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    (photos / "grown").write_bytes(CONTENT + b"more")
    for name in ("lost", "linked", "turned"):
        (photos / name).unlink()
    (photos / "linked").symlink_to("a")
    (photos / "turned").mkdir()
    job = await library.request(keep, *files.values())
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    for part in (
        "5 of 6 files skipped",
        f"FILE_CHANGED: {files['forged']}, {files['grown']}",
        f"NOT_FOUND: {files['lost']}",
        f"ESCAPES_LIBRARY: {files['linked']}",
        f"SPECIAL_FILE: {files['turned']}",
    ):
        assert part in row["error_message"]
    assert (photos / "linked").is_symlink()
    assert not (photos / "same").exists()
    assert library.tree()[in_trash(job, "photos/same")] == CONTENT
    assert not (await library.file(files["forged"]))["is_missing"]


@pytest.mark.parametrize("how", ["content", "missing", "link"])
async def test_when_the_keeper_changed_nothing_more_is_moved(library: Library, how: str) -> None:
    """R000-98: the last copy of a content is never moved: what the row says of the keeper is not believed."""
    keep, one, other = [await library.put(f"photos/{name}") for name in ("a", "b", "c")]
    stays = library.directory / "photos/a"
    if how == "content":
        facts = stays.stat()
        stays.write_bytes(bytes(len(CONTENT)))
        os.utime(stays, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    else:
        stays.unlink()
        if how == "link":
            stays.symlink_to("b")
    before = library.tree()
    row = await library.carried_out(await library.request(keep, one, other))
    assert (row["status"], row["error_code"]) == ("failed", "KEEPER_CHANGED")
    assert library.tree() == before
    assert not (await library.file(one))["is_missing"]


async def test_without_leave_nothing_is_moved(library: Library) -> None:
    """R000-97, R000-105: whether real deletion is allowed is decided in the database, when it happens."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    await library.allow(on=False)
    before = library.tree()
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_REFUSED")
    assert "dedup_allow_real_delete" in row["error_message"]
    assert library.tree() == before


async def test_a_file_the_database_gives_no_leave_for_stays(library: Library) -> None:
    """R000-97: its row has changed since: another hash is due, so nobody knows that it is a duplicate."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    await library.ask("UPDATE dedup.library_files SET needs_hash = true WHERE id = $1", one)
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert f"LEAVE_REFUSED: {one}" in row["error_message"]
    assert library.tree() == {"photos/a": CONTENT, "photos/b": CONTENT}


async def test_a_hard_link_of_the_keeper_goes_and_that_is_said(
    library: Library, capfd: pytest.CaptureFixture[str]
) -> None:
    """A path less, and the content is still there."""
    keep = await library.put("photos/a")
    os.link(library.directory / "photos/a", library.directory / "photos/b")
    link = await library.put("photos/b")
    job = await library.request(keep, link)
    assert (await library.carried_out(job))["status"] == "completed"
    assert library.tree() == {"photos/a": CONTENT, in_trash(job, "photos/b"): CONTENT}
    captured = capfd.readouterr()
    assert f"file {link} is a hard link of file {keep}" in captured.out + captured.err


async def test_one_file_under_two_paths_is_not_taken_for_two(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that is mounted twice shows one file under two paths: its only name must not go.

    A mount needs rights that a test may lack, so the row's library leads to the same directory instead.
    """
    keep = await library.put("photos/a")
    await library.add("again")
    (library.directory / "again/a").write_bytes(CONTENT)
    alias = await library.put("again/a")
    facts = (library.directory / "photos/a").stat()
    await library.ask(
        "UPDATE dedup.library_files SET mtime_ns = $2, hashed_mtime_ns = $2 WHERE id = $1",
        alias,
        facts.st_mtime_ns,
    )
    opened = library_root
    monkeypatch.setattr(
        trash, "library_root", lambda directory, path: opened(directory, path.replace("again", "photos"))
    )
    before = library.tree()
    row = await library.carried_out(await library.request(keep, alias))
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert f"SAME_FILE: {alias}" in row["error_message"]
    assert library.tree() == before

    # and without that look, the keeper is missed after the move: it is undone
    monkeypatch.setattr(trash.Trash, "links", lambda self, copy: 2)
    row = await library.carried_out(await library.request(keep, alias))
    assert (row["status"], row["error_code"]) == ("failed", "KEEPER_CHANGED")
    assert library.tree() == before
    assert not (await library.file(alias))["is_missing"]


async def test_two_jobs_never_take_each_others_keeper(library: Library) -> None:
    """The database gives leave to one of them; something of the content stays, whoever is first."""
    one, other = await library.put("photos/a"), await library.put("photos/b")
    first, second = await library.request(one, other), await library.request(other, one)
    async with library.work(worker="one"), library.work(worker="two"):
        ends = [await library.ended(first), await library.ended(second)]
    assert sorted(row["status"] for row in ends) == ["completed", "failed"]
    assert len([path for path in library.tree() if ".tenure-trash" not in path]) == 1


async def test_a_file_swapped_before_the_move_stays(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is moved is the file that was read, not whatever has its name by then."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    victim = library.directory / "photos/b"
    move = trash.Trash.move

    def swapped(self: trash.Trash, *arguments: Any) -> trash.Moved:
        victim.rename(victim.with_name("elsewhere"))
        victim.write_bytes(b"something new")
        return move(self, *arguments)

    monkeypatch.setattr(trash.Trash, "move", swapped)
    row = await library.carried_out(await library.request(keep, one))
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert "FILE_CHANGED" in row["error_message"]
    assert victim.read_bytes() == b"something new"
    assert not (await library.file(one))["is_missing"]


async def test_a_file_written_to_before_the_move_is_put_back(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    move = trash.Trash.move

    def written(self: trash.Trash, *arguments: Any) -> trash.Moved:
        (library.directory / "photos/b").write_bytes(b"an edit")
        return move(self, *arguments)

    monkeypatch.setattr(trash.Trash, "move", written)
    row = await library.carried_out(await library.request(keep, one))
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert library.tree() == {"photos/a": CONTENT, "photos/b": b"an edit"}
    assert not (await library.file(one))["is_missing"]


async def test_nothing_in_the_trash_is_replaced(library: Library) -> None:
    """What lies there under the name stays, and the duplicate stays where it is."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    taken = library.directory / in_trash(job, "photos/b")
    taken.parent.mkdir(parents=True)
    taken.write_bytes(b"older")
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert f"ALREADY_EXISTS: {one}" in row["error_message"]
    assert taken.read_bytes() == b"older"
    assert (library.directory / "photos/b").read_bytes() == CONTENT
    assert not (await library.file(one))["is_missing"]


async def test_a_trash_that_leads_out_of_the_library_is_not_used(library: Library, tmp_path: Path) -> None:
    """R000-103: a link in the place of the trash, or of a directory, moves nothing out and nothing in."""
    outside = tmp_path / "outside"
    (outside / "d").mkdir(parents=True)
    (outside / "d/b").write_bytes(CONTENT)
    keep = await library.put("photos/a")
    one, beneath = await library.put("photos/b"), await library.put("photos/d/b")
    (library.directory / "photos/d/b").unlink()
    (library.directory / "photos/d").rmdir()
    (library.directory / "photos/d").symlink_to(outside / "d")
    (library.directory / "photos/.tenure-trash").symlink_to(outside)
    row = await library.carried_out(await library.request(keep, one, beneath))
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_INCOMPLETE")
    assert f"ESCAPES_LIBRARY: {one}, {beneath}" in row["error_message"]
    assert library.tree() == {"photos/a": CONTENT, "photos/b": CONTENT}
    assert sorted(str(path.relative_to(outside)) for path in outside.rglob("*")) == ["d", "d/b"]


@pytest.mark.parametrize("after_the_move", [False, True])
async def test_a_deletion_that_was_cut_is_continued(
    library: Library, monkeypatch: pytest.MonkeyPatch, *, after_the_move: bool
) -> None:
    """R000-26: between leave and move, or behind the move, its worker dies; the next one finishes it."""
    keep = await library.put("photos/a")
    files = [await library.put(f"photos/{name}") for name in ("b", "c", "d")]
    job = await library.request(keep, *files)
    reached, move = threading.Event(), trash.Trash.move

    def cut(self: trash.Trash, copy: trash.Copy, *arguments: Any) -> trash.Moved:
        if copy.id != files[1]:
            return move(self, copy, *arguments)
        if after_the_move:
            move(self, copy, *arguments)
        reached.set()
        should_stop = arguments[-1]
        while not should_stop():
            threading.Event().wait(0.01)
        return trash.Moved(False, "STOPPED")

    monkeypatch.setattr(trash.Trash, "move", cut)
    async with library.work(worker="first"):
        assert await anyio.to_thread.run_sync(reached.wait, patient(20))
    middle = await library.file(files[1])
    assert (middle["is_missing"], middle["trashed_by"]) == (True, job)
    assert (library.directory / "photos/c").exists() != after_the_move
    assert (await library.job(job))["status"] == "running"

    monkeypatch.setattr(trash.Trash, "move", move)
    async with library.work(worker="second"):
        row = await library.ended(job)
    assert (row["status"], row["worker_id"]) == ("completed", "second")
    moved = {in_trash(job, f"photos/{name}"): CONTENT for name in ("b", "c", "d")}
    assert library.tree() == {"photos/a": CONTENT, **moved}


async def test_leave_that_was_not_used_is_withdrawn(library: Library) -> None:
    """Real deletion was switched off while nobody worked on it: the file is in its place, and said to be."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    await library.ask(
        """UPDATE dedup.library_files SET is_missing = true, trashed_by = $2, trashed_at = now(),
                  trash_path = $3 WHERE id = $1""",
        one,
        job,
        f".tenure-trash/{job}/b",
    )
    await library.allow(on=False)
    row = await library.carried_out(job)
    assert (row["status"], row["error_code"]) == ("failed", "DELETE_REFUSED")
    back = await library.file(one)
    assert (back["is_missing"], back["trashed_by"], back["trash_path"]) == (False, None, None)
    assert library.tree() == {"photos/a": CONTENT, "photos/b": CONTENT}


async def test_a_call_without_an_answer_is_repeated(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 12: leave that was given and not heard of is the same leave when it is asked for again."""
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    asked: list[str | Query] = []
    rows = Store.rows

    async def unheard(self: Store, query: str | Query, *arguments: Any, **named: Any) -> Any:
        answer = await rows(self, query, *arguments, **named)
        asked.append(query)
        if query in {"read_deletion", "trash_file"} and asked.count(query) == 1:
            raise OutcomeUnknown(name=str(query), what="the connection broke")
        return answer

    monkeypatch.setattr(Store, "rows", unheard)
    assert (await library.carried_out(job))["status"] == "completed"
    assert (asked.count("read_deletion"), asked.count("trash_file")) == (2, 2)
    assert library.tree() == {"photos/a": CONTENT, in_trash(job, "photos/b"): CONTENT}


async def test_a_cancelled_deletion_stops_and_keeps_what_it_did(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that reads is told to stop; nothing is moved after that."""
    keep = await library.put("photos/a")
    files = [await library.put(f"photos/{name}") for name in ("b", "c")]
    job = await library.request(keep, *files)
    reached, stopped, looked = threading.Event(), threading.Event(), trash.Trash.look_into

    def look_into(self: trash.Trash, copy: trash.Copy, should_stop: Any, **named: Any) -> Digest | Failure:
        if copy.id == files[1]:
            reached.set()
            while not should_stop():
                threading.Event().wait(0.01)
            stopped.set()
        return looked(self, copy, should_stop, **named)

    monkeypatch.setattr(trash.Trash, "look_into", look_into)
    async with library.work() as loop:
        assert await anyio.to_thread.run_sync(reached.wait, patient(20))
        await library.ask("SELECT id FROM dedup.cancel_job('test', $1)", job)
        await eventually(lambda: loop.held == 0, what="the end of what was claimed")
        assert stopped.is_set()
    assert (await library.job(job))["status"] == "cancelled"
    assert library.tree() == {
        "photos/a": CONTENT,
        "photos/c": CONTENT,
        in_trash(job, "photos/b"): CONTENT,
    }


async def test_without_a_directory_of_libraries_it_says_so(library: Library) -> None:
    keep, one = await library.put("photos/a"), await library.put("photos/b")
    job = await library.request(keep, one)
    async with at_work(library.urls, DELETE, database_url=library.urls.control):
        row = await library.ended(job)
    assert (row["status"], row["error_code"]) == ("failed", "LIBRARIES_DIR_UNSET")
