"""A small world for stories about runs: one database, a hand per connection, and time that is moved.

A `Hand` is one connection of one role; every protocol function is a method of it under its own name. A test
that needs a race opens a second hand, begins a transaction on the first,
and asks `world.waiting(hand, call)`:
it returns when the database itself says that the second one waits for a lock.
"""

import asyncio
import json
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import asyncpg

from supervisor.embedded import Urls
from tests.support.eventually import eventually
from tests.support.scene import secret_of
from tests.support.sessions import borrow, give_back

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

T = TypeVar("T")

# time is moved by hand, so nothing waits for these; no test may take as long
LEASE, STOP_BOUND, CONFIRM_AFTER, HEARTBEAT = 36.0, 42.0, 9.0, 3.0
LONG = {"lock_timeout": "5min", "statement_timeout": "5min", "idle_in_transaction_session_timeout": "5min"}


@dataclass(frozen=True)
class Held:
    """What a worker knows of one claim."""

    id: int
    version: int
    claim_id: UUID
    epoch: int = 0
    attempt: int = 1


class Hand:
    """One connection, with the protocol's calls as methods."""

    def __init__(self, world: "World", connection: "Connection") -> None:
        self.world = world
        self.connection = connection
        self.pid = connection.get_server_pid()
        self.turn = asyncio.Lock()

    async def sql(self, statement: str, *arguments: object) -> list[asyncpg.Record]:
        async with self.turn:
            return list(await self.connection.fetch(statement, *arguments))

    async def value(self, statement: str, *arguments: object) -> Any:
        async with self.turn:
            return await self.connection.fetchval(statement, *arguments)

    async def one(self, statement: str, *arguments: object) -> asyncpg.Record:
        [row] = await self.sql(statement, *arguments)
        return row

    async def begin(self) -> None:
        await self.connection.execute("BEGIN")

    async def commit(self) -> None:
        await self.connection.execute("COMMIT")

    async def rollback(self) -> None:
        await self.connection.execute("ROLLBACK")

    # the leader

    async def acquire(
        self, leader: str, *, seen: int = 0, system: int | None = None, timeline: int | None = None,
        lease: float = LEASE,
    ) -> asyncpg.Record | None:  # fmt: skip
        return await self.connection.fetchrow(
            "SELECT * FROM supervisor.acquire($1, $2, $3, $4, $5, $6)",
            leader, lease, STOP_BOUND, seen, system, timeline,
        )  # fmt: skip

    async def renew(self, leader: str, epoch: int) -> asyncpg.Record | None:
        return await self.connection.fetchrow(
            "SELECT * FROM supervisor.renew($1, $2, $3)", epoch, leader, LEASE
        )

    async def resign(self, leader: str, epoch: int) -> bool:
        return bool(await self.value("SELECT supervisor.resign($1, $2, 'test')", epoch, leader))

    async def assign(
        self, runs: Sequence[int] | int, workers: Sequence[str] | str, *,
        silent: Mapping[str, int] | None = None,
        versions: Sequence[int] | None = None, epoch: int | None = None,
    ) -> list[int]:  # fmt: skip
        ids = [runs] if isinstance(runs, int) else list(runs)
        names = [workers] * len(ids) if isinstance(workers, str) else list(workers)
        watched = silent or {}
        rows = await self.sql(
            "SELECT * FROM supervisor.assign($1, $2, $3, $4, $5, $6, $7)",
            self.world.epoch if epoch is None else epoch, ids, versions or await self.world.versions(ids),
            names,
            list(watched), list(watched.values()), STOP_BOUND,
        )  # fmt: skip
        return sorted(row["id"] for row in rows)

    async def orphan(self, *runs: int, silent: Mapping[str, int] | None = None) -> list[int]:
        watched = silent or {}
        rows = await self.sql(
            "SELECT * FROM supervisor.orphan($1, $2, $3, $4, $5, $6)",
            self.world.epoch, list(runs), await self.world.versions(runs), list(watched),
            list(watched.values()),
            CONFIRM_AFTER,
        )  # fmt: skip
        return sorted(row["id"] for row in rows)

    async def confirm(self, silent: Mapping[str, int]) -> list[asyncpg.Record]:
        return await self.sql(
            "SELECT * FROM supervisor.confirm($1, $2, $3, $4, $5, $6)",
            self.world.epoch, list(silent), list(silent.values()), CONFIRM_AFTER, STOP_BOUND, HEARTBEAT,
        )  # fmt: skip

    async def expire(
        self, *runs: int, seqs: Sequence[int | None], versions: Sequence[int] | None = None
    ) -> dict[int, str]:
        rows = await self.sql(
            "SELECT * FROM supervisor.expire($1, $2, $3, $4)",
            self.world.epoch, list(runs), versions or await self.world.versions(runs), list(seqs),
        )  # fmt: skip
        return {row["id"]: row["state"] for row in rows}

    async def time_out(self, *runs: int) -> list[int]:
        rows = await self.sql(
            "SELECT * FROM supervisor.time_out($1, $2, $3, $4)",
            self.world.epoch, list(runs), await self.world.versions(runs), STOP_BOUND,
        )  # fmt: skip
        return [row["id"] for row in rows]

    async def cancel(self, *runs: int, versions: Sequence[int] | None = None) -> list[int]:
        rows = await self.sql(
            "SELECT * FROM supervisor.cancel($1, 'leader', $2, $3, $4)",
            self.world.epoch, list(runs), versions or await self.world.versions(runs), STOP_BOUND,
        )  # fmt: skip
        return [row["id"] for row in rows]

    async def exhaust(self, *runs: int) -> list[int]:
        rows = await self.sql(
            "SELECT * FROM supervisor.exhaust($1, 'leader', $2, $3)",
            self.world.epoch, list(runs), await self.world.versions(runs),
        )  # fmt: skip
        return [row["id"] for row in rows]

    async def next_attempts(self, epoch: int | None = None) -> list[int]:
        rows = await self.sql(
            "SELECT * FROM supervisor.next_attempts($1, 100)", self.world.epoch if epoch is None else epoch
        )
        return sorted(row["id"] for row in rows)

    async def read_due(
        self,
        domain: str = "command",
        room: int = 10,
        silent: Mapping[str, int] | None = None,
        after: int | None = None,
    ) -> list[int]:
        watched = silent or {}
        rows = await self.sql(
            "SELECT * FROM supervisor.read_due($1, $2, $3, $4, $5, $6)",
            [domain], [room], list(watched), list(watched.values()), STOP_BOUND, [after],
        )  # fmt: skip
        return [row["id"] for row in rows]

    # the worker

    async def beat(
        self, worker: str, *claims: Held, beat_no: int | None = None, epoch_seen: int = 0,
        draining: bool = False,
        domains: Sequence[str] = ("command",),
    ) -> asyncpg.Record:  # fmt: skip
        number = self.world.next_beat(worker) if beat_no is None else beat_no
        return await self.one(
            "SELECT * FROM supervisor.beat($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            worker, secret_of(worker), number, epoch_seen, [claim.claim_id for claim in claims],
            list(domains), 10, STOP_BOUND, draining,
        )  # fmt: skip

    async def assigned(self, worker: str, after: int = 0) -> list[Held]:
        rows = await self.sql(
            "SELECT * FROM supervisor.assigned($1, $2, $3)", worker, secret_of(worker), after
        )
        return [Held(row["id"], row["version"], row["claim_id"]) for row in rows]

    async def start(self, worker: str, *claims: Held, beat_no: int | None = None) -> list[str]:
        rows = await self.sql(
            "SELECT * FROM supervisor.start($1, $2, $3, $4, $5, $6)",
            worker, secret_of(worker), self.world.beats.get(worker, 0) if beat_no is None else beat_no,
            [c.id for c in claims], [c.version for c in claims], [c.claim_id for c in claims],
        )  # fmt: skip
        by_id = {row["id"]: row["answer"] for row in rows}
        return [by_id[claim.id] for claim in claims]

    async def finish(
        self, worker: str, *claims: Held, state: str = "SUCCEEDED", error: str | None = None,
        delay: float | None = None, epoch: int | None = None,
    ) -> list[str]:  # fmt: skip
        rows = await self.sql(
            "SELECT * FROM supervisor.finish($1, $2, $3, $4, $5, $6::text[]::jsonb[], $7, $8, $9)",
            worker, [c.id for c in claims], [c.claim_id for c in claims],
            [c.epoch if epoch is None else epoch for c in claims], [state] * len(claims),
            [None] * len(claims),
            [error] * len(claims), [error] * len(claims), [delay] * len(claims),
        )  # fmt: skip
        by_id = {row["id"]: row["answer"] for row in rows}
        return [by_id[claim.id] for claim in claims]

    async def confirm_self(self, worker: str, *claims: Held) -> int:
        found = await self.value(
            "SELECT supervisor.confirm_self($1, $2, $3)", worker, [c.claim_id for c in claims], STOP_BOUND
        )
        return int(found)

    async def release(self, worker: str, *claims: Held) -> int:
        return int(
            await self.value(
                "SELECT supervisor.release($1, $2, $3)",
                worker,
                [c.id for c in claims],
                [c.claim_id for c in claims],
            )
        )

    async def leave(self, worker: str) -> int:
        return int(await self.value("SELECT supervisor.leave($1, $2)", worker, secret_of(worker)))

    # people and applications

    async def enqueue(
        self,
        job: str = "work",
        *,
        key: str | None = None,
        payload: Mapping[str, Any] | None = None,
        priority: int = 0,
    ) -> asyncpg.Record:
        return await self.one(
            "SELECT * FROM supervisor.enqueue($1, $2::text::jsonb, $3, NULL, $4)",
            job, json.dumps(dict(payload or {})), key, priority,
        )  # fmt: skip

    async def request_cancel(self, run: int) -> bool:
        row = await self.one("SELECT * FROM supervisor.request_cancel('anna', $1)", run)
        return bool(row["requested"])

    async def request_retry(self, run: int) -> bool:
        row = await self.one("SELECT * FROM supervisor.request_retry('anna', $1)", run)
        return bool(row["requested"])


