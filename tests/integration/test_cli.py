"""The command line against a real database: shapes that others script against, exit codes, hostile input."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from supervisor.cli.sample import JOBS, RUNS, seed
from supervisor.embedded import Urls
from supervisor.jobrun import STATES
from supervisor.store import Store
from tests.support.command_line import Cli, command_line
from tests.support.scene import Scene, secret_of
from tests.support.slowness import patient

ECHO = '{"argv": ["echo", "hello"]}'
HOSTILE = [
    "'; DROP TABLE supervisor.job_run; --",
    "\x1b[31mred",
    "[bold]x[/bold]",
    "${jndi:x}",
    "日本語 \u202e",
    "%s %n {0}",
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


async def trigger(cli: Cli, name: str = "job", *more: str) -> Any:
    return (await cli("job", "trigger", name, *more, "--json")).json()


async def counts(scene: Scene) -> tuple[int, int, int]:
    tables = ("job_definition", "job_run", "audit")
    found = [await scene.value(f"SELECT count(*) FROM supervisor.{table}") for table in tables]
    return found[0], found[1], found[2]


async def test_add_shows_and_lists_what_was_asked_for(cli: Cli, scene: Scene) -> None:
    options = [
        "--max-attempts",
        "5",
        "--timeout",
        "1.5",
        "--priority",
        "-3",
        "--concurrency",
        "2",
        "--backoff",
        "1",
    ]
    added = await add(cli, "team/nightly:backup", *options, "--backoff-max", "9", "--action", "full")
    wanted = {
        "name": "team/nightly:backup",
        "domain": "command",
        "action": "full",
        "payload": {"argv": ["echo", "hello"]},
        "enabled": True,
        "priority": -3,
        "max_attempts": 5,
        "timeout_seconds": 1.5,
        "concurrency": 2,
        "backoff_seconds": 1,
        "backoff_max_seconds": 9,
    }
    assert wanted.items() <= added.items()
    shown = (await cli("job", "show", "team/nightly:backup", "--json")).json()
    assert wanted.items() <= shown.items()
    listed = (await cli("job", "list", "--json")).json()
    assert [job["name"] for job in listed] == ["team/nightly:backup"]
    table = await cli("job", "list")
    assert "team/nightly:backup" in table.out
    assert "\x1b" not in table.out, "no colours outside a terminal"


async def test_a_job_is_added_once(cli: Cli, scene: Scene) -> None:
    await add(cli)
    before = await counts(scene)
    again = await cli("job", "add", "job", "--domain", "command", "--payload", ECHO, "--json")
    assert again.code == 4
    assert "already" in json.loads(again.err)["error"]
    assert await counts(scene) == before


async def test_set_changes_only_what_is_named(cli: Cli, scene: Scene) -> None:
    added = await add(cli, "job", "--timeout", "5", "--concurrency", "2")
    changed = (await cli("job", "set", "job", "--priority", "7", "--timeout", "0", "--json")).json()
    differing = {key for key in added if added[key] != changed[key]}
    assert differing == {"priority", "timeout_seconds", "updated_at"}
    assert changed["timeout_seconds"] is None
    assert (await cli("job", "set", "nobody", "--priority", "1")).code == 5


async def test_enable_disable_remove(cli: Cli, scene: Scene) -> None:
    await add(cli)
    assert (await cli("job", "disable", "job", "--json")).json()["enabled"] is False
    assert "disabled" in (await cli("job", "trigger", "job")).out
    assert (await cli("job", "enable", "job", "--json")).json()["enabled"] is True
    refused = await cli("job", "remove", "job")
    assert refused.code == 4
    await scene.force(
        "UPDATE supervisor.job_run SET state = 'CANCELED', finished_at = now(), finished_by = 'leader'"
    )
    assert (await cli("job", "remove", "job", "--json")).json()["removed"] is True
    for command in (("show",), ("enable",), ("remove",), ("trigger",)):
        assert (await cli("job", *command, "job")).code == 5
    assert [run["job"] for run in (await cli("run", "list", "--job", "job", "--json")).json()] == ["job"]


@pytest.mark.parametrize(
    "payload",
    [
        "{}",
        '{"argv": []}',
        '{"argv": "ls"}',
        '{"argv": ["ls"], "shell": true}',
        '{"argv": ["a\\u0000b"]}',
        "[]",
        "null",
        "{",
        '{"argv": ["ls"], "env": {"TENURE_CLAIM": "x"}}',
        json.dumps({"argv": ["x" * 300_000]}),
    ],
)
async def test_a_bad_payload_exits_2_and_changes_nothing(
    cli: Cli, scene: Scene, tmp_path: Path, payload: str
) -> None:
    await add(cli)
    before = await counts(scene)
    file = tmp_path / "payload"
    file.write_text(payload)
    for command in (
        ("add", "other", "--domain", "command", "--payload", f"@{file}"),
        ("set", "job", "--payload", f"@{file}"),
        *([("trigger", "job", "--payload", f"@{file}")] if payload != "{}" else []),
    ):
        answer = await cli("job", *command)
        assert answer.code == 2, answer
    assert await counts(scene) == before


async def test_lone_surrogates_are_refused_by_the_database(cli: Cli, scene: Scene) -> None:
    before = await counts(scene)
    answer = await cli("job", "add", "x", "--domain", "command", "--payload", '{"argv": ["\\ud800"]}')
    assert answer.code == 2
    assert await counts(scene) == before


async def test_trigger_answers_with_the_run(cli: Cli, scene: Scene) -> None:
    await add(cli)
    made = await trigger(cli)
    assert {"id": made["id"], "state": "PENDING", "created": True}.items() <= made.items()
    row = await scene.connection.fetchrow("SELECT * FROM supervisor.job_run WHERE id = $1", made["id"])
    assert row is not None
    assert json.loads(row["payload"]) == {"argv": ["echo", "hello"]}


async def test_trigger_options_reach_the_run(cli: Cli, scene: Scene) -> None:
    await add(cli, "job", "--parameters", '{"order": {"type": "integer", "required": true}}')
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    options = ["--not-before", due.isoformat(), "--priority", "9", "--payload", '{"order": 7}']
    made = await trigger(cli, "job", *options)
    run = (await cli("run", "show", str(made["id"]), "--json")).json()
    assert datetime.fromisoformat(run["not_before"]) == due
    assert run["priority"] == 9
    assert run["payload"] == {"argv": ["echo", "hello"], "order": 7}
    refused = await cli("job", "trigger", "job", "--payload", '{"argv": ["id"]}')
    assert (refused.code, "it takes order (integer, required)" in refused.err) == (2, True)
    shown = await cli("job", "show", "job")
    assert "order: integer, required" in shown.out


async def test_a_repeated_key_returns_the_same_run(cli: Cli, scene: Scene) -> None:
    await add(cli, "job", "--parameters", '{"order": {"type": "integer"}}')
    first = await trigger(cli, "job", "--idempotency-key", "order 4711")
    again = await trigger(cli, "job", "--idempotency-key", "order 4711")
    assert (again["id"], again["created"]) == (first["id"], False)
    other = await cli("job", "trigger", "job", "--idempotency-key", "order 4711", "--payload", '{"order": 7}')
    assert other.code == 4
    assert (await cli("job", "trigger", "job", "--idempotency-key", "retry:1:2")).code == 2
    assert (await cli("job", "trigger", "job", "--idempotency-key", "x" * 201)).code == 2


@pytest.mark.parametrize("text", HOSTILE)
async def test_hostile_text_is_stored_as_it_is_and_shown_harmless(cli: Cli, scene: Scene, text: str) -> None:
    payload = json.dumps({"argv": ["echo", text], "env": {"X": text}})
    answer = await cli(
        "job", "add", "job", "--domain", "command", "--payload", payload, "--action", text, "--json"
    )
    assert answer.json()["payload"]["argv"] == ["echo", text]
    made = await trigger(cli, "job", "--idempotency-key", text)
    assert (await trigger(cli, "job", "--idempotency-key", text))["id"] == made["id"]
    for command in (
        ("job", "list"),
        ("job", "show", "job"),
        ("run", "show", str(made["id"])),
        ("run", "list"),
    ):
        shown = await cli(*command)
        assert shown.code == 0
        assert not {"\x1b", "\u202e"} & set(shown.out)
    for unknown in (["job", "show", text], ["run", "list", "--job", text], ["worker", "drain", text]):
        answer = await cli(*unknown)
        assert answer.code == 5, answer
        assert not {"\x1b", "\u202e"} & set(answer.err)


async def test_run_show_has_every_column_and_the_history(cli: Cli, scene: Scene) -> None:
    await scene.job()
    run = await scene.run_to("FAILED")
    shown = (await cli("run", "show", str(run), "--json")).json()
    columns = await scene.connection.fetch(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'supervisor'"
        " AND table_name = 'job_run'"
    )
    assert {row["column_name"] for row in columns} <= shown.keys()
    assert [(step["version"], step["from_state"], step["to_state"]) for step in shown["history"]] == [
        (1, None, "PENDING"),
        (2, "PENDING", "ASSIGNED"),
        (3, "ASSIGNED", "RUNNING"),
        (4, "RUNNING", "FAILED"),
    ]
    assert shown["history"][0].keys() == {
        "version",
        "from_state",
        "to_state",
        "continuation_state",
        "attempt",
        "at",
        "worker_id",
        "leader_epoch",
        "claim_id",
        "reason",
    }
    assert shown["history"][2]["leader_epoch"] == scene.epoch
    assert shown["late_finishes"] == []
    people = await cli("run", "show", str(run))
    assert "RUNNING -> FAILED" in people.out
    assert (await cli("run", "show", "999999")).code == 5


async def test_run_list_pages_by_key(cli: Cli, scene: Scene) -> None:
    await scene.job()
    await scene.job("other")
    runs = [await scene.run_to("PENDING", name) for name in ("job", "other", "job", "job")]
    done = await scene.run_to("SUCCEEDED")

    async def ids(*args: str) -> list[int]:
        return [run["id"] for run in (await cli("run", "list", *args, "--json")).json()]

    assert await ids() == [done, *reversed(runs)]
    assert await ids("--limit", "2") == [done, runs[3]]
    assert await ids("--limit", "2", "--before", str(runs[3])) == [runs[2], runs[1]]
    assert await ids("--state", "succeeded") == [done]
    assert await ids("--job", "other") == [runs[1]]
    assert await ids("--state", "PENDING", "--job", "job", "--limit", "2") == [runs[3], runs[2]]
    assert (await cli("run", "list", "--job", "nobody")).code == 5
    assert f"--before {runs[3]}" in (await cli("run", "list", "--limit", "2")).out


async def test_why_tells_the_reason_from_the_database(cli: Cli, scene: Scene) -> None:
    await scene.job("one", concurrency=1)
    await scene.job()

    async def why(run: int) -> Any:
        return (await cli("run", "why", str(run), "--json")).json()

    running = await scene.run_to("RUNNING", "one")
    held = await scene.run_to("PENDING", "one")
    reason = await why(held)
    assert (reason["reason"], reason["evidence"]) == ("CONCURRENCY_LIMIT", {"runs": [running]})
    assert (await why(running))["reason"] == "RUNNING"
    assert (await why(await scene.run_to("ASSIGNED")))["reason"] == "AWAITING_START"
    assert (await why(await scene.run_to("CONFIRMING")))["reason"] == "CONFIRMING"
    assert (await why(await scene.run_to("SUCCEEDED")))["reason"] == "ENDED"
    first = await scene.run_to("PENDING")
    second = await scene.run_to("PENDING")
    assert (await why(second))["evidence"]["ahead"] == 2
    later = await scene.enqueue(not_before=datetime.now(UTC) + timedelta(hours=1))
    assert (await why(later))["reason"] == "NOT_DUE"
    await cli("job", "disable", "job")
    assert (await why(first))["reason"] == "JOB_DISABLED"
    await cli("job", "enable", "job")
    await scene.beat("w1", slots=1)
    assert (await why(first))["reason"] == "NO_FREE_SLOT"
    await scene.force("UPDATE supervisor.worker SET heartbeat_at = heartbeat_at - interval '20 minutes'")
    assert (await why(first))["reason"] == "NO_REPLICA"
    await scene.force(
        "UPDATE supervisor.leader_epoch SET quarantine_until = clock_timestamp() + interval '9 minutes'"
    )
    assert (await why(first))["reason"] == "QUARANTINE"
    await scene.value("SELECT supervisor.resign($1, 'w1', 'test')", scene.epoch)
    assert (await why(first))["reason"] == "NO_LEADER"
    people = await cli("run", "why", str(first))
    assert "nobody leads" in people.out
    assert (await cli("run", "why", "999999")).code == 5


async def test_why_a_next_attempt_waits(cli: Cli, scene: Scene) -> None:
    await scene.job(backoff_seconds=0)
    lost = await scene.run_to("RUNNING")
    await scene.force(
        "UPDATE supervisor.job_run SET state = 'TIMED_OUT', version = version + 1, finished_at = now(),"
        " finished_by = 'leader', retry_at = now() WHERE id = $1",
        lost,
    )
    assert (await cli("run", "why", str(lost), "--json")).json()["reason"] == "NEXT_ATTEMPT_OWED"
    [following] = await scene.next_attempts()
    waits = (await cli("run", "why", str(following), "--json")).json()
    assert (waits["reason"], waits["evidence"]["run_id"]) == ("AWAITING_QUIESCE", lost)
    assert datetime.fromisoformat(waits["until"]) > datetime.now(UTC)
    assert (await cli("run", "why", str(lost), "--json")).json()["evidence"]["next_attempt_id"] == following


async def test_wait_follows_the_attempts_to_the_end(cli: Cli, scene: Scene) -> None:
    await scene.job(max_attempts=2)
    first = await scene.run_to("RUNNING")
    waiting = asyncio.create_task(cli("run", "wait", str(first), "--timeout", str(patient(30)), "--json"))
    await scene.finish(first, "FAILED", "EXIT_1", delay=0)
    [second] = await scene.next_attempts()
    await scene.assign(second)
    await scene.start(second)
    assert not waiting.done()
    await scene.finish(second, "SUCCEEDED")
    answer = await waiting
    ended = answer.json()
    assert (ended["id"], ended["state"], ended["attempt"]) == (second, "SUCCEEDED", 2)


async def test_wait_exits_1_when_it_did_not_succeed_or_time_is_over(cli: Cli, scene: Scene) -> None:
    await scene.job(max_attempts=1)
    failed = await cli("run", "wait", str(await scene.run_to("FAILED")))
    assert failed.code == 1
    assert "EXIT_1" in failed.out
    late = await cli("run", "wait", str(await scene.run_to("PENDING")), "--timeout", "0.2", "--json")
    assert (late.code, json.loads(late.out)["timed_out"]) == (1, True)
    assert (await cli("run", "wait", "999999")).code == 5


async def test_cancel_and_retry_leave_a_request_and_an_audit_row(cli: Cli, scene: Scene) -> None:
    """R003-04, R003-55: what an operator asks for is written down with who asked; a conflict exits with 4."""
    await scene.job(max_attempts=1)
    queued = await scene.run_to("PENDING")
    assert (await cli("run", "cancel", str(queued), "--json")).json()["requested"] is True
    assert (await cli("run", "cancel", str(queued), "--json")).json()["requested"] is False
    failed = await scene.run_to("FAILED")
    assert (await cli("run", "cancel", str(failed))).code == 4
    assert (await cli("run", "retry", str(queued))).code == 4
    assert (await cli("run", "retry", str(await scene.run_to("SUCCEEDED")))).code == 4
    assert (await cli("run", "retry", str(failed), "--json")).json()["requested"] is True
    assert (await cli("run", "retry", "999999")).code == 5
    assert (await cli("run", "cancel", "999999")).code == 5
    audit = await scene.connection.fetch(
        "SELECT actor, action, target FROM supervisor.audit WHERE action LIKE 'run.%'"
    )
    assert [(row["action"], row["target"]) for row in audit] == [
        ("run.cancel", f"run:{queued}"),
        ("run.retry", f"run:{failed}"),
    ]
    assert all(row["actor"].startswith("cli:") for row in audit)
    assert len(await scene.next_attempts()) == 1


async def test_logs_come_whole_and_in_order(cli: Cli, scene: Scene) -> None:
    await scene.job()
    run = await scene.run_to("RUNNING")
    claim = await scene.value("SELECT claim_id FROM supervisor.job_run WHERE id = $1", run)
    bodies = [f"line {number}\n" for number in range(450)]
    await scene.value(
        "SELECT supervisor.append_log('w1', $1, $2, $3, $4, $5)",
        run,
        claim,
        list(range(450)),
        ["stderr" if n == 7 else "stdout" for n in range(450)],
        bodies,
    )
    answer = await cli("run", "logs", str(run))
    assert answer.out == "".join(bodies[:7] + bodies[8:])
    assert answer.err == bodies[7]
    lines = (await cli("run", "logs", str(run), "--json")).json()
    assert [line["body"] for line in lines] == bodies
    assert lines[7]["stream"] == "stderr"
    assert (await cli("run", "logs", "999999")).code == 5


async def test_worker_list_and_drain(cli: Cli, scene: Scene) -> None:
    await scene.beat("w2")
    await scene.value("SELECT supervisor.leave('w2', $1)", secret_of("w2"))
    assert [one["worker_id"] for one in (await cli("worker", "list", "--json")).json()] == ["w1"]
    assert len((await cli("worker", "list", "--all", "--json")).json()) == 2
    assert (await cli("worker", "drain", "w1", "--json")).json()["requested"] is True
    assert await scene.value(
        "SELECT drain_requested_at IS NOT NULL FROM supervisor.worker WHERE worker_id = 'w1'"
    )
    assert "asked" in (await cli("worker", "list")).out
    assert (await cli("worker", "drain", "w2")).code == 4
    assert (await cli("worker", "drain", "w3")).code == 5


async def test_leader_show_resign_history(cli: Cli, scene: Scene) -> None:
    shown = (await cli("leader", "show", "--json")).json()
    assert (shown["worker_id"], shown["epoch"], shown["live"]) == ("w1", scene.epoch, True)
    assert (await cli("leader", "resign", "--json")).json() == {"epoch": scene.epoch, "worker_id": "w1"}
    assert "asked to resign" in (await cli("leader", "show")).out
    await scene.value("SELECT supervisor.resign($1, 'w1', 'asked')", scene.epoch)
    assert (await cli("leader", "resign")).code == 4
    assert "nobody leads" in (await cli("leader", "show")).out
    history = (await cli("leader", "history", "--json")).json()
    assert [(step["epoch"], step["what"]) for step in history] == [
        (scene.epoch, "RESIGNED"),
        (scene.epoch, "ACQUIRED"),
    ]


async def test_leader_history_says_how_long_nobody_led(cli: Cli, scene: Scene) -> None:
    """Exactly after one that resigned, at most after one that was lost."""
    await scene.value("SELECT supervisor.resign($1, 'w1', 'asked')", scene.epoch)
    await scene.lead("w2")
    await scene.force(
        "UPDATE supervisor.leader_lease SET renewed_at = clock_timestamp() - interval '3 h',"
        " expires_at = clock_timestamp()"
    )
    await scene.lead("w3")
    lines = (await cli("leader", "history")).out.splitlines()
    [lost, resigned] = [line for line in lines if "ACQUIRED" in line and "w1" not in line]
    assert re.search(r"w3 .*up to 3h, since the last renewal", lost)
    assert re.search(r"w2 .* \d\.\ds", resigned)
    assert (await cli("leader", "history", "--json")).json()[0]["before_renewed_at"] is not None


async def test_status_says_until_when_a_silent_worker_is_awaited(cli: Cli, scene: Scene) -> None:
    await scene.job()
    run = await scene.run_to("CONFIRMING")
    shown = (await cli("status")).out
    assert re.search(rf"CONFIRMING run {run} on w1 until at most \d{{4}}-", shown)
    await scene.value("SELECT supervisor.resign($1, 'w1', 'asked')", scene.epoch)
    assert f"run {run} on w1 until a leader has watched it" in (await cli("status")).out


async def test_status_and_doctor(cli: Cli, scene: Scene) -> None:
    status = (await cli("status", "--json")).json()
    assert status["runs"].keys() == set(STATES)
    assert "w1" in (await cli("status")).out
    healthy = await cli("doctor", "--json")
    assert healthy.json()["ok"] is True, "warnings do not fail"
    await scene.connection.execute("ALTER TABLE supervisor.job_run DISABLE TRIGGER guard")
    broken = await cli("doctor")
    assert broken.code == 1
    assert "trigger guard on job_run is disabled" in broken.out


async def test_doctor_names_wrong_timings_instead_of_refusing(
    cli: Cli, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_STOP_BOUND_SECONDS", "3")
    answer = await cli("doctor", "--json")
    assert answer.code == 1
    [timings] = [check for check in json.loads(answer.out)["checks"] if check["name"] == "timings"]
    assert (timings["result"], "D=3" in timings["found"]) == ("fail", True)


async def test_a_wrong_password_exits_3_without_it(
    cli: Cli, database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, host = database.control.split("//")[1].split(":")[0], database.control.rpartition("@")[2]
    monkeypatch.setenv("TENURE_DATABASE_URL", f"postgresql://{user}:s3cr3t-w0rd@{host}")
    for command in (("status",), ("migrate",), ("doctor",), ("up",)):
        answer = await cli(*command)
        assert answer.code == 3, answer
        assert "s3cr3t-w0rd" not in answer.out + answer.err


async def test_another_role_is_told_so(cli: Cli, database: Urls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", database.client)
    answer = await cli("status", "--json")
    assert answer.code == 1
    assert "tenure_control" in json.loads(answer.err)["hint"]


async def test_an_old_schema_names_migrate(
    cli: Cli, absent_database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", absent_database.admin)
    assert (await cli("up")).code == 1
    connection = await asyncpg.connect(absent_database.admin.rpartition("/")[0] + "/postgres")
    try:
        await connection.execute(f'CREATE DATABASE "{absent_database.admin.rpartition("/")[2]}"')
    finally:
        await connection.close()
    for command in (("status",), ("up",), ("run", "list"), ("doctor",)):
        answer = await cli(*command)
        assert answer.code == 1, answer
        assert "tenure migrate" in answer.err + answer.out


async def test_migrate_says_what_it_did(
    cli: Cli, absent_database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", absent_database.control)
    monkeypatch.setenv("TENURE_WORKER_DATABASE_URL", absent_database.worker)
    monkeypatch.setenv("TENURE_MIGRATE_DATABASE_URL", absent_database.admin)
    first = (await cli("migrate", "--json")).json()
    assert first["changed"] is True
    assert 1 in first["applied"]
    assert "was already" in (await cli("migrate")).out
    assert (await cli("status")).code == 0


async def test_migrate_without_rights_prints_the_sql_and_exits_1(
    cli: Cli, absent_database: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", absent_database.client)
    monkeypatch.delenv("TENURE_WORKER_DATABASE_URL")
    answer = await cli("migrate")
    assert answer.code == 1
    assert "CREATE DATABASE" in answer.out
    assert "superuser" in answer.err
    as_json = await cli("migrate", "--json")
    assert as_json.code == 1
    assert "CREATE DATABASE" in json.loads(as_json.out)["administrator_sql"]


async def test_the_sample_is_added_once_and_its_payloads_suit(database: Urls, scene: Scene) -> None:
    from supervisor.wiring import actors

    store = Store(database.control, name="test", size=1)
    try:
        await seed(store)
        before = await counts(scene)
        await scene.value(
            "SELECT supervisor.save_job('test', 'sample/hello', '{\"payload\": {\"argv\": [\"ls\"]}}', false)"
        )
        await seed(store)
    finally:
        await store.close()
    assert before[:2] == (len(JOBS), sum(RUNS.values()))
    assert (await counts(scene))[:2] == before[:2]
    for job in JOBS.values():
        assert not actors()["command"].check(job["payload"])
    assert set(JOBS) == RUNS.keys()


async def test_a_reader_that_went_away_is_no_traceback(database: Urls) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "supervisor.cli",
        "status",
        "--json",
        env={**os.environ, "TENURE_DATABASE_URL": database.control, "PYTHONUNBUFFERED": ""},
        stdout=writer,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writer)
    _, err = await asyncio.wait_for(process.communicate(), patient(30))
    assert (process.returncode, err) == (1, b"")
