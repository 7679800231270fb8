"""What is read from GitLab, written into the ledger: the facts as the database keeps them, once and again."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.scm.address import AddressRules
from actors.scm.gitlab import GitlabClient, GitlabOptions, open_gitlab
from actors.scm.gitlab_answer import parse_json
from actors.scm.gitlab_batches import CommitStart, gitlab_commits
from actors.scm.gitlab_commits import CommitOptions, commit
from actors.scm.gitlab_mr import ChangesStart, gitlab_mrs, merge_request
from actors.scm.gitlab_review import ReviewStart, approvals, gitlab_reviews, note
from actors.scm.surroundings import Secret
from tests.integration.scm.ledger import Held, Ledger
from tests.support.git_server import Story, bare, git, many
from tests.support.gitlab_server import PROJECT, TOKEN, GitlabServer, gitlab_server

SHA = "a" * 40
HOSTILE = [
    "nul \x00 here",
    "\ud800 alone",
    "\u202eright to left\u2066",
    "x" * 2_000_000,
    "'; DROP TABLE scm.mrs; --",
    "\\u0000",
    "\x1b[2J\r\n\t\x7f",
    "😀" * 1000,
]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[GitlabServer]:
    with gitlab_server(bare(tmp_path / "project.git")) as running:
        yield running


@pytest.fixture
async def gitlab(project: GitlabServer) -> AsyncIterator[GitlabClient]:
    rules = AddressRules(allow_private=True, allow_http=True)
    options = GitlabOptions(per_page=20, rate_limit_rpm=60_000)
    async with open_gitlab(project.url, PROJECT, Secret(TOKEN), rules, options) as client:
        yield client


async def reviews(
    ledger: Ledger, held: Held, batch: int, mrs: Any, facts: Any, watermark: Any
) -> tuple[int, int]:
    async with ledger.as_worker() as worker:
        row = await worker.fetchrow(
            "SELECT * FROM scm.record_reviews($1, $2, $3, $4, $5, $6)",
            held.run, held.claim, batch, json.dumps(mrs), json.dumps(facts), json.dumps(watermark),
        )  # fmt: skip
    assert row is not None
    return row["inserted"], row["updated"]


async def test_commits_in_the_ledger(
    project: GitlabServer, gitlab: GitlabClient, ledger: Ledger, tmp_path: Path
) -> None:
    """R001-024 .. R001-031, R001-064, R001-120, R001-194: as git log has them; later nothing is new"""
    many(60).tell(project.repository)
    repo = await ledger.repo("p", "gitlab", project_id=PROJECT)
    counts = []
    for _ in range(2):
        held = await ledger.begun("p", "git")
        options = CommitOptions(tmp_path, batch_size=25, diffs=False)
        number = 0
        async for batch in gitlab_commits(gitlab, CommitStart(), options):
            number += 1
            assert not isinstance(batch.watermark, int)
            facts = [one.fact() for one in batch.records]
            mark = batch.watermark and batch.watermark.isoformat()
            counts.append(await ledger.record(held, number, facts, mark, kind="git"))
        await ledger.finish(held)
    assert sum(one[0] for one in counts) == 60
    assert all(one[:2] == (0, 0) for one in counts[3:])
    rows = await ledger.admin.fetch("SELECT * FROM scm.git_commits ORDER BY ts DESC, commit_sha")
    log = git(
        project.repository, "log", "--format=%H%x1f%an <%ae>%x1f%ct%x1f%P%x1f%ae%x1f%cn%x1f%ce%x1e", "main"
    ).decode()
    told = {
        entry.split("\x1f")[0].strip(): entry.strip().split("\x1f")[1:] for entry in log.split("\x1e")[:-1]
    }
    assert {row["commit_sha"] for row in rows} == set(told)
    for row in rows:
        author, when, parents, email, name, address = told[row["commit_sha"]]
        meta = json.loads(row["meta_json"])
        assert (row["author_raw"], int(row["ts"].timestamp())) == (author, int(when))
        assert row["is_merge"] == (len(parents.split()) > 1)
        assert row["source_id"] == f"git:{repo}:{row['commit_sha']}"
        assert meta["parent_ids"] == parents.split()
        assert (meta["author_email"], meta["committer_name"], meta["committer_email"]) == (
            email,
            name,
            address,
        )
        assert meta["web_url"].endswith(row["commit_sha"])
        assert meta["stats"]["total"] == meta["stats"]["additions"] + meta["stats"]["deletions"]
    cursor = await ledger.cursor(repo, "git")
    assert cursor
    assert cursor["watermark"].startswith("2017-07-14T03:39:00")


async def test_merge_requests_and_reviews_in_the_ledger(
    project: GitlabServer, gitlab: GitlabClient, ledger: Ledger
) -> None:
    """R001-044 .. R001-050, R001-194"""
    story = Story()
    first = story.commit("main", 1_704_067_200, files={b"a": b"1\n"})
    side = story.commit("feature", 1_704_067_300, files={b"b": b"1\n"}, parents=[first])
    story.commit("main", 1_704_067_400, b"Merge", parents=[first, side])
    story.tell(project.repository)
    alice, bob = {"id": 5, "username": "alice"}, {"id": 6, "username": "bob"}
    said = {"id": 6, "body": "hm", "system": False, "author": bob, "created_at": "2024-01-01T00:05:00.000Z"}
    project.save({
        "merge_requests": [{"iid": 3, "source_branch": "feature", "labels": ["x"], "author": alice}],
        "notes": {"3": [said]},
        "approvals": {"3": [{"user": bob, "approved_at": "2024-01-01T00:06:00.000Z"}]},
    })  # fmt: skip
    spec = {"display_name": "Bob", "accounts": {"gitlab": ["bob"]}}
    await ledger.control.execute("SELECT identity.save_user('test', 'u-bob', $1)", json.dumps(spec))
    repo = await ledger.repo("p", "gitlab", project_id=PROJECT)
    counts: list[Any] = []
    for _ in range(2):
        held = await ledger.begun("p", "gitlab_mr")
        found = [one.fact() async for batch in gitlab_mrs(gitlab, ChangesStart()) for one in batch.records]
        counts.append((await ledger.record(held, 1, found, "2024-01-01T00:06:40Z", kind="mrs"))[:2])
        await ledger.finish(held)
        held = await ledger.begun("p", "gitlab_review")
        records = [one async for batch in gitlab_reviews(gitlab, ReviewStart()) for one in batch.records]
        events = [event.fact() for one in records for event in one.events]
        mrs = [one.mr.fact() for one in records]
        counts.append(await reviews(ledger, held, 1, mrs, events, "2024-01-01T00:06:00Z"))
        await ledger.finish(held)
    assert counts == [(1, 0), (2, 0), (0, 0), (0, 0)]
    row = await ledger.admin.fetchrow("SELECT * FROM scm.mrs")
    assert row is not None
    assert (row["mr_id"], row["status"], row["author_raw"], row["author_user_id"]) == (
        f"{repo}:3",
        "merged",
        "alice",
        None,
    )
    assert row["url"].endswith("/merge_requests/3")
    assert json.loads(row["meta_json"])["labels"] == ["x"]
    rows = await ledger.admin.fetch("SELECT * FROM scm.review_events ORDER BY ts")
    assert [(row["source_event_id"], row["event_type"]) for row in rows] == [
        ("note:6", "comment"),
        ("approval:6", "approve"),
    ]
    assert {row["reviewer_user_id"] for row in rows} == {"u-bob"}
    assert json.loads(rows[0]["payload_json"]) == said


@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_people_write_is_stored(ledger: Ledger, value: str) -> None:
    """Nothing that an answer may hold is refused by the database, and nothing of it does anything there."""
    await ledger.repo("p", "gitlab", project_id=PROJECT)
    person = {"id": 5, "username": value}
    fields = dict.fromkeys(
        ("author_name", "author_email", "committer_name", "committer_email", "message", "web_url"), value
    )
    given: dict[str, Any] = {
        "id": SHA,
        "parent_ids": [],
        "committed_date": value[:30],
        "authored_date": None,
        **fields,
    }
    record = commit(parse_json(json.dumps(given).encode()))
    held = await ledger.begun("p", "git")
    assert (await ledger.record(held, 1, [record.fact()], None, kind="git"))[0] == 1
    await ledger.finish(held)

    times = {"created_at": value[:30], "updated_at": "2024-01-01T00:00:00Z"}
    whole = {
        "iid": 1,
        "state": "opened",
        "title": value,
        value[:100]: [value, 1e308, -1],
        "author": person,
        "web_url": value,
    }
    mr = merge_request(parse_json(json.dumps(whole | times).encode().replace(b"1e+308", b"1e999")))
    held = await ledger.begun("p", "gitlab_review")
    said = note(parse_json(json.dumps({"id": (1 << 63) - 1, "body": value, "author": person, **times}
        | {"created_at": "0001-01-01T00:00:00Z"}).encode()), 1)  # fmt: skip
    stands = approvals(parse_json(json.dumps({"approved_by": [{"user": person}]}).encode()), mr, [said])
    events = [one.fact() for one in (said, *stands)]
    assert await reviews(ledger, held, 1, [mr.fact()], events, None) == (2, 0)
    assert await ledger.count("scm.mrs") == 1
