"""Replicas on one database, for tests that hurt them: each a process, each behind a proxy of its own.

    async with replicas(database, tmp_path, count=3) as fleet:
        await fleet.define("nap", fleet.effects.command(2))
        run = await fleet.trigger("nap")
        await fleet.until(lambda: fleet.ended(run), within=10, what="the nap")

Every wait has a bound, and a wait that fails prints what the runs went through and what the replicas said. On
a crowded machine the timings of a fleet, its commands and the bounds of its waits are longer by
`fleet.stretch`; a test multiplies the times that it asserts by it.
"""

import asyncio
import json
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import asyncpg

from supervisor.embedded import Urls
from tests.support.effects import Effects
from tests.support.eventually import eventually
from tests.support.invariants import violations
from tests.support.proxy import Proxy
from tests.support.replica import SECONDS, Replica, replica, timings
from tests.support.sessions import value
from tests.support.slowness import stretch

L, R, _RETRY, H, C, S, K, D = map(float, SECONDS.values())
REASSIGN_AFTER: Final = 3.0
TAKE_OVER: Final = L + 4
ENDED: Final = ("SUCCEEDED", "FAILED", "TIMED_OUT", "CANCELED")

Row = Mapping[str, Any]
Connection = asyncpg.Connection


@dataclass
class Member:
    """One replica and the way it reaches the database."""

    replica: Replica
    worker_id: str
    proxy: Proxy | None

    @property
    def pid(self) -> int:
        return self.replica.pid

    @property
    def alive(self) -> bool:
        return self.replica.returncode is None

    async def kill(self) -> None:
        await self.replica.kill()

    def stop(self) -> None:
        self.replica.freeze()

    def cont(self) -> None:
        self.replica.thaw()

    def term(self) -> None:
        self.replica.signal(signal.SIGTERM)

    def cut(self) -> None:
        self._way().cut()

    def cut_replies(self) -> None:
        self._way().cut_replies()

    async def heal(self) -> None:
        await self._way().heal()

    def _way(self) -> Proxy:
        assert self.proxy is not None, "this replica has no proxy"
        return self.proxy

    async def metric(self, name: str) -> float:
        text = (await self.replica.get("/metrics")).text
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
        assert found, f"no metric {name}"
        return float(found[1])

    def said(self) -> list[dict[str, Any]]:
        """Its log lines, parsed; what is not JSON (a traceback) is left out."""
        lines = []
        for line in self.replica.output().splitlines():
            with suppress(json.JSONDecodeError):
                lines.append(json.loads(line))
        return lines


