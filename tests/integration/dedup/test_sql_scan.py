"""A walk as the database writes it down: what is new, changed, missing, moved, and what is left alone."""

from typing import Any
from uuid import uuid4

import pytest

from actors.dedup import leases
from tests.integration.dedup.sql_world import HASH, OTHER, Claimed, DedupWorld, Seen, refused

STATE = (
    "SELECT (SELECT jsonb_agg(f ORDER BY f.id) FROM dedup.library_files "
    "f)::text || s::text FROM dedup.scan_sessions s"
)


async def begun(world: DedupWorld, **payload: Any) -> tuple[Claimed, int]:
    job = await world.claimed(leases.SCAN, "scan", **payload)
    return job, (await world.begin(job))["session_id"]


async def test_a_walk_finds_what_is_new_changed_and_missing(world: DedupWorld) -> None:
    session = await world.scanned(Seen("a", inode=1), Seen("b", inode=2), Seen("c/d", inode=3))
    assert (session["files_new"], session["files_changed"], session["files_missing"]) == (3, 0, 0)
    assert (session["files_seen"], session["bytes_seen"], session["status"]) == (3, 30, "succeeded")
    again = await world.scanned(Seen("a", inode=1), Seen("b", inode=2), Seen("c/d", inode=3))
    assert [again[f"files_{what}"] for what in ("new", "changed", "missing", "moved")] == [0] * 4
    third = await world.scanned(Seen("a", inode=1, mtime=2), Seen("b", inode=2), Seen("e", inode=9))
    assert [third[f"files_{what}"] for what in ("new", "changed", "missing", "moved")] == [1, 1, 1, 0]
    files = await world.files()
    assert {path for path, row in files.items() if row["is_missing"]} == {"c/d"}
    assert files["c/d"]["missing_session_id"] == third["id"]
    assert files["a"]["mtime_ns"] == 2


async def test_what_is_missing_stays_so_while_all_else_is_as_known(world: DedupWorld) -> None:
    kept = [Seen("a", inode=1), Seen("c", inode=3)]
    await world.scanned(*kept, Seen("b", inode=2), Seen("d", inode=4))
    lost = await world.scanned(*kept)
    before = await world.files()
    again = await world.scanned(*kept)
    assert [again[f"files_{what}"] for what in ("new", "changed", "missing", "moved")] == [0] * 4
    assert (again["files_seen"], again["bytes_seen"]) == (2, 20)
    assert await world.files() == before
    assert {row["missing_session_id"] for row in before.values()} == {None, lost["id"]}
    back = await world.scanned(*kept, Seen("b", inode=2))
    assert [back[f"files_{what}"] for what in ("new", "changed", "missing")] == [0, 1, 0]


async def test_only_what_was_missing_is_there(world: DedupWorld) -> None:
    """Nothing that is there is known, and yet it is not new."""
    await world.scanned(Seen("a", inode=1))
    await world.admin.sql("UPDATE dedup.library_files SET is_missing = true")
    session = await world.scanned(Seen("a", inode=1), Seen("b", inode=2))
    assert [session[f"files_{what}"] for what in ("new", "changed", "missing")] == [1, 1, 0]


@pytest.mark.parametrize("change", [{"size": 11}, {"mtime": 2}, {"inode": 2}])
async def test_a_changed_file_needs_its_hash_again(world: DedupWorld, change: dict[str, int]) -> None:
    await world.file("a", content=HASH, prefix=OTHER)
    session = await world.scanned(Seen("a", **change))
    assert session["files_changed"] == 1
    row = (await world.files())["a"]
    assert (row["needs_hash"], row["prefix_hash"]) == (True, None)


async def test_another_device_number_alone_changes_nothing(world: DedupWorld) -> None:
    """A disk that was mounted again has the same files."""
    await world.file("a", content=HASH, prefix=OTHER)
    session = await world.scanned(Seen("a", device=77))
    assert session["files_changed"] == 0
    row = (await world.files())["a"]
    assert (row["needs_hash"], row["content_hash"], row["prefix_hash"], row["device"]) == (
        False,
        HASH,
        OTHER,
        77,
    )


