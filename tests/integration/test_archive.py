"""Logs leave the database whole or not at all, and are read wherever they are."""

import asyncio
import gzip
import json
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import anyio
import asyncpg
import pytest

from supervisor.archive import Archive, Line, LogUnreadable, read_log
from supervisor.artifacts import NoSpace, StoreFailed
from supervisor.artifacts.local import LocalArtifacts
from supervisor.embedded import Urls
from supervisor.errors import LostTenure, NotFound
from supervisor.store import Record, Store
from tests.integration.sql.world import Held, World

DAY = 86400


class Crash(BaseException):
    """The process ends here."""


class Bench:
    """A world with an artifact store and runs whose logs are old enough to move."""

    def __init__(self, world: World, store: Store, root: Path) -> None:
        self.world = world
        self.store = store
        self.root = root
        self.artifacts = LocalArtifacts(root)
        self.logs: dict[int, list[tuple[int, str, str]]] = {}

    async def call(self, query: str, *arguments: Any) -> Sequence[Record]:
        return await self.store.rows(query, self.world.epoch, *arguments)

    def archive(self, store: Any = None, artifacts: Any = None, call: Any = None) -> Archive:
        return Archive(store or self.store, call or self.call, artifacts or self.artifacts)

    async def ended(self, lines: Sequence[tuple[str, str]], days: float = 8) -> Held:
        """A run with this log, ended so long ago."""
        claim = await self.world.running()
        await self.append(claim, lines)
        assert await self.world.worker.finish("w1", claim) == ["RECORDED"]
        await self.age(claim.id, days)
        return claim

    async def append(self, claim: Held, lines: Sequence[tuple[str, str]], first: int = 0) -> None:
        seqs = list(range(first, first + len(lines)))
        added = await self.world.worker.value(
            "SELECT supervisor.append_log('w1', $1, $2, $3, $4, $5)",
            claim.id, claim.claim_id, seqs, [line[0] for line in lines], [line[1] for line in lines],
        )  # fmt: skip
        assert added == len(lines)
        self.logs.setdefault(claim.id, []).extend(
            (seq, stream, body) for seq, (stream, body) in zip(seqs, lines, strict=True)
        )

    async def age(self, run: int, days: float) -> None:
        for column in ("started_at", "finished_at"):
            await self.world.shift_run(run, column, days * DAY)
        await self.world.admin.sql(
            "UPDATE supervisor.job_run_log SET at = at - make_interval(secs => $2) WHERE run_id = $1",
            run, days * DAY,
        )  # fmt: skip

    async def read(self, run: int, after: int = -1) -> list[Line]:
        return [line async for line in read_log(self.store, self.artifacts, run, after=after)]

    async def require_whole(self, run: int) -> None:
        found = await self.read(run)
        assert [(line.seq, line.stream, line.body) for line in found] == self.logs[run]

    async def bodies(self, run: int) -> int:
        return int(
            await self.world.admin.value("SELECT count(*) FROM supervisor.job_run_log WHERE run_id = $1", run)
        )

    async def ref(self, run: int) -> str | None:
        return cast("str | None", (await self.world.row(run))["log_ref"])

    async def files(self) -> list[str]:
        return [entry.key async for entry in self.artifacts.entries()]


@pytest.fixture
async def bench(database: Urls, tmp_path: Path) -> AsyncIterator[Bench]:
    world = World(database)
    store = Store(database.control)
    try:
        await world.open()
        await world.lead()
        await world.job()
        yield Bench(world, store, tmp_path / "artifacts")
    finally:
        await store.close()
        await world.close()


LINES = [("stdout", "hello\n"), ("stderr", 'ä\u2028\\"\t\n\x01'), ("tenure", ""), ("log", "x" * 200_000)]


async def test_an_old_log_moves_out_and_stays_readable(bench: Bench) -> None:
    """R003-48, R003-49, R003-50: after log_retention_days_db; every line with its stream, place and time"""
    old = await bench.ended(LINES, days=7.01)
    young = await bench.ended([("stdout", "young")], days=6.99)
    before = await bench.read(old.id)
    assert not await bench.archive().run_once()
    assert await bench.bodies(old.id) == 0
    assert await bench.read(old.id) == before
    await bench.require_whole(old.id)
    assert [line.seq for line in await bench.read(old.id, after=1)] == [2, 3]
    (key,) = await bench.files()
    finished = (await bench.world.row(old.id))["finished_at"]
    assert key.startswith(f"logs/{finished:%Y/%m}/{old.id}-")
    assert await bench.ref(old.id) == await bench.artifacts.uri(key)
    plain = [json.loads(line) for line in gzip.decompress(await bench.artifacts.get(key)).splitlines()]
    assert [(line["seq"], line["stream"], line["body"]) for line in plain] == bench.logs[old.id]
    assert (await bench.bodies(young.id), await bench.ref(young.id)) == (1, None)
    # the rest of the row is as it was, and nothing is in its history
    assert [row["to_state"] for row in await bench.world.history(old.id)][-1] == "SUCCEEDED"


