"""Random stories over two workers and two leaders on a real database; promises are checked after each step.

Time does not pass in these stories, it is moved: a worker falls silent by hand, a deadline is pushed into the
past.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import asyncpg
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from supervisor.jobrun import MOVES, TERMINAL
from tests.integration.sql.world import STOP_BOUND, Held, World
from tests.support.databases import fresh_database
from tests.support.server import Server

WORKERS = ("w1", "w2")
STEPS = (
    "enqueue", "assign", "start", "give out", "give out", "beat", "beat partly", "finish", "finish stale",
    "cancel",
    "request cancel", "end", "end", "again", "again", "silence", "confirm", "confirm self", "expire",
    "next attempts",
    "request retry", "release", "orphan", "take over", "old leader", "drain",
)  # fmt: skip
Story = list[tuple[str, int]]


@dataclass
class Memory:
    """What the two leaders, the workers and the checker remember."""

    epochs: list[int] = field(default_factory=list)
    claims: dict[str, list[Held]] = field(default_factory=lambda: {worker: [] for worker in WORKERS})
    past: list[tuple[str, Held]] = field(default_factory=list)
    ended: dict[int, asyncpg.Record] = field(default_factory=dict)
    silent: dict[str, int] = field(default_factory=dict)


class Player:
    """Plays one story. `pick` chooses among what there is; a step that finds nothing to do does nothing."""

    def __init__(self, world: World) -> None:
        self.world, self.memory = world, Memory()

    async def play(self, story: Story) -> None:
        self.memory.epochs.append(await self.world.lead("l1"))
        for worker in WORKERS:
            await self.world.worker.beat(worker)
        for step, pick in story:
            await getattr(self, step.replace(" ", "_"))(pick)
            await self.check()

    async def runs(self, *states: str) -> list[int]:
        rows = await self.world.admin.sql(
            "SELECT id FROM supervisor.job_run WHERE state = ANY ($1) ORDER BY id", states
        )
        return [row["id"] for row in rows]

    async def one(self, pick: int, *states: str) -> list[int]:
        found = await self.runs(*states)
        return [found[pick % len(found)]] if found else []

    async def enqueue(self, pick: int) -> None:
        await self.world.control.enqueue(key=f"k{pick % 3}")

    async def assign(self, pick: int) -> None:
        for run in await self.one(pick, "PENDING", "ORPHANED"):
            await self.world.control.assign(run, WORKERS[pick % 2], silent=self.memory.silent)

    async def start(self, pick: int) -> None:
        worker = WORKERS[pick % 2]
        for held in await self.world.worker.assigned(worker):
            answer = await self.world.worker.start(worker, held)
            if answer == ["RECORDED"]:
                self.memory.claims[worker].append(await self.world.held(held.id))

    async def give_out(self, pick: int) -> None:
        """What is queued goes to a worker, and is started."""
        await self.assign(pick)
        await self.start(pick)

    async def end(self, pick: int) -> None:
        """The leader ends an attempt while its worker may be executing it."""
        for run in await self.one(pick, "RUNNING"):
            if pick % 2:
                await self.world.control.request_cancel(run)
                await self.world.shift_run(run, "cancel_requested_at", STOP_BOUND + 1)
                await self.world.control.cancel(run)
            else:
                await self.confirm_self(0)
                await self.confirm_self(1)
                await self.expire(pick)

    async def again(self, pick: int) -> None:
        """Whatever is owed or can be asked for is queued again."""
        await self.request_retry(pick)
        await self.next_attempts(pick)
        await self.world.unguarded(
            "UPDATE supervisor.job_run SET not_before = '-infinity' WHERE state = 'PENDING'"
        )

    async def beat(self, pick: int) -> None:
        await self.beat_with(WORKERS[pick % 2], self.memory.claims[WORKERS[pick % 2]])

    async def beat_partly(self, pick: int) -> None:
        """The worker has given up one of its claims and names the others."""
        worker = WORKERS[pick % 2]
        held = self.memory.claims[worker]
        if held:
            self.memory.past.append((worker, held.pop(pick % len(held))))
        await self.beat_with(worker, held)

    async def beat_with(self, worker: str, held: list[Held]) -> None:
        self.memory.silent.pop(worker, None)
        await self.world.worker.beat(worker, *held)

    async def finish(self, pick: int) -> None:
        worker = WORKERS[pick % 2]
        held = self.memory.claims[worker]
        if held:
            claim = held.pop(pick % len(held))
            state, error = (("SUCCEEDED", None), ("FAILED", "X"), ("FAILED", "DRAINED"), ("CANCELED", None))[
                pick % 4
            ]
            await self.world.worker.finish(worker, claim, state=state, error=error)
            self.memory.past.append((worker, claim))

    async def finish_stale(self, pick: int) -> None:
        if self.memory.past:
            worker, claim = self.memory.past[pick % len(self.memory.past)]
            if claim not in self.memory.claims[worker]:
                await self.world.worker.finish(worker, claim, state=("SUCCEEDED", "FAILED")[pick % 2])

    async def request_cancel(self, pick: int) -> None:
        for run in await self.one(pick, "PENDING", "ASSIGNED", "RUNNING", "ORPHANED"):
            await self.world.control.request_cancel(run)
            if pick % 2:
                await self.world.shift_run(run, "cancel_requested_at", STOP_BOUND + 1)

    async def cancel(self, pick: int) -> None:
        for run in await self.one(pick, "PENDING", "ASSIGNED", "RUNNING", "ORPHANED"):
            await self.world.control.cancel(run)

    async def silence(self, pick: int) -> None:
        """A worker is silent for D by both keys: by rule 7 and 11 it executes nothing any more."""
        worker = WORKERS[pick % 2]
        await self.world.silence(worker, STOP_BOUND + 1)
        self.memory.silent[worker] = await self.world.seq(worker)
        self.memory.past += [(worker, claim) for claim in self.memory.claims[worker]]
        self.memory.claims[worker] = []

    async def confirm(self, _: int) -> None:
        await self.world.control.confirm(self.memory.silent)

    async def confirm_self(self, pick: int) -> None:
        await self.world.worker.confirm_self(WORKERS[pick % 2], *self.memory.claims[WORKERS[pick % 2]])

    async def expire(self, pick: int) -> None:
        for run in await self.one(pick, "RUNNING"):
            await self.world.unguarded(
                "UPDATE supervisor.job_run SET continuation_check_deadline_at = clock_timestamp() "
                f"WHERE id = {run} AND continuation_state = 'CONFIRMING'"
            )
            await self.world.control.expire(run, seqs=[None])

    async def next_attempts(self, _: int) -> None:
        await self.world.control.next_attempts()

    async def request_retry(self, pick: int) -> None:
        for run in await self.one(pick, "FAILED", "TIMED_OUT", "CANCELED"):
            if (await self.world.row(run))["next_attempt_id"] is None:
                await self.world.control.request_retry(run)

    async def release(self, pick: int) -> None:
        worker = WORKERS[pick % 2]
        given = await self.world.worker.assigned(worker)
        self.memory.past += [(worker, replace(claim, epoch=self.world.epoch)) for claim in given]
        await self.world.worker.release(worker, *given)

    async def drain(self, pick: int) -> None:
        """The worker says that it drains, and is another one afterwards: states never go back in the
        product.
        """
        worker = WORKERS[pick % 2]
        self.memory.silent.pop(worker, None)
        await self.world.worker.beat(worker, *self.memory.claims[worker], draining=True)
        assert await self.world.worker.assigned(worker) == []
        await self.world.admin.sql(
            "UPDATE supervisor.worker SET state = 'active' WHERE worker_id = $1", worker
        )

    async def orphan(self, pick: int) -> None:
        for run in await self.one(pick, "ASSIGNED"):
            await self.world.shift_run(run, "assigned_at", 100)
            await self.world.control.orphan(run, silent=self.memory.silent)

    async def take_over(self, pick: int) -> None:
        self.memory.epochs.append(await self.world.lead(("l1", "l2")[pick % 2]))

    async def old_leader(self, _: int) -> None:
        """A deposed leader tries; the database says no, every time."""
        for epoch in self.memory.epochs[:-1]:
            for call in (
                self.world.control.next_attempts(epoch),
                self.world.control.assign([], [], versions=[0], epoch=epoch),
            ):
                with pytest.raises(asyncpg.PostgresError) as caught:
                    await call
                assert caught.value.sqlstate == "TN001"

    # what must hold

    async def check(self) -> None:
        rows = await self.world.admin.sql("SELECT * FROM supervisor.job_run ORDER BY root_id, id")
        history = await self.world.admin.sql(
            "SELECT * FROM supervisor.job_run_history ORDER BY run_id, version"
        )
        self.check_rows(rows)
        self.check_history(rows, history)
        self.check_executions(rows)
        assert self.memory.epochs == sorted(set(self.memory.epochs))

    def check_rows(self, rows: list[asyncpg.Record]) -> None:
        for root in {row["root_id"] for row in rows}:
            family = [row for row in rows if row["root_id"] == root]
            assert sum(row["state"] not in TERMINAL for row in family) <= 1
            assert sum(row["state"] == "SUCCEEDED" for row in family) <= 1
            assert all(row["starts"] <= row["max_attempts"] for row in family)
        for row in rows:
            if row["state"] in TERMINAL:
                first = self.memory.ended.setdefault(row["id"], row)
                late = {"executor_stopped_at", "next_attempt_id", "log_ref"}
                assert all(row[name] == first[name] for name in set(row.keys()) - late)
                assert all(first[name] in {None, row[name]} for name in late)
                self.memory.ended[row["id"]] = row

    def check_history(self, rows: list[asyncpg.Record], history: list[asyncpg.Record]) -> None:
        by_run: dict[int, list[asyncpg.Record]] = {}
        for entry in history:
            by_run.setdefault(entry["run_id"], []).append(entry)
        attempts: dict[int, set[int]] = {}
        for row in rows:
            path = by_run[row["id"]]
            assert [entry["version"] for entry in path] == list(range(1, row["version"] + 1))
            assert (path[-1]["to_state"], path[-1]["attempt"]) == (row["state"], row["attempt"])
            moves = {(entry["from_state"], entry["to_state"]) for entry in path[1:]}
            assert moves <= set(MOVES) | {("RUNNING", "RUNNING")}
            attempts.setdefault(row["root_id"], set()).update(entry["attempt"] for entry in path)
        assert all(numbers == set(range(1, len(numbers) + 1)) for numbers in attempts.values())

    def check_executions(self, rows: list[asyncpg.Record]) -> None:
        """A worker names a claim until its finish is answered; so long, nobody else is given that root."""
        root_of = {row["id"]: row["root_id"] for row in rows}
        executing = [root_of[claim.id] for held in self.memory.claims.values() for claim in held]
        assert len(executing) == len(set(executing))
        live = {row["root_id"]: row for row in rows if row["state"] in {"ASSIGNED", "RUNNING"}}
        by_id = {row["id"]: row for row in rows}
        for held in self.memory.claims.values():
            for claim in held:
                other = live.get(root_of[claim.id])
                assert other is None or other["claim_id"] == claim.claim_id
                assert by_id[claim.id]["finished_by"] != "worker"
        assert all(row["executor_stopped_at"] for row in rows if row["finished_by"] == "worker")


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Hypothesis calls a plain function many times; the connections live in one loop."""
    made = asyncio.new_event_loop()
    yield made
    made.close()


