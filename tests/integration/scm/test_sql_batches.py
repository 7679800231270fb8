"""What is recorded, how a second look changes nothing, and where the cursor stands after it."""

import json
from collections.abc import Callable
from typing import Any

import asyncpg
import pytest

from tests.integration.scm.ledger import Held, Ledger, commit, instant, one, patch, revision, sha


async def put_cursor(ledger: Ledger, key: str, value: dict[str, Any]) -> None:
    await ledger.admin.execute(
        "INSERT INTO logbook.kv (namespace, key, value) VALUES ('scm.sync', $1, $2) "
        "ON CONFLICT (namespace, key) DO UPDATE SET value = excluded.value",
        key,
        json.dumps(value),
    )


async def full(ledger: Ledger, repo: str = "r", source: str = "svn") -> Held:
    await ledger.request(repo, source)
    (held,) = await ledger.claim()
    return held


async def test_a_revision_stands_as_it_was_read(ledger: Ledger) -> None:
    """R001-019 to R001-023, R001-063: what svn leaves out is empty, not invented (C-31)."""
    repo = await ledger.repo()
    held = await ledger.begun()
    paths = [{"path": "/a", "action": "A", "kind": "file", "copyfrom_path": "/b", "copyfrom_rev": 3}]
    facts = [
        revision(12, ts="2024-01-15T12:30:00.123456Z", meta={"changed_paths": paths}),
        {"rev": 13, "author": None, "ts": None, "message": None},
        revision(14, is_bulk=True, bulk_reason="large_changeset:150"),
    ]
    assert await ledger.record(held, 1, facts, 14) == (3, 0, 0, True)
    one, two, three = await ledger.admin.fetch("SELECT * FROM scm.svn_revisions ORDER BY rev_num")
    assert (one["rev_num"], one["rev_id"], one["author_raw"], one["message"]) == (
        12,
        12,
        "alice",
        "change 12",
    )
    assert one["ts"].isoformat() == "2024-01-15T12:30:00.123456+00:00"
    assert json.loads(one["meta_json"])["changed_paths"] == paths
    assert one["source_id"] == f"svn:{repo}:12"
    assert (two["author_raw"], two["ts"], two["message"], two["is_bulk"]) == ("", None, "", False)
    assert (three["is_bulk"], three["bulk_reason"]) == (True, "large_changeset:150")


async def test_a_commit_stands_as_it_was_read(ledger: Ledger) -> None:
    """R001-024, R001-025, R001-026, R001-027, R001-028, R001-029, R001-030, R001-031, R001-064"""
    repo = await ledger.repo(kind="git")
    held = await ledger.begun(source="git")
    meta = {
        "committer_name": "Bob",
        "committer_email": "bob@example.org",
        "parent_ids": [sha(1), sha(2)],
        "web_url": "https://git.example/c/3",
        "stats": {"additions": 1400, "deletions": 100, "total": 1500},
    }
    facts = [
        commit(3, meta=meta, is_bulk=True, bulk_reason="large_changeset:1500"),
        commit(4, meta={"parent_ids": [sha(3)]}),
    ]
    assert await ledger.record(held, 1, facts, instant(4), kind="git") == (2, 0, 0, True)
    merge, plain = await ledger.admin.fetch("SELECT * FROM scm.git_commits ORDER BY commit_sha")
    assert (merge["commit_sha"], merge["author_raw"]) == (sha(3), "Alice <alice@example.org>")
    assert (merge["message"], merge["is_merge"], plain["is_merge"]) == ("change 3", True, False)
    assert (merge["is_bulk"], merge["bulk_reason"], plain["is_bulk"]) == (True, "large_changeset:1500", False)
    assert json.loads(merge["meta_json"]) == {**meta, "author_email": "alice@example.org"}
    assert merge["ts"].isoformat() == "2024-01-01T00:00:03+00:00"
    assert merge["source_id"] == f"git:{repo}:{sha(3)}"


