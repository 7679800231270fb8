"""What a login may put into the database and Python cannot take: it harms neither replicas nor lists."""

import json
from functools import partial
from pathlib import Path

import asyncpg
import pytest

from supervisor.embedded import Urls
from tests.support.command_line import command_line
from tests.support.replicas import Fleet, replicas

HUGE = '{"x": 1e5000}'
FORGED = """
    INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, action, payload, max_attempts)
    SELECT n, n, d.id, d.domain, d.action, d.payload || $1::jsonb, 1
      FROM supervisor.job_definition d, nextval('supervisor.job_run_id') n
     WHERE d.name = 'any' RETURNING id
"""
"""As a row of a release that did not refuse it."""


async def asked(url: str, sql: str, *arguments: object) -> str:
    """What came of it, in one word."""
    connection = await asyncpg.connect(url)
    try:
        await connection.fetch(sql, *arguments)
    except asyncpg.PostgresError as error:
        return error.sqlstate or "error"
    finally:
        await connection.close()
    return "taken"


async def ended(fleet: Fleet, run: int) -> bool:
    return (await fleet.run(run))["state"] in ("SUCCEEDED", "FAILED")


async def wants_anything(fleet: Fleet, **spec: object) -> None:
    spec = {"domain": "command", "parameters": {"x": {"type": "any"}}, "max_attempts": 1, **spec}
    await fleet.define("any", {"argv": ["/bin/true"]}, **spec)


@pytest.mark.slow
async def test_a_number_that_python_cannot_read_ends_its_run_and_no_replica(
    database: Urls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replicas(database, tmp_path, count=1) as fleet:
        await fleet.leader()
        await wants_anything(fleet)
        event = {"type": "object"}
        await fleet.define("hears", {"argv": ["/bin/true"]}, event_type="x.y", parameters={"event": event})
        answers = [
            await asked(database.client, "SELECT FROM supervisor.enqueue('any', $1::jsonb)", HUGE),
            await asked(database.client, "SELECT FROM supervisor.emit('x.y', $1::jsonb)", HUGE),
        ]
        huge = int(await fleet.value(FORGED, HUGE))
        deep = int(await fleet.value(FORGED, json.dumps({"x": 1}).replace("1", "[" * 3000 + "]" * 3000)))
        await fleet.rows("INSERT INTO supervisor.event (type, payload) VALUES ('x.y', $1::jsonb)", HUGE)
        good = int(await fleet.value("SELECT id FROM supervisor.enqueue('any', '{\"x\": 1}')"))
        for run in (huge, deep, good):
            await fleet.until(partial(ended, fleet, run), within=20, what="the run to end")

        async def heard() -> bool:
            rows = await fleet.rows(
                """SELECT r.error_code FROM supervisor.job_run r JOIN supervisor.job_definition d
                       ON d.id = r.job_definition_id AND d.name = 'hears' WHERE r.finished_at IS NOT NULL"""
            )
            return bool(rows) and {row["error_code"] for row in rows} == {"UNREADABLE"}

        await fleet.until(heard, within=20, what="the run of the event to end")
        assert [(await fleet.run(run))["error_code"] for run in (huge, deep, good)] == [
            "UNREADABLE", "UNREADABLE", None,
        ]  # fmt: skip
        assert all(member.alive for member in fleet.members)
        assert answers == ["TN022", "TN022"]

        (member,) = fleet.members
        for path in ("/runs", "/events", "/jobs/any", f"/runs/{huge}", f"/runs/{deep}", "/api/v1/runs",
                     f"/api/v1/runs/{huge}", f"/api/v1/runs/{deep}", "/api/v1/events"):  # fmt: skip
            answer = await member.replica.get(path)
            assert answer.status_code == 200, (path, answer.text[:2000])

        cli = command_line(database, monkeypatch, tmp_path)
        for command in (
            ("run", "show", str(huge)),
            ("run", "show", str(deep), "--json"),
            ("run", "show", str(huge), "--json"),
            ("run", "list", "--json"),
            ("event", "list", "--json"),
        ):
            assert (await cli(*command)).code == 0, command