class World:
    """One database, its hands, and what leaders and workers remember."""

    admin: Hand
    control: Hand
    worker: Hand

    def __init__(self, urls: Urls) -> None:
        self.urls = urls
        self.epoch = 0
        self.beats: dict[str, int] = {}
        self.connections: list[Connection] = []

    async def open(self) -> None:
        self.admin, self.control, self.worker = [
            await self.hand(role) for role in ("admin", "control", "worker")
        ]

    async def close(self) -> None:
        for connection in self.connections:
            await give_back(connection)

    async def hand(self, role: str) -> Hand:
        connection = await borrow(getattr(self.urls, role), **LONG)
        self.connections.append(connection)
        return Hand(self, connection)

    def next_beat(self, worker: str) -> int:
        self.beats[worker] = self.beats.get(worker, 0) + 1
        return self.beats[worker]

    async def waiting(self, hand: Hand, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `call` on `hand` and return when it is seen to wait for a lock."""
        task = asyncio.create_task(call)
        watcher = await self.hand("admin")

        async def seen() -> bool:
            if task.done():
                answer = task.exception() or task.result()
                raise RuntimeError(f"it did not wait, it answered {answer!r}")
            return bool(
                await watcher.value(
                    "SELECT wait_event_type = 'Lock' FROM pg_stat_activity WHERE pid = $1", hand.pid
                )
            )

        await eventually(seen, interval=0.005)
        return task

    # stories

    async def job(self, name: str = "work", **spec: Any) -> None:
        """A job; one of which no more is said takes an argument `a`."""
        takes = {} if spec.keys() & {"domain", "payload"} else {"parameters": {"a": {"type": "any"}}}
        await self.control.sql(
            "SELECT * FROM supervisor.save_job('anna', $1, $2::text::jsonb, true)",
            name, json.dumps({"domain": "command", "backoff_seconds": 0} | takes | spec),
        )  # fmt: skip

    async def lead(self, leader: str = "l1") -> int:
        """This leader takes over; whoever led before is deposed."""
        await self.admin.sql("UPDATE supervisor.leader_lease SET expires_at = '-infinity'")
        row = await self.control.acquire(leader)
        assert row is not None
        self.epoch = row["epoch"]
        return self.epoch

    async def run(self, job: str = "work", **options: Any) -> int:
        return int((await self.control.enqueue(job, **options))["id"])

    async def assigned(self, worker: str = "w1", job: str = "work", run: int | None = None) -> Held:
        """A run that the leader gave to this worker."""
        if not await self.admin.value("SELECT count(*) FROM supervisor.worker WHERE worker_id = $1", worker):
            await self.worker.beat(worker)
        run = await self.run(job) if run is None else run
        assert await self.control.assign(run, worker) == [run]
        return await self.held(run)

    async def running(self, worker: str = "w1", job: str = "work", run: int | None = None) -> Held:
        """A run that this worker executes."""
        claim = await self.assigned(worker, job, run)
        assert await self.worker.start(worker, claim) == ["RECORDED"]
        return await self.held(claim.id)

    async def confirming(self, worker: str = "w1", job: str = "work", *, past: bool = False) -> Held:
        """A run whose worker went silent; past = its deadline is over by the database's clock."""
        claim = await self.running(worker, job)
        await self.silence(worker, CONFIRM_AFTER + 1)
        assert await self.control.confirm({worker: await self.seq(worker)})
        if past:
            await self.silence(worker, STOP_BOUND + 1)
            await self.shift_run(claim.id, "continuation_check_deadline_at", STOP_BOUND + 1)
        return await self.held(claim.id)

    async def lost(self, worker: str = "w1", job: str = "work") -> Held:
        """An attempt that the leader ended because its worker was silent; nobody knows whether it stopped."""
        claim = await self.confirming(worker, job, past=True)
        assert await self.control.expire(claim.id, seqs=[await self.seq(worker)]) == {claim.id: "TIMED_OUT"}
        return claim

    # what the database holds

    async def held(self, run: int) -> Held:
        row = await self.row(run)
        return Held(run, row["version"], row["claim_id"], row["leader_epoch"] or 0, row["attempt"])

    async def row(self, run: int) -> asyncpg.Record:
        return await self.admin.one("SELECT * FROM supervisor.job_run WHERE id = $1", run)

    async def state(self, run: int) -> str:
        return str((await self.row(run))["state"])

    async def versions(self, runs: Sequence[int]) -> list[int]:
        rows = await self.admin.sql(
            "SELECT id, version FROM supervisor.job_run WHERE id = ANY ($1)", list(runs)
        )
        found = {row["id"]: row["version"] for row in rows}
        return [found[run] for run in runs]

    async def seq(self, worker: str) -> int:
        return int(
            await self.admin.value("SELECT beat_seq FROM supervisor.worker WHERE worker_id = $1", worker)
        )

    async def history(self, run: int) -> list[asyncpg.Record]:
        return await self.admin.sql(
            "SELECT * FROM supervisor.job_run_history WHERE run_id = $1 ORDER BY version", run
        )

    async def path(self, run: int) -> list[str]:
        return [row["to_state"] for row in await self.history(run)]

    async def late(self, claim: Held) -> list[asyncpg.Record]:
        return await self.admin.sql(
            "SELECT * FROM supervisor.late_finish WHERE claim_id = $1", claim.claim_id
        )

    # time, moved by hand

    async def silence(self, worker: str, seconds: float) -> None:
        """The last contact of this worker was so long ago."""
        await self.admin.sql(
            "UPDATE supervisor.worker SET heartbeat_at = clock_timestamp() - make_interval(secs => $2) "
            "WHERE worker_id = $1",
            worker, seconds,
        )  # fmt: skip

    async def shift_run(self, run: int, column: str, seconds: float) -> None:
        """Move one instant of a run into the past, past the guards."""
        await self.unguarded(
            f"UPDATE supervisor.job_run SET {column} = {column} - make_interval(secs => {seconds}) WHERE id "
            f"= {run}"
        )

    async def unguarded(self, statement: str) -> None:
        async with self.admin.connection.transaction():
            await self.admin.connection.execute("SET LOCAL session_replication_role = replica")
            await self.admin.connection.execute(statement)

    async def move_server(self, timeline: int, system: int | None = None) -> None:
        """The stored term says another server: to the functions it looks as if this one had been promoted
        since.
        """
        here = await self.admin.value("SELECT system_identifier FROM supervisor.server_identity()")
        await self.unguarded(
            f"UPDATE supervisor.leader_epoch SET timeline = {timeline}, system_identifier = {system or here}"
        )

    # guards taken out

    async def without_guard(self, function: str, old: str, new: str = "") -> None:
        """Re-create one function with a fragment of its source replaced; the fragment must be there."""
        source = await self.admin.value(
            "SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = "
            "'supervisor'::regnamespace "
            "AND p.proname = $1",
            function,
        )
        assert old in source, f"{function} no longer says {old!r}"
        await self.admin.connection.execute(source.replace(old, new))

    async def instant(self, expression: str = "clock_timestamp()") -> datetime:
        found = await self.admin.value(f"SELECT {expression}")
        assert isinstance(found, datetime)
        return found