async def test_the_setting_decides(bench: Bench) -> None:
    """R003-48, R003-54"""
    run = (await bench.ended(LINES, days=2)).id
    await bench.archive().run_once()
    assert await bench.bodies(run) == 4
    await bench.world.control.sql("SELECT supervisor.save_setting('anna', 'log_retention_days_db', '1')")
    await bench.archive().run_once()
    assert await bench.bodies(run) == 0


async def test_what_runs_keeps_its_log_here(bench: Bench) -> None:
    claim = await bench.world.running()
    await bench.append(claim, LINES)
    await bench.world.admin.sql("UPDATE supervisor.job_run_log SET at = at - interval '99 days'")
    await bench.archive().run_once()
    assert (await bench.bodies(claim.id), await bench.files()) == (4, [])
    answer = await bench.call(
        "archive_log", claim.id, "local://x@y/z", 4, sum(len(b.encode()) for _, b in LINES)
    )
    assert answer[0]["answer"] == "CHANGED"
    assert await bench.bodies(claim.id) == 4


async def test_the_time_counts_from_the_end_of_the_run(bench: Bench) -> None:
    """R003-48: the first line may be much older than that"""
    run = (await bench.ended(LINES, days=6)).id
    await bench.world.admin.sql("UPDATE supervisor.job_run_log SET at = at - interval '99 days'")
    await bench.archive().run_once()
    assert await bench.bodies(run) == 4
    await bench.age(run, 2)
    await bench.archive().run_once()
    assert await bench.bodies(run) == 0


async def test_runs_without_a_log(bench: Bench) -> None:
    run = (await bench.ended([])).id
    await bench.archive().run_once()
    assert (await bench.ref(run), await bench.read(run), await bench.files()) == (None, [], [])
    with pytest.raises(NotFound):
        await bench.read(12345)


