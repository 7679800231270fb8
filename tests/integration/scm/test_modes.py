"""Strict and best_effort over single records that are wrong, bulk by the size of a diff, and the pause."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from anyio.lowlevel import checkpoint

from actors.scm.address import AddressRules, parse, resolve
from actors.scm.backoff import Trouble
from actors.scm.config import Sync, for_task, sync_config
from actors.scm.diffs import Bulk, Diff, Spool, bulk_by_size
from actors.scm.process import Programs
from actors.scm.records import SourceFailed, SvnRevision
from actors.scm.svn import SvnOptions, SvnSource
from actors.scm.svn_batches import SvnStart, svn_batches
from actors.scm.svn_log import BadLog, SvnLogParser
from actors.scm.writing import split
from supervisor import Cancel, Done
from supervisor.artifacts import Artifact, ArtifactError, Put
from supervisor.clock import boottime
from supervisor.errors import BadSettings
from tests.integration.scm.ledger import Ledger
from tests.integration.scm.syncing import syncing
from tests.support import git_server, svn_server
from tests.support.gitlab_server import PROJECT, TOKEN, GitlabServer, gitlab_server
from tests.support.svn_server import needs_svn

MEBIBYTE: Final = 1 << 20
GIT: Final = {"allow_local_files": True, "batch_size": 10}
LOG: Final = (
    b'<log><logentry revision="1"><author>a</author></logentry><logentry revision="2"><paths>'
    b'<path action="A" kind="file" copyfrom-path="/x" copyfrom-rev="no">/y</path></paths></logentry>'
    b'<logentry revision="3"><msg>fine</msg></logentry></log>'
)


async def add(ledger: Ledger, kind: str, url: str, **config: Any) -> None:
    statement = "SELECT FROM scm.add_repo('test', 'code', $1, $2, 'p', NULL, $3)"
    await ledger.control.execute(statement, kind, url, json.dumps(config))


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = git_server.bare(tmp_path / "code.git")
    git_server.many(35).tell(made)
    return made


async def refuse(ledger: Ledger, table: str, condition: str) -> None:
    """From now on the ledger has no place for such a record."""
    await ledger.admin.execute(f"ALTER TABLE scm.{table} ADD CONSTRAINT no_such CHECK (NOT ({condition}))")


async def test_a_refused_record_ends_a_strict_sync(
    ledger: Ledger, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-154, R001-116: it stops there, nothing of the batch is kept, and the cursor is before it."""
    await add(ledger, "git", f"file://{repository}")
    await refuse(ledger, "git_commits", "message LIKE 'change 15%'")
    async with syncing(ledger, tmp_path, monkeypatch, **GIT, mode="strict") as syncs:
        outcome, row = await syncs.attempt()
    assert isinstance(outcome, Cancel)
    assert outcome.error_code == "record_refused"
    assert "no_such" in str(outcome)
    assert (row["status"], row["watermark_end"]) == ("failed", None)
    assert await ledger.count("scm.git_commits") == 10