async def clear(world: World) -> None:
    await world.admin.connection.execute("SET session_replication_role = replica")
    await world.admin.connection.execute(
        "DELETE FROM supervisor.job_run; DELETE FROM supervisor.job_run_history; DELETE FROM "
        "supervisor.worker; "
        "DELETE FROM supervisor.late_finish; DELETE FROM supervisor.retry_request"
    )
    await world.admin.connection.execute("SET session_replication_role = origin")
    world.beats.clear()


@pytest.fixture(scope="module")
def stage(loop: asyncio.AbstractEventLoop, server: Server) -> Iterator[World]:
    """One database for all stories, emptied between them."""
    manager = fresh_database(server)

    async def build() -> World:
        world = World(await manager.__aenter__())
        await world.open()
        await world.job()
        return world

    async def leave(world: World) -> None:
        await world.close()
        await manager.__aexit__(None, None, None)

    world = loop.run_until_complete(build())
    yield world
    loop.run_until_complete(leave(world))


AROUND_AN_ATTEMPT_THAT_NEVER_STARTED: Story = [
    ("enqueue", 0), ("give out", 0), ("end", 1), ("again", 0), ("request cancel", 0), ("cancel", 0),
    ("again", 1),
    ("give out", 1), ("beat", 0), ("finish", 0), ("give out", 1),
]  # fmt: skip
WITH_THE_CLAIM_OF_AN_EARLIER_ASSIGNMENT: Story = [
    ("enqueue", 0), ("assign", 0), ("release", 0), ("assign", 0), ("start", 0), ("finish stale", 0),
]  # fmt: skip


@settings(
    max_examples=150,
    deadline=None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@example(story=AROUND_AN_ATTEMPT_THAT_NEVER_STARTED)
@example(story=WITH_THE_CLAIM_OF_AN_EARLIER_ASSIGNMENT)
@given(story=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 11)), min_size=10, max_size=40))
def test_whatever_happens_the_promises_hold(
    loop: asyncio.AbstractEventLoop, stage: World, story: Story
) -> None:
    """P1, P2, P3, P4, P5: one live row a root, versions without a gap, one success, ended rows as they ended,
    contiguous attempts, no second executor, and no deposed leader's write.
    """
    loop.run_until_complete(clear(stage))
    loop.run_until_complete(Player(stage).play(story))
