"""Calls that are repeated until they are answered: a lost answer for ever, a cancelled statement not."""

from collections.abc import AsyncIterator

import pytest

from schemas import Query
from supervisor import Actor, Claim, Done, Outcome, Tools
from supervisor.asking import CANCELED_TRIES, GivenUp, ask, ask_one
from supervisor.embedded import Urls
from supervisor.store import Canceled, Store
from tests.support.eventually import eventually
from tests.support.example_domain import JOBS, migration
from tests.support.example_domain.install import apply_as_owner
from tests.support.row_work import at_work
from tests.support.sessions import connected, value
from tests.support.slowness import stretch

# A sequence is not rolled back, so it counts the tries; the note is.
SCENE = """
CREATE SEQUENCE public.tries;
CREATE TABLE public.notes (try bigint);
CREATE FUNCTION public.slow(canceled bigint, lost bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE try bigint := nextval('public.tries');
BEGIN
    INSERT INTO public.notes VALUES (try);
    IF try <= canceled THEN
        PERFORM pg_sleep(60);
    ELSIF try <= canceled + lost THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(60);
    END IF;
    RETURN try;
END $$;
GRANT USAGE ON SCHEMA public TO PUBLIC;
GRANT USAGE ON SEQUENCE public.tries TO PUBLIC;
GRANT INSERT ON public.notes TO PUBLIC;
GRANT EXECUTE ON FUNCTION public.slow TO PUBLIC;
"""
SLOW = Query("slow", "", "SELECT public.slow($1, $2)")
ALWAYS = 1000


def impatient(url: str) -> str:
    return f"{url}?options=-c%20statement_timeout%3D{200 * stretch():.0f}ms"


async def test_a_lock_that_is_not_given_is_an_error_of_ours(database: Urls) -> None:
    """Nothing was done, and whoever holds it may do so for hours: no reason to end a replica."""
    refused = "DO $$ BEGIN RAISE EXCEPTION 'not given' USING ERRCODE = 'lock_not_available'; END $$"
    store = Store(database.worker, name="locks")
    try:
        with pytest.raises(Canceled):
            await store.rows(Query("refused", "", refused))
    finally:
        await store.close()


@pytest.fixture
async def scene(database: Urls) -> Urls:
    async with connected(database.admin) as admin:
        await admin.execute(SCENE)
    return database


@pytest.fixture
async def store(scene: Urls) -> AsyncIterator[Store]:
    opened = Store(impatient(scene.worker), name="asking")
    yield opened
    await opened.close()


async def test_what_the_server_always_cancels_is_given_up_with_a_reason(scene: Urls, store: Store) -> None:
    with pytest.raises(GivenUp, match=r"cancelled the call slow 5 times: .*statement timeout") as given_up:
        await ask(store, SLOW, ALWAYS, 0)
    assert "statement_timeout" in given_up.value.advice
    assert await value(scene.admin, "SELECT last_value FROM public.tries") == CANCELED_TRIES
    assert await value(scene.admin, "SELECT count(*) FROM public.notes") == 0


async def test_what_the_server_cancelled_a_few_times_is_answered(scene: Urls, store: Store) -> None:
    assert await ask_one(store, SLOW, CANCELED_TRIES - 1, 0) == CANCELED_TRIES
    assert await value(scene.admin, "SELECT count(*) FROM public.notes") == 1


async def test_a_lost_connection_is_no_reason_to_give_up(store: Store) -> None:
    assert await ask_one(store, SLOW, 0, CANCELED_TRIES + 1) == CANCELED_TRIES + 2


async def test_work_that_is_cancelled_each_time_fails_with_the_reason(scene: Urls, store: Store) -> None:
    async def handle(_claim: Claim, _tools: Tools) -> Outcome:
        await ask(store, SLOW, ALWAYS, 0)
        return Done()

    await apply_as_owner(scene, migration())
    async with connected(scene.admin) as admin:
        await admin.execute("INSERT INTO example.jobs (kind) VALUES ('hash')")
    actor = Actor("example", handle, lease=JOBS)
    async with at_work(scene, actor):

        async def failed() -> bool:
            query = "SELECT status || ' ' || error_code || ' ' || error_message FROM example.jobs"
            said = str(await value(scene.admin, query))
            return said.startswith("failed HANDLER_ERROR GivenUp: the server cancelled the call slow")

        await eventually(failed)