async def test_a_patch_is_known_by_its_evidence(ledger: Ledger) -> None:
    """R001-032 to R001-036, R001-066, R001-160: no patch, no row."""
    repo = await ledger.repo()
    held = await ledger.begun()
    key = f"scm/{repo}/svn/r1.diff"
    await ledger.record(
        held, 1, [revision(1, patch=patch(key, "b" * 64)), revision(2, patch=None), revision(3)], 3
    )
    (row,) = await ledger.admin.fetch("SELECT * FROM scm.patch_blobs")
    assert (row["source_type"], row["source_id"], row["uri"]) == ("svn", f"{repo}:1", key)
    assert (row["sha256"], row["size_bytes"], row["format"]) == ("b" * 64, 12, "diff")
    evidence = f"memory://patch_blobs/svn/{repo}:1/{'b' * 64}"
    assert json.loads(row["meta_json"])["evidence_uri"] == evidence


async def test_the_same_records_again_change_nothing(ledger: Ledger) -> None:
    """R001-068, R001-194: counted as skipped; what differs is counted as updated, never as inserted."""
    repo = await ledger.repo()
    held = await ledger.begun()
    facts = [revision(n, patch=patch(f"scm/{repo}/svn/r{n}.diff")) for n in range(1, 6)]
    assert await ledger.record(held, 1, facts, 5) == (5, 0, 0, True)
    before = await ledger.admin.fetch("SELECT * FROM scm.svn_revisions ORDER BY rev_num")
    patches = await ledger.admin.fetch("SELECT * FROM scm.patch_blobs ORDER BY blob_id")
    assert await ledger.record(held, 2, facts, 5) == (0, 0, 5, True)
    assert await ledger.admin.fetch("SELECT * FROM scm.svn_revisions ORDER BY rev_num") == before
    assert await ledger.admin.fetch("SELECT * FROM scm.patch_blobs ORDER BY blob_id") == patches
    changed = [revision(1), revision(2, message="another word"), revision(6), revision(6)]
    assert await ledger.record(held, 3, changed, 6) == (1, 1, 2, True)
    reads = "SELECT message FROM scm.svn_revisions WHERE rev_num = 2"
    assert await ledger.admin.fetchval(reads) == "another word"
    stats = (await ledger.run(held.run))["stats_json"]
    assert (stats["fetched"], stats["inserted"], stats["updated"], stats["skipped"]) == (14, 6, 1, 7)
    assert await ledger.count("scm.patch_blobs") == 5, "a look without a diff takes none away"


@pytest.mark.parametrize(
    ("kind", "repo_kind", "source"), [("git", "git", "git"), ("mrs", "gitlab", "gitlab_mr")]
)
async def test_the_same_facts_of_others_again_change_nothing(
    ledger: Ledger, kind: str, repo_kind: str, source: str
) -> None:
    """R001-068, R001-194"""
    await (ledger.repo(kind="git") if kind == "git" else ledger.repo(kind=repo_kind, project_id=7))
    held = await ledger.begun(source=source)
    mr = {
        "iid": 1,
        "author": "alice",
        "status": "opened",
        "url": "u",
        "updated_at": instant(1),
        "meta": {"title": "t"},
    }
    facts = [commit(1), commit(2)] if kind == "git" else [mr, {**mr, "iid": 2}]
    assert await ledger.record(held, 1, facts, instant(2), kind=kind) == (2, 0, 0, True)
    assert await ledger.record(held, 2, facts, instant(2), kind=kind) == (0, 0, 2, True)
    later = {"message": "x"} if kind == "git" else {"status": "merged", "updated_at": instant(9)}
    assert await ledger.record(held, 3, [{**facts[0], **later}], None, kind=kind) == (0, 1, 0, True)


