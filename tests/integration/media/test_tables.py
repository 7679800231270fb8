"""What the tables themselves hold to, whoever writes: tried as the administrator, past every function."""

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from tests.integration.media.world import World, hash_of, refused

DECISIONS = ("INSERT", "DUPLICATE", "REPLACE", "REJECT", "NOOP")
RESULTS = ("OK_INSERTED", "OK_RETURN_EXISTING", "OK_REPLACED", "REJECTED", "FAILED")
PAIRS = {
    ("INSERT", "OK_INSERTED"),
    ("INSERT", "FAILED"),
    ("DUPLICATE", "OK_RETURN_EXISTING"),
    ("DUPLICATE", "FAILED"),
    ("REPLACE", "OK_REPLACED"),
    ("REPLACE", "FAILED"),
    ("REJECT", "REJECTED"),
    ("NOOP", "OK_RETURN_EXISTING"),
    ("NOOP", "FAILED"),
}
ADD_BLOB = (
    "INSERT INTO public.media_blobs (file_hash, mime_type, file_size, storage_key) "
    "VALUES ($1, 'image/png', 10, 'media/' || $1)"
)
ADD_REF = (
    "INSERT INTO public.media_refs (workspace_id, entity_type, entity_id, role, position, blob_hash) "
    "VALUES ('w1', 'post', '7', $1, $2, $3) RETURNING id"
)
ADD_EVENT = (
    "INSERT INTO public.media_write_events (request_id, event_type, decision, result) VALUES ($1, $2, $3, $4)"
)


async def columns(world: World, table: str) -> dict[str, str]:
    rows = await world.admin.fetch(
        "SELECT column_name, coalesce(udt_name, data_type) AS type FROM information_schema.columns "
        "WHERE table_schema = 'public' AND table_name = $1",
        table,
    )
    return {row["column_name"]: row["type"] for row in rows}


async def test_blobs_have_these_columns(world: World) -> None:
    """R002-01, R002-03: what a content is, and nothing of who uses it."""
    found = await columns(world, "media_blobs")
    assert {"file_hash", "mime_type", "file_size", "storage_key"} <= set(found)
    assert not {"workspace_id", "entity_type", "entity_id", "role", "position"} & set(found)


async def test_refs_have_these_columns(world: World) -> None:
    """R002-02"""
    wanted = {"workspace_id", "entity_type", "entity_id", "role", "position", "blob_hash", "deleted_at"}
    assert wanted <= set(await columns(world, "media_refs"))


async def test_events_have_these_columns_and_types(world: World) -> None:
    """R002-27, R002-42: the types are enums, so no free text stands there."""
    found = await columns(world, "media_write_events")
    assert {
        "request_id": "uuid",
        "event_type": "media_write_event_type",
        "decision": "media_write_decision",
        "result": "media_write_result",
        "error_code": "text",
        "error_message": "text",
        "created_at": "timestamptz",
    }.items() <= found.items()
    for column in ("event_type", "decision", "result"):
        values: dict[str, Any] = {"event_type": "WRITE_DECISION", "decision": "INSERT", "result": None}
        values[column] = "SOMETHING"
        with pytest.raises(asyncpg.DataError):
            await world.admin.execute(ADD_EVENT, uuid4(), *values.values())


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("media_write_event_type", ("WRITE_REQUEST", "WRITE_DECISION", "WRITE_DB", "WRITE_RESULT")),
        ("media_write_decision", DECISIONS),
        ("media_write_result", RESULTS),
    ],
)
async def test_the_enums_have_exactly_these_values(world: World, name: str, values: tuple[str, ...]) -> None:
    """R002-29, R002-30, R002-31"""
    found = await world.value(
        "SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder) FROM pg_enum e JOIN pg_type t ON "
        "t.oid = e.enumtypid WHERE t.typnamespace = 'public'::regnamespace AND t.typname = $1",
        name,
    )
    assert tuple(found) == values


async def test_a_content_has_one_row(world: World) -> None:
    """R002-07"""
    await world.admin.execute(ADD_BLOB, "a")
    await refused("23505", world.admin.execute(ADD_BLOB, "a"))


