"""`tenure repo` and `tenure sync` against a real database; syncs are moved by hand, and once by replicas."""

import asyncio
import json
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from supervisor.embedded import Urls
from tests.integration.scm.ledger import Held, Ledger, revision
from tests.support import git_server, svn_server
from tests.support.command_line import Answer, Cli, command_line
from tests.support.eventually import eventually
from tests.support.replicas import replicas
from tests.support.slowness import patient
from tests.support.svn_server import needs_svn

SVN = ("--type", "svn", "--url", "svn://192.0.2.1/code")
ALLOWED = "[scm.sync]\nallow_private_addresses = true\nallow_http = true\n"
SECRET = "hunter2-very-secret"


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    (tmp_path / "tenure.toml").write_text(ALLOWED)
    monkeypatch.delenv("TENURE_PROJECT_KEY", raising=False)
    return command_line(database, monkeypatch, tmp_path)


async def audits(ledger: Ledger) -> list[str]:
    rows = await ledger.admin.fetch("SELECT action, actor FROM supervisor.audit ORDER BY id")
    assert all(row["actor"].startswith("cli:") for row in rows)
    return [row["action"] for row in rows]


async def test_a_repository_is_added_listed_shown_and_removed(cli: Cli, ledger: Ledger) -> None:
    """R001-016, R001-017, R001-018"""
    added = (await cli("repo", "add", "code", *SVN, "--project-key", "proj", "--json")).json()
    assert (added["repo_type"], added["url"], added["project_key"]) == (
        "svn",
        "svn://192.0.2.1/code",
        "proj",
    )
    await cli("repo", "add", "app", "--type", "git", "--url", "https://192.0.2.1/app.git", "--branch", "main")
    web = (
        "--type",
        "gitlab",
        "--url",
        "https://192.0.2.1/",
        "--project-id",
        "42",
        "--token-env",
        "WEB_TOKEN",
    )
    await cli("repo", "add", "web", *web)
    listed = (await cli("repo", "list", "--json")).json()
    assert [(row["name"], row["repo_type"]) for row in listed] == [
        ("app", "git"),
        ("code", "svn"),
        ("web", "git"),
    ]
    assert [row["default_branch"] for row in listed] == ["main", None, None]
    shown = (await cli("repo", "show", "web", "--json")).json()
    assert shown["url"] == "https://192.0.2.1/projects/42"
    assert shown["config_json"] == {
        "project_id": 42,
        "token_env": "WEB_TOKEN",
        "gitlab_url": "https://192.0.2.1",
    }
    assert "gitlab" in (await cli("repo", "list")).out
    assert "WEB_TOKEN" in (await cli("repo", "show", "web")).out

    assert (await cli("repo", "remove", "code", "--json")).json()["removed"]
    assert (await cli("repo", "show", "code")).code == 5
    assert (await cli("repo", "remove", "code")).code == 5
    assert await audits(ledger) == ["repo.add"] * 3 + ["repo.remove"]


@pytest.mark.parametrize(
    ("given", "stored"), [((), "configured"), (("--project-key", "named"), "named")], ids=["none", "option"]
)
async def test_a_repository_belongs_to_the_configured_project_unless_another_is_named(
    cli: Cli, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...], stored: str
) -> None:
    """R001-018"""
    monkeypatch.setenv("TENURE_PROJECT_KEY", "configured")
    assert (await cli("repo", "add", "code", *SVN, *given)).code == 0
    assert await ledger.admin.fetchval("SELECT project_key FROM scm.repos") == stored


