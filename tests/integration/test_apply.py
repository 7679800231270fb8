"""`tenure job apply` on a real database: shown first, all or nothing, and nothing while anything is wrong."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from supervisor.embedded import Urls
from tests.support.command_line import Cli, command_line
from tests.support.scene import Scene
from tests.support.slowness import patient

FILE = """
[jobs.nightly]
domain = "command"
cron = "30 2 * * *"
timezone = "Europe/Berlin"
payload = { argv = ["echo", "night"] }

[jobs.on-upload]
domain = "command"
event = "upload"
concurrency_policy = "forbid"
payload.argv = ["echo", "upload"]
"""


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    yield scene
    await scene.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(FILE)
    return path


async def state(scene: Scene) -> list[Any]:
    return [
        await scene.value(f"SELECT json_agg(t ORDER BY id) FROM supervisor.{table} t")
        for table in ("job_definition", "audit")
    ]


async def apply(cli: Cli, file: Path, *more: str) -> Any:
    return (await cli("job", "apply", "-f", str(file), "--json", *more)).json()


async def test_a_file_is_applied_once(cli: Cli, scene: Scene, file: Path) -> None:
    first = await apply(cli, file, "--yes")
    assert (first["added"], first["changed"], first["applied"]) == (["nightly", "on-upload"], {}, True)
    shown = (await cli("job", "show", "on-upload", "--json")).json()
    assert (shown["event_type"], shown["concurrency_policy"], shown["concurrency"]) == ("upload", "forbid", 1)
    before = await state(scene)
    again = await apply(cli, file, "--yes")
    assert again == {"added": [], "changed": {}, "removed": [], "unchanged": 2, "applied": False}
    assert await state(scene) == before, "no audit row for what is as it should be"


async def test_defaults_are_those_of_job_add(cli: Cli, scene: Scene, file: Path) -> None:
    file.write_text('[jobs.a]\ndomain = "command"\npayload.argv = ["ls"]')
    await apply(cli, file, "--yes")
    await cli("job", "add", "b", "--domain", "command", "--payload", '{"argv": ["ls"]}')
    a, b = [(await cli("job", "show", name, "--json")).json() for name in "ab"]
    own = {"id", "name", "created_at", "updated_at"}
    assert {name: a[name] for name in a.keys() - own} == {name: b[name] for name in b.keys() - own}


async def test_changes_are_shown_field_by_field(cli: Cli, scene: Scene, file: Path) -> None:
    await apply(cli, file, "--yes")
    await cli("job", "disable", "nightly")
    await cli("job", "set", "nightly", "--max-attempts", "7")
    await cli("job", "add", "by-hand", "--domain", "command", "--payload", '{"argv": ["ls"]}')
    file.write_text(FILE.replace("30 2 * * *", "0 4 * * *"))
    before = await state(scene)
    looked = await apply(cli, file, "--dry-run")
    assert looked["changed"] == {
        "nightly": {"cron": {"from": "30 2 * * *", "to": "0 4 * * *"}, "max_attempts": {"from": 7, "to": 3}}
    }
    people = await cli("job", "apply", "-f", str(file), "--dry-run", "--prune")
    assert people.code == 0
    assert '    cron: "30 2 * * *" -> "0 4 * * *"' in people.out
    assert "- by-hand" in people.out
    assert (await cli("job", "apply", "-f", str(file), "--dry-run", "--exit-code")).code == 1
    assert await state(scene) == before, "a dry run changes nothing"
    await apply(cli, file, "--yes")
    changed = (await cli("job", "show", "nightly", "--json")).json()
    assert (changed["cron"], changed["max_attempts"], changed["enabled"]) == ("0 4 * * *", 3, False)
    assert (await cli("job", "apply", "-f", str(file), "--dry-run", "--exit-code")).code == 0
    assert (await cli("job", "show", "by-hand")).code == 0, "kept without --prune"


async def test_prune_removes_what_is_not_in_the_file(cli: Cli, scene: Scene, file: Path) -> None:
    await cli("job", "add", "by-hand", "--domain", "command", "--payload", '{"argv": ["ls"]}')
    assert (await apply(cli, file, "--yes", "--prune"))["removed"] == ["by-hand"]
    assert {job["name"] for job in (await cli("job", "list", "--json")).json()} == {"nightly", "on-upload"}
    actions = [row["action"] for row in (await cli("audit", "list", "--json")).json()]
    assert actions[:3] == ["job.remove", "job.add", "job.add"]


async def test_all_or_nothing(cli: Cli, scene: Scene, file: Path) -> None:
    """A job that cannot be removed, because it has a run that has not ended, holds up everything."""
    await cli("job", "add", "busy", "--domain", "command", "--payload", '{"argv": ["ls"]}')
    await cli("job", "trigger", "busy")
    before = await state(scene)
    refused = await cli("job", "apply", "-f", str(file), "--yes", "--prune")
    assert refused.code == 4
    assert "busy" in refused.err
    assert await state(scene) == before


@pytest.mark.parametrize(
    "broken",
    [
        "nonsense = 1\n",
        "[jobs.x]\n",
        '[jobs.x]\ndomain = "nonsense"\n',
        '[jobs.x]\ndomain = "command"\npayload = {}\n',
        '[jobs.x]\ndomain = "command"\npayload.argv = ["ls"]\ncron = "x"\n',
        "[jobs.x\n",
        "[jobs.nightly]\n",
    ],
)
async def test_one_fault_changes_nothing(cli: Cli, scene: Scene, file: Path, broken: str) -> None:
    file.write_text(FILE + broken)
    before = await state(scene)
    answer = await cli("job", "apply", "-f", str(file), "--yes")
    assert answer.code == 2, answer
    assert await state(scene) == before


async def test_all_faults_at_once(cli: Cli, scene: Scene, file: Path) -> None:
    file.write_text('[jobs.x]\ndomain = "nonsense"\n[jobs.y]\ncron = "y"\nfoo = "\\u001b[31m"\n')
    answer = await cli("job", "apply", "-f", str(file), "--yes")
    for fault in ("unknown domain 'nonsense'", "unknown key 'foo'", "domain is missing"):
        assert fault in answer.err
    assert "\x1b" not in answer.err


async def test_usage(cli: Cli, scene: Scene, file: Path) -> None:
    before = await state(scene)
    for args in (
        ["-f", "/no/such/file", "--yes"],
        ["-f", str(file.parent), "--yes"],
        [],
        ["-f", str(file), "--yes", "--dry-run"],
        ["-f", str(file), "--exit-code", "--yes"],
        ["-f", str(file)],
        ["-f", str(file), "--json"],
    ):
        answer = await cli("job", "apply", *args)
        assert answer.code == 2, args
    assert await state(scene) == before
    file.write_bytes(b"\xff\xfe")
    assert (await cli("job", "apply", "-f", str(file), "--yes")).code == 2


async def test_what_was_shown_is_what_is_done(cli: Cli, database: Urls, scene: Scene, file: Path) -> None:
    """Somebody changes a job between the look and the change: the function itself refuses."""
    await apply(cli, file, "--yes")
    rows = await scene.connection.fetch(
        "SELECT name, (extract(epoch FROM updated_at) * 1000000)::bigint AS seen"
        " FROM supervisor.job_definition"
    )
    seen = json.dumps({row["name"]: row["seen"] for row in rows})
    await cli("job", "set", "nightly", "--priority", "5")
    before = await state(scene)
    for prune, specs in ((False, '{"nightly": {"priority": 0}}'), (True, "{}")):
        with pytest.raises(asyncpg.PostgresError) as refused:
            await scene.connection.fetch(
                "SELECT * FROM supervisor.apply_jobs('t', $1::jsonb, $2, $3::jsonb)", specs, prune, seen
            )
        assert refused.value.sqlstate == "TN021"
    assert await state(scene) == before


async def test_two_appliers_take_turns(database: Urls, scene: Scene) -> None:
    spec = json.dumps({f"job-{n}": {"domain": "command", "priority": 1} for n in range(20)})

    async def once() -> int:
        connection = await asyncpg.connect(database.control)
        try:
            call = "SELECT * FROM supervisor.apply_jobs('t', $1::jsonb, false)"
            return len(await connection.fetch(call, spec))
        finally:
            await connection.close()

    assert sorted(await asyncio.gather(*(once() for _ in range(4)))) == [0, 0, 0, 20]


async def test_on_a_terminal_it_asks(database: Urls, scene: Scene, file: Path) -> None:
    for answer, code, count in ((b"n\n", 0, 0), (b"y\n", 0, 2)):
        master, slave = pty.openpty()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "supervisor.cli", "job", "apply", "-f", str(file)),
            env={**os.environ, "TENURE_DATABASE_URL": database.control},
            stdin=slave,
            stdout=slave,
            stderr=slave,
        )
        os.close(slave)
        os.write(master, answer)
        assert await asyncio.wait_for(process.wait(), patient(60)) == code
        os.close(master)
        assert await scene.value("SELECT count(*) FROM supervisor.job_definition") == count


async def test_a_thousand_jobs_in_one_file(cli: Cli, scene: Scene, file: Path) -> None:
    job = '[jobs.job-{}]\ndomain = "command"\ncron = "*/5 * * * *"\npayload.argv = ["true"]\n'
    file.write_text("".join(job.format(number) for number in range(1000)))
    assert len((await apply(cli, file, "--yes"))["added"]) == 1000
    assert (await apply(cli, file, "--yes"))["unchanged"] == 1000
