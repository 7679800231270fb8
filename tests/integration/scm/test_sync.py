"""Repositories from nothing into the ledger, by replicas that are killed on the way.

TENURE_TEST_SVN_REVISIONS, TENURE_TEST_GIT_COMMITS and TENURE_TEST_SCM_KILLS make it as large as a real one.
"""

import hashlib
import json
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from supervisor.embedded import Urls
from tests.support import git_server, svn_server
from tests.support.replicas import Fleet, replicas
from tests.support.svn_server import needs_svn

REVISIONS = int(os.environ.get("TENURE_TEST_SVN_REVISIONS", "150"))
COMMITS = int(os.environ.get("TENURE_TEST_GIT_COMMITS", "400"))
KILLS = int(os.environ.get("TENURE_TEST_SCM_KILLS", "2"))
# a small repository may be read before the second can be killed
LEAST_KILLS = KILLS if "TENURE_TEST_SCM_KILLS" in os.environ else 1
PATIENCE = 60 + 25 * KILLS + (REVISIONS + COMMITS) / 10
CONFIG = """
[scm.sync]
batch_size = 50
allow_private_addresses = true
allow_http = true
"""


async def add(fleet: Fleet, name: str, kind: str, url: str) -> None:
    await fleet.rows("SELECT FROM scm.add_repo('test', $1, $2, $3, 'test', NULL, '{}')", name, kind, url)


async def sync(fleet: Fleet, repo: str, source: str) -> int:
    name = f"sync-{repo}"
    spec = {"domain": "scm", "action": "sync", "max_attempts": 20, "backoff_seconds": 0.1}
    if not await fleet.value("SELECT count(*) FROM supervisor.job_definition WHERE name = $1", name):
        await fleet.rows(
            "SELECT FROM supervisor.save_job('test', $1, $2::jsonb, true)", name, json.dumps(spec)
        )
    payload = json.dumps({"repo": repo, "source": source})
    run: int = await fleet.value("SELECT id FROM supervisor.enqueue($1, $2::jsonb)", name, payload)
    return run


async def ended(fleet: Fleet, *runs: int) -> bool:
    rows = await fleet.last(runs)
    for row in rows:
        assert row["state"] not in {"FAILED", "CANCELED"} or row["retry_at"] is not None, dict(row)
    return all(row["state"] == "SUCCEEDED" for row in rows)


async def kill_on_the_way(fleet: Fleet, victim_of: int, *runs: int) -> int:
    """Whoever syncs now is killed as soon as another part of it is written, and replaced. Where a replica
    takes longer to start than the rest takes to be read, there is nobody left to be killed. How many were."""
    written = "SELECT (SELECT count(*) FROM scm.svn_revisions) + (SELECT count(*) FROM scm.git_commits)"
    before = await fleet.value(written)

    async def went_on() -> bool:
        return bool(await fleet.value(written) > before) or await ended(fleet, *runs)

    await fleet.until(went_on, within=PATIENCE, what=f"progress before kill {victim_of}", interval=0.02)
    busy = await fleet.rows("SELECT worker_id FROM scm.sync_runs WHERE status = 'running'")
    killed = 0
    for row in busy:
        victim = next((one for one in fleet.members if one.worker_id == row["worker_id"] and one.alive), None)
        if victim is not None:
            await victim.kill()
            await fleet.start(1, variant="short-leases")
            killed += 1
    return killed


def svn_log(url: str) -> list[tuple[int, str, str]]:
    text = subprocess.run(["svn", "log", "--xml", url], capture_output=True, check=True).stdout  # noqa: S607
    entries = ET.fromstring(text).findall("logentry")  # noqa: S314  our own server
    found = [
        (int(e.get("revision") or 0), e.findtext("author") or "", e.findtext("msg") or "") for e in entries
    ]
    return sorted(found)


def git_log(repository: Path) -> list[tuple[str, str, str]]:
    text = git_server.git(repository, "log", "--all", "--format=%H%x00%an <%ae>%x00%B%x01").decode()
    rows = [line.lstrip("\n").split("\0") for line in text.split("\x01") if line.strip()]
    return sorted((sha, author, message.strip()) for sha, author, message in rows)


@needs_svn
@pytest.mark.slow
@pytest.mark.timeout(6 * (120 + 3 * PATIENCE))
async def test_what_is_synced_equals_the_log_whoever_was_killed(database: Urls, tmp_path: Path) -> None:
    """R001-067, R001-068, R001-128, R001-184, R001-185, R001-194"""
    (tmp_path / "repos").mkdir()
    svn_server.load(tmp_path / "repos" / "code", svn_server.many(REVISIONS))
    bare = git_server.bare(tmp_path / "repos" / "code.git")
    git_server.many(COMMITS).tell(bare)
    (tmp_path / "tenure.toml").write_text(CONFIG)
    store = tmp_path / "artifacts"
    env = {"TENURE_ARTIFACTS_DIR": str(store), "TENURE_DOMAINS": "scm"}
    with svn_server.svn_server(tmp_path / "repos") as svn, git_server.git_server(tmp_path / "repos") as http:
        async with replicas(database, tmp_path, count=0, **env) as fleet:  # type: ignore[arg-type]  # settings
            await fleet.start(2, variant="short-leases")
            await fleet.leader()
            await add(fleet, "svn", "svn", svn.url("code"))
            await add(fleet, "git", "git", http.url("code.git"))
            runs = [await sync(fleet, "svn", "svn"), await sync(fleet, "git", "git")]
            killed = sum([await kill_on_the_way(fleet, number, *runs) for number in range(KILLS)])
            assert killed >= LEAST_KILLS, f"{killed} were killed on the way: this proves nothing"
            await fleet.until(lambda: ended(fleet, *runs), within=PATIENCE, what="both syncs")

            rows = await fleet.rows("SELECT rev_num, author_raw, message FROM scm.svn_revisions")
            said = [(rev, author, message) for rev, author, message in svn_log(svn.url("code"))]
            ours = sorted((row["rev_num"], row["author_raw"], row["message"]) for row in rows)
            assert [
                (rev, author if author != "(no author)" else "", message) for rev, author, message in ours
            ] == said
            rows = await fleet.rows("SELECT commit_sha, author_raw, message FROM scm.git_commits")
            assert sorted((r["commit_sha"], r["author_raw"], r["message"].strip()) for r in rows) == git_log(
                bare
            )

            blobs = await fleet.rows("SELECT uri, sha256, size_bytes FROM scm.patch_blobs")
            assert len(blobs) == REVISIONS + COMMITS
            for blob in blobs:
                content = (store / blob["uri"]).read_bytes()
                assert len(content) == blob["size_bytes"]
                assert hashlib.sha256(content).hexdigest() == blob["sha256"]

            again = [await sync(fleet, "svn", "svn"), await sync(fleet, "git", "git")]
            await fleet.until(lambda: ended(fleet, *again), within=PATIENCE, what="the second syncs")
            stats = await fleet.rows(
                "SELECT stats_json ->> 'inserted' AS inserted FROM scm.sync_runs WHERE status = 'completed' "
                "ORDER BY finished_at DESC LIMIT 2"
            )
            assert [row["inserted"] for row in stats] == ["0", "0"]