@pytest.mark.parametrize(
    "options",
    [
        ("--type", "svn", "--url", f"svn://alice:{SECRET}@192.0.2.1/code"),
        ("--type", "git", "--url", "ext::sh -c id"),
        ("--type", "git", "--url", "--upload-pack=id"),
        ("--type", "git", "--url", "git@192.0.2.1:app.git"),
        ("--type", "git", "--url", "https://169.254.169.254/latest"),
        ("--type", "git", "--url", "file:///etc"),
        ("--type", "git", "--url", "https://192.0.2.1/a?token=" + SECRET),
        ("--type", "git", "--url", "https://192.0.2.1/\x1b[31m"),
        ("--type", "git", "--url", "https://192.0.2.1/\udcff"),
        ("--type", "gitlab", "--url", "ssh://192.0.2.1", "--project-id", "1"),
        ("--type", "gitlab", "--url", "https://me@192.0.2.1", "--project-id", "1"),
        ("--type", "gitlab", "--url", "https://192.0.2.1"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--project-id", "1"),
        ("--type", "gitlab", "--url", "https://192.0.2.1", "--project-id", "0"),
        ("--type", "svn", "--url", "svn://192.0.2.1/a", "--branch", "main"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--branch", "--output=x"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--branch", "a..b"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--token-env", "TENURE_DATABASE_URL"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--token-env", "AWS_SECRET_ACCESS_KEY"),
        ("--type", "git", "--url", "https://192.0.2.1/a", "--token-env", "glpat-" + SECRET),
        ("--type", "hg", "--url", "https://192.0.2.1/a"),
    ],
)
async def test_what_is_not_safe_is_refused_and_nothing_is_added(
    cli: Cli, ledger: Ledger, options: tuple[str, ...]
) -> None:
    answer = await cli("repo", "add", "bad", *options)
    assert answer.code == 2
    assert SECRET not in answer.out + answer.err or "--token-env" in options
    assert "\x1b" not in answer.err
    assert await ledger.count("scm.repos") == 0
    assert await audits(ledger) == []


@pytest.mark.parametrize("name", ["", "-x", "a b", "a/b", "a" * 64, "ä", "a\n"])
async def test_a_name_is_a_plain_word(cli: Cli, ledger: Ledger, name: str) -> None:
    assert (await cli("repo", "add", "--type", "svn", "--url", "svn://192.0.2.1/a", "--", name)).code == 2
    assert (await cli("sync", "status", "--", name)).code == 2
    assert await ledger.count("scm.repos") == 0


async def test_private_hosts_are_refused_without_leave(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "other")
        for url in ("svn://127.0.0.1/a", "svn://10.0.0.1/a", "svn://localhost/a", "http://192.0.2.1/a"):
            answer = await cli("repo", "add", "bad", "--type", "svn", "--url", url)
            assert answer.code == 2, url
    assert (await cli("repo", "add", "good", "--type", "svn", "--url", "svn://127.0.0.1/a")).code == 0


async def test_a_wrong_setting_is_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong").mkdir()
    (tmp_path / "wrong" / "tenure.toml").write_text("[scm.sync]\nbatch_size = 5\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "wrong")
        answer = await cli("repo", "add", "code", *SVN)
    assert answer.code == 2
    assert "scm.sync.batch_size" in answer.err


async def test_an_unknown_host_is_added_with_a_note(cli: Cli) -> None:
    answer = await cli("repo", "add", "code", "--type", "svn", "--url", "svn://no-such-host.invalid/code")
    assert answer.code == 0
    assert "no-such-host.invalid is not known" in answer.err


async def test_a_sync_is_asked_for_once(cli: Cli, ledger: Ledger) -> None:
    """R001-126, R001-182: what is open is not doubled, and anything else is refused meanwhile."""
    await cli("repo", "add", "code", *SVN)
    first = (await cli("sync", "run", "code", "--json")).json()
    assert (first["status"], first["mode"], first["created"]) == ("pending", "incremental", True)
    assert first["stats_json"] == {} or first["stats_json"]["fetched"] == 0
    again = (await cli("sync", "run", "code", "--source", "svn", "--json")).json()
    assert (again["run_id"], again["created"]) == (first["run_id"], False)
    assert "nobody works" in (await cli("sync", "run", "code")).out
    assert (await cli("sync", "run", "nothing")).code == 5
    assert (await cli("sync", "run", "code", "--source", "git")).code == 5
    assert (await cli("sync", "backfill", "code", "--source", "svn", "--from", "1")).code == 4
    assert (await cli("repo", "remove", "code")).code == 4
    assert await audits(ledger) == ["repo.add"] + ["sync.request"] * 3


async def test_a_gitlab_repository_is_synced_whole(cli: Cli, ledger: Ledger) -> None:
    """R001-137"""
    await cli("repo", "add", "web", "--type", "gitlab", "--url", "https://192.0.2.1", "--project-id", "7")
    made = (await cli("sync", "run", "web", "--json")).json()
    assert len(made) == 3
    standing = (await cli("sync", "status", "web", "--json")).json()
    assert [row["source_type"] for row in standing] == ["git", "gitlab_mr", "gitlab_review"]
    assert {row["last_run_id"] for row in standing} == {row["run_id"] for row in made}
    one = (await cli("sync", "run", "web", "--source", "gitlab_mr", "--json")).json()
    assert one["run_id"] in {row["run_id"] for row in made}


async def meanwhile(answer: Awaitable[Answer], ledger: Ledger, *steps: Any) -> Answer:
    """Whoever waits is answered only when the last of the steps is done."""
    waiting = asyncio.ensure_future(answer)
    try:
        for step in steps:
            assert not waiting.done()
            await step(ledger)
        return await asyncio.wait_for(asyncio.shield(waiting), patient(30))
    except BaseException:
        # so that nobody waits on when the test has failed
        await ledger.control.fetch("SELECT scm.cancel_sync('test', run_id) FROM scm.sync_runs")
        raise


async def claimed(ledger: Ledger) -> Held:
    (held,) = await eventually(ledger.claim, timeout=20)
    return held


async def test_whoever_waits_sees_batches_and_the_end(cli: Cli, ledger: Ledger) -> None:
    """R001-147: the figures are those of the batches."""
    await cli("repo", "add", "code", *SVN)

    async def work(ledger: Ledger) -> None:
        held = await claimed(ledger)
        await ledger.begin(held)
        await ledger.record(held, 1, [revision(1), revision(2)], 2)
        await ledger.finish(held)

    answer = await meanwhile(cli("sync", "run", "code", "--wait", "--json"), ledger, work)
    row = answer.json()
    assert row["status"] == "completed"
    assert row["watermark_end"] == 2
    assert (row["stats_json"]["inserted"], row["stats_json"]["batches"]) == (2, 1)
    assert "completed, 1 batches, 2 inserted, 0 updated, 0 skipped, at 2" in answer.err
    standing = (await cli("sync", "status", "code", "--json")).json()[0]
    assert standing["cursor"]["watermark"] == 2
    assert standing["last_run_status"] == "completed"
    (told,) = (await cli("sync", "status")).out.splitlines()[1:]
    assert told.split()[:6] == ["code", "svn", "pending", "by", "hand", "2"]


async def test_whoever_waits_for_a_failure_hears_of_it(cli: Cli, ledger: Ledger) -> None:
    """R001-188"""
    await cli("repo", "add", "code", *SVN)

    async def work(ledger: Ledger) -> None:
        await ledger.finish(await claimed(ledger), "cancel", "permission_denied")

    answer = await meanwhile(cli("sync", "run", "code", "--wait"), ledger, work)
    assert answer.code == 1
    assert "permission_denied" in answer.out
    shown = await cli("sync", "show", answer.out.split()[0])
    assert "permission_denied" in shown.out
    failed = (await cli("sync", "list", "--status", "failed", "--json")).json()
    assert [row["error_json"]["code"] for row in failed] == ["permission_denied"]
    assert (await cli("sync", "list", "--status", "completed", "--json")).json() == []


async def test_whoever_waits_follows_the_successor_of_a_lost_run(cli: Cli, ledger: Ledger) -> None:
    """R001-193"""
    await cli("repo", "add", "code", *SVN)

    async def lose(ledger: Ledger) -> None:
        held = await claimed(ledger)
        await ledger.begin(held)
        await ledger.record(held, 1, [revision(1)], 1)
        await ledger.expire()
        assert await ledger.recover() == 1

    async def go_on(ledger: Ledger) -> None:
        assert await ledger.duty("make_due_runs") == 1
        held = await claimed(ledger)
        await ledger.begin(held)
        await ledger.record(held, 1, [revision(2)], 2)
        await ledger.finish(held)

    answer = await meanwhile(cli("sync", "run", "code", "--wait", "--json"), ledger, lose, go_on)
    row = answer.json()
    assert (row["status"], row["watermark_start"], row["watermark_end"]) == ("completed", 1, 2)
    assert f"{row['run_id']} goes on" in answer.err


async def test_a_range_is_read_again(cli: Cli, ledger: Ledger) -> None:
    """R001-129"""
    await cli("repo", "add", "code", *SVN)
    asked = ("sync", "backfill", "code", "--source", "svn", "--from", "10", "--to", "20")
    made = (await cli(*asked, "--json")).json()
    assert (made["mode"], made["range_json"]) == ("backfill", {"from": 10, "to": 20})
    cancelled = (await cli("sync", "cancel", made["run_id"], "--json")).json()
    assert cancelled["status"] == "cancelled"
    assert (await cli("sync", "cancel", made["run_id"])).code == 4
    assert (await cli("sync", "cancel", "sync-20000101-001")).code == 5
    moved = (await cli(*asked, "--update-watermark", "--json")).json()
    assert moved["range_json"]["update_watermark"] is True


@pytest.mark.parametrize(
    "bounds",
    [
        (),
        ("--from", "HEAD"),
        ("--from", "-1"),
        ("--from", "2024-01-01T00:00:00Z"),
        ("--from", "20", "--to", "10"),
        ("--from", "9" * 30),
    ],
)
async def test_a_range_that_means_nothing_is_refused(
    cli: Cli, ledger: Ledger, bounds: tuple[str, ...]
) -> None:
    await cli("repo", "add", "code", *SVN)
    assert (await cli("sync", "backfill", "code", "--source", "svn", *bounds)).code == 2
    assert await ledger.count("scm.sync_runs") == 0


async def test_a_range_of_instants(cli: Cli) -> None:
    await cli("repo", "add", "app", "--type", "git", "--url", "https://192.0.2.1/app.git")
    asked = ("sync", "backfill", "app", "--source", "git", "--from")
    assert (await cli(*asked, "5")).code == 2
    assert (await cli(*asked, "2024-01-01T00:00:00")).code == 2, "no offset"
    made = (await cli(*asked, "2024-01-01T00:00:00+02:00", "--json")).json()
    assert made["range_json"] == {"from": "2024-01-01T00:00:00+02:00"}


async def test_a_disabled_sync_rests_until_it_is_enabled(cli: Cli, ledger: Ledger) -> None:
    await cli("repo", "add", "code", *SVN)
    open_ = (await cli("sync", "run", "code", "--json")).json()
    assert (await cli("sync", "disable", "code", "--source", "svn", "--json")).json()["status"] == "disabled"
    assert (await ledger.run(open_["run_id"]))["status"] == "cancelled"
    refused = await cli("sync", "run", "code", "--source", "svn")
    assert (refused.code, "disabled" in refused.err) == (4, True)
    assert (await cli("sync", "run", "code")).code == 4
    assert (await cli("sync", "enable", "code", "--source", "svn")).code == 0
    assert (await cli("sync", "run", "code")).code == 0
    assert (await cli("sync", "enable", "code", "--source", "git")).code == 5


async def test_when_a_sync_starts_by_itself(cli: Cli, ledger: Ledger) -> None:
    """R001-141, R001-142, R001-150: by hand, by an interval, by a schedule."""
    await cli("repo", "add", "code", *SVN)
    plan = ("sync", "schedule", "code", "--source", "svn")

    async def stands() -> tuple[Any, ...]:
        row = (await cli("sync", "status", "code", "--json")).json()[0]
        return row["cron_expr"], row["config_json"], row["priority"]

    assert await stands() == (None, {}, 0)
    assert (await cli(*plan, "--config", '{"overlap": 5, "mode": "best_effort"}')).code == 0
    assert (await cli(*plan, "--every", "60", "--priority", "7")).code == 0
    words = {"overlap": 5, "mode": "best_effort"}
    assert await stands() == (None, {**words, "auto": True, "interval_seconds": 60}, 7)
    assert (await ledger.task("code"))["next_run_at"] is not None
    (Path.cwd() / "often").mkdir()
    (Path.cwd() / "often" / "tenure.toml").write_text("[scm.sync]\ninterval_seconds = 77\n")
    (Path.cwd() / "never").mkdir()
    (Path.cwd() / "never" / "tenure.toml").write_text("[scm.sync]\ninterval_seconds = 0\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir("often")
        assert (await cli(*plan, "--auto")).code == 0
        patch.chdir("../never")
        assert (await cli(*plan, "--auto")).code == 2
    assert (await stands())[1] == {**words, "auto": True, "interval_seconds": 77}
    assert (await cli(*plan, "--manual")).code == 0
    assert await stands() == (None, words, 7)
    assert (await cli(*plan, "--cron", "0 3 * * *")).code == 0
    assert await stands() == ("0 3 * * *", words, 7)
    assert "0 3 * * *" in (await cli("sync", "status")).out
    assert (await cli(*plan, "--manual")).code == 0
    assert await stands() == (None, words, 7)
    assert (await ledger.task("code"))["next_run_at"] is None


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--cron", "every day"),
        ("--cron", "0 0 31 2 *"),
        ("--every", "0"),
        ("--every", "90000"),
        ("--cron", "0 3 * * *", "--every", "60"),
        ("--config", "{"),
        ("--config", '{"overlap": 11}'),
        ("--config", '{"batch_size": 5}'),
        ("--config", '{"batchsize": 50}'),
        ("--config", '{"auto": true}'),
        ("--config", '{"mode": "lenient"}'),
    ],
)
async def test_a_schedule_that_means_nothing_is_refused(
    cli: Cli, ledger: Ledger, options: tuple[str, ...]
) -> None:
    await cli("repo", "add", "code", *SVN)
    assert (await cli("sync", "schedule", "code", "--source", "svn", *options)).code == 2
    task = await ledger.task("code")
    assert (task["cron_expr"], json.loads(task["config_json"])) == (None, {})


async def test_names_from_outside_do_not_steer_the_terminal(cli: Cli, ledger: Ledger) -> None:
    await cli("repo", "add", "code", *SVN)
    made = (await cli("sync", "run", "code", "--json")).json()
    held = await claimed(ledger)
    await ledger.admin.execute("ALTER TABLE scm.sync_runs DISABLE TRIGGER USER")
    await ledger.admin.execute(
        "UPDATE scm.sync_runs SET error_json = $1, status = 'failed' WHERE run_id = $2",
        json.dumps({"code": "X\x1b[2J", "message": "\u202e"}),
        held.run,
    )
    for answer in (
        await cli("sync", "show", made["run_id"]),
        await cli("sync", "list"),
        await cli("sync", "status"),
    ):
        assert answer.code == 0
        assert "\x1b" not in answer.out
        assert "\u202e" not in answer.out


@needs_svn
async def test_a_repository_from_add_to_evidence(
    database: Urls, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R001-067, R001-068, R001-081: by replicas, and all through the command line."""
    (tmp_path / "repos").mkdir()
    svn_server.load(tmp_path / "repos" / "code", svn_server.many(30))
    git_server.many(30).tell(git_server.bare(tmp_path / "repos" / "app.git"))
    place = str(tmp_path / "artifacts")
    monkeypatch.setenv("TENURE_ARTIFACTS_DIR", place)
    with svn_server.svn_server(tmp_path / "repos") as svn, git_server.git_server(tmp_path / "repos") as http:
        async with replicas(
            database, tmp_path, count=0, TENURE_ARTIFACTS_DIR=place, TENURE_DOMAINS="scm"
        ) as fleet:
            await fleet.start(1, variant="short-leases")
            await fleet.leader()
            for name, kind, url in (("code", "svn", svn.url("code")), ("app", "git", http.url("app.git"))):
                assert (await cli("repo", "add", name, "--type", kind, "--url", url)).code == 0
                row = (await cli("sync", "run", name, "--wait", "--json")).json()
                assert row["status"] == "completed", row
                assert row["stats_json"]["inserted"] == 30
                again = (await cli("sync", "run", name, "--wait", "--json")).json()
                assert again["stats_json"]["inserted"] == 0
            gone = ("--type", "svn", "--url", svn.url("gone"))
            assert (await cli("repo", "add", "gone", *gone)).code == 0
            failed = await cli("sync", "run", "gone", "--wait", "--json")
            assert failed.code == 1
            assert json.loads(failed.out)["error_json"]["code"]
    shown = (await cli("repo", "show", "code", "--json")).json()
    assert (shown["svn_revisions"], shown["patch_blobs"]) == (30, 30)
    told = (await cli("evidence", "verify", "--json")).json()
    assert (told["checked"], told["wrong"], told["missing"]) == (60, [], [])
    next((tmp_path / "artifacts").rglob("r7.diff")).unlink()
    assert (await cli("evidence", "verify", "--repo", "code")).code == 1
    assert (await cli("evidence", "verify", "--repo", "app")).code == 0
