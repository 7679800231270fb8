"""A replica that only works: with the worker's login and nothing else it does a worker's whole work."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from supervisor.api.server import is_loopback
from supervisor.embedded import Urls
from supervisor.errors import BadSettings
from supervisor.urls import RuntimeUrls, check_worker_logins
from tests.support.command_line import command_line
from tests.support.eventually import eventually
from tests.support.libraries import duplicates_in, small_files
from tests.support.replica import WORKS_ONLY
from tests.support.replicas import C, D, Fleet, K, L, Member, S, replicas

# an address of this machine, though not in a form that the product takes for certain
NEAR = "127.1"


def works_for(domains: str, **more: str) -> dict[str, str | None]:
    return {**WORKS_ONLY, "TENURE_DOMAINS": domains, **more}


async def sessions_of(fleet: Fleet) -> set[tuple[str, str]]:
    """Application name and login of every session that replicas have open in the database."""
    rows = await fleet.rows(
        """SELECT application_name, usename FROM pg_stat_activity
           WHERE application_name LIKE 'tenure%' AND datname = current_database()"""
    )
    return {(row["application_name"], row["usename"]) for row in rows}


async def moved_by(fleet: Fleet) -> set[tuple[str, str]]:
    """Who took the jobs of the library, and with which login."""
    rows = await fleet.rows(
        "SELECT DISTINCT worker_id, database_user FROM dedup.job_moves WHERE to_status = 'running'"
    )
    return {(row["worker_id"], row["database_user"]) for row in rows}


async def scan(fleet: Fleet, library: str) -> int:
    spec = {"domain": "dedup", "action": "scan", "max_attempts": 5, "backoff_seconds": 0.1}
    await fleet.rows("SELECT FROM supervisor.save_job('test', 'scan', $1::jsonb, true)", json.dumps(spec))
    await fleet.rows("SELECT FROM dedup.add_library('test', $1, $1)", library)
    payload = json.dumps({"library": library, "hash": True})
    return int(await fleet.value("SELECT id FROM supervisor.enqueue('scan', $1::jsonb)", payload))


async def groups(fleet: Fleet, libraries: Path) -> set[frozenset[str]]:
    rows = await fleet.rows(
        """SELECT array_agg($1 || '/' || l.root_path || '/' || f.relative_path) AS paths
             FROM dedup.library_files f JOIN dedup.library_roots l ON l.id = f.library_id
            WHERE NOT f.needs_hash GROUP BY f.hash_algorithm, f.content_hash HAVING count(*) > 1""",
        str(libraries),
    )
    return {frozenset(row["paths"]) for row in rows}


@pytest.mark.slow
async def test_it_executes_runs_and_rows_with_the_workers_login_alone(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment and its sessions show no other login; everybody sees it, and it serves probes only."""
    libraries = tmp_path / "libraries"
    small_files(libraries / "texts", 60, directories=6)
    async with replicas(database, tmp_path, count=0) as fleet:
        (leader,) = await fleet.start(env={"TENURE_DOMAINS": "capture"})
        assert not is_loopback(NEAR), "this would not try what is refused without a token"
        own = works_for("command,dedup", TENURE_LIBRARIES_DIR=str(libraries), TENURE_HTTP_HOST=NEAR)
        (worker,) = await fleet.start(variant=None, env=own)
        await fleet.leader()
        await fleet.define("work", fleet.effects.command(0.2))
        runs = [*await fleet.trigger("work", 5), await scan(fleet, "texts")]
        await fleet.until(lambda: fleet.succeeded(runs), within=60, what="the runs to succeed")

        assert {row["assigned_worker_id"] for row in await fleet.last(runs)} == {worker.worker_id}
        login = urlsplit(database.worker).username
        assert await moved_by(fleet) == {(worker.worker_id, login)}
        assert await groups(fleet, libraries) == duplicates_in(libraries)

        given = worker.replica.environment
        assert [name for name in given if "DATABASE_URL" in name] == ["TENURE_WORKER_DATABASE_URL"]
        for url in (database.control, database.admin, database.maintenance):
            assert str(urlsplit(url).password) not in str(given)

        cli = command_line(database, monkeypatch, tmp_path)
        seen = {one["worker_id"]: one for one in (await cli("status", "--json")).json()["replicas"]}
        assert seen[worker.worker_id]["domains"] == ["command", "dedup"]
        assert (seen[worker.worker_id]["state"], seen[worker.worker_id]["contact"]) == ("active", "heard")
        await serves_probes_only(worker)

        control = urlsplit(database.control).username
        assert {f"tenure/{leader.worker_id}", "tenure/listen"} <= {
            name for name, user in await sessions_of(fleet) if user == control
        }
        await leader.kill()

        async def only_the_workers() -> bool:
            sessions = await sessions_of(fleet)
            assert {name for name, _ in sessions} >= {"tenure/listen", f"tenure/{worker.worker_id}/beat"}
            return {user for _, user in sessions} == {login}

        await fleet.until(only_the_workers, within=10, what="the sessions of the leader to end")


