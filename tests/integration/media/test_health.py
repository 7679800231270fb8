"""The five questions: answered by no row while all is well, and by the very rows when it is not."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from actors.media.health import check_health, findings
from supervisor.store import Store
from tests.integration.media.api_scene import Scene
from tests.integration.media.world import World, hash_of, slot
from tests.support.command_line import Cli
from tests.support.slowness import patient

D1 = """SELECT workspace_id, entity_type, entity_id, role, position, count(*) AS n FROM public.media_refs
    WHERE deleted_at IS NULL GROUP BY workspace_id, entity_type, entity_id, role, position
    HAVING count(*) > 1 ORDER BY n DESC LIMIT 50"""
D2 = """SELECT workspace_id, entity_type, entity_id, role, blob_hash, count(*) AS n FROM public.media_refs
    WHERE deleted_at IS NULL GROUP BY workspace_id, entity_type, entity_id, role, blob_hash
    HAVING count(*) > 1 ORDER BY n DESC LIMIT 50"""
D3 = """SELECT r.* FROM public.media_refs AS r LEFT JOIN public.media_blobs AS b ON b.file_hash = r.blob_hash
    WHERE b.file_hash IS NULL LIMIT 50"""
E1 = """SELECT created_at, event_type, decision, result, error_code FROM public.media_write_events
    WHERE request_id = $1::uuid ORDER BY created_at ASC"""
E2 = """WITH per_request AS (SELECT request_id, bool_or(event_type = 'WRITE_DECISION') AS has_decision,
    bool_or(event_type = 'WRITE_RESULT') AS has_result FROM public.media_write_events GROUP BY request_id)
    SELECT * FROM per_request WHERE NOT (has_decision AND has_result) LIMIT 50"""


@pytest.fixture
async def store(world: World) -> AsyncIterator[Store]:
    store = Store(world.urls.control, name="health", size=2)
    yield store
    await store.close()


async def a_life(world: World) -> None:
    """Some of everything."""
    one, other = await world.attached("a", slot(0)), await world.attached("b", slot(1))
    await world.move(one, 1)
    await world.attach("c", slot(0))
    await world.attach("c", slot(0))
    await world.attach("d", slot(role="nonsense"))
    await world.detach(other)


async def broken(world: World, sql: str) -> None:
    """Written past every guard."""
    async with world.admin.transaction():
        await world.admin.execute("SET LOCAL session_replication_role = replica")
        await world.admin.execute(sql)


async def results(store: Store) -> dict[str, str]:
    return {check.name: check.result for check in await check_health(store)}


async def test_all_is_well_after_a_life(world: World, store: Store) -> None:
    """R002-44, R002-45, R002-46, R002-48: the questions themselves, and the checks made of them."""
    await a_life(world)
    for question in (D1, D2, D3, E2):
        assert await world.control.fetch(question) == []
    assert set((await results(store)).values()) == {"pass"}


async def test_two_active_refs_in_a_slot_are_found(world: World, store: Store) -> None:
    """R002-44"""
    await a_life(world)
    await world.admin.execute("DROP INDEX public.media_refs_one_active_in_slot")
    await broken(
        world,
        "INSERT INTO public.media_refs (workspace_id, entity_type, entity_id, role, position, blob_hash) "
        "SELECT workspace_id, entity_type, entity_id, role, position, 'other' FROM public.media_refs "
        "WHERE deleted_at IS NULL",
    )
    assert len(await world.control.fetch(D1)) == 2
    assert (await results(store))["slots"] == "fail"


async def test_a_repeated_content_informs_unless_it_is_forbidden(world: World, store: Store) -> None:
    """R002-45: it stands several times in a role by right; where the setting forbids that, it is a fault."""
    for position in range(2):
        await world.attached("a", slot(position))
    assert [row["n"] for row in await world.control.fetch(D2)] == [2]
    assert (await results(store))["repeated blobs"] == "info"
    assert {one.result for one in await findings(store)} == {"ok"}
    await world.set("media_one_ref_per_blob", "true")
    assert (await results(store))["repeated blobs"] == "fail"
    [fault] = [one for one in await findings(store) if one.result == "fail"]
    assert fault.name == "media: repeated blobs"


@pytest.mark.parametrize("ended", [True, False])
async def test_a_ref_without_a_blob_is_found(world: World, store: Store, ended: bool) -> None:
    """R002-46: ended ones too."""
    ref = await world.attached("a")
    if ended:
        await world.detach(ref)
    await broken(world, "DELETE FROM public.media_blobs")
    assert [row["id"] for row in await world.control.fetch(D3)] == [ref]
    assert (await results(store))["orphan refs"] == "fail"


async def test_a_story_is_read_by_its_times(world: World, store: Store) -> None:
    """R002-47: in the order of created_at alone, for each decision there is."""
    request = uuid4()
    await world.attach("a", request=request)
    rows = await world.control.fetch(E1, request)
    assert [row["event_type"] for row in rows] == [
        "WRITE_REQUEST",
        "WRITE_DECISION",
        "WRITE_DB",
        "WRITE_DB",
        "WRITE_RESULT",
    ]
    assert len({row["created_at"] for row in rows}) == len(rows)
    await broken(
        world,
        "UPDATE public.media_write_events SET created_at = created_at - interval '1 hour' "
        "WHERE event_type = 'WRITE_RESULT'",
    )
    assert (await results(store))["order of events"] == "fail"


@pytest.mark.parametrize("kept", ["WRITE_DECISION", "WRITE_RESULT", "WRITE_DB"])
async def test_a_story_without_an_end_is_found(world: World, store: Store, kept: str) -> None:
    """R002-48"""
    request = uuid4()
    await world.attach("a", request=request)
    await broken(world, f"DELETE FROM public.media_write_events WHERE event_type <> '{kept}'")
    assert [row["request_id"] for row in await world.control.fetch(E2)] == [request]
    assert (await results(store))["complete requests"] == "fail"
    [fault, *_] = [one for one in await findings(store) if one.result == "fail"]
    assert fault.advice


async def test_a_workspace_that_only_admins_write_to_is_told(world: World, store: Store) -> None:
    """Names alone let everybody write who said one, in releases before."""
    await world.control.execute("SELECT media.save_writers('root', 'w1', '{token:shop,user:7}')")
    assert "media: writers" not in {one.name for one in await findings(store)}
    await world.control.execute("SELECT media.save_writers('root', 'w2', '{user:7}')")
    [found] = [one for one in await findings(store) if one.name == "media: writers"]
    assert (found.result, "w2" in found.found, "w1" in found.found) == ("warn", True, False)


async def test_a_question_that_takes_too_long_is_told(world: World, store: Store) -> None:
    """R002-49: the others are still answered."""
    await world.attached("a")
    lock = world.admin.transaction()
    await lock.start()
    await world.admin.execute("LOCK TABLE public.media_blobs IN ACCESS EXCLUSIVE MODE")
    await world.control.execute("SELECT 1")
    most = round(1000 * patient(0.1))
    slow = Store(f"{world.urls.control}?options=-c%20statement_timeout%3D{most}ms", name="slow", size=1)
    try:
        found = {one.name: one.result for one in await findings(slow)}
    finally:
        await slow.close()
        await lock.rollback()
    assert found["media: orphan refs"] == "warn"
    assert set(found.values()) == {"ok", "warn"}


async def test_health_over_http_and_by_command(world: World, scene: Scene, cli: Cli) -> None:
    """R002-49: five checks, pass or fail, in one answer."""
    await a_life(world)
    answer = (await scene.get("/health")).json()
    assert answer["ok"] is True
    names = ["slots", "repeated blobs", "orphan refs", "order of events", "complete requests"]
    assert [(check["name"], check["result"]) for check in answer["checks"]] == [(n, "pass") for n in names]
    said = (await cli("media", "health", "--json")).json()
    assert (said["ok"], [check["name"] for check in said["checks"]]) == (True, names)
    await broken(world, "DELETE FROM public.media_blobs")
    answer = (await scene.get("/health")).json()
    assert answer["ok"] is False
    [check] = [check for check in answer["checks"] if check["result"] == "fail"]
    assert (check["name"], check["rows"]) == ("orphan refs", 3)
    assert {row["blob_hash"] for row in check["sample"]} <= {hash_of(name) for name in "abc"}
    assert (await cli("media", "health")).code == 1