async def test_a_slot_has_one_active_ref(world: World) -> None:
    """R002-05, R002-06, R002-16, R002-17: and ended ones are in nobody's way."""
    for name in ("a", "b"):
        await world.admin.execute(ADD_BLOB, name)
    first = await world.admin.fetchval(ADD_REF, "cover", 0, "a")
    assert "media_refs_one_active_in_slot" in await refused(
        "23505", world.admin.fetchval(ADD_REF, "cover", 0, "b")
    )
    await world.admin.execute("UPDATE public.media_refs SET deleted_at = now() WHERE id = $1", first)
    second = await world.admin.fetchval(ADD_REF, "cover", 0, "b")
    await world.admin.execute("UPDATE public.media_refs SET deleted_at = now() WHERE id = $1", second)
    await world.admin.fetchval(ADD_REF, "cover", 0, "a")


async def test_the_index_is_the_one_that_is_asked_for(world: World) -> None:
    """R002-16, R002-12: one unique index over the slot where the ref is active, and none over the content."""
    rows = await world.admin.fetch(
        "SELECT pg_get_indexdef(indexrelid) AS text FROM pg_index "
        "WHERE indrelid = 'public.media_refs'::regclass AND indisunique AND NOT indisprimary"
    )
    [index] = [row["text"] for row in rows]
    assert '(workspace_id, entity_type, entity_id, role, "position") WHERE (deleted_at IS NULL)' in index


async def test_the_same_content_stands_in_several_positions(world: World) -> None:
    """R002-12: the database itself has nothing against it."""
    await world.admin.execute(ADD_BLOB, "a")
    for position in range(3):
        await world.admin.fetchval(ADD_REF, "gallery", position, "a")


@pytest.mark.parametrize("ended", [False, True])
async def test_a_blob_that_a_ref_names_stays(world: World, ended: bool) -> None:
    """R002-23, R002-25: no cascade, in neither direction; an ended ref protects it too."""
    await world.admin.execute(ADD_BLOB, "a")
    ref = await world.admin.fetchval(ADD_REF, "cover", 0, "a")
    if ended:
        await world.admin.execute("UPDATE public.media_refs SET deleted_at = now()")
    await refused("23001 23503", world.admin.execute("DELETE FROM public.media_blobs"))
    await world.admin.execute("DELETE FROM public.media_refs WHERE id = $1", ref)
    assert await world.value("SELECT count(*) FROM public.media_blobs") == 1
    rows = await world.admin.fetch(
        "SELECT confdeltype FROM pg_constraint WHERE contype = 'f' "
        "AND confrelid IN ('public.media_blobs'::regclass, 'public.media_refs'::regclass)"
    )
    assert [row["confdeltype"] for row in rows] == [b"r"]


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("decision", DECISIONS)
async def test_a_decision_ends_only_as_it_may(world: World, decision: str, apart: bool) -> None:
    """R002-37, R002-38, R002-39, R002-40, R002-41: all pairs, as two events and as one row."""
    for result in RESULTS:
        request = uuid4()
        if apart:
            await world.admin.execute(ADD_EVENT, request, "WRITE_DECISION", decision, None)
        last = (request, "WRITE_RESULT", None if apart else decision, result)
        if (decision, result) in PAIRS:
            await world.admin.execute(ADD_EVENT, *last)
        else:
            await refused("23514", world.admin.execute(ADD_EVENT, *last))


async def test_a_decision_that_comes_late_is_held_to_the_result_too(world: World) -> None:
    """R002-40"""
    request = uuid4()
    await refused("23514", world.admin.execute(ADD_EVENT, request, "WRITE_RESULT", None, "OK_INSERTED"))
    await world.admin.execute(ADD_EVENT, request, "WRITE_RESULT", "REJECT", "REJECTED")
    await refused("23514", world.admin.execute(ADD_EVENT, request, "WRITE_DECISION", "INSERT", None))
    other = uuid4()
    await world.admin.execute(ADD_EVENT, other, "WRITE_RESULT", "NOOP", "FAILED")
    await refused("23514", world.admin.execute(ADD_EVENT, other, "WRITE_DECISION", "INSERT", None))