async def serves_probes_only(worker: Member) -> None:
    for probe in ("/healthz", "/readyz", "/metrics"):
        assert (await worker.replica.get(probe)).status_code == 200
    for path in ("/", "/status", "/login", "/api/v1/runs", "/api/v1/openapi.json", "/static/x/console.css"):
        refused = await worker.replica.get(path)
        assert refused.status_code == 404, path
        assert "only works" in refused.json()["detail"]
        assert refused.headers["x-content-type-options"] == "nosniff"
    text = (await worker.replica.get("/metrics")).text
    shown = set(re.findall(r"^(\w+)", text, re.MULTILINE))
    assert await worker.metric("tenure_leader") == 0
    assert await worker.metric("tenure_candidate") == 0
    assert await worker.metric("tenure_leader_epoch") >= 1
    absent = {"tenure_runs", "tenure_run_lag_seconds", "tenure_runs_confirming", "tenure_leases_expired"}
    assert not shown & {*absent, "tenure_leader_lease_remaining_seconds"}
    assert not [name for name in shown if name.startswith("scm_")]


@pytest.mark.slow
async def test_it_goes_on_when_the_leader_ends_and_never_takes_its_place(
    database: Urls, tmp_path: Path
) -> None:
    """Nobody leads until a candidate comes; the run that it was executing ends as the first attempt."""
    async with replicas(database, tmp_path, count=0) as fleet:
        (leader,) = await fleet.start(env={"TENURE_DOMAINS": "capture"})
        (worker,) = await fleet.start(env=works_for("command"))
        await fleet.leader()
        epoch = await fleet.epoch()
        await fleet.define("lengthy", fleet.effects.command(L + C + 3))
        runs = await fleet.trigger_on(worker, "lengthy", 2)
        await leader.kill()

        async def confirms_itself() -> bool:
            query = """SELECT count(*) FROM supervisor.job_run_history
                       WHERE continuation_state = 'CONFIRMING' AND reason = 'NO_LEADER'"""
            return bool(await fleet.value(query) == len(runs))

        await fleet.until(confirms_itself, within=L + C + 6, what="the worker to see that nobody leads")
        assert await fleet.holder() is None
        assert await fleet.epoch() == epoch
        (heir,) = await fleet.start(env={"TENURE_DOMAINS": "capture"})
        await fleet.led_after(epoch, 8)
        assert await fleet.holder() is heir
        await fleet.until(lambda: fleet.succeeded(runs), within=20, what="the runs to succeed")
        for run in runs:
            assert [(row["attempt"], row["assigned_worker_id"]) for row in await fleet.root(run)] == [
                (1, worker.worker_id)
            ]
        await fleet.define("after", fleet.effects.command(0.1))
        after = await fleet.trigger("after", 3)
        await fleet.until(lambda: fleet.succeeded(after), within=10, what="the runs of the next leader")
        assert {row["holder"] for row in await fleet.epochs()} == {leader.worker_id, heir.worker_id}
        assert await worker.metric("tenure_leader") == 0