async def test_a_file_that_comes_back_as_it_was_keeps_its_hash(world: DedupWorld) -> None:
    file = await world.file("a", content=HASH)
    await world.scanned(Seen("b", inode=2))
    assert (await world.files())["a"]["is_missing"]
    await world.scanned(Seen("a"), Seen("b", inode=2))
    row = (await world.files())["a"]
    assert (row["id"], row["is_missing"], row["needs_hash"], row["content_hash"]) == (
        file,
        False,
        False,
        HASH,
    )
    assert row["missing_session_id"] is None


async def test_a_moved_file_keeps_its_row(world: DedupWorld) -> None:
    """Same inode, device, size and time elsewhere: with the row its hash and thumbnails stay."""
    file = await world.file("old/a", content=HASH, inode=5)
    session = await world.scanned(Seen("new/a", inode=5))
    assert [session[f"files_{what}"] for what in ("new", "changed", "missing", "moved")] == [0, 0, 0, 1]
    files = await world.files()
    assert list(files) == ["new/a"]
    assert (files["new/a"]["id"], files["new/a"]["content_hash"], files["new/a"]["is_missing"]) == (
        file,
        HASH,
        False,
    )


@pytest.mark.parametrize("other", [{"size": 11}, {"mtime": 2}, {"inode": 6}, {"device": 2}])
async def test_a_file_that_only_resembles_is_another(world: DedupWorld, other: dict[str, int]) -> None:
    """R000-98: nothing is guessed."""
    await world.file("old/a", content=HASH, inode=5)
    session = await world.scanned(Seen("new/a", **{"inode": 5, **other}))
    assert [session[f"files_{what}"] for what in ("new", "missing", "moved")] == [1, 1, 0]


async def test_hard_links_are_moved_one_by_one(world: DedupWorld) -> None:
    for name in ("a", "b"):
        await world.file(f"old/{name}", content=HASH, inode=5)
    session = await world.scanned(Seen("new/a", inode=5), Seen("new/b", inode=5), Seen("new/c", inode=5))
    assert [session[f"files_{what}"] for what in ("new", "missing", "moved")] == [1, 0, 2]
    assert len(await world.files()) == 3


async def test_what_could_not_be_read_is_not_missing(world: DedupWorld) -> None:
    """Neither the file itself nor what lies beneath; a name that only begins alike is."""
    for path in ("dir/x", "dir/y/z", "dirt", "file", "file2"):
        await world.file(path)
    job, session = await begun(world)
    assert await world.record(job, session, [Seen("other")], unknown=["dir", "dir/", "file"]) == (1, 0, 2)
    missing = {path for path, row in (await world.files()).items() if row["is_missing"]}
    assert missing == {"dirt", "file2"}
    errors = await world.admin.sql("SELECT path, code FROM dedup.scan_errors ORDER BY path")
    assert [row["path"] for row in errors] == ["dir", "dir/", "file"]


async def test_a_batch_covers_its_stretch_only(world: DedupWorld) -> None:
    for path in ("a", "b", "c", "d"):
        await world.file(path)
    job, session = await begun(world)
    assert await world.record(job, session, [Seen("a")], final=False, upto="b") == (0, 0, 1)
    assert {p for p, row in (await world.files()).items() if row["is_missing"]} == {"b"}
    assert await world.record(job, session, [], batch=2, after="b", upto="c", final=False) == (0, 0, 1)
    assert await world.record(job, session, [], batch=3, after="c", upto="c") == (0, 0, 1)


async def test_paths_are_ordered_by_their_bytes(world: DedupWorld) -> None:
    """The order of the walk: 'B' before 'a', and letters with marks behind both."""
    for path in ("B", "a", "é"):
        await world.file(path)
    job, session = await begun(world)
    assert await world.record(job, session, [Seen("B")], final=False, upto="Z") == (0, 0, 0)
    assert await world.record(job, session, [Seen("a")], batch=2, after="Z", upto="z", final=False) == (
        0,
        0,
        0,
    )
    assert await world.record(job, session, [], batch=3, after="z", upto="z") == (0, 0, 1)