async def test_a_merge_request_stands_as_it_was_read(ledger: Ledger) -> None:
    """R001-044, R001-045, R001-046, R001-065: unmapped authors keep their name; `locked` too (C-29)."""
    repo = await ledger.repo(kind="gitlab", project_id=7)
    await ledger.control.fetch(
        "SELECT * FROM identity.save_user('t', 'u.alice', '{\"accounts\": {\"gitlab\": [\"alice\"]}}')"
    )
    held = await ledger.begun(source="gitlab_mr")
    fact = {"iid": 42, "author": "alice", "status": "locked", "url": "https://gitlab.example/42",
            "created_at": instant(1), "updated_at": instant(2),
            "meta": {"title": "T", "labels": ["x"]}}  # fmt: skip
    await ledger.record(held, 1, [fact, {**fact, "iid": 43, "author": "mallory"}], instant(2), kind="mrs")
    one, other = await ledger.admin.fetch("SELECT * FROM scm.mrs ORDER BY iid")
    assert (one["mr_id"], one["repo_id"], one["source_id"]) == (f"{repo}:42", repo, f"mr:{repo}:42")
    assert (one["author_user_id"], one["author_raw"], one["status"]) == ("u.alice", "alice", "locked")
    assert (one["url"], json.loads(one["meta_json"])["title"]) == ("https://gitlab.example/42", "T")
    assert (other["author_user_id"], other["author_raw"]) == (None, "mallory")
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.record(held, 2, [{**fact, "status": "reopened"}], instant(3), kind="mrs")
    older = {**fact, "status": "opened", "updated_at": instant(0)}
    assert await ledger.record(held, 2, [older], None, kind="mrs") == (0, 0, 1, True), (
        "an older state covers no newer one"
    )


async def reviews(
    ledger: Ledger, held: Held, batch: int, mrs: list[Any], facts: list[Any]
) -> tuple[int, ...]:
    async with ledger.as_worker() as worker:
        row = await one(worker,
             "SELECT * FROM scm.record_reviews($1, $2, $3, $4, $5, $6)",
            held.run, held.claim, batch, json.dumps(mrs), json.dumps(facts), json.dumps(instant(9)),
        )  # fmt: skip
    return row["inserted"], row["updated"], row["skipped"]


async def test_review_events_stand_once(ledger: Ledger) -> None:
    """R001-047 to R001-050: (mr_id, source_event_id) is unique; ids are of a kind each (C-28)."""
    repo = await ledger.repo(kind="gitlab", project_id=7)
    await ledger.control.fetch(
        "SELECT * FROM identity.save_user('t', 'u.bob', '{\"accounts\": {\"gitlab\": [\"bob\"]}}')"
    )
    held = await ledger.begun(source="gitlab_review")
    mr = {"iid": 42, "author": "alice", "status": "opened", "updated_at": instant(1)}
    note = {"iid": 42, "source_event_id": "note:5", "event_type": "comment", "author": "bob",
            "ts": instant(3),
            "payload": {"body": "hm", "resolved": False}}  # fmt: skip
    approval = {**note, "source_event_id": "approval:5", "event_type": "approve"}
    assert await reviews(ledger, held, 1, [mr], [note, approval]) == (2, 0, 0)
    assert await reviews(ledger, held, 2, [mr], [note, approval]) == (0, 0, 2)
    row = await one(ledger.admin, "SELECT * FROM scm.review_events WHERE source_event_id = 'note:5'")
    assert (row["mr_id"], row["reviewer_user_id"], row["reviewer_raw"]) == (f"{repo}:42", "u.bob", "bob")
    assert (row["event_type"], row["ts"].isoformat()) == ("comment", "2024-01-01T00:00:03+00:00")
    assert json.loads(row["payload_json"]) == note["payload"]
    with pytest.raises(asyncpg.ForeignKeyViolationError):
        await reviews(ledger, held, 3, [], [{**note, "iid": 99}])
    for bad in ({"event_type": "shout"}, {"source_event_id": "5"}):
        with pytest.raises(asyncpg.CheckViolationError):
            await reviews(ledger, held, 3, [], [{**note, **bad}])
    again = (
        "INSERT INTO scm.review_events (mr_id, source_event_id, event_type, ts, run_id) "
        "VALUES ($1, 'note:5', 'comment', now(), 'x')"
    )
    with pytest.raises(asyncpg.UniqueViolationError):
        await ledger.admin.execute(again, f"{repo}:42")