@dataclass
class Fleet:
    urls: Urls
    directory: Path
    effects: Effects
    through_proxy: bool
    env: Mapping[str, str]
    stack: AsyncExitStack
    stretch: float = 1.0
    members: list[Member] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    _connection: "Connection | None" = None

    # the database, read past every proxy

    async def rows(self, sql: str, *args: object) -> list[Row]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self.urls.admin)
        return [dict(row) for row in await self._connection.fetch(sql, *args)]

    async def value(self, sql: str, *args: object) -> Any:
        rows = await self.rows(sql, *args)
        return next(iter(rows[0].values())) if rows else None

    async def define(self, name: str, payload: Mapping[str, Any], **spec: object) -> None:
        spec = {"domain": "command", "payload": payload, "backoff_seconds": 0.1, **spec}
        await self.rows(
            "SELECT FROM supervisor.save_job('test', $1, $2::jsonb, true)", name, json.dumps(spec)
        )

    async def trigger(self, name: str, count: int = 1) -> list[int]:
        """So many runs, in one statement."""
        rows = await self.rows(
            """SELECT e.id FROM generate_series(1, $2::integer) n
               CROSS JOIN LATERAL supervisor.enqueue(
                   $1, '{}', format('%s-%s-%s', $1::text, txid_current(), n)) e""",
            name,
            count,
        )
        return [row["id"] for row in rows]

    async def trigger_on(self, member: Member, name: str, count: int, within: float = 8) -> list[int]:
        """So many runs, all executing, and as many again until the member has some: a leader counts its
        workers once a second at least, and may not have counted one that has just come.
        """
        runs: list[int] = []

        async def given() -> list[int]:
            runs.extend(await self.trigger(name, count))
            await self.until(lambda: self.running(runs), within=within, what="all running")
            return await self.on(member, runs)

        await self.until(given, within=within, what=f"{name} on {member.worker_id}", interval=0.2)
        return runs

    async def run(self, run_id: int) -> Row:
        return (await self.rows("SELECT * FROM supervisor.job_run WHERE id = $1", run_id))[0]

    async def root(self, run_id: int) -> list[Row]:
        """All rows of the piece of work that began as `run_id`."""
        return await self.rows("SELECT * FROM supervisor.job_run WHERE root_id = $1 ORDER BY attempt", run_id)

    async def history(self, root_id: int) -> list[Row]:
        return await self.rows(
            "SELECT * FROM supervisor.job_run_history WHERE root_id = $1 ORDER BY at, run_id, version",
            root_id,
        )

    async def last(self, runs: Sequence[int]) -> list[Row]:
        """The newest row of each root."""
        return await self.rows(
            """SELECT DISTINCT ON (root_id) * FROM supervisor.job_run
               WHERE root_id = ANY ($1::bigint[]) ORDER BY root_id, attempt DESC""",
            runs,
        )

    async def on(self, member: Member, runs: Sequence[int], state: str = "RUNNING") -> list[int]:
        """Which of these rows the member has."""
        rows = await self.rows(
            """SELECT id FROM supervisor.job_run
               WHERE id = ANY ($1::bigint[]) AND assigned_worker_id = $2 AND state = $3 ORDER BY id""",
            runs,
            member.worker_id,
            state,
        )
        return [row["id"] for row in rows]

    async def states(self, runs: Sequence[int]) -> dict[str, int]:
        """How many roots stand where."""
        rows = await self.rows(
            """SELECT state::text, count(*) FROM (
                   SELECT DISTINCT ON (root_id) state FROM supervisor.job_run
                   WHERE root_id = ANY ($1::bigint[]) ORDER BY root_id, attempt DESC) newest
               GROUP BY state""",
            runs,
        )
        return {row["state"]: row["count"] for row in rows}

    async def succeeded(self, runs: Sequence[int]) -> bool:
        return await self.states(runs) == {"SUCCEEDED": len(runs)}

    async def assigned(self, runs: Sequence[int]) -> bool:
        """Every one was given to a replica at least once."""
        return "PENDING" not in await self.states(runs)

    async def running(self, runs: Sequence[int]) -> bool:
        """Every one, by the database and by its effects."""
        begun = {one.run_id for one in self.effects.executions().values()}
        return await self.states(runs) == {"RUNNING": len(runs)} and begun >= set(runs)

    async def overlaps(self) -> list[str]:
        rows = await self.rows("SELECT id, root_id FROM supervisor.job_run")
        return self.effects.overlaps({row["id"]: row["root_id"] for row in rows})

    async def faultless(self) -> None:
        """What every test asserts at its end: no execution overlapped another, and no rule was broken."""
        broken = [*await self.overlaps(), *await self.violations()]
        assert not broken, "\n".join([*broken, await self.report()])

    async def violations(self) -> list[str]:
        return await violations(self.rows)

    # the leader

    async def epochs(self) -> list[Row]:
        return await self.rows("SELECT * FROM supervisor.tenure_log WHERE what = 'ACQUIRED' ORDER BY epoch")

    async def epoch(self) -> int:
        return int(await self.value("SELECT epoch FROM supervisor.leader_epoch"))

    async def holder(self) -> Member | None:
        name = await self.value(
            "SELECT holder FROM supervisor.leader_lease WHERE expires_at > clock_timestamp()"
        )
        return next((one for one in self.members if one.worker_id == name), None)

    async def leader(self, within: float = TAKE_OVER) -> Member:
        leader: Member = await self.until(self.holder, within=within, what="a leader")
        return leader

    async def led_after(self, epoch: int, within: float) -> int:
        """The epoch of whoever leads after `epoch`."""

        async def later() -> int | None:
            now = await self.epoch()
            return now if now > epoch else None

        reached: int = await self.until(later, within=within, what=f"an epoch after {epoch}")
        return reached

    # members

    async def start(
        self, count: int = 1, *, variant: str | None = "plain", env: Mapping[str, str | None] = {}
    ) -> list[Member]:
        """Without a variant each is the command itself, in an environment of its own."""
        started = await asyncio.gather(*(self._start(variant, env) for _ in range(count)))
        self.members += started
        return list(started)

    async def _start(self, variant: str | None, env: Mapping[str, str | None]) -> Member:
        urls, proxy = self.urls, None
        if self.through_proxy:
            proxy = await self.stack.enter_async_context(Proxy(urls.control))
            urls = replace(urls, control=proxy.through(urls.control), worker=proxy.through(urls.worker))
        process = await self.stack.enter_async_context(
            replica(
                urls,
                self.directory,
                env={**timings(self.stretch), **self.env, **env},
                variant=variant,
            )
        )
        worker_id = await eventually(process.worker_id, timeout=30, what="who the replica is")
        assert worker_id
        member = Member(process, worker_id, proxy)
        await eventually(lambda: self._known(member), timeout=10, what="the first beat")
        return member

    async def _known(self, member: Member) -> bool:
        # a connection of its own: members start side by side
        found = "SELECT count(*) FROM supervisor.worker WHERE worker_id = $1"
        return bool(await value(self.urls.admin, found, member.worker_id))

    def others(self, *not_these: Member) -> list[Member]:
        return [one for one in self.members if one not in not_these and one.alive]

    # waiting

    async def until(
        self, condition: Callable[[], Awaitable[Any]], *, within: float, what: str, interval: float = 0.05
    ) -> Any:
        try:
            return await eventually(condition, timeout=within * self.stretch, what=what, interval=interval)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{await self.report()}") from None

    async def report(self, runs: Iterable[int] = ()) -> str:
        """What happened, for whoever has to find out why."""
        rows = await self.rows(
            """SELECT * FROM supervisor.job_run_history h
               WHERE root_id = ANY ($1::bigint[]) OR (cardinality($1::bigint[]) = 0 AND root_id IN (
                   SELECT root_id FROM supervisor.job_run WHERE state <> 'SUCCEEDED' OR attempt > 1))
               ORDER BY root_id, at, version LIMIT 80""",
            list(runs),
        )
        names = {one.worker_id: f"r{number}" for number, one in enumerate(self.members)}
        text = [
            f"{row['at']:%H:%M:%S.%f} root {row['root_id']} run {row['run_id']} v{row['version']} "
            f"{row['from_state']} -> {row['to_state']} {row['continuation_state']} attempt {row['attempt']} "
            f"{names.get(row['worker_id'], row['worker_id'])} epoch {row['leader_epoch']} "
            f"{row['actor']}: {row['reason']}"
            for row in rows
        ]
        text += [
            f"{row['at']:%H:%M:%S.%f} epoch {row['epoch']} {row['holder']}" for row in await self.epochs()
        ]
        for one in self.members:
            tail = one.replica.output().splitlines()[-25:]
            text += [f"--- {names[one.worker_id]} = {one.worker_id}, exit {one.replica.returncode}", *tail]
        return "\n".join(text)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


@asynccontextmanager
async def replicas(
    urls: Urls,
    directory: Path,
    *,
    count: int = 3,
    through_proxy: bool = False,
    checked: bool = True,
    drain_seconds: float | None = None,
    **env: str,
) -> AsyncIterator[Fleet]:
    """A fleet of `count` plain replicas; more, and other kinds, by `fleet.start`. Checked when it is left."""
    factor = stretch()
    if drain_seconds is not None:
        env["TENURE_DRAIN_SECONDS"] = str(drain_seconds * factor)
    async with AsyncExitStack() as stack:
        effects = Effects(directory / "effects", factor)
        fleet = Fleet(urls, directory, effects, through_proxy, env, stack, factor)
        stack.push_async_callback(fleet.close)
        await fleet.rows(
            "SELECT supervisor.save_setting('test', 'reassign_after_seconds', $1::jsonb)",
            str(REASSIGN_AFTER * factor),
        )
        if count:
            await fleet.start(count)
            await fleet.leader()
        yield fleet
        if checked:
            await fleet.faultless()
