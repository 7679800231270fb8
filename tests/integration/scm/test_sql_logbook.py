"""The ledger: items, events, attachments, the outbox; people; and who may write for a team."""

import json

import asyncpg
import pytest

from tests.integration.scm.ledger import Ledger, one, revision
from tests.support.sessions import connected

# in one call, so that no ten seconds pass between the two
STILL_HELD = """DO $$ BEGIN
    ASSERT (SELECT value = '60' FROM supervisor.setting WHERE name = 'logbook_outbox_lease_seconds');
    UPDATE logbook.outbox SET locked_at = clock_timestamp() - interval '50 seconds';
    ASSERT NOT EXISTS (SELECT FROM logbook.claim_outbox('b', 10)), 'a lease is a minute';
END $$"""


async def item(ledger: Ledger) -> int:
    return int(
        await ledger.control.fetchval("SELECT logbook.add_item('task', 'sync', 'open', 'p', '{\"a\": 1}')")
    )


async def test_an_item_comes_first(ledger: Ledger) -> None:
    """R001-008: no event and no attachment without the item it is about."""
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetch("SELECT logbook.add_event(99, 'x', NULL, NULL)")
    assert caught.value.sqlstate == "TN020"
    for table, columns, values in (
        ("events", "item_id, event_type", "99, 'x'"),
        ("attachments", "item_id, kind, uri, sha256, size_bytes", f"99, 'log', 'a', '{'a' * 64}', 1"),
    ):
        with pytest.raises(asyncpg.ForeignKeyViolationError):
            await ledger.admin.execute(f"INSERT INTO logbook.{table} ({columns}) VALUES ({values})")


async def test_events_are_only_added_to(ledger: Ledger) -> None:
    """R001-009: refused to everybody, the owner and retention too."""
    made = await item(ledger)
    await ledger.control.fetch("SELECT logbook.add_event($1, 'started', 'running', '{\"n\": 1}')", made)
    await ledger.control.fetch("SELECT logbook.add_event($1, 'said', NULL, NULL)", made)
    rows = await ledger.admin.fetch("SELECT * FROM logbook.events ORDER BY event_id")
    assert [(row["event_type"], row["status_from"], row["status_to"]) for row in rows] == [
        ("started", "open", "running"),
        ("said", None, None),
    ]
    assert await ledger.admin.fetchval("SELECT status FROM logbook.items") == "running"
    for change in (
        "UPDATE logbook.events SET event_type = 'x'",
        "DELETE FROM logbook.events",
        "TRUNCATE logbook.events",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await ledger.control.execute(change)
        async with ledger.admin.transaction():
            await ledger.admin.execute("SET LOCAL ROLE tenure_owner")
            await ledger.admin.execute("SET LOCAL tenure.retention = 'on'")
            with pytest.raises(asyncpg.PostgresError) as caught:
                async with ledger.admin.transaction():
                    await ledger.admin.execute(change)
            assert caught.value.sqlstate == "TN014", change
    assert await ledger.count("logbook.events") == 2


async def test_evidence_is_a_pointer_with_a_digest(ledger: Ledger) -> None:
    """R001-010, R001-042: attached twice it is one; its evidence address names it."""
    made = await item(ledger)
    attach = "SELECT * FROM logbook.attach($1, 'report', 'attachments/1/1.txt', $2, 10, NULL)"
    first = await one(ledger.control, attach, made, "b" * 64)
    again = await one(ledger.control, attach, made, "b" * 64)
    assert (first["created"], again["created"], again["attachment_id"]) == (
        True,
        False,
        first["attachment_id"],
    )
    assert first["evidence_uri"] == f"memory://attachments/{first['attachment_id']}/{'b' * 64}"
    await ledger.control.fetch(attach, made, "c" * 64)
    assert await ledger.count("logbook.attachments") == 2
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.control.fetch(attach, made, "nothing")


async def test_views_are_read_and_not_written(ledger: Ledger) -> None:
    """R001-011: manifest and index are made of the tables, and nothing goes back through them."""
    await ledger.repo()
    held = await ledger.begun()
    await ledger.record(
        held, 1, [revision(1, patch={"uri": "scm/1/svn/r1.diff", "sha256": "a" * 64, "size_bytes": 5})], 1
    )
    made = await item(ledger)
    await ledger.control.fetch(
        "SELECT * FROM logbook.attach($1, 'log', 'attachments/2/1.log', $2, 7, NULL)", made, "b" * 64
    )
    manifest = await ledger.control.fetch("SELECT * FROM logbook.manifest ORDER BY uri")
    assert [(row["kind"], row["uri"], row["size_bytes"]) for row in manifest] == [
        ("attachments", "attachments/2/1.log", 7),
        ("patch_blobs", "scm/1/svn/r1.diff", 5),
    ]
    assert manifest[1]["evidence_uri"] == f"memory://patch_blobs/svn/1:1/{'a' * 64}"
    index = await ledger.control.fetch("SELECT * FROM logbook.index ORDER BY item_id")
    assert [(row["item_type"], row["events"], row["attachments"]) for row in index] == [
        ("scm.sync", 3, 0),
        ("task", 0, 1),
    ]
    for change in (
        "UPDATE logbook.manifest SET uri = 'x'",
        "DELETE FROM logbook.manifest",
        "UPDATE logbook.index SET title = 'x'",
        "DELETE FROM logbook.index",
    ):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError):
            await ledger.admin.execute(change)


