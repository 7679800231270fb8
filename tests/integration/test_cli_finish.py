"""What makes the command line pleasant: following, watching, completing, and guessing what was meant."""

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from schemas import Query
from supervisor.archive import Archive
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.cli import completion, names
from supervisor.cli.app import app
from supervisor.cli.follow import follow_log
from supervisor.config import load_settings
from supervisor.embedded import Urls
from supervisor.errors import DatabaseUnreachable, NotFound
from supervisor.store import Record, Store
from tests.support.command_line import Cli, command_line
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.scene import Scene
from tests.support.slowness import patient

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cli(database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return command_line(database, monkeypatch, tmp_path)


@pytest.fixture
async def scene(database: Urls) -> AsyncIterator[Scene]:
    scene = await Scene.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    await scene.job("backup", max_attempts=2)
    yield scene
    await scene.close()


@pytest.fixture
async def proxy(database: Urls) -> AsyncIterator[Proxy]:
    async with Proxy(database.control) as proxy:
        yield proxy


async def write(scene: Scene, run: int, first: int, *bodies: str, stream: str = "stdout") -> None:
    row = await scene._row(run)
    added = await scene.value(
        "SELECT supervisor.append_log($1, $2, $3, $4, $5, $6)",
        row["assigned_worker_id"],
        run,
        row["claim_id"],
        list(range(first, first + len(bodies))),
        [stream] * len(bodies),
        list(bodies),
    )
    assert added == len(bodies)


class Follower:
    """`run logs --follow` in this loop, over a proxy: what it told, and what it said besides."""

    def __init__(self, run: int, url: str) -> None:
        self.lines: list[tuple[int, str]] = []
        self.said: list[str] = []
        self._store = Store(url, size=2)
        self.task = asyncio.create_task(
            follow_log(
                run, lambda of, line: self.lines.append((of, line["body"])), self.said.append, self._store
            )
        )

    async def told(self, *expected: tuple[int, str]) -> None:
        await eventually(lambda: len(self.lines) >= len(expected) or self.task.done())
        assert self.lines == list(expected)

    async def close(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._store.close()


@pytest.fixture
async def follow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Any]:
    monkeypatch.chdir(tmp_path)
    made: list[Follower] = []

    def begin(run: int, url: str) -> Follower:
        made.append(Follower(run, url))
        return made[-1]

    yield begin
    for one in made:
        await one.close()


async def archive(scene: Scene, urls: Urls, run: int) -> None:
    """What the leader does with the log of a run that ended a week ago."""
    await scene.force(
        "UPDATE supervisor.job_run SET finished_at = finished_at - interval '9 days' WHERE id = $1", run
    )
    ended = await scene.value("SELECT finished_at FROM supervisor.job_run WHERE id = $1", run)
    store, artifacts = (
        Store(urls.control),
        open_artifacts(load_artifact_settings(), load_settings().state_dir),
    )

    async def call(query: str, *arguments: Any) -> Sequence[Record]:
        return await store.rows(query, scene.epoch, *arguments)

    try:
        assert await Archive(store, call, artifacts).move(run, ended) == "RECORDED"
    finally:
        await artifacts.aclose()
        await store.close()


async def test_follow_tells_each_line_once_over_outages_attempts_and_the_archive(
    scene: Scene, proxy: Proxy, follow: Any, database: Urls
) -> None:
    first = await scene.run_to("RUNNING", "backup")
    await write(scene, first, 0, "a\n", "b\n")
    follower = follow(first, proxy.url)
    expected = [(first, "a\n"), (first, "b\n")]
    await follower.told(*expected)

    await proxy.close()
    await write(scene, first, 2, "written while nobody could look\n")
    await eventually(lambda: follower.said, what="the outage is told")
    await proxy.heal()
    expected.append((first, "written while nobody could look\n"))
    await follower.told(*expected)
    assert follower.said[-1] == "the database answers again"

    await write(scene, first, 3, "the last words\n")
    await scene.finish(first, "FAILED", "EXIT_1", delay=0)
    expected.append((first, "the last words\n"))
    await follower.told(*expected)
    await archive(scene, database, first)
    await write(scene, first, 4, "after the archive\n")
    expected.append((first, "after the archive\n"))
    await follower.told(*expected)

    [second] = await scene.next_attempts()
    await scene.assign(second)
    await scene.start(second)
    await write(scene, second, 0, "again\n")
    expected.append((second, "again\n"))
    await follower.told(*expected)
    assert not follower.task.done()
    await write(scene, second, 1, "done\n")
    await scene.finish(second, "SUCCEEDED")
    ended = await asyncio.wait_for(follower.task, patient(20))
    assert (ended["id"], ended["state"]) == (second, "SUCCEEDED")
    await follower.told(*expected, (second, "done\n"))


class Overtaken(Store):
    """Something happens right after a reading of the log."""

    then: Callable[[], Awaitable[None]] | None

    async def rows(self, query: str | Query, *args: Any, **more: Any) -> Sequence[Record]:
        found = await super().rows(query, *args, **more)
        if query == "read_log_lines" and not found and self.then is not None:
            then, self.then = self.then, None
            await then()
        return found


async def test_follow_reads_what_came_with_the_end(
    scene: Scene, database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The last words are written, and the run ends, between a look at its log and the next at its state."""
    monkeypatch.chdir(tmp_path)
    run = await scene.run_to("RUNNING", "backup")

    async def end() -> None:
        await write(scene, run, 0, "the last words\n")
        await scene.finish(run)

    store = Overtaken(database.control)
    store.then = end
    told: list[str] = []
    await asyncio.wait_for(
        follow_log(run, lambda _, line: told.append(line["body"]), told.append, store), patient(20)
    )
    assert told == ["the last words\n"]
    await store.close()


async def test_follow_waits_for_a_database_that_answered_once(
    scene: Scene, database: Urls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also when it is lost before the first look at the log has come to its end."""
    monkeypatch.chdir(tmp_path)
    run = await scene.run_to("RUNNING", "backup")

    async def lost() -> None:
        await scene.finish(run)
        raise DatabaseUnreachable(what="gone")

    store = Overtaken(database.control)
    store.then = lost
    said: list[str] = []
    ended = await asyncio.wait_for(follow_log(run, lambda *_: None, said.append, store), patient(20))
    assert ended["state"] == "SUCCEEDED"
    assert [text.partition(":")[0] for text in said] == [
        "the database does not answer",
        "the database answers again",
    ]
    await store.close()


async def test_follow_begins_with_what_was_archived(scene: Scene, follow: Any, database: Urls) -> None:
    run = await scene.run_to("RUNNING", "backup")
    await write(scene, run, 0, "old\n", "older\n")
    await scene.finish(run)
    await archive(scene, database, run)
    follower = follow(run, database.control)
    assert (await asyncio.wait_for(follower.task, patient(20)))["state"] == "SUCCEEDED"
    assert follower.lines == [(run, "old\n"), (run, "older\n")]


async def test_follow_does_not_wait_for_a_database_that_never_was_there(follow: Any, proxy: Proxy) -> None:
    url = proxy.url
    await proxy.close()
    with pytest.raises(DatabaseUnreachable):
        await asyncio.wait_for(follow(1, url).task, patient(20))
    await proxy.heal()
    with pytest.raises(NotFound):
        await asyncio.wait_for(follow(404, url).task, patient(20))


async def test_follow_prints_the_streams_apart_and_lines_of_json(cli: Cli, scene: Scene) -> None:
    run = await scene.run_to("RUNNING", "backup")
    await write(scene, run, 0, "out\n")
    await write(scene, run, 1, "err\n", stream="stderr")
    await scene.finish(run)
    people = await cli("run", "logs", str(run), "--follow")
    assert (people.code, people.out, people.err) == (0, "out\n", "err\n")
    lines = [
        json.loads(line) for line in (await cli("run", "logs", str(run), "-f", "--json")).out.splitlines()
    ]
    assert [(line["run_id"], line["seq"], line["stream"]) for line in lines] == [
        (run, 0, "stdout"),
        (run, 1, "stderr"),
    ]


async def test_errors_guess_what_was_meant(cli: Cli, scene: Scene) -> None:
    for command in (
        ("job", "show", "bakcup"),
        ("job", "trigger", "bakcup"),
        ("run", "list", "--job", "Backups"),
    ):
        answer = await cli(*command, "--json")
        assert answer.code == 5
        assert "did you mean backup? `tenure job list`" in json.loads(answer.err)["hint"]
    assert "did you mean w1?" in (await cli("worker", "drain", "w11")).err
    ended = await scene.run_to("SUCCEEDED", "backup")
    assert f"`tenure run show {ended}`" in (await cli("run", "cancel", str(ended))).err
    assert "did you mean 'status'?" in (await cli("stauts")).err.lower()
    assert "did you mean FAILED?" in (await cli("run", "list", "--state", "failde")).err


async def test_why_says_what_to_do(cli: Cli, scene: Scene) -> None:
    run = await scene.run_to("PENDING", "backup")
    await cli("job", "disable", "backup")
    people = await cli("run", "why", str(run))
    assert "JOB_DISABLED" in people.out
    assert "`tenure job enable backup`" in people.out
    answer = (await cli("run", "why", str(run), "--json")).json()
    assert answer.keys() == {"id", "state", "reason", "sentence", "until", "evidence", "next"}
    assert answer["evidence"]["by"].startswith("cli:")


@asynccontextmanager
async def process(
    *args: str, url: str, stdout: int = asyncio.subprocess.PIPE, env: Mapping[str, str] | None = None
) -> AsyncIterator[Any]:
    """The command line as a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TENURE_")}
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "supervisor.cli", *args),
        cwd=ROOT,
        env={**clean, "TENURE_DATABASE_URL": url, **(env or {})},
        stdout=stdout,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield started
    finally:
        if started.returncode is None:
            started.kill()
        await started.communicate()


async def test_watch_lives_through_an_outage_and_ends_well(scene: Scene, proxy: Proxy) -> None:
    async with process("status", "--watch", "0.2", "--json", url=proxy.url) as watching:

        async def look() -> Any:
            return json.loads(await asyncio.wait_for(watching.stdout.readline(), patient(30)))

        assert (await look())["leader"]["worker_id"] == "w1"
        await proxy.close()
        while "error" not in (gone := await look()):
            pass
        assert "does not answer" in gone["error"] or "not answered" in gone["error"]
        await proxy.heal()
        while "error" in (back := await look()):
            pass
        assert back["leader"]["worker_id"] == "w1"
        watching.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(watching.wait(), patient(20)) == 0
        assert await watching.stderr.read() == b""


async def test_watch_paints_over_the_last_frame_on_a_terminal(scene: Scene, proxy: Proxy) -> None:
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    screen = bytearray()

    def shown(text: bytes) -> bool:
        with suppress(BlockingIOError):
            screen.extend(os.read(ours, 65536))
        return text in screen

    try:
        async with process(
            "status", "--watch", "0.2", url=proxy.url, stdout=theirs, env={"TERM": "xterm"}
        ) as watching:
            await eventually(lambda: shown(b"\x1b[J"), timeout=30, what="a frame")
            assert screen.startswith(b"\x1b[2J\x1b[H")
            assert b"epoch 1" in screen
            await proxy.close()
            await eventually(lambda: shown(b"as it was"), timeout=30, what="the outage is shown")
            assert screen.count(b"\x1b[2J") == 1, "painted over, not cleared"
            watching.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(watching.wait(), patient(20)) == 0
    finally:
        os.close(ours)
        os.close(theirs)


async def test_watch_does_not_wait_for_a_database_that_never_was_there(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TENURE_DATABASE_URL", "postgresql://x@127.0.0.1:1/x")
    answer = await cli("status", "--watch", "--json")
    assert (answer.code, answer.out) == (3, "")
    assert (await cli("status", "5")).code == 2


WORDS = {"_TENURE_COMPLETE": "complete_bash"}


@pytest.fixture
def complete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Awaitable[list[str]]]:
    """What the shell is offered; here with patience, because the machine may be busy."""
    monkeypatch.setattr(names, "LOOKUP_SECONDS", patient(10))
    monkeypatch.setattr(completion, "PATIENCE_SECONDS", patient(20))
    completion.learn_names()

    def offered() -> list[str]:
        out = StringIO()
        with redirect_stdout(out), suppress(SystemExit):
            app([], standalone_mode=False, prog_name="tenure")
        return out.getvalue().split()

    async def ask(line: str) -> list[str]:
        for name, value in _asked(line).items():
            monkeypatch.setenv(name, value)
        return await asyncio.to_thread(offered)

    return ask


def _asked(line: str) -> dict[str, str]:
    return {**WORDS, "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}


async def test_completion_knows_commands_jobs_runs_and_states(complete: Any, scene: Scene) -> None:
    run = await scene.run_to("PENDING", "backup")
    await scene.job("report")
    assert await complete("tenure sta") == ["status"]
    assert await complete("tenure run wh") == ["why"]
    assert await complete("tenure run list --state F") == ["FAILED"]
    assert await complete("tenure run list --job b") == ["backup"]
    assert await complete("tenure job trigger ") == ["backup", "report"]
    assert await complete("tenure run why ") == [str(run)]
    assert await complete(f"tenure run why {run + 1}") == []


async def test_completion_is_silent_without_a_database(
    complete: Any, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("postgresql://x:s3cr3t@127.0.0.1:1/x", "nonsense", "postgresql://x:a@b@c/x"):
        monkeypatch.setenv("TENURE_DATABASE_URL", url)
        assert await complete("tenure job show ") == []
    proxy.cut()
    async with process(url=proxy.url, env=_asked("tenure run why ")) as done:
        out, err = await asyncio.wait_for(done.communicate(), patient(60))
        assert (done.returncode, out.strip(), err) == (0, b"", b""), "a hanging database hangs no shell"


async def test_the_script_completes_in_a_shell(tmp_path: Path, cli: Cli, database: Urls) -> None:
    (tmp_path / "tenure").write_text(
        f'#!/bin/sh\ncd "{ROOT}" && exec "{sys.executable}" -m supervisor.cli "$@"\n'
    )
    (tmp_path / "tenure").chmod(0o755)
    (tmp_path / "script").write_text((await cli("completion", "bash")).out)
    asked = "COMP_WORDS=(tenure run lo); COMP_CWORD=2; _tenure_completion tenure; echo ${COMPREPLY[*]}"
    shell = await asyncio.create_subprocess_exec(
        *("bash", "--norc", "-c", f'source "{tmp_path}/script"; {asked}'),
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(shell.communicate(), patient(30))
    assert out == b"logs\n"
    for other in ("zsh", "fish"):
        assert "_TENURE_COMPLETE" in (await cli("completion", other, "--json")).json()["script"]
    assert (await cli("completion", "cmd")).code == 2