async def test_authors_are_mapped_by_name_and_mail(ledger: Ledger) -> None:
    """R001-014, R001-045: the tables are the authority; an unmapped author is NULL and keeps its name."""
    await ledger.repo(kind="git")
    await ledger.repo("s")
    spec = {"accounts": {"svn": ["alice"], "git": ["Alice W"], "email": ["Alice@Example.org"]}}
    await ledger.control.fetch("SELECT * FROM identity.save_user('t', 'u.alice', $1)", json.dumps(spec))
    held = await ledger.begun(source="git")
    facts = [
        commit(1),
        commit(2, author_email="x@y", author_name="Alice W"),
        commit(3, author_email="x@y", author_name="X"),
    ]
    await ledger.record(held, 1, facts, instant(3), kind="git")
    rows = await ledger.admin.fetch(
        "SELECT author_user_id, author_raw FROM scm.git_commits ORDER BY commit_sha"
    )
    assert [row["author_user_id"] for row in rows] == ["u.alice", "u.alice", None]
    assert rows[2]["author_raw"] == "X <x@y>"
    svn = await ledger.begun("s", owner="w2")
    await ledger.record(svn, 1, [revision(1), revision(2, author="bob")], 2)
    mapped = await ledger.admin.fetch("SELECT author_user_id FROM scm.svn_revisions ORDER BY rev_num")
    assert [row[0] for row in mapped] == ["u.alice", None]
    more = {"accounts": {"svn": ["bob"], "git": ["X"]}}
    await ledger.control.fetch("SELECT * FROM identity.save_user('t', 'u.bob', $1)", json.dumps(more))
    assert await ledger.control.fetchval("SELECT identity.remap_authors('t')") == 2
    assert (
        await ledger.admin.fetchval("SELECT author_user_id FROM scm.svn_revisions WHERE rev_num = 2")
        == "u.bob"
    )
    assert await ledger.control.fetchval("SELECT identity.remap_authors('t')") == 0


async def test_the_cursor_has_its_place_and_form(ledger: Ledger) -> None:
    """R001-120, R001-121, R001-122: a revision for svn, a time for the others."""
    svn, git = await ledger.repo(), await ledger.repo("g", "git")
    one, other = await ledger.begun(), await ledger.begun("g", "git", "w2")
    await ledger.record(one, 1, [revision(7)], 7)
    await ledger.record(other, 1, [commit(7)], instant(7), kind="git")
    at = await ledger.cursor(svn)
    assert at is not None
    assert (set(at), at["watermark"], at["run_id"]) == ({"watermark", "run_id", "updated_at"}, 7, one.run)
    assert (await ledger.cursor(git, "git") or {})["watermark"] == instant(7)
    for bad in ("2024-01-01T00:00:00Z", 1.5, True, [1], -1):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.record(one, 2, [revision(8)], bad)
        assert caught.value.sqlstate == "TN022"
    for bad in (7, "yesterday", ""):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.record(other, 2, [commit(8)], bad, kind="git")
        assert caught.value.sqlstate == "TN022"


async def test_the_cursor_never_goes_back(ledger: Ledger) -> None:
    """R001-128, R001-183: an overlap is read again, the cursor stays; without a watermark too."""
    repo = await ledger.repo()
    held = await ledger.begun()
    await ledger.record(held, 1, [revision(n) for n in range(1, 11)], 10)
    await ledger.record(held, 2, [revision(9)], 9)
    assert (await ledger.cursor(repo) or {})["watermark"] == 10
    await ledger.record(held, 3, [revision(12)], None)
    assert (await ledger.cursor(repo) or {})["watermark"] == 10
    await ledger.finish(held)
    assert (await ledger.run(held.run))["watermark_end"] == 10
    begun = await ledger.begin(await full(ledger))
    assert (begun["watermark"], begun["origin"]) == ("10", "cursor")