async def test_what_others_are_to_hear_is_delivered_under_a_lease(ledger: Ledger) -> None:
    """R001-003, R001-012: pending, held for a minute at a time, then sent or dead."""
    made = await item(ledger)
    post = "SELECT logbook.post($1, 'gateway', '{\"n\": 1}', 'k1')"
    assert await ledger.control.fetchval(post, made) is not None
    assert await ledger.control.fetchval(post, made) is None
    claim = "SELECT * FROM logbook.claim_outbox($1, 10)"
    async with connected(ledger.urls.worker) as a, connected(ledger.urls.worker) as b:
        async with a.transaction():
            (held,) = await a.fetch(claim, "a")
            assert await b.fetch(claim, "b") == []
        assert await b.fetch(claim, "b") == []
        await ledger.admin.execute(STILL_HELD)
        await ledger.admin.execute("UPDATE logbook.outbox SET locked_at = now() - interval '61 seconds'")
        (taken,) = await b.fetch(claim, "b")
        finish = "SELECT logbook.finish_outbox($1, $2, $3)"
        assert not await a.fetchval(finish, held["outbox_id"], held["lock_token"], None), (
            "it is another's by now"
        )
        assert await b.fetchval(finish, taken["outbox_id"], taken["lock_token"], "refused")
        row = await one(ledger.admin, "SELECT * FROM logbook.outbox")
        assert (row["status"], row["retry_count"], row["locked_by"], row["last_error"]) == (
            "pending",
            1,
            None,
            "refused",
        )
        assert await b.fetch(claim, "b") == [], "it waits"
        await ledger.control.fetch("SELECT supervisor.save_setting('t', 'logbook_outbox_retries', '1')")
        await ledger.admin.execute("UPDATE logbook.outbox SET next_attempt_at = now()")
        (taken,) = await b.fetch(claim, "b")
        await b.fetchval(finish, taken["outbox_id"], taken["lock_token"], "refused")
        assert await ledger.admin.fetchval("SELECT status FROM logbook.outbox") == "dead"
        await ledger.control.fetchval("SELECT logbook.post($1, 'gateway', NULL, 'k2')", made)
        (taken,) = await b.fetch(claim, "b")
        assert await b.fetchval(finish, taken["outbox_id"], taken["lock_token"], None)
        assert (
            await ledger.admin.fetchval("SELECT status FROM logbook.outbox WHERE dedupe_key = 'k2'") == "sent"
        )
    with pytest.raises(asyncpg.CheckViolationError):
        await ledger.admin.execute("UPDATE logbook.outbox SET status = 'lost'")


async def save_user(ledger: Ledger, user: str, **spec: object) -> None:
    await ledger.control.fetch("SELECT * FROM identity.save_user('me', $1, $2)", user, json.dumps(spec))


async def test_people_and_their_accounts(ledger: Ledger) -> None:
    """R001-002, R001-013, R001-014: what a file names is set; the accounts are the whole list."""
    accounts = {"svn": ["alice"], "email": ["Alice@X.org", "a@x.org"], "gitlab": "alice", "git": ["Alice"]}
    await save_user(ledger, "u.alice", display_name="Alice", aliases=["al"], accounts=accounts)
    await save_user(ledger, "u.alice", aliases=["al", "ali"])
    row = await one(ledger.admin, "SELECT * FROM identity.users")
    assert (row["display_name"], row["aliases"], row["is_active"]) == ("Alice", ["al", "ali"], True)
    assert await ledger.count("identity.accounts") == 5
    await save_user(ledger, "u.alice", accounts={"svn": ["alice"]})
    rows = await ledger.admin.fetch("SELECT type, name FROM identity.accounts")
    assert [tuple(row) for row in rows] == [("svn", "alice")]
    with pytest.raises(asyncpg.PostgresError, match=r"the account of u\.alice") as caught:
        await save_user(ledger, "u.bob", accounts={"svn": ["alice"]})
    assert caught.value.sqlstate == "TN021"
    assert await ledger.count("identity.users") == 1
    with pytest.raises(asyncpg.CheckViolationError):
        await save_user(ledger, "u.bob", accounts={"hg": ["bob"]})
    with pytest.raises(asyncpg.PostgresError):
        await save_user(ledger, "../x")
    with pytest.raises(asyncpg.UniqueViolationError):
        await ledger.admin.execute(
            "INSERT INTO identity.accounts (user_id, type, name) VALUES ('u.alice', 'svn', 'alice')"
        )