async def test_a_repeated_batch_changes_nothing(world: DedupWorld) -> None:
    """And is answered as it was: whoever asks again did not hear the answer."""
    await world.file("b")
    job, session = await begun(world)
    first = await world.record(job, session, [Seen("a")], final=False, upto="c", unknown=["q"])
    assert first == (1, 0, 1)
    before = await world.admin.value(STATE)
    assert await world.record(job, session, [Seen("a")], final=False, upto="c", unknown=["q"]) == first
    assert await world.admin.value(STATE) == before


PART = (
    "SELECT * FROM dedup.record_scan($1, $2, $3, $4, $5, $6, $7, $8, $9, $9, $9, $9, '{}', '{}', '{}', 3, 0)"
)


@pytest.mark.parametrize("final", [True, False])
@pytest.mark.parametrize("lost", [False, True])
async def test_a_part_that_ends_with_its_stretch(world: DedupWorld, final: bool, lost: bool) -> None:
    """A call that takes no more just where the stretch ends says so, also to one who lost the answer; what
    lies behind is compared and what was seen is counted once.
    """
    await world.admin.sql(
        "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, inode, device) "
        "SELECT $1, CASE WHEN n <= 5001 THEN 'b/' WHEN n = 5002 THEN 'c/' ELSE 'd/' END || "
        "lpad(n::text, 6, '0'), 1, 1, 1, 1 FROM generate_series(1, 5012) n",
        world.library,
    )
    job, session = await begun(world)
    end = "c/005002"

    async def record(number: int, after: str, paths: list[str]) -> tuple[Any, ...]:
        given = [job.id, job.claim, session, number, after, end, final, paths, [1] * len(paths)]
        first = await world.worker.one(PART, *given)
        before = await world.admin.value(STATE)
        again = await world.worker.one(PART, *given)
        assert await world.admin.value(STATE) == before
        return tuple(again if lost else first)

    assert await record(1, "", [end]) == (0, 0, 5001, end)
    assert await record(2, end, []) == (0, 0, 10 if final else 0, None)
    row = await world.admin.one("SELECT * FROM dedup.scan_sessions")
    assert (row["files_seen"], row["directories_seen"]) == (1, 3)
    assert row["files_missing"] == (5011 if final else 5001)


async def test_a_walk_goes_on_where_it_stands(world: DedupWorld) -> None:
    job, session = await begun(world)
    await world.record(job, session, [Seen("a")], final=False)
    await refused("TN021", world.record(job, session, [Seen("c")], batch=3, after="a"))
    await refused("TN021", world.record(job, session, [Seen("c")], batch=2, after="b"))
    await world.expire("jobs")
    await world.recover(leases.SCAN)
    await world.control.sql("SELECT * FROM dedup.reset_job('anna', $1)", job.id)
    [again] = await world.claim(leases.SCAN, owner="w2")
    resumed = await world.begin(again)
    assert (resumed["session_id"], resumed["cursor_path"], resumed["batches"]) == (session, "a", 1)
    assert await world.record(again, session, [Seen("b", inode=2)], batch=2, after="a") == (1, 0, 0)


async def test_a_lost_claim_records_nothing(world: DedupWorld) -> None:
    """R000-16, R000-22: neither under another token, nor after the lease ran out, nor of another job."""
    job, session = await begun(world)
    before = await world.admin.value(STATE)
    stranger = Claimed(job.id, uuid4())
    for call in (
        world.begin(stranger),
        world.record(stranger, session, [Seen("a")]),
        world.worker.sql("SELECT dedup.fold_moves($1, $2, $3, 0, 9)", job.id, stranger.claim, session),
        world.worker.sql("SELECT dedup.end_scan($1, $2, $3, NULL, NULL)", job.id, stranger.claim, session),
    ):
        await refused("TN021", call)
    await refused("TN021", world.record(job, session + 1, [Seen("a")]))
    await refused(
        "TN021", world.worker.sql("SELECT dedup.fold_moves($1, $2, $3, 0, 9)", job.id, job.claim, session + 1)
    )
    await world.expire("jobs")
    await refused("TN021", world.record(job, session, [Seen("a")]))
    assert await world.admin.value(STATE) == before


async def test_a_claim_of_another_kind_walks_nowhere(world: DedupWorld) -> None:
    job = await world.claimed(leases.HASH, "hash")
    await refused("TN021", world.begin(job))