async def test_times_are_compared_as_times(ledger: Ledger) -> None:
    """R001-120: another offset is another way to write the same instant."""
    repo = await ledger.repo(kind="git")
    held = await ledger.begun(source="git")
    await ledger.record(held, 1, [commit(1)], "2024-01-01T12:00:00+02:00", kind="git")
    await ledger.record(held, 2, [commit(2)], "2024-01-01T10:30:00Z", kind="git")
    assert (await ledger.cursor(repo, "git") or {})["watermark"] == "2024-01-01T10:30:00Z"
    await ledger.record(held, 3, [commit(3)], "2024-01-01T11:00:00+01:00", kind="git")
    assert (await ledger.cursor(repo, "git") or {})["watermark"] == "2024-01-01T10:30:00Z"


async def test_a_time_that_has_not_come_hides_nothing(ledger: Ledger) -> None:
    """R001-120, R001-128: a committer's clock that is wrong moves the cursor to now, not beyond."""
    repo = await ledger.repo(kind="git")
    held = await ledger.begun(source="git")
    before = await ledger.admin.fetchval("SELECT date_trunc('second', now())")
    await ledger.record(held, 1, [commit(1, ts="2099-01-01T00:00:00Z")], "2099-01-01T00:00:00Z", kind="git")
    at = (await ledger.cursor(repo, "git") or {})["watermark"]
    between = "SELECT $1::text::timestamptz BETWEEN $2 AND clock_timestamp()"
    assert await ledger.admin.fetchval(between, at, before)
    stored = "SELECT extract(year FROM ts AT TIME ZONE 'UTC') FROM scm.git_commits"
    assert await ledger.admin.fetchval(stored) == 2099