async def test_a_request_has_one_decision_and_one_result(world: World) -> None:
    """R002-28: a second of either is refused."""
    request = uuid4()
    for event in (("WRITE_DECISION", "INSERT", None), ("WRITE_RESULT", None, "OK_INSERTED")):
        await world.admin.execute(ADD_EVENT, request, *event)
        await refused("23505", world.admin.execute(ADD_EVENT, request, *event))
    for half in (("WRITE_DECISION", None, None), ("WRITE_RESULT", "INSERT", None)):
        await refused("23514", world.admin.execute(ADD_EVENT, uuid4(), *half))


@pytest.mark.parametrize(
    "change",
    ["UPDATE public.media_write_events SET actor = 'x'", "DELETE FROM public.media_write_events",
     "TRUNCATE public.media_write_events"],
)  # fmt: skip
async def test_events_are_only_added_to(world: World, change: str) -> None:
    """R002-32: what is told of a write stays told."""
    await world.attached("a")
    await refused("TN014", world.admin.execute(change))


async def test_events_of_one_transaction_have_an_order(world: World) -> None:
    """R002-47: also when the clock stands still or goes back."""
    request = uuid4()
    async with world.admin.transaction():
        for event_type in ("WRITE_REQUEST", "WRITE_DB", "WRITE_DB", "WRITE_DB"):
            await world.admin.execute(
                "INSERT INTO public.media_write_events (request_id, event_type, created_at) "
                "VALUES ($1, $2, '2026-01-01 00:00:00+00')",
                request,
                event_type,
            )
    rows = await world.events(request)
    assert [row["id"] for row in rows] == sorted(row["id"] for row in rows)
    assert len({row["created_at"] for row in rows}) == 4


async def test_what_a_blob_and_a_ref_are_never_changes(world: World) -> None:
    """R002-03: a hash is the name of one content for ever."""
    await world.attached("a")
    for change in ("file_hash = 'b'", "mime_type = 'x/y'", "file_size = 1", "storage_key = 'k'"):
        await refused("TN013", world.admin.execute(f"UPDATE public.media_blobs SET {change}"))
    await refused("TN013", world.admin.execute("UPDATE public.media_refs SET blob_hash = 'b'"))


async def test_since_when_nobody_uses_a_blob_is_written_down(world: World) -> None:
    """R002-26: by whoever writes refs, past the functions too."""
    since = "SELECT unreferenced_since FROM public.media_blobs WHERE file_hash = $1"
    await world.admin.execute(ADD_BLOB, "a")
    assert await world.value(since, "a") is not None
    first = await world.admin.fetchval(ADD_REF, "gallery", 0, "a")
    second = await world.admin.fetchval(ADD_REF, "gallery", 1, "a")
    assert await world.value(since, "a") is None
    await world.admin.execute("UPDATE public.media_refs SET deleted_at = now() WHERE id = $1", first)
    assert await world.value(since, "a") is None
    await world.admin.execute("DELETE FROM public.media_refs WHERE id = $1", second)
    assert await world.value(since, "a") is not None


@pytest.mark.parametrize("role", ["control", "worker", "maintenance", "console", "client"])
async def test_no_runtime_role_writes_or_makes_a_table(world: World, role: str) -> None:
    """R002-32: there is no way past the function, and nothing is made in the schema public."""
    await world.attached("a")
    other = await asyncpg.connect(getattr(world.urls, role))
    try:
        for table in ("media_blobs", "media_refs", "media_write_events"):
            for statement in (
                f"INSERT INTO public.{table} DEFAULT VALUES",
                f"DELETE FROM public.{table}",
                f"TRUNCATE public.{table}",
                f"UPDATE public.{table} SET created_at = now()",
            ):
                await refused("42501", other.execute(statement))
        await refused("42501", other.execute("CREATE TABLE public.mine (id integer)"))
        inner = "SELECT media.perform(NULL,NULL,NULL,NULL,true,NULL,NULL,NULL,NULL,NULL,NULL)"
        await refused("42501", other.execute(inner))
        if role != "control":
            for arguments in (11, 13):
                call = f"SELECT media.write({', '.join(['NULL'] * arguments)})"
                await refused("42501", other.execute(call))
    finally:
        await other.close()
    assert hash_of("a") == await world.value("SELECT file_hash FROM public.media_blobs")