async def test_a_library_that_looks_empty_is_not_believed(world: DedupWorld) -> None:
    """A disk that is not mounted looks like this; who says so takes it as it is."""
    await world.file("a", content=HASH)
    job, session = await begun(world)
    assert "empty" in await refused("TN022", world.record(job, session, []))
    assert not (await world.files())["a"]["is_missing"]
    await world.worker.sql("SELECT dedup.end_scan($1, $2, $3, 'EMPTY', 'x')", job.id, job.claim, session)
    assert await world.finish(leases.SCAN, job, "cancel") == "RECORDED"
    job, session = await begun(world, allow_empty=True)
    assert await world.record(job, session, []) == (0, 0, 1)


async def test_an_empty_library_that_was_empty_is_one(world: DedupWorld) -> None:
    assert (await world.scanned())["status"] == "succeeded"


async def test_another_librarys_files_are_left_alone(world: DedupWorld) -> None:
    other = await world.add_library("music")
    await world.file("z", library=other)
    await world.scanned(Seen("a"))
    assert not (await world.files())["z"]["is_missing"]


async def test_a_new_walk_ends_one_that_was_left(world: DedupWorld) -> None:
    job, session = await begun(world)
    await world.control.sql("SELECT * FROM dedup.cancel_job('anna', $1)", job.id)
    _, newer = await begun(world)
    rows = await world.admin.sql("SELECT id, status, error_code FROM dedup.scan_sessions ORDER BY id")
    assert [tuple(row) for row in rows] == [(session, "failed", "SUPERSEDED"), (newer, "running", None)]


async def test_a_file_on_its_way_to_the_trash_does_not_come_back(world: DedupWorld) -> None:
    """Leave to move it was given; a walk that still sees it must not make it a copy that counts."""
    keep, file = await world.file("a", content=HASH), await world.file("b", content=HASH, inode=2)
    await world.switch("dedup_allow_real_delete", "true")
    await world.delete(keep, [file])
    [job] = await world.claim(leases.DELETE)
    assert await world.trash(job, file)
    await world.scanned(Seen("a"), Seen("b", inode=2))
    assert (await world.files())["b"]["is_missing"]
    await world.finish(leases.DELETE, job)
    await world.admin.sql(
        "UPDATE dedup.library_files SET trashed_at = now() - interval '1 hour' WHERE id = $1", file
    )
    await world.scanned(Seen("a"), Seen("b", inode=2))
    row = (await world.files())["b"]
    assert (row["is_missing"], row["trashed_by"], row["trash_path"]) == (False, None, None)


async def test_a_large_gap_is_taken_in_parts(world: DedupWorld) -> None:
    """A tree of many files is gone: no call takes more than some thousand; all are missing at last."""
    await world.admin.sql(
        "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, inode, device) "
        "SELECT $1, 'b/' || lpad(n::text, 6, '0'), 1, 1, n, 1 FROM generate_series(1, 12000) n",
        world.library,
    )
    job = await world.claimed(leases.SCAN, "scan")
    session = (await world.begin(job))["session_id"]
    arrays = (
        "'{a,c}'::text[], '{1,1}'::bigint[], '{1,1}'::bigint[], '{50001,50002}'::bigint[], '{1,1}'::bigint[]"
    )
    call = (
        "SELECT * FROM dedup.record_scan($1, $2, $3, $4, $5, 'c', true, "
        + arrays
        + ", '{}', '{}', '{}', 7, 0)"
    )
    after, parts = "", []
    for number in range(1, 9):
        row = await world.worker.one(call, job.id, job.claim, session, number, after)
        parts.append(row["files_missing"])
        if row["reached"] is None:
            break
        again = await world.worker.one(call, job.id, job.claim, session, number, after)
        assert again["reached"] == row["reached"]
        after = row["reached"]
    assert sum(parts) == 12000
    assert max(parts) <= 5003
    found = await world.admin.one("SELECT * FROM dedup.scan_sessions WHERE id = $1", session)
    assert (found["files_missing"], found["files_new"], found["directories_seen"]) == (12000, 2, 7)