async def test_a_network_failure_goes_on_where_the_cursor_stands(ledger: Ledger) -> None:
    """R001-128, R001-184: the next attempt begins at the last whole batch and doubles nothing."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.record(held, 1, [revision(1), revision(2)], 2)
    await ledger.finish(held, "retry", "NETWORK", 0.0)
    (again,) = await ledger.claim("w2")
    begun = await ledger.begin(again)
    assert (begun["watermark"], begun["batches"], begun["attempt"]) == ("2", 1, 2)
    assert await ledger.record(again, 2, [revision(2), revision(3)], 3) == (1, 0, 1, True)
    await ledger.finish(again)
    assert await ledger.count("scm.svn_revisions") == 3


async def test_a_batch_has_its_number(ledger: Ledger) -> None:
    """R001-184: repeated it changes nothing and says so; none is left out."""
    repo = await ledger.repo()
    held = await ledger.begun()
    assert await ledger.record(held, 1, [revision(1)], 1) == (1, 0, 0, True)
    assert await ledger.record(held, 1, [revision(1, message="other")], 5) == (0, 0, 0, False)
    assert await ledger.admin.fetchval("SELECT message FROM scm.svn_revisions") == "change 1"
    assert (await ledger.cursor(repo) or {})["watermark"] == 1
    for number in (0, 3):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.record(held, number, [revision(2)], 2)
        assert caught.value.sqlstate == "TN021"


@pytest.mark.parametrize(
    ("kind", "fact", "table"), [("svn", revision, "svn_revisions"), ("git", commit, "git_commits")]
)
async def test_what_stands_already_is_not_even_locked(
    ledger: Ledger, kind: str, fact: Callable[..., dict[str, Any]], table: str
) -> None:
    """R001-184: an overlap that is read again writes nothing into the tables of facts."""
    await ledger.repo(kind=kind)
    held = await ledger.begun(source=kind)
    rows = f"SELECT ctid::text, xmin::text, xmax::text FROM scm.{table} ORDER BY ctid"
    await ledger.record(held, 1, [fact(n) for n in range(1, 6)], None, kind=kind)
    before = await ledger.admin.fetch(rows)
    assert await ledger.record(held, 2, [fact(n) for n in range(1, 6)], None, kind=kind) == (0, 0, 5, True)
    assert await ledger.admin.fetch(rows) == before
    changed = [fact(1), fact(2, message="new"), fact(9)]
    assert await ledger.record(held, 3, changed, None, kind=kind) == (1, 1, 1, True)


async def test_facts_of_another_source_are_refused(ledger: Ledger) -> None:
    await ledger.repo()
    held = await ledger.begun()
    for kind in ("git", "mrs"):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.record(held, 1, [], None, kind=kind)
        assert caught.value.sqlstate == "TN022"
    async with ledger.as_worker() as worker:
        for facts in ("{}", "7", json.dumps([{"rev": 1}] * 10001)):
            with pytest.raises(asyncpg.PostgresError) as caught:
                await worker.fetch(
                    "SELECT * FROM scm.record_svn($1, $2, 1, $3, NULL)", held.run, held.claim, facts
                )
            assert caught.value.sqlstate == "TN022"


async def test_a_backfill_leaves_the_cursor_unless_asked(ledger: Ledger) -> None:
    """R001-129: a range is read again."""
    repo = await ledger.repo()
    first = await ledger.begun()
    await ledger.record(first, 1, [revision(n) for n in range(1, 11)], 10)
    await ledger.finish(first)
    await ledger.request(mode="backfill", span={"from": 3, "to": 5})
    (held,) = await ledger.claim()
    begun = await ledger.begin(held)
    assert (begun["mode"], json.loads(begun["range"])) == ("backfill", {"from": 3, "to": 5})
    assert await ledger.record(held, 1, [revision(3), revision(4, message="new"), revision(5)], 20) == (
        0,
        1,
        2,
        True,
    )
    await ledger.finish(held)
    assert (await ledger.cursor(repo) or {})["watermark"] == 10
    await ledger.request(mode="backfill", span={"from": 11, "to": 12, "update_watermark": True})
    (held,) = await ledger.claim()
    await ledger.record(held, 1, [revision(11), revision(12)], 12)
    await ledger.finish(held)
    assert (await ledger.cursor(repo) or {})["watermark"] == 12


async def test_a_lost_cursor_is_rebuilt_from_the_last_success(ledger: Ledger) -> None:
    """R001-130: of an incremental run, not of a backfill; and it is there again afterwards."""
    repo = await ledger.repo()
    first = await ledger.begun()
    await ledger.record(first, 1, [revision(5)], 5)
    await ledger.finish(first)
    await ledger.request(mode="backfill", span={"from": 1, "to": 2})
    (back,) = await ledger.claim()
    await ledger.record(back, 1, [revision(2)], 2)
    await ledger.finish(back)
    await ledger.admin.execute("DELETE FROM logbook.kv")
    held = await full(ledger)
    begun = await ledger.begin(held)
    assert (begun["watermark"], begun["origin"]) == ("5", f"run:{first.run}")
    assert (await ledger.run(held.run))["watermark_start"] == 5
    await ledger.finish(held)
    assert (await ledger.cursor(repo) or {})["watermark"] == 5


async def test_cursors_of_older_forms_are_read(ledger: Ledger) -> None:
    """R001-122: last_rev and last_commit_ts (C-22), and git's old key (C-23); written is today's form."""
    svn, git = await ledger.repo(), await ledger.repo("g", "git")
    await put_cursor(ledger, f"svn_cursor:{svn}", {"last_rev": 44, "run_id": "x"})
    await put_cursor(ledger, f"gitlab_cursor:{git}", {"last_commit_ts": instant(9), "run_id": "x"})
    one, other = await ledger.begun(), await ledger.begun("g", "git", "w2")
    assert (await ledger.begin(one))["watermark"] == "44"
    assert json.loads((await ledger.begin(other))["watermark"]) == instant(9)
    await ledger.record(other, 1, [commit(1)], instant(1), kind="git")
    assert (await ledger.cursor(git, "git") or {})["watermark"] == instant(9), "the old key counts too"
    await ledger.record(one, 1, [revision(45)], 45)
    assert set(await ledger.cursor(svn) or {}) == {"watermark", "run_id", "updated_at"}
    await put_cursor(ledger, f"git_cursor:{git}", {"watermark": instant(3)})
    assert json.loads((await ledger.begin(other))["watermark"]) == instant(3), "today's key comes first"


async def test_no_cursor_is_a_full_sync(ledger: Ledger) -> None:
    """R001-183"""
    await ledger.repo()
    begun = await ledger.begin(await ledger.begun())
    assert (begun["watermark"], begun["origin"], begun["lock_key"]) == (None, "none", "scm_sync:1:svn")


async def test_a_source_keeps_a_memory_of_its_own(ledger: Ledger) -> None:
    await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as worker:
        await worker.fetch(
            "SELECT * FROM scm.record_svn($1, $2, 1, '[]', NULL, '{\"a\": 1}')", held.run, held.claim
        )
    await ledger.record(held, 2, [], None)
    assert json.loads((await ledger.begin(held))["state"]) == {"a": 1}


async def test_a_batch_stands_in_the_ledger(ledger: Ledger) -> None:
    """R001-008, R001-009, R001-124: the item first, then each change and each batch."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.record(held, 1, [revision(1)], 1)
    await ledger.finish(held)
    item = (await ledger.run(held.run))["item_id"]
    row = await one(ledger.admin, "SELECT * FROM logbook.items WHERE item_id = $1", item)
    assert (row["item_type"], row["status"], json.loads(row["meta_json"])["run_id"]) == (
        "scm.sync",
        "completed",
        held.run,
    )
    events = await ledger.admin.fetch(
        "SELECT * FROM logbook.events WHERE item_id = $1 ORDER BY event_id", item
    )
    names = [event["event_type"].removeprefix("scm.sync.") for event in events]
    assert names == ["pending", "running", "batch", "completed"]
    assert (events[3]["status_from"], events[3]["status_to"]) == ("running", "completed")


