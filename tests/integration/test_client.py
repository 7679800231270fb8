"""The client for applications, as the role that applications have."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from supervisor.client import Client, StillRunning, emit, enqueue, enqueue_many
from supervisor.embedded import Urls
from supervisor.errors import BadInput, Conflict, NotFound
from tests.integration.sql.world import World
from tests.support.slowness import patient


@pytest.fixture
async def world(database: Urls) -> AsyncIterator[World]:
    made = World(database)
    try:
        await made.open()
        await made.lead()
        await made.job("work", payload={"argv": ["true"]}, parameters={"at": {"type": "text"}})
        yield made
    finally:
        await made.close()


@pytest.fixture
async def tenure(world: World) -> AsyncIterator[Client]:
    async with Client(world.urls.client) as client:
        yield client


async def test_a_key_is_one_run(tenure: Client) -> None:
    first = await tenure.trigger("work", key="k")
    again = await tenure.trigger("work", key="k")
    assert (first.created, again.created) == (True, False)
    assert first.id == again.id
    with pytest.raises(Conflict, match="another job or payload"):
        await tenure.trigger("work", {"at": "/"}, key="k")


async def test_many_in_one_call(world: World, tenure: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.client.MANY_AT_ONCE", 3)
    made = await tenure.trigger_many("work", [{"at": f"/{n}"} for n in range(8)], keys=list("abcdefgh"))
    assert [run.created for run in made] == [True] * 8
    again = await tenure.trigger_many("work", [{"at": f"/{n}"} for n in range(8)], keys=list("abcdefgh"))
    assert [(run.id, run.created) for run in again] == [(run.id, False) for run in made]
    with pytest.raises(BadInput, match="as many keys"):
        await tenure.trigger_many("work", [{}, {}], keys=["k"])
    async with world.admin.connection.transaction():
        inside = await enqueue_many(world.admin.connection, "work", [{}, {}])
    assert len({run.id for run in inside}) == 2


async def test_refusals_are_typed(tenure: Client) -> None:
    with pytest.raises(NotFound):
        await tenure.trigger("nothing")
    with pytest.raises(BadInput, match="reserved"):
        await tenure.trigger("work", key="time:1")
    with pytest.raises(BadInput, match="limit"):
        await tenure.trigger("work", {"at": "/" + "x" * 300_000})
    with pytest.raises(NotFound):
        await tenure.outcome(404)


@pytest.mark.parametrize("commits", [True, False])
async def test_work_appears_exactly_if_the_application_commits(
    world: World, tenure: Client, commits: bool
) -> None:
    await world.admin.sql("CREATE TABLE public.orders (id int)")
    await world.admin.sql("GRANT ALL ON public.orders TO tenure_client")
    connection = await asyncpg.connect(world.urls.client)
    try:
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("INSERT INTO public.orders VALUES (42)")
        run = await enqueue(connection, "work", key="order-42")
        event = await emit(connection, "order.paid", {"order": 42}, dedupe_key="order-42")
        await (transaction.commit() if commits else transaction.rollback())
    finally:
        await connection.close()
    counts = await world.admin.sql(
        "SELECT (SELECT count(*) FROM public.orders) AS orders, "
        "(SELECT count(*) FROM supervisor.job_run WHERE id = $1) AS runs, "
        "(SELECT count(*) FROM supervisor.event WHERE id = $2) AS events",
        run.id,
        event.id,
    )
    assert set(counts[0].values()) == {int(commits)}


async def test_wait_follows_the_attempts_to_the_end(world: World, tenure: Client) -> None:
    run = await tenure.trigger("work")
    with pytest.raises(StillRunning, match="PENDING"):
        await tenure.wait(run.id, timeout=0.05)
    first = await world.running("w1", run=run.id)
    await world.worker.finish("w1", first, state="FAILED", error="EXIT_1", delay=0)
    assert not (await tenure.outcome(run.id)).final
    (second,) = await world.control.next_attempts()
    await world.worker.finish("w1", await world.running("w1", run=second))
    ended = await tenure.wait(run.id, timeout=patient(5))
    assert (ended.id, ended.attempt, ended.succeeded, ended.final) == (second, 2, True, True)