@pytest.mark.slow
async def test_it_drains(database: Urls, tmp_path: Path) -> None:
    """What fits the grace ends there; the rest is recorded, and done by another that only works."""
    async with replicas(database, tmp_path, count=0, drain_seconds=3) as fleet:
        await fleet.start(env={"TENURE_DOMAINS": "capture"})
        worker, other = await fleet.start(2, env=works_for("command"))
        await fleet.leader()
        await fleet.define("lengthy", fleet.effects.command(8))
        await fleet.define("brief", fleet.effects.command(2))
        lengthy = await fleet.trigger_on(worker, "lengthy", 4)
        brief = await fleet.trigger_on(worker, "brief", 4)
        kept, moved = await fleet.on(worker, brief), await fleet.on(worker, lengthy)
        assert kept, "it has no brief run"
        assert moved, "it has no lengthy run"
        worker.term()
        assert await worker.replica.wait(timeout=(3 + K + 8) * fleet.stretch) == 0
        state = "SELECT state FROM supervisor.worker WHERE worker_id = $1"
        assert await fleet.value(state, worker.worker_id) == "gone"
        for run in kept:
            assert [(row["state"], row["attempt"]) for row in await fleet.root(run)] == [("SUCCEEDED", 1)]
        await fleet.until(lambda: fleet.succeeded([*brief, *lengthy]), within=30, what="the rest, elsewhere")
        for run in moved:
            first, second = await fleet.root(run)
            assert (first["state"], first["error_code"]) == ("FAILED", "DRAINED")
            assert second["assigned_worker_id"] == other.worker_id


@pytest.mark.slow
async def test_one_that_was_frozen_for_too_long_is_killed(database: Urls, tmp_path: Path) -> None:
    """The kernel's timer ends it before its run is given to another."""
    async with replicas(database, tmp_path, count=0) as fleet:
        await fleet.start(env={"TENURE_DOMAINS": "capture"})
        (worker,) = await fleet.start(env=works_for("command"))
        await fleet.leader()
        await fleet.define("lengthy", fleet.effects.command(3))
        runs = await fleet.trigger_on(worker, "lengthy", 1)
        worker.stop()
        await fleet.start(env=works_for("command"))
        within = (S + K + 3) * fleet.stretch
        await eventually(lambda: not worker.alive, timeout=within, what="the end of the frozen one")
        await fleet.until(lambda: fleet.succeeded(runs), within=D + C + 15, what="another attempt")
        for run in runs:
            first, second = await fleet.root(run)
            assert first["state"] == "TIMED_OUT"
            assert second["assigned_worker_id"] != worker.worker_id


@pytest.mark.parametrize(
    ("login", "fault"),
    [
        ("control", "may do more than work"),
        ("admin", "is a superuser"),
        ("client", "may not work"),
        ("maintenance", "may not work"),
    ],
)
async def test_a_login_that_is_no_workers_is_refused(database: Urls, login: str, fault: str) -> None:
    """Whatever setting it comes in: the worker's, or that for LISTEN."""
    url = str(getattr(database, login))
    with pytest.raises(BadSettings, match=f"of TENURE_WORKER_DATABASE_URL {fault}"):
        await check_worker_logins(RuntimeUrls(None, url, url, url), pooled=False)
    with pytest.raises(BadSettings, match=f"of TENURE_LISTEN_DATABASE_URL {fault}"):
        await check_worker_logins(RuntimeUrls(None, database.worker, url, url), pooled=False)


async def test_the_workers_login_is_taken(database: Urls) -> None:
    urls = RuntimeUrls(None, database.worker, database.worker, database.worker)
    await check_worker_logins(urls, pooled=False)