async def test_what_could_not_be_read_is_written_down(ledger: Ledger) -> None:
    """R001-155: best_effort goes on; the failures stand in the run, which completes with them."""
    await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as worker:
        for number in range(102):
            await worker.execute(
                "SELECT scm.note_failure($1, $2, $3, 'DIFF', 'no')", held.run, held.claim, f"r{number}"
            )
    await ledger.finish(held)
    row = await ledger.run(held.run)
    assert (row["status"], len(row["error_json"]["failures"]), row["stats_json"]["failures"]) == (
        "completed",
        100,
        102,
    )
    assert row["error_json"]["failures"][0] == {"what": "r0", "code": "DIFF", "message": "no"}
    with pytest.raises(asyncpg.PostgresError, match="no longer under this claim"):
        async with ledger.as_worker() as worker:
            await worker.execute("SELECT scm.note_failure($1, $2, 'x', 'DIFF', 'no')", held.run, held.claim)


async def test_a_workers_retry_count_stands_where_the_task_has_none(ledger: Ledger) -> None:
    """R001-142, R001-186: the task's own configuration wins, as it was when the run was made."""
    await ledger.repo()
    await ledger.repo("s")
    await ledger.control.fetch(
        "SELECT * FROM scm.save_task('t', 's', 'svn', NULL, NULL, '{\"retry_count\": 1, \"overlap\": 4}')"
    )
    plain, own = await ledger.begun(), await ledger.begun("s", owner="w2")
    async with ledger.as_worker() as worker:
        begin = "SELECT * FROM scm.begin_sync($1, $2, 0)"
        await one(worker, begin, plain.run, plain.claim)
        row = await one(worker, begin, own.run, own.claim)
    assert json.loads(row["config"]) == {"retry_count": 1, "overlap": 4}
    await ledger.control.fetch("SELECT * FROM scm.save_task('t', 's', 'svn', NULL, NULL, '{}')")
    assert json.loads((await ledger.begin(own))["config"]) == {"retry_count": 1, "overlap": 4}
    assert (await ledger.run(plain.run))["max_attempts"] == 1
    assert (await ledger.run(own.run))["max_attempts"] == 2