async def test_roles_mirror_their_files(ledger: Ledger) -> None:
    """R001-002, R001-013"""
    await save_user(ledger, "u.alice")
    save = "SELECT * FROM identity.save_role('me', $1, 'reviewer', '{a,b}', $2, 'roles/u.alice/reviewer.md')"
    await ledger.control.fetch(save, "u.alice", "one")
    row = await one(ledger.control, save, "u.alice", "two")
    assert (row["profile"], row["labels"], len(row["sha256"])) == ("two", ["a", "b"], 64)
    assert await ledger.count("identity.role_profiles") == 1
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetch(save, "u.nobody", "x")
    assert caught.value.sqlstate == "TN020"


GOOD = [
    f"memory://patch_blobs/svn/1:12/{'a' * 64}",
    f"memory://patch_blobs/git/2:{'b' * 40}/{'a' * 64}",
    f"memory://attachments/7/{'a' * 64}",
]


async def test_references_to_evidence_are_evidence_addresses(ledger: Ledger) -> None:
    """R001-041: in analysis and in governance; anything else, and anything nested, is refused."""
    run = await ledger.admin.fetchval(
        "INSERT INTO analysis.runs (kind, evidence_refs_json) VALUES ('x', $1) RETURNING run_id",
        json.dumps(GOOD),
    )
    bad: list[object] = [
        ["s3://b/k"],
        ["scm/1/svn/r1.diff"],
        [GOOD[0] + "/x"],
        [[GOOD[0]]],
        [7],
        [{"uri": GOOD[0]}],
        {"a": GOOD[0]},
        GOOD[0],
        [*GOOD, "x"],
        [f"memory://patch_blobs/svn/1:12/{'A' * 64}"],
        [f"memory://patch_blobs/hg/1:12/{'a' * 64}"],
    ]
    for refs in bad:
        for table, columns, values in (
            ("analysis.runs", "kind", "'x'"),
            ("analysis.candidates", "run_id", f"'{run}'"),
            ("governance.write_audit", "actor, project_key, target_space, action", "'a', 'p', 's', 'reject'"),
            ("governance.promotion_queue", "from_space, to_space, requested_by", "'a', 'b', 'c'"),
        ):
            with pytest.raises(asyncpg.CheckViolationError):
                await ledger.admin.execute(
                    f"INSERT INTO {table} ({columns}, evidence_refs_json) VALUES ({values}, $1)",
                    json.dumps(refs),
                )


async def decide(ledger: Ledger, space: str, evidence: list[str]) -> tuple[str, str | None, str]:
    row = await one(
        ledger.control,
        "SELECT * FROM governance.decide_write('alice', 'p', $1, $2)",
        space,
        json.dumps(evidence),
    )
    return row["action"], row["written_space"], row["reason"]


async def test_the_team_write_switch(ledger: Ledger) -> None:
    """R001-005: off at first; every decision is written down and stays."""
    assert await decide(ledger, "user:alice", []) == ("allow", "user:alice", "own_space")
    assert await decide(ledger, "team:x", GOOD) == ("redirect", "user:alice", "team_write_disabled")
    assert not await ledger.control.fetchval("SELECT governance.switch_team_write('me', 'p', true)")
    assert await decide(ledger, "team:x", GOOD) == ("allow", "team:x", "team_write_enabled")
    assert await decide(ledger, "team:x", []) == ("reject", None, "no_evidence")
    assert await decide(ledger, "user:bob", GOOD) == ("reject", None, "unknown_space")
    rows = await ledger.admin.fetch("SELECT action FROM governance.write_audit ORDER BY audit_id")
    assert [row[0] for row in rows] == ["allow", "redirect", "allow", "reject", "reject"]
    for change in (
        "UPDATE governance.write_audit SET action = 'allow'",
        "DELETE FROM governance.write_audit",
    ):
        with pytest.raises(asyncpg.PostgresError) as caught:
            await ledger.admin.execute(change)
        assert caught.value.sqlstate == "TN014"


async def test_a_promotion_is_decided_once(ledger: Ledger) -> None:
    """R001-005"""
    queued = await ledger.control.fetchval(
        "SELECT governance.request_promotion('alice', NULL, 'user:alice', 'team:x', $1)", json.dumps(GOOD)
    )
    decision = "SELECT status FROM governance.decide_promotion('bob', $1, $2, 'good')"
    assert await ledger.control.fetchval(decision, queued, True) == "approved"
    with pytest.raises(asyncpg.PostgresError) as caught:
        await ledger.control.fetchval(decision, queued, False)
    assert caught.value.sqlstate == "TN021"
