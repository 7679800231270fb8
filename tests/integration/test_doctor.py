"""Each check of the doctor: quiet on a healthy database, and loud when what it watches over is broken."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from schemas.migrate import check
from schemas.report import SchemaState
from supervisor import doctor
from supervisor.config import Timings
from supervisor.doctor import Finding, examine
from supervisor.embedded import Urls
from supervisor.store import Store
from supervisor.wiring import task_types
from tests.support.scene import Scene

TIMINGS = Timings()


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    """A healthy one: a leader, two workers, runs in every state."""
    scene = await Scene.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    await scene.beat("w2")
    await scene.job()
    for state in ("PENDING", "ASSIGNED", "RUNNING", "CONFIRMING", "SUCCEEDED", "FAILED"):
        await scene.run_to(state)
    yield scene
    await scene.close()


async def diagnose(
    urls: Urls, timings: Timings = TIMINGS, *, one_url: str | None = None
) -> dict[str, Finding]:
    control = Store(one_url or urls.control, name="test", size=2)
    worker = None if one_url else Store(urls.worker, name="test", size=1)
    try:
        found = await examine(
            control, worker, timings, await check(one_url or urls.control), task_types=task_types()
        )
    finally:
        await control.close()
        if worker is not None:
            await worker.close()
    assert len({finding.name for finding in found}) == len(found)
    assert all(finding.advice for finding in found if finding.result != "ok")
    return {finding.name: finding for finding in found}


async def test_a_healthy_database_is_all_ok(database: Urls, scene: Scene) -> None:
    # Set by migrate for its own database; this one is a copy.
    name = await scene.value("SELECT current_database()")
    for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
        await scene.connection.execute(f'ALTER ROLE tenure_control IN DATABASE "{name}" SET {setting} = 5000')
    found = await diagnose(database)
    assert {name: finding for name, finding in found.items() if finding.result != "ok"} == {}
    assert len(found) >= 19
    assert found["notifications"].found.startswith("0%")


DAMAGE = {
    "two live": "UPDATE supervisor.job_run SET attempt = 99, root_id = (SELECT id FROM supervisor.job_run"
    " WHERE state = 'PENDING') WHERE state = 'ASSIGNED'",
    "history cut": "DELETE FROM supervisor.job_run_history WHERE version = 2",
    "version skipped": "UPDATE supervisor.job_run SET version = version + 1 WHERE state = 'RUNNING'",
    "epoch given again": "INSERT INTO supervisor.tenure_log (epoch, holder, what)"
    " SELECT epoch - 1, 'w9', 'ACQUIRED' FROM supervisor.leader_epoch",
    "epoch set back": "UPDATE supervisor.leader_epoch SET epoch = 0, first_epoch = 0",
    "worker deleted": "DELETE FROM supervisor.worker WHERE worker_id = 'w1'",
    "never expired": "UPDATE supervisor.job_run SET continuation_check_deadline_at = clock_timestamp()"
    " - interval '1 hour' WHERE continuation_state = 'CONFIRMING'",
    "trigger off": "ALTER TABLE supervisor.job_run DISABLE TRIGGER guard",
    "trigger gone": "DROP TRIGGER record_moved ON supervisor.job_run",
    "index gone": "DROP INDEX supervisor.job_run_one_success",
    "unlogged": "ALTER TABLE supervisor.leader_epoch SET UNLOGGED",
    "column right": "GRANT UPDATE (state) ON supervisor.job_run TO tenure_worker",
    "partition right": "GRANT DELETE ON supervisor.job_run_history_default TO tenure_control",
    "default partition": "INSERT INTO supervisor.job_run_history (run_id, root_id, version, to_state,"
    " continuation_state, attempt, at, actor) VALUES (1, 1, 1, 'PENDING', 'NONE', 1, '1999-01-01', 'x')",
    "no next month": "DO $$BEGIN EXECUTE format('DROP TABLE supervisor.job_run_history_%s',"
    " to_char(now() AT TIME ZONE 'UTC' + interval '1 month', 'YYYYMM')); END$$",
    "identity hidden": "REVOKE EXECUTE ON FUNCTION pg_catalog.pg_walfile_name(pg_lsn) FROM PUBLIC",
    "leaderless": "UPDATE supervisor.leader_lease SET expires_at = clock_timestamp() - interval '1 minute'",
    "leader changing": "UPDATE supervisor.leader_lease SET expires_at = clock_timestamp()",
    "other bound": "UPDATE supervisor.worker SET stop_bound_seconds = 90 WHERE worker_id = 'w2'",
    "other functions": "UPDATE supervisor.schema_functions SET sha256 = 'another'",
    "task type lost": "DELETE FROM supervisor.task_type WHERE domain = 'scm'",
    "program chosen": "UPDATE supervisor.job_definition SET takes = NULL;"
    """ UPDATE supervisor.job_run SET payload = '{"argv": ["id"]}' WHERE state = 'PENDING'""",
    "no right to work": "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA supervisor FROM tenure_worker",
}


@pytest.mark.parametrize(
    ("damage", "check_name", "result"),
    [
        ("two live", "one live attempt a root", "fail"),
        ("history cut", "history without gaps", "fail"),
        ("version skipped", "history without gaps", "fail"),
        ("epoch given again", "epochs only grow", "fail"),
        ("epoch set back", "epochs only grow", "fail"),
        ("worker deleted", "running on a known worker", "warn"),
        ("never expired", "confirmations end", "fail"),
        ("trigger off", "guards", "fail"),
        ("trigger gone", "guards", "fail"),
        ("index gone", "guards", "fail"),
        ("unlogged", "guards", "fail"),
        ("column right", "rights", "fail"),
        ("partition right", "rights", "fail"),
        ("default partition", "history partitions", "warn"),
        ("no next month", "history partitions", "warn"),
        ("identity hidden", "identity", "warn"),
        ("leaderless", "leader", "fail"),
        ("leader changing", "leader", "warn"),
        ("other bound", "stop bounds", "warn"),
        ("other functions", "schema", "warn"),
        ("task type lost", "task types", "fail"),
        ("program chosen", "programs", "warn"),
        ("no right to work", "logins", "fail"),
    ],
)
async def test_each_damage_is_seen(
    database: Urls, scene: Scene, damage: str, check_name: str, result: str
) -> None:
    if damage == "two live":
        await scene.connection.execute("DROP INDEX supervisor.job_run_one_live")
    await scene.force(DAMAGE[damage])
    found = await diagnose(database)
    assert found[check_name].result == result, found[check_name]


async def test_one_url_works_and_is_warned_of(database: Urls, scene: Scene) -> None:
    found = await diagnose(database, one_url=database.admin)
    assert found["logins"].result == "warn"
    assert found["session limits"].result == "warn"
    assert not [finding for finding in found.values() if finding.result == "fail"]


async def test_wrong_timings_are_a_finding_with_the_values_in_force(database: Urls, scene: Scene) -> None:
    found = await diagnose(database, Timings(stop_bound=5))
    assert found["timings"].result == "fail"
    assert "D=5" in found["timings"].found


async def test_no_schema_ends_the_list_early(absent_database: Urls, database: Urls, scene: Scene) -> None:
    store = Store(database.control, name="test", size=1)
    try:
        found = await examine(store, None, TIMINGS, await check(absent_database.admin))
    finally:
        await store.close()
    assert (found[-1].name, found[-1].result) == ("schema", "fail")
    assert "tenure migrate" in found[-1].advice


def test_settings_of_the_server() -> None:
    now = datetime.now(UTC)
    server = {
        "version_num": 160004,
        "version": "16.4",
        "fsync": "on",
        "synchronous_commit": "on",
        "full_page_writes": "on",
        "connections": 40,
        "connected": 5,
        "now": now,
        "statement_timeout": "5s",
        "lock_timeout": "2s",
        "idle_timeout": "5s",
    }
    assert doctor.judge_version(server).result == "ok"
    assert doctor.judge_version({**server, "version_num": 140012}).result == "fail"
    assert doctor.judge_version({**server, "version_num": 190000}).result == "warn"
    assert doctor.judge_durability(server).result == "ok"
    for name in ("fsync", "synchronous_commit", "full_page_writes"):
        broken = doctor.judge_durability({**server, name: "off"})
        assert (broken.result, name in broken.advice) == ("fail", True)
    assert doctor.judge_connections(server, 1).result == "ok"
    assert doctor.judge_connections(server, 2).result == "warn"
    assert doctor.judge_notifications({"notifications": 0.5}).result == "ok"
    assert doctor.judge_notifications({"notifications": 0.51}).result == "warn"
    assert doctor.judge_clock(server, now + timedelta(seconds=2)).result == "ok"
    assert doctor.judge_clock(server, now - timedelta(minutes=5)).result == "warn"
    assert doctor.judge_limits({**server, "lock_timeout": "0"}).result == "warn"
    assert doctor.judge_schema(SchemaState(current=3, expected=2, functions_equal=False)).result == "warn"


def test_no_replica_is_a_warning_not_a_fault() -> None:
    leader = {"live": False, "worker_id": None, "epoch": 0, "expires_at": None, "now": datetime.now(UTC)}
    assert doctor.judge_leader(leader, 0, TIMINGS).result == "warn"
    assert doctor.judge_leader(leader, 2, TIMINGS).result == "fail"