async def test_a_log_larger_than_pages_and_memory(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.archive.MEMORY_BYTES", 1000)
    lines = [("stdout", random.Random(n).randbytes(3000).hex()) for n in range(150)]  # noqa: S311
    run = (await bench.ended(lines)).id
    await bench.archive().run_once()
    assert await bench.bodies(run) == 0
    await bench.require_whole(run)


async def test_more_logs_than_a_batch_and_one_that_cannot_move(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that fails does not hold up those behind it, and is tried again."""
    monkeypatch.setattr("supervisor.archive.BATCH", 2)
    runs = [(await bench.ended([("stdout", str(n))], days=20 - n)).id for n in range(5)]
    broken = {runs[0], runs[1]}

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.artifacts, name)

        async def put(self, key: str, content: Any, **options: Any) -> Any:
            if any(f"/{run}-" in key for run in broken):
                raise NoSpace(key=key, place="here")
            return await bench.artifacts.put(key, content, **options)

    archive = bench.archive(artifacts=Refusing())
    with pytest.raises(NoSpace):
        await archive.run_once()
    assert await archive.run_once()
    assert not await archive.run_once()
    assert [await bench.bodies(run) for run in runs] == [1, 1, 0, 0, 0]
    broken.clear()
    await archive.run_once()
    await archive.run_once()
    assert [await bench.bodies(run) for run in runs] == [0] * 5
    for run in runs:
        await bench.require_whole(run)


async def test_a_repeated_move_changes_nothing(bench: Bench) -> None:
    """R003-51: the second call is told ALREADY; a second move finds nothing to do"""
    claim = await bench.ended(LINES)
    sent: list[tuple[Any, ...]] = []

    async def twice(query: str, *arguments: Any) -> Sequence[Record]:
        sent.append(arguments)
        await bench.call(query, *arguments)
        return await bench.call(query, *arguments)

    finished = (await bench.world.row(claim.id))["finished_at"]
    assert await bench.archive(call=twice).move(claim.id, finished) == "ALREADY"
    assert await bench.archive().move(claim.id, finished) == "EMPTY"
    other = (*sent[0][:1], "local://other@host/x", *sent[0][2:])
    assert (await bench.call("archive_log", *other))[0]["answer"] == "SUPERSEDED"
    assert (await bench.call("archive_log", 999, *sent[0][1:]))[0]["answer"] == "GONE"
    await bench.require_whole(claim.id)
    assert len(await bench.files()) == 1


async def test_lines_that_come_during_the_move_are_not_deleted(bench: Bench) -> None:
    """R003-51: the call deletes exactly what was archived, or nothing"""
    claim = await bench.ended(LINES)

    async def late(query: str, *arguments: Any) -> Sequence[Record]:
        await bench.append(claim, [("stderr", "late")], first=len(LINES))
        return await bench.call(query, *arguments)

    finished = (await bench.world.row(claim.id))["finished_at"]
    assert await bench.archive(call=late).move(claim.id, finished) == "CHANGED"
    assert (await bench.bodies(claim.id), await bench.ref(claim.id)) == (5, None)
    await bench.require_whole(claim.id)
    assert await bench.archive().move(claim.id, finished) == "RECORDED"
    await bench.require_whole(claim.id)


async def test_a_line_that_commits_while_the_call_runs_is_kept(bench: Bench) -> None:
    """R003-51: counted by the deleting statement, so an open insert is neither counted nor deleted"""
    claim = await bench.ended(LINES)
    other = await bench.world.hand("worker")
    await other.begin()
    await other.sql(
        "SELECT supervisor.append_log('w1', $1, $2, '{4}', '{stderr}', '{open}')", claim.id, claim.claim_id
    )
    finished = (await bench.world.row(claim.id))["finished_at"]
    assert await bench.archive().move(claim.id, finished) == "RECORDED"
    await other.commit()
    bench.logs[claim.id].append((4, "stderr", "open"))
    await bench.require_whole(claim.id)


async def test_same_bytes_but_other_lines_are_seen_by_their_number(bench: Bench) -> None:
    claim = await bench.ended([("stdout", "ab"), ("stdout", "cd")])
    for lines, size in ((1, 4), (3, 4), (2, 3), (2, 5)):
        answer = await bench.call("archive_log", claim.id, "local://x@y/z", lines, size)
        assert answer[0]["answer"] == "CHANGED"
    assert (await bench.bodies(claim.id), await bench.ref(claim.id)) == (2, None)


async def test_lines_after_the_move_are_read_with_it(bench: Bench) -> None:
    claim = await bench.ended(LINES)
    await bench.archive().run_once()
    # a worker that was given up repeats its first line and adds one
    await bench.append(claim, [("stderr", "late")], first=len(LINES))
    await bench.world.worker.sql(
        "SELECT supervisor.append_log('w1', $1, $2, '{0}', '{stdout}', '{again}')", claim.id, claim.claim_id
    )
    await bench.require_whole(claim.id)
    await bench.age(claim.id, 8)
    await bench.archive().run_once()
    await bench.require_whole(claim.id)


async def test_a_log_that_moves_while_it_is_read(bench: Bench) -> None:
    """Every line once, whenever the move happens."""
    for when in range(6):
        claim = await bench.ended([("stdout", str(n)) for n in range(70)])
        got: list[int] = []
        async for line in read_log(bench.store, bench.artifacts, claim.id):
            got.append(line.seq)
            if len(got) == (1, 31, 32, 33, 64, 69)[when]:
                await bench.archive().run_once()
        assert got == list(range(70))
        assert await bench.bodies(claim.id) == 0


async def test_a_log_that_cannot_be_opened_is_an_error(bench: Bench, tmp_path: Path) -> None:
    """R003-50: never an empty log"""
    run = (await bench.ended(LINES)).id
    await bench.archive().run_once()
    ref = await bench.ref(run)
    elsewhere = LocalArtifacts(tmp_path / "other", host="other")
    await elsewhere.put("a", b"x")
    with pytest.raises(LogUnreadable, match="ELSEWHERE") as caught:
        [line async for line in read_log(bench.store, elsewhere, run)]
    assert ref is not None
    assert ref in str(caught.value)
    (key,) = await bench.files()
    path = bench.root / key
    whole = path.read_bytes()
    for broken in (
        whole[:-5],
        whole[: len(whole) // 2],
        b"",
        b"not gzip",
        gzip.compress(b"{}\n"),
        gzip.compress(b"["),
    ):
        path.write_bytes(broken)
        with pytest.raises(LogUnreadable):
            await bench.read(run)
    path.unlink()
    with pytest.raises(LogUnreadable, match="NOT_FOUND"):
        await bench.read(run)


async def test_a_store_that_gives_back_something_else_is_not_trusted(bench: Bench) -> None:
    """R003-51: read back and compared before the body goes"""
    run = (await bench.ended(LINES)).id

    class Lying:
        def __init__(self, content: bytes) -> None:
            self.content = content

        def __getattr__(self, name: str) -> Any:
            return getattr(bench.artifacts, name)

        @asynccontextmanager
        async def open(self, _key: str) -> AsyncIterator[AsyncIterator[bytes]]:
            async def pieces() -> AsyncIterator[bytes]:
                yield self.content

            yield pieces()

    first = b'{"seq":0,"stream":"stdout","at":"2020-01-01T00:00:00+00:00","body":"hello"}\n'
    for content in (b"", b"junk", gzip.compress(b""), gzip.compress(first), gzip.compress(first)[:-1]):
        with pytest.raises(StoreFailed):
            await bench.archive(artifacts=Lying(content)).run_once()
        assert (await bench.bodies(run), await bench.ref(run)) == (4, None)


async def test_a_deposed_leader_moves_nothing(bench: Bench) -> None:
    """P4: the call is fenced"""
    run = (await bench.ended(LINES)).id
    epoch = bench.world.epoch

    async def stale(query: str, *arguments: Any) -> Sequence[Record]:
        return await bench.store.rows(query, epoch, *arguments)

    await bench.world.lead("l2")
    with pytest.raises(LostTenure):
        await bench.archive(call=stale).run_once()
    assert (await bench.bodies(run), await bench.ref(run)) == (4, None)
    await bench.archive().run_once()
    await bench.require_whole(run)
    assert len(await bench.files()) == 1


async def test_a_slow_rival_never_spoils_the_archive(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """R16: half of the log read before another leader moved it: another name, and no reference"""
    monkeypatch.setattr("supervisor.archive.PAGE", 1)
    run = (await bench.ended(LINES)).id
    finished = (await bench.world.row(run))["finished_at"]
    pages = 0

    class Slow:
        async def rows(self, query: str, *arguments: Any) -> Sequence[Record]:
            nonlocal pages
            pages += 1
            if pages == 3:
                assert await bench.archive().move(run, finished) == "RECORDED"
            return await bench.store.rows(query, *arguments)

    assert await bench.archive(store=Slow()).move(run, finished) == "SUPERSEDED"
    await bench.require_whole(run)
    assert len(await bench.files()) == 2


class Faulty:
    """Passes calls on, and crashes before or after the n-th of all its kind together."""

    def __init__(self, real: Any, crash: Callable[[], None]) -> None:
        self._real = real
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def rows(self, *arguments: Any, **options: Any) -> Any:
        return await self._step(self._real.rows(*arguments, **options))

    async def put(self, *arguments: Any, **options: Any) -> Any:
        return await self._step(self._real.put(*arguments, **options))

    @asynccontextmanager
    async def open(self, *arguments: Any, **options: Any) -> AsyncIterator[Any]:
        self._crash()
        async with self._real.open(*arguments, **options) as chunks:
            yield chunks
        self._crash()

    async def _step(self, call: Awaitable[Any]) -> Any:
        try:
            self._crash()
        except Crash:
            cast("Any", call).close()
            raise
        answer = await call
        self._crash()
        return answer


async def test_an_archive_killed_at_every_step_loses_no_log(bench: Bench) -> None:
    """R003-51: before and after every call to the database and to the store"""
    runs = [(await bench.ended([*LINES, ("stdout", str(n))])).id for n in range(2)]
    n = 0
    while True:
        n += 1
        steps = 0

        def crash(last: int = n) -> None:
            nonlocal steps
            steps += 1
            if steps == last:
                raise Crash

        store, artifacts = Faulty(bench.store, crash), Faulty(bench.artifacts, crash)

        async def call(query: str, *arguments: Any, through: Faulty = store) -> Any:
            return await through.rows(query, bench.world.epoch, *arguments)

        try:
            await bench.archive(store, artifacts, call).run_once()
        except Crash:
            for run in runs:
                await bench.require_whole(run)
            continue
        if all([await bench.bodies(run) == 0 for run in runs]):
            break
    assert n > 10
    for run in runs:
        await bench.require_whole(run)
    assert len(await bench.files()) == 2


ARCHIVER = """
import sys, asyncio
from pathlib import Path
from supervisor.archive import Archive
from supervisor.artifacts.local import LocalArtifacts
from supervisor.store import Store

async def main():
    url, root, epoch = sys.argv[1:]
    store = Store(url)
    async def call(query, *arguments):
        print(query, flush=True)
        sys.stdin.read(1)
        return await store.rows(query, int(epoch), *arguments)
    archive = Archive(store, call, LocalArtifacts(Path(root)))
    while await archive.run_once():
        pass
    print("done", flush=True)
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
async def test_an_archive_killed_by_the_system_loses_no_log(bench: Bench) -> None:
    """R003-51: SIGKILL at random instants, a few steps further each time, until a process gets through"""
    seed = random.randrange(1 << 30)  # noqa: S311
    chance = random.Random(seed)  # noqa: S311
    runs = [(await bench.ended([*LINES, ("stdout", str(n))])).id for n in range(30)]
    kills = 0
    while any([await bench.bodies(run) for run in runs]):
        arguments = [bench.world.urls.control, str(bench.root), str(bench.world.epoch)]
        with subprocess.Popen(
            [sys.executable, "-c", ARCHIVER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin
            assert process.stdout
            steps, told = chance.randint(1, 8), ""
            while steps and (told := await anyio.to_thread.run_sync(process.stdout.readline)) != "done\n":
                process.stdin.write("\n")
                process.stdin.flush()
                steps -= 1
            await asyncio.sleep(chance.uniform(0, 0.04))
            process.send_signal(signal.SIGKILL)
            kills += told != "done\n"
        for run in runs:
            await bench.require_whole(run)
    assert kills >= 3, f"seed {seed}"
    found = {ref for run in runs if (ref := await bench.ref(run))}
    assert found == {await bench.artifacts.uri(key) for key in await bench.files()}


async def test_candidates_are_found_by_their_index(bench: Bench) -> None:
    """DESIGN 18: flat while logs and runs grow"""
    admin = bench.world.admin
    await bench.world.unguarded(
        "INSERT INTO supervisor.job_run (id, root_id, job_definition_id, domain, payload, state, "
        "max_attempts, finished_at, finished_by) "
        "SELECT n, n, 1, 'command', '{}', 'SUCCEEDED', 1, clock_timestamp(), 'worker' "
        "FROM generate_series(100001, 120000) n"
    )
    await admin.sql(
        "INSERT INTO supervisor.job_run_log (run_id, seq, stream, body) "
        "SELECT n, s, 'stdout', 'x' FROM generate_series(100001, 120000) n, generate_series(0, 2) s"
    )
    old = (await bench.ended(LINES)).id
    await admin.sql("ANALYZE supervisor.job_run_log, supervisor.job_run")
    counters = (
        "SELECT sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)) FROM pg_stat_user_tables "
        "WHERE relname IN ('job_run', 'job_run_log')"
    )
    hand = await bench.world.hand("admin")
    for one in (hand, bench.world.worker, bench.world.control, admin):
        await one.sql("SELECT pg_stat_force_next_flush()")
    before = await admin.value(counters)
    rows = await hand.sql(
        "SELECT * FROM supervisor.read_unarchived('-infinity', 0, 50)",
    )
    await hand.sql("SELECT pg_stat_force_next_flush()")
    after = await admin.value(counters)
    assert [row["run_id"] for row in rows] == [old]
    assert after - before < 20


@pytest.mark.parametrize("role", ["worker", "maintenance", "console", "client"])
async def test_only_the_leader_moves_logs(bench: Bench, role: str) -> None:
    run = (await bench.ended(LINES)).id
    hand = await bench.world.hand(role)
    for statement in (
        f"SELECT supervisor.archive_log({bench.world.epoch}, {run}, 'x', 4, 1)",
        "SELECT * FROM supervisor.read_unarchived('-infinity', 0, 1)",
        "SELECT FROM supervisor.discarded_artifact",
    ):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await hand.sql(statement)


async def test_the_reference_is_written_once(bench: Bench) -> None:
    """R003-49: a terminal row takes it once, from NULL"""
    run = (await bench.ended(LINES)).id
    await bench.archive().run_once()
    with pytest.raises(asyncpg.PostgresError) as caught:
        await bench.world.admin.sql("UPDATE supervisor.job_run SET log_ref = 'other' WHERE id = $1", run)
    assert caught.value.sqlstate == "TN010"
