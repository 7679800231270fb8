"""The command line for what makes runs by itself: schedules, events, policies, pauses, settings, audit."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from supervisor.embedded import Urls
from tests.support.command_line import Cli, command_line
from tests.support.scene import Scene

ECHO = '{"argv": ["echo", "hello"]}'
HOSTILE = [
    "'; DROP TABLE supervisor.job_run; --",
    "\x1b[31mred",
    "[bold]x[/bold]",
    "日本語 \u202e",
    "%s {0} $1",
]


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    yield scene
    await scene.close()


async def add(cli: Cli, name: str = "job", *more: str) -> Any:
    return (await cli("job", "add", name, "--domain", "command", "--payload", ECHO, *more, "--json")).json()


async def everything(scene: Scene) -> list[Any]:
    """What a refused command must leave as it was."""
    tables = ("job_definition", "job_run", "event", "domain_pause", "setting", "audit")
    return [await scene.value(f"SELECT json_agg(t) FROM supervisor.{table} t") for table in tables]


async def test_a_schedule_is_stored_and_its_next_fires_are_shown(cli: Cli, scene: Scene) -> None:
    zone = ZoneInfo("Europe/Berlin")
    options = ["--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--missed", "all"]
    added = await add(cli, "nightly", *options)
    wanted = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "missed": "all", "schedule_error": None}
    assert wanted.items() <= added.items()
    assert len(added["next_fires"]) == 3
    moments = [datetime.fromisoformat(fire["local"]) for fire in added["next_fires"]]
    assert moments == [datetime.fromisoformat(fire["utc"]) for fire in added["next_fires"]]
    assert all((one.hour, one.minute) == (2, 30) for one in moments if one.utcoffset() == zone.utcoffset(one))
    assert moments == sorted(moments)
    assert datetime.now(UTC) < moments[0] < datetime.now(UTC) + timedelta(hours=26)
    shown = (await cli("job", "show", "nightly", "--json")).json()
    assert shown["next_fires"] == added["next_fires"]
    assert (shown["last_fire_at"], shown["skipped"], shown["last_skipped"]) == (None, 0, None)
    people = await cli("job", "show", "nightly")
    assert added["next_fires"][2]["local"] in people.out
    assert added["next_fires"][2]["utc"] in people.out
    assert "next fires at" in (await cli("job", "set", "nightly", "--priority", "1")).out
    listed = await cli("job", "list")
    assert "30 2 * * *" in listed.out
    assert "Europe/Berlin" in listed.out


async def test_what_was_fired_and_skipped_is_shown(cli: Cli, scene: Scene) -> None:
    job = await add(cli, "hourly", "--cron", "0 * * * *")
    await scene.force(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, max_attempts,"
        " backoff_seconds, backoff_max_seconds, priority, scheduled_for, not_before) SELECT 900, 900, $1,"
        " 'command', '{}', 3, 5, 600, 0, '2030-01-31T09:00Z', '2030-01-31T09:00Z'",
        job["id"],
    )
    await scene.value(
        "INSERT INTO supervisor.skipped_fire"
        " (job_definition_id, reason, first_instant, last_instant, instants)"
        " VALUES ($1, 'MISSED', '2030-01-31T05:00Z', '2030-01-31T08:00Z', 4) RETURNING id",
        job["id"],
    )
    await scene.value(
        "UPDATE supervisor.job_definition SET schedule_error = 'zone went away' WHERE id = $1 RETURNING id",
        job["id"],
    )
    shown = (await cli("job", "show", "hourly", "--json")).json()
    assert datetime.fromisoformat(shown["last_fire_at"]) == datetime(2030, 1, 31, 9, tzinfo=UTC)
    assert (shown["skipped"], shown["last_skipped"]["reason"]) == (4, "MISSED")
    [row] = (await cli("job", "list", "--json")).json()
    assert (row["skipped"], row["schedule_error"]) == (4, "zone went away")
    assert datetime.fromisoformat(row["last_fire_at"]) == datetime(2030, 1, 31, 9, tzinfo=UTC)
    for command in (("job", "list"), ("job", "show", "hourly")):
        assert "zone went away" in (await cli(*command)).out


async def test_set_changes_the_schedule_and_takes_it_off(cli: Cli, scene: Scene) -> None:
    await add(cli, "job", "--cron", "0 1 * * *", "--timezone", "Asia/Tokyo", "--event", "upload")
    changed = (await cli("job", "set", "job", "--cron", "0 4 * * 1-5", "--json")).json()
    assert (changed["cron"], changed["timezone"]) == ("0 4 * * 1-5", "Asia/Tokyo")
    bare = (await cli("job", "set", "job", "--no-cron", "--no-event", "--json")).json()
    assert (bare["cron"], bare["event_type"], bare["next_fires"]) == (None, None, [])
    assert (await cli("job", "set", "job", "--no-cron", "--cron", "* * * * *")).code == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--cron", "never"],
        ["--cron", ""],
        ["--cron", "* * * *"],
        ["--cron", "61 * * * *"],
        ["--cron", "0 0 30 2 *"],
        ["--cron", "* " * 150],
        ["--cron", "* * * * *", "--timezone", "Mars/Base"],
        ["--cron", "* * * * *", "--timezone", "../../etc/passwd"],
        ["--cron", "* * * * *", "--timezone", "Europe"],
        ["--cron", "* * * * *", "--timezone", ""],
        ["--cron", "* * * * *", "--missed", "some"],
        ["--timezone", "UTC"],
        ["--missed", "all"],
        ["--event", "two words"],
        ["--event", ""],
        ["--event", "x" * 201],
        ["--concurrency-policy", "maybe"],
        ["--concurrency-policy", "forbid", "--concurrency", "0"],
        ["--action", ""],
        ["--action", "x" * 101],
    ],
)
async def test_what_cannot_be_scheduled_exits_2_and_changes_nothing(
    cli: Cli, scene: Scene, options: list[str]
) -> None:
    await add(cli)
    before = await everything(scene)
    refused = await cli("job", "add", "other", "--domain", "command", "--payload", ECHO, *options)
    assert refused.code == 2, refused
    assert await everything(scene) == before
    if options[0] not in {"--timezone", "--missed"}:
        assert (await cli("job", "set", "job", *options)).code == 2
        assert await everything(scene) == before


async def test_a_zone_that_is_none_is_refused_by_set_too(cli: Cli, scene: Scene) -> None:
    await add(cli, "job", "--cron", "0 1 * * *")
    before = await everything(scene)
    assert (await cli("job", "set", "job", "--timezone", "Mars/Base")).code == 2
    assert await everything(scene) == before


async def test_a_policy_that_bounds_means_one(cli: Cli, scene: Scene) -> None:
    for policy in ("forbid", "replace"):
        added = await add(cli, policy, "--concurrency-policy", policy)
        assert (added["concurrency_policy"], added["concurrency"]) == (policy, 1)
    three = await add(cli, "three", "--concurrency-policy", "forbid", "--concurrency", "3")
    assert three["concurrency"] == 3
    await add(cli, "plain")
    assert (await cli("job", "set", "plain", "--concurrency-policy", "replace", "--json")).json()[
        "concurrency"
    ] == 1
    kept = (await cli("job", "set", "three", "--concurrency-policy", "replace", "--json")).json()
    assert (kept["concurrency_policy"], kept["concurrency"]) == ("replace", 3)
    assert (await cli("job", "set", "three", "--concurrency", "0")).code == 2
    free = ("job", "set", "three", "--concurrency", "0", "--concurrency-policy", "allow", "--json")
    assert (await cli(*free)).json()["concurrency"] is None


async def test_forbid_refuses_a_second_trigger(cli: Cli, scene: Scene) -> None:
    await add(cli, "job", "--concurrency-policy", "forbid")
    assert (await cli("job", "trigger", "job")).code == 0
    second = await cli("job", "trigger", "job")
    assert second.code == 4
    assert "has not ended" in second.err


async def test_an_event_is_emitted_once_for_a_key(cli: Cli, scene: Scene) -> None:
    emit = ("event", "emit", "order.paid", "--dedupe-key", "o-1", "--payload", '{"order": 1}', "--json")
    first = (await cli(*emit)).json()
    assert first == {"id": first["id"], "created": True}
    assert (await cli(*emit)).json() == {"id": first["id"], "created": False}
    other = (await cli("event", "emit", "order.sent", "--json")).json()
    assert other["id"] > first["id"]
    listed = (await cli("event", "list", "--json")).json()
    assert [(one["id"], one["type"], one["payload"]) for one in listed] == [
        (other["id"], "order.sent", {}),
        (first["id"], "order.paid", {"order": 1}),
    ]
    assert [one["id"] for one in (await cli("event", "list", "--type", "order.paid", "--json")).json()] == [
        first["id"]
    ]
    page = await cli("event", "list", "--limit", "1")
    assert f"--before {other['id']}" in page.out
    rest = (await cli("event", "list", "--before", str(other["id"]), "--json")).json()
    assert [one["id"] for one in rest] == [first["id"]]


async def test_an_event_starts_its_jobs(cli: Cli, scene: Scene) -> None:
    for name in ("one", "two"):
        await add(cli, name, "--event", "upload")
    event = (await cli("event", "emit", "upload", "--payload", '{"path": "/x"}', "--json")).json()
    await scene.connection.fetch("SELECT * FROM supervisor.process_events($1, 10)", scene.epoch)
    [listed] = (await cli("event", "list", "--json")).json()
    assert listed["runs"] == 2
    runs = (await cli("run", "list", "--json")).json()
    assert {run["job"] for run in runs} == {"one", "two"}
    shown = (await cli("run", "show", str(runs[0]["id"]), "--json")).json()
    assert shown["payload"]["event"]["id"] == event["id"]
    assert shown["payload"]["event"]["payload"] == {"path": "/x"}


@pytest.mark.parametrize(
    "args",
    [
        ["two words"],
        [""],
        ["x" * 201],
        ["ok", "--payload", "[]"],
        ["ok", "--payload", "{"],
        ["ok", "--payload", json.dumps({"x": "y" * 66_000})],
        ["ok", "--payload", '{"x": "\\u0000"}'],
        ["ok", "--dedupe-key", ""],
        ["ok", "--dedupe-key", "k" * 201],
        ["ok", "--dedupe-key", "\udcff"],
        *([text] for text in HOSTILE),
    ],
)
async def test_a_bad_event_exits_2_and_emits_nothing(cli: Cli, scene: Scene, args: list[str]) -> None:
    answer = await cli("event", "emit", *args)
    assert answer.code == 2, answer
    assert not {"\x1b", "\u202e"} & set(answer.err)
    assert await scene.value("SELECT count(*) FROM supervisor.event") == 0


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_inert(cli: Cli, scene: Scene, text: str) -> None:
    payload = json.dumps({"text": text})
    emitted = (await cli("event", "emit", "x", "--dedupe-key", text, "--payload", payload, "--json")).json()
    assert (await cli("event", "emit", "x", "--dedupe-key", text, "--json")).json()["id"] == emitted["id"]
    assert (await cli("event", "list", "--json")).json()[0]["payload"] == {"text": text}
    shown = await cli("event", "list")
    assert not {"\x1b", "\u202e"} & set(shown.out)
    before = await everything(scene)
    for args, code in (
        (["domain", "pause", text], 5),
        (["domain", "resume", text], 5),
        (["setting", "get", text], 5),
        (["setting", "set", text, "1"], 5),
        (["setting", "set", "max_assignments", text], 2),
        (["audit", "list", "--target", text], 0),
        (["event", "list", "--type", text], 2),
    ):
        answer = await cli(*args)
        assert answer.code == code, answer
        assert not {"\x1b", "\u202e"} & set(answer.err + answer.out)
    assert await everything(scene) == before


async def test_a_paused_domain_says_so(cli: Cli, scene: Scene) -> None:
    await add(cli)
    run = (await cli("job", "trigger", "job", "--json")).json()["id"]
    assert (await cli("domain", "pause", "command", "--json")).json() == {
        "domain": "command",
        "paused": True,
        "changed": True,
    }
    why = (await cli("run", "why", str(run), "--json")).json()
    assert why["reason"] == "DOMAIN_PAUSED"
    assert "tenure domain resume command" in why["next"]
    assert (await cli("domain", "pause", "command", "--json")).json()["changed"] is False
    [row] = [row for row in (await cli("domain", "list", "--json")).json() if row["domain"] == "command"]
    assert (row["installed"], row["replicas"], row["jobs"]) == (True, 1, 1)
    assert row["paused_at"] is not None
    assert "command" in (await cli("domain", "list")).out
    assert (await cli("domain", "resume", "command", "--json")).json()["changed"] is True
    assert (await cli("run", "why", str(run), "--json")).json()["reason"] == "IN_LINE"
    assert (await cli("domain", "pause", "nonsense")).code == 5


async def test_a_setting_out_of_its_range_is_told_the_range(cli: Cli) -> None:
    refused = await cli("setting", "set", "reassign_after_seconds", "0")
    assert refused.code == 2
    assert "0 is not a value that reassign_after_seconds can have: it is 0.1 to 86400 seconds" in refused.err
    refused = await cli("setting", "set", "media_gc_execute", "3")
    assert "3 is not a value that media_gc_execute can have: it is true or false" in refused.err
    listed = (await cli("setting", "get")).out
    assert "0.1 to 86400 seconds" in listed
    assert "default" in listed


async def test_settings_are_read_and_changed(cli: Cli, scene: Scene) -> None:
    """R003-54"""
    found = (await cli("setting", "get", "--json")).json()
    wanted = {
        "reassign_after_seconds": 60,
        "log_retention_days_db": 7,
        "max_assignments": 20,
        "continuation_checks": 3,
        "continuation_interval_seconds": 0.3,
    }
    assert wanted.items() <= found.items()
    assert (await cli("setting", "get", "max_assignments")).out.strip() == "20"
    changed = (await cli("setting", "set", "reassign_after_seconds", "12.5", "--json")).json()
    assert changed == {"name": "reassign_after_seconds", "value": 12.5, "was": 60}
    assert (await cli("setting", "get", "reassign_after_seconds", "--json")).json()["value"] == 12.5
    assert "12.5" in (await cli("setting", "get")).out
    [entry] = (await cli("audit", "list", "--target", "setting:reassign_after_seconds", "--json")).json()
    assert (entry["action"], entry["before"], entry["after"]) == ("setting.set", 60, 12.5)
    assert entry["actor"].startswith("cli:")


@pytest.mark.parametrize(
    ("name", "value", "code"),
    [
        ("nonsense", "1", 5),
        ("max_assignments", "0", 2),
        ("max_assignments", "1e9", 2),
        ("max_assignments", "1e999", 2),
        ("max_assignments", "9" * 400, 2),
        ("max_assignments", "many", 2),
        ("max_assignments", "true", 2),
        ("max_assignments", "NaN", 2),
        ("max_assignments", "Infinity", 2),
        ("max_assignments", '"20"', 2),
        ("max_assignments", "[20]", 2),
        ("max_assignments", "", 2),
        ("max_assignments", "\udcff", 2),
        ("log_retention_days_db", "36501", 2),
    ],
)
async def test_a_setting_that_is_none_changes_nothing(
    cli: Cli, scene: Scene, name: str, value: str, code: int
) -> None:
    before = await everything(scene)
    answer = await cli("setting", "set", name, value)
    assert answer.code == code, answer
    assert "violates" not in answer.err, "said in words, not in the database's"
    assert await everything(scene) == before


async def test_every_operators_action_leaves_an_audit_row(cli: Cli, scene: Scene) -> None:
    """R003-55"""
    await add(cli)
    await cli("job", "disable", "job")
    await cli("domain", "pause", "command")
    await cli("domain", "resume", "command")
    await cli("setting", "set", "max_assignments", "21")
    await cli("event", "emit", "order.paid")
    run = (await cli("job", "trigger", "job", "--json")).json()["id"]
    await cli("run", "cancel", str(run))
    await scene.connection.execute("SELECT supervisor.cancel($1, 'w1', $2, '{1}', 7)", scene.epoch, [run])
    await cli("run", "retry", str(run))
    await cli("worker", "drain", "w1")
    await cli("leader", "resign")
    rows = (await cli("audit", "list", "--json")).json()
    assert [row["action"] for row in reversed(rows)] == [
        "job.add",
        "job.set",
        "domain.pause",
        "domain.resume",
        "setting.set",
        "event.emit",
        "job.trigger",
        "run.cancel",
        "run.retry",
        "worker.drain",
        "leader.resign",
    ]
    page = (await cli("audit", "list", "--limit", "2", "--before", str(rows[1]["id"]), "--json")).json()
    assert [row["id"] for row in page] == [row["id"] for row in rows[2:4]]
    assert "setting.set" in (await cli("audit", "list")).out
