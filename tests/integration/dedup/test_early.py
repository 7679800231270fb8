"""Small files are hashed as they are first seen: which, in what state, and how it is written down."""

from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from actors.dedup import digest, early, leases
from actors.dedup.confine import library_root
from actors.dedup.early import Early
from actors.dedup.hashing import SMALL_BYTES
from actors.dedup.walk import Batch, batches
from tests.integration.dedup.sql_world import HASH, DedupWorld, refused

DUPLICATES = {"hash": True, "mode": "duplicates"}


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of this moment are taken for old ones."""
    monkeypatch.setattr(digest, "SECOND_NS", -1_000_000_000)


def never() -> bool:
    return False


def walked(path: Path, payload: dict[str, Any], change: str | None = None) -> Batch:
    asked = Early.asked_for(payload)
    assert asked is not None
    with library_root(path, "library") as root:
        [batch] = batches(root)
        if change is not None:
            Path(path, "library", change).write_bytes(b"changed meanwhile")
        assert asked.pays()
        asked.hash(root, batch, never)
    return batch


def fill(path: Path, **contents: bytes) -> None:
    (path / "library").mkdir()
    for name, content in contents.items():
        (path / "library" / name).write_bytes(content)


@pytest.mark.usefixtures("settled")
def test_only_what_is_small_and_has_a_partner(tmp_path: Path) -> None:
    large = bytes(SMALL_BYTES + 1)
    fill(tmp_path, a=b"one", b=b"two", c=b"alone", d=large, e=large, f=b"", g=b"")
    batch = walked(tmp_path, DUPLICATES)
    one, two, empty = (blake3(content).digest() for content in (b"one", b"two", b""))
    assert batch.hashes == [one, two, None, None, None, empty, empty]


@pytest.mark.usefixtures("settled")
def test_all_small_ones_where_all_are_wanted(tmp_path: Path) -> None:
    fill(tmp_path, a=b"one", b=bytes(SMALL_BYTES + 1))
    batch = walked(tmp_path, {"hash": True, "algorithm": "blake3"})
    assert batch.hashes == [blake3(b"one").digest(), None]


@pytest.mark.usefixtures("settled")
def test_what_changed_or_cannot_be_read_is_left_to_the_hashing(tmp_path: Path) -> None:
    fill(tmp_path, a=b"one", b=b"two", c=b"six")
    (tmp_path / "library/c").unlink()
    (tmp_path / "library/c").symlink_to("a")
    batch = walked(tmp_path, {"hash": True}, change="b")
    assert batch.paths == ["a", "b"]
    assert batch.hashes == [blake3(b"one").digest(), None]


def test_what_was_written_just_now_is_left_to_the_hashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "SECOND_NS", 1000 * digest.SECOND_NS)  # this machine may be slow
    fill(tmp_path, a=b"one")
    assert walked(tmp_path, {"hash": True}).hashes == [None]


@pytest.mark.usefixtures("settled")
def test_what_has_to_be_waited_for_is_left_to_the_hashing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(early, "SLOW_SECONDS", -1.0)
    monkeypatch.setattr(early, "PART", 1)
    fill(tmp_path, a=b"one", b=b"two")
    asked = Early("blake3", only_duplicates=False)
    with library_root(tmp_path, "library") as root:
        [batch] = batches(root)
        asked.hash(root, batch, never)
    assert batch.hashes == [blake3(b"one").digest(), None]
    assert [asked.pays() for _ in range(early.LEFT_BATCHES)] == [False] * (early.LEFT_BATCHES - 1) + [True]


def test_nothing_is_read_where_no_hash_was_asked_for() -> None:
    assert Early.asked_for({"allow_empty": True}) is None
    assert Early.asked_for({"hash": False}) is None


RECORD = (
    "SELECT * FROM dedup.record_scan($1, $2, $3, 1, '', 'c', true, '{a,b,c}', '{1,2,3}', '{4,5,6}', "
    "'{7,8,9}', '{1,1,1}', $4, '{}', '{}', '{}', 1, 0)"
)


async def test_a_row_is_written_with_its_hash_and_never_again_by_it(world: DedupWorld) -> None:
    known = await world.file("b", size=2, mtime=5, inode=8)
    job = await world.claimed(leases.SCAN, "scan", hash=True, algorithm="sha256")
    session = (await world.begin(job))["session_id"]
    row = await world.worker.one(RECORD, job.id, job.claim, session, [HASH, HASH, None])
    assert (row["files_new"], row["files_changed"]) == (2, 0)
    files = await world.files()
    facts = ("needs_hash", "hash_algorithm", "content_hash", "hashed_size", "hashed_mtime_ns")
    assert tuple(files["a"][name] for name in facts) == (False, "sha256", HASH, 1, 4)
    assert tuple(files["b"][name] for name in facts) == (True, None, None, 2, 5)
    assert tuple(files["c"][name] for name in facts) == (True, None, None, None, None)
    assert files["b"]["id"] == known
    ended = await world.admin.one("SELECT files_hashed FROM dedup.scan_sessions WHERE id = $1", session)
    assert ended["files_hashed"] == 1


async def test_a_hash_that_nobody_asked_for_is_refused(world: DedupWorld) -> None:
    job = await world.claimed(leases.SCAN, "scan")
    session = (await world.begin(job))["session_id"]
    call = world.worker.one(RECORD, job.id, job.claim, session, [HASH, None, None])
    assert "asks for no hashes" in await refused("TN022", call)
    assert await world.files() == {}


async def test_what_is_known_behind_a_path(world: DedupWorld) -> None:
    await world.file("b")
    await world.file("a", library=await world.add_library("music"))
    job = await world.claimed(leases.SCAN, "scan")
    found = [
        await world.worker.value("SELECT dedup.find_known($1, $2, $3)", job.id, job.claim, after)
        for after in ("", "a", "b")
    ]
    assert found == ["b", "b", None]
    other = world.worker.value("SELECT dedup.find_known($1, $1, '')", job.id)
    assert "no longer under this claim" in await refused("TN021", other)