async def test_a_refused_start_says_what_to_do(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control login under the worker's name: the command ends before it works with it."""
    cli = command_line(database, monkeypatch, tmp_path)
    monkeypatch.delenv("TENURE_DATABASE_URL")
    monkeypatch.setenv("TENURE_WORKER_DATABASE_URL", database.control)
    refused = await cli("up", "--no-lead", "--port", "0")
    assert refused.code == 2
    assert "takes a login in tenure_worker alone" in refused.err
    assert str(urlsplit(database.control).password) not in refused.err


WORKER = "GRANT tenure_worker TO extra"
MORE = [
    ("INHERIT FALSE", "GRANT tenure_control TO extra WITH INHERIT FALSE", "member of tenure_control"),
    ("by another role", "CREATE ROLE between; GRANT tenure_control TO between; GRANT between TO extra",
     "member of tenure_control"),
    ("owner", "GRANT tenure_owner TO extra WITH INHERIT FALSE", "member of tenure_owner"),
    ("client", "GRANT tenure_client TO extra", "member of tenure_client"),
    ("a superuser to become", "CREATE ROLE between SUPERUSER; GRANT between TO extra", "SUPERUSER"),
    ("CREATEROLE", "ALTER ROLE extra CREATEROLE", "CREATEROLE"),
    ("REPLICATION", "ALTER ROLE extra REPLICATION", "REPLICATION"),
    ("BYPASSRLS", "ALTER ROLE extra BYPASSRLS", "BYPASSRLS"),
    *(
        (name, f"GRANT {name} TO extra", f"member of {name}")
        for name in ("pg_execute_server_program", "pg_write_server_files", "pg_read_server_files",
                     "pg_read_all_data", "pg_write_all_data", "pg_signal_backend")
    ),
    ("tokens", "GRANT SELECT ON supervisor.api_token TO extra", "SELECT on supervisor.api_token"),
    ("one column", "GRANT SELECT (hash) ON supervisor.api_token TO extra", "SELECT on supervisor.api_token"),
    ("a move of the leader",
     "GRANT EXECUTE ON FUNCTION supervisor.renew(bigint, text, double precision) TO extra",
     "EXECUTE on supervisor.renew"),
]  # fmt: skip


async def login_of(database: Urls, grants: str) -> tuple[str, str]:
    """A login of tenure_worker with more than that; what it is called is the test's own."""
    name = f"extra_{uuid4().hex[:12]}"
    connection = await asyncpg.connect(database.admin)
    try:
        await connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'extra'")
        for one in (WORKER, grants):
            own = re.sub(r"\bextra\b", name, re.sub(r"\bbetween\b", f"{name}_between", one))
            await connection.execute(own)
    finally:
        await connection.close()
    parts = urlsplit(database.worker)
    return parts._replace(netloc=f"{name}:extra@{parts.hostname}:{parts.port}").geturl(), name


async def forget(database: Urls, name: str) -> None:
    connection = await asyncpg.connect(database.admin)
    try:
        for role in (name, f"{name}_between"):
            if await connection.fetchval("SELECT count(*) FROM pg_roles WHERE rolname = $1", role):
                await connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    finally:
        await connection.close()


@pytest.mark.parametrize(("grants", "fault"), [one[1:] for one in MORE], ids=[one[0] for one in MORE])
async def test_a_worker_that_may_do_more_is_refused(database: Urls, grants: str, fault: str) -> None:
    """What a login does not inherit is its own after SET ROLE; some roles reach the server's files."""
    url, name = await login_of(database, grants)
    try:
        with pytest.raises(BadSettings, match="may do more than work") as refusal:
            await check_worker_logins(RuntimeUrls(None, url, url, url), pooled=False)
        assert fault in str(refusal.value)
    finally:
        await forget(database, name)


@pytest.mark.parametrize(
    "grants",
    ["CREATE ROLE between; GRANT between TO extra", "GRANT pg_monitor TO extra"],
    ids=["group", "monitor"],
)
async def test_a_worker_in_a_group_of_no_consequence_is_taken(database: Urls, grants: str) -> None:
    url, name = await login_of(database, grants)
    try:
        await check_worker_logins(RuntimeUrls(None, url, url, url), pooled=False)
    finally:
        await forget(database, name)