async def test_a_refused_record_is_passed_over_with_best_effort(
    ledger: Ledger, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-155: all others are stored, it is a failure of the run, and the next sync has nothing to do."""
    await add(ledger, "git", f"file://{repository}")
    every = git_server.git(repository, "rev-list", "--all", "--date-order").decode().split()
    bad = [every[0], every[16], every[18]]  # two of one batch, and the newest
    await refuse(ledger, "git_commits", f"commit_sha = ANY ('{{{','.join(bad)}}}')")
    async with syncing(ledger, tmp_path, monkeypatch, **GIT, mode="best_effort") as syncs:
        row = await syncs.run()
        again = await syncs.run()
    assert await ledger.count("scm.git_commits") == 32
    failures = row["error_json"]["failures"]
    assert {one["what"] for one in failures} == {f"commit {sha}" for sha in bad}
    assert {one["code"] for one in failures} == {"record_refused"}
    stats = row["stats_json"]
    assert (stats["failures"], stats["fetched"], stats["inserted"]) == (3, 32, 32)
    assert (row["status"], row["watermark_end"] is not None) == ("completed", True)
    assert again["stats_json"]["fetched"] == 0


async def test_a_diff_that_cannot_be_stored(
    ledger: Ledger, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-155: the record is stored without it."""
    await add(ledger, "git", f"file://{repository}")
    async with syncing(ledger, tmp_path, monkeypatch, **GIT, mode="best_effort") as syncs:
        put_all = syncs.artifacts.put_all
        sha = git_server.git(repository, "rev-parse", "main").decode().strip()

        async def refused(puts: Sequence[Put], **more: Any) -> list[Artifact | ArtifactError]:
            answers = await put_all(puts, **more)
            refusal = ArtifactError(what="no room for it")
            return [refusal if sha in put.key else one for put, one in zip(puts, answers, strict=True)]

        monkeypatch.setattr(syncs.artifacts, "put_all", refused)
        row = await syncs.run()
    assert [one["code"] for one in row["error_json"]["failures"]] == ["artifact_error"]
    assert (await ledger.count("scm.git_commits"), await ledger.count("scm.patch_blobs")) == (35, 34)


def test_what_is_refused_is_halved() -> None:
    assert split([[1, 2, 3]]) == [[[1]], [[2, 3]]]
    assert split([[1]]) == []
    assert split([[1, 2], [3]]) == [[[1, 2], []], [[], [3]]]


def test_a_revision_that_makes_no_sense() -> None:
    """R001-154, R001-155: it is named by its number, and the others are read."""
    with pytest.raises(BadLog):
        SvnLogParser(100).feed(LOG)
    found = SvnLogParser(100, tolerant=True).feed(LOG)
    assert [(one.rev, bool(one.fault)) for one in found] == [(1, False), (2, True), (3, False)]
    with pytest.raises(BadLog):
        SvnLogParser(100, tolerant=True).feed(LOG.replace(b'"2"', b'"two"'))


class Failing(SvnSource):
    """Its diffs fail, as many at once as there are."""

    trouble: Trouble
    waiting = 0

    async def diff(self, record: SvnRevision, _: int, options: SvnOptions, __: Spool) -> Diff:
        self.waiting += 1
        while self.waiting < options.parallelism:
            await checkpoint()
        raise self.failed(self.trouble, f"diff of {record.rev}")


@pytest.fixture
def svn(tmp_path: Path) -> Iterator[svn_server.SvnServer]:
    (tmp_path / "svn").mkdir()
    svn_server.load(tmp_path / "svn" / "code", svn_server.many(12))
    with svn_server.svn_server(tmp_path / "svn") as running:
        yield running


@needs_svn
async def test_of_diffs_that_fail_at_once_one_is_told(svn: svn_server.SvnServer, tmp_path: Path) -> None:
    programs = Programs(tmp_path, deadline=boottime() + 600, kill_seconds=2.0)
    rules = AddressRules(allow_private=True)
    source = Failing(programs, await resolve(parse(svn.url("code"), "svn", rules), rules))
    source.trouble = Trouble.CONNECTION

    async def read() -> None:
        async with svn_batches(source, SvnStart(), SvnOptions(parallelism=3)) as batches:
            async for _ in batches:
                pass

    with pytest.raises(SourceFailed, match="diff of") as failure:
        await read()
    assert failure.value.trouble is Trouble.CONNECTION


@needs_svn
@pytest.mark.parametrize("mode", ["strict", "best_effort"])
async def test_a_diff_that_the_server_fails_at(
    svn: svn_server.SvnServer, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """R001-154, R001-155: a revision whose content is damaged on the server."""
    await add(ledger, "svn", svn.url("code"))
    damaged = next((svn.root / "code" / "db" / "revs").rglob("7"))
    damaged.chmod(0o600)
    content = damaged.read_bytes()
    damaged.write_bytes(content.replace(b"line 6 of file", b"line X of file"))
    config = {"allow_private_addresses": True, "batch_size": 10, "mode": mode}
    async with syncing(ledger, tmp_path, monkeypatch, **config) as syncs:
        if mode == "strict":
            outcome, _ = await syncs.attempt("svn")
            assert not isinstance(outcome, Done)
            assert await ledger.count("scm.svn_revisions") == 0
            return
        _, row = await syncs.attempt("svn")
    assert row["status"] == "completed"
    assert "diff of revision 7" in {one["what"] for one in row["error_json"]["failures"]}
    assert await ledger.count("scm.svn_revisions") == 12
    assert row["watermark_end"] == 12


@pytest.fixture
async def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[GitlabServer]:
    monkeypatch.setenv("SCM_TOKEN", TOKEN)
    made = git_server.bare(tmp_path / "project.git")
    git_server.many(5).tell(made)
    with gitlab_server(made) as running:
        yield running


@pytest.mark.parametrize("mode", ["strict", "best_effort"])
async def test_what_gitlab_tells_wrong(
    project: GitlabServer, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """R001-154, R001-155: a merge request in no state and a note without a time, among others."""
    times = [f"2024-03-0{day}T00:00:00.000Z" for day in range(1, 5)]
    requests = [
        {"iid": number, "state": "opened", "title": "t", "updated_at": time, "created_at": time}
        for number, time in enumerate(times, start=1)
    ]
    requests[1]["state"] = "nowhere"
    who = {"id": 1, "username": "ann"}
    notes = [
        {"id": 1, "body": "good", "author": who, "created_at": times[0]},
        {"id": 2, "body": "bad", "author": who, "created_at": "yesterday"},
    ]
    project.save({"merge_requests": requests, "notes": {"3": notes}, "approvals": {}, "reviewers": {}})
    await add(ledger, "gitlab", project.url, project_id=PROJECT, token_env="SCM_TOKEN")
    config = {"allow_private_addresses": True, "allow_http": True, "mode": mode}
    async with syncing(ledger, tmp_path, monkeypatch, **config) as syncs:
        outcome, row = await syncs.attempt("gitlab_mr")
        if mode == "strict":
            assert isinstance(outcome, Cancel)
            assert await ledger.count("scm.mrs") == 0
            return
        assert [one["what"] for one in row["error_json"]["failures"]] == ["merge request 2"]
        assert await ledger.count("scm.mrs") == 3
        _, row = await syncs.attempt("gitlab_review")
    told = {one["what"] for one in row["error_json"]["failures"]}
    assert told == {"merge request 2", "note of merge request 3: 2"}
    assert await ledger.count("scm.review_events") == 1
    assert row["status"] == "completed"


@pytest.mark.parametrize("mode", ["strict", "best_effort"])
async def test_a_commit_that_gitlab_tells_wrong(
    project: GitlabServer, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """R001-154, R001-155."""
    told = project.told

    def without_parents(entry: str, *, stats: bool) -> dict[str, Any]:
        one = told(entry, stats=stats)
        return {**one, "parent_ids": None} if one["title"].startswith("change 2") else one

    monkeypatch.setattr(project, "told", without_parents)
    await add(ledger, "gitlab", project.url, project_id=PROJECT, token_env="SCM_TOKEN")
    config = {"allow_private_addresses": True, "allow_http": True, "mode": mode}
    async with syncing(ledger, tmp_path, monkeypatch, **config) as syncs:
        outcome, row = await syncs.attempt("git")
    if mode == "strict":
        assert isinstance(outcome, Cancel)
        assert await ledger.count("scm.git_commits") == 0
        return
    assert outcome == Done()
    assert await ledger.count("scm.git_commits") == 4
    assert [one["what"].split()[0] for one in row["error_json"]["failures"]] == ["commit"]


async def test_a_failure_told_twice_counts_once(ledger: Ledger) -> None:
    """R001-155: a call without an answer is sent again."""
    await ledger.repo()
    held = await ledger.begun()
    async with ledger.as_worker() as worker:
        for what in ("r1", "r1", "r2"):
            await worker.execute("SELECT scm.note_failure($1, $2, $3, 'C', 'm')", held.run, held.claim, what)
    row = await ledger.run(held.run)
    assert (row["stats_json"]["failures"], len(row["error_json"]["failures"])) == (2, 2)


async def test_the_pause_between_batches(
    ledger: Ledger, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-189: a tenth of a second before each batch but the first, and none behind the last."""
    await add(ledger, "git", f"file://{repository}")
    pauses: list[float] = []

    async def noted(seconds: float) -> None:
        pauses.append(seconds)
        await checkpoint()

    async with syncing(ledger, tmp_path, monkeypatch, **GIT, diff_fetch_enabled=False) as syncs:
        monkeypatch.setattr("actors.scm.sync.anyio.sleep", noted)
        row = await syncs.run()
    assert row["stats_json"]["batches"] == 4
    assert pauses.count(0.1) == 3


@pytest.mark.parametrize(("size", "reason"), [(MEBIBYTE, None), (MEBIBYTE + 1, f"large_diff:{MEBIBYTE + 1}")])
def test_a_diff_of_more_than_a_mebibyte_is_bulk(size: int, reason: str | None) -> None:
    """R001-115: as large as the threshold is none; what was counted before keeps its reason."""
    diff = Diff("1", size, "a" * 64)
    assert bulk_by_size(Bulk(), diff) == Bulk(reason is not None, reason)
    counted = Bulk(is_bulk=True, reason="large_changeset:150")
    assert bulk_by_size(counted, diff) == counted
    assert bulk_by_size(Bulk(), None) == Bulk()


def test_the_threshold_of_a_diff_is_configured(tmp_path: Path) -> None:
    """R001-115: bulk.diff_size_threshold, 1 MB; its own table in the file, or a task's word."""
    file = tmp_path / "tenure.toml"
    assert Sync().bulk.diff_size_threshold == MEBIBYTE
    file.write_text("[bulk]\ndiff_size_threshold = 5000\n")
    assert sync_config(file).bulk.diff_size_threshold == 5000
    config, _ = for_task(Sync(), "git", {"bulk": {"diff_size_threshold": 70}})
    assert config.bulk.diff_size_threshold == 70
    for number, wrong in enumerate(
        ("[bulk]\ndiff_size_threshold = 0", "[bulk]\ndiff_size = 1", "bulk = 1", "[bulk]\n[scm.sync.bulk]")
    ):
        other = tmp_path / f"{number}.toml"
        other.write_text(wrong)
        with pytest.raises(BadSettings, match="bulk"):
            sync_config(other)


async def test_a_large_diff_makes_its_commit_bulk(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-115, R001-029: one line of many bytes; the second sync finds the same."""
    repository = git_server.bare(tmp_path / "code.git")
    story = git_server.Story()
    for number, size in enumerate((10, 20_000, 1_200_000), start=1):
        story.commit("main", 1_700_000_000 + number, b"of %d" % size, {b"f%d" % number: b"x" * size + b"\n"})
    story.tell(repository)
    await add(ledger, "git", f"file://{repository}")
    config = {**GIT, "diff_size_limit_mb": 1, "bulk": {"diff_size_threshold": 10_000}}
    async with syncing(ledger, tmp_path, monkeypatch, **config) as syncs:
        await syncs.run()
        rows = await ledger.admin.fetch(
            "SELECT c.message, c.is_bulk, c.bulk_reason, b.size_bytes FROM scm.git_commits c LEFT JOIN "
            "scm.patch_blobs b ON b.source_id = c.repo_id || ':' || c.commit_sha ORDER BY c.ts"
        )
        row = await syncs.run("backfill", **{"from": "2023-01-01T00:00:00Z"})
    assert [row["is_bulk"] for row in rows] == [False, True, True]
    assert rows[1]["bulk_reason"] == f"large_diff:{rows[1]['size_bytes']}"
    # it is longer than what is stored, and how much longer nobody counted
    assert (rows[2]["bulk_reason"], rows[2]["size_bytes"]) == (f"large_diff:{MEBIBYTE + 1}", None)
    assert (row["stats_json"]["updated"], row["stats_json"]["skipped"]) == (0, 3)
