"""What nobody uses goes, late, only on demand, and never while somebody takes it up again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any
from uuid import uuid4

import pytest

from actors.media import COLLECTIONS, gc
from actors.media.content import examine
from actors.media.leases import COLLECTIONS as LEASE
from actors.media.shelf import PREFIX, open_shelf
from actors.media.upload import upload
from actors.media.write import Answer, Request, Slot, Writer, write
from supervisor.artifacts import Artifacts
from supervisor.artifacts.references import Source, list_references, protected_keys
from supervisor.config import load_settings
from supervisor.lease_sql import render
from supervisor.store import Store
from tests.integration.media.world import World, many, refused, slot
from tests.support.eventually import eventually
from tests.support.row_work import at_work
from tests.support.sessions import give_back

HASHES = "SELECT file_hash FROM public.media_blobs"
ANNA = Writer.of("anna", is_admin=False)


class Shop:
    """A world with real artifacts behind it."""

    def __init__(self, world: World, store: Store, artifacts: Artifacts, place: Path) -> None:
        self.world = world
        self.store = store
        self.artifacts = artifacts
        self.place = place

    async def attach(self, content: bytes, position: int = 0, role: str = "attachment") -> Answer:
        wish = Request(uuid4(), "attach", ANNA, Slot("w1", "post", "7", role, position))
        return await self.send(content, wish)

    async def send(self, content: bytes, wish: Request) -> Answer:
        with TemporaryFile() as file:
            file.write(content)
            found = examine(file, 1 << 20)
            return await upload(self.artifacts, found, lambda facts: write(self.store, wish, facts))

    async def keys(self) -> set[str]:
        return {entry.key async for entry in self.artifacts.entries(PREFIX)}

    async def queue(self) -> int:
        return int(await self.world.control.fetchval("SELECT media.request_collection('anna')"))

    async def claim(self) -> tuple[int, Any]:
        rows = await self.world.worker.fetch(render(LEASE).claim.sql, "w1", 1, "media")
        return rows[0]["c0"], rows[0]["c1"]

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        async with at_work(self.world.urls, COLLECTIONS, state_dir=self.place):
            yield

    async def ended(self) -> list[Any]:
        rows = await self.world.admin.fetch("SELECT * FROM media.collections ORDER BY id")
        assert rows
        assert all(row["status"] in ("done", "failed") for row in rows)
        return list(rows)


@pytest.fixture
async def shop(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Shop]:
    monkeypatch.chdir(tmp_path)
    store = Store(world.urls.control, name="shop", size=4)
    artifacts = open_shelf(load_settings(state_dir=tmp_path))
    yield Shop(world, store, artifacts, tmp_path)
    await store.close()


async def at_once(world: World) -> None:
    """No delays, and leave to remove."""
    for name, value in (("media_gc_execute", "true"), ("media_gc_delay_seconds", "0")):
        await world.set(name, value)
    await world.set("media_ref_retention_seconds", "0")


async def test_an_unused_blob_goes_with_its_artifact(shop: Shop) -> None:
    """R002-26: after its ended refs were purged; and what is used stays."""
    world = shop.world
    used, unused = await shop.attach(b"used"), await shop.attach(b"unused", 1)
    await world.detach(unused.ref_id or 0)
    await at_once(world)
    assert await shop.queue() == 1
    async with shop.collecting():
        [row] = await eventually(shop.ended, what="the collection")
    assert (row["outcome"], row["status"], row["storage_key"]) == ("removed", "done", unused.storage_key)
    assert await world.value(HASHES) == used.blob_hash
    assert await shop.keys() == {used.storage_key}
    assert await world.value("SELECT count(*) FROM public.media_refs") == 1
    assert await world.value(
        "SELECT count(*) FROM public.media_write_events WHERE blob_hash = $1", unused.blob_hash
    )


async def test_nothing_goes_before_it_is_said(shop: Shop) -> None:
    """R002-26: a blob without references stays; the leader only marks, and a person is told how."""
    world = shop.world
    answer = await shop.attach(b"unused")
    await world.detach(answer.ref_id or 0)
    await world.set("media_gc_delay_seconds", "0")
    await world.set("media_ref_retention_seconds", "0")
    await world.control.fetchval("SELECT media.tend($1)", await world.lead())
    assert await world.value("SELECT count(*) FROM media.collections") == 0
    await refused("TN021", world.control.execute("SELECT media.request_collection('anna')"))
    report = await shop.store.row("read_collection_report")
    assert report is not None
    assert (report["execute"], report["due_blobs"], report["due_bytes"]) == (False, 1, 6)
    [candidate] = await shop.store.rows("list_collection_candidates", 10)
    assert (candidate["file_hash"], candidate["ended_refs"]) == (answer.blob_hash, 1)
    assert await shop.keys() == {answer.storage_key}


async def test_the_leader_queues_what_is_due(shop: Shop) -> None:
    """R002-26: each once; and what is not long enough unused, or ended too lately, waits."""
    world = shop.world
    epoch = await world.lead()
    for position, content in enumerate((b"one", b"two")):
        answer = await shop.attach(content, position)
        await world.detach(answer.ref_id or 0)
    tend = "SELECT media.tend($1)"
    await world.set("media_gc_execute", "true")
    await world.control.fetchval(tend, epoch)
    assert await world.value("SELECT count(*) FROM media.collections") == 0, "a week has not passed"
    await world.set("media_gc_delay_seconds", "0")
    await world.control.fetchval(tend, epoch)
    assert await world.value("SELECT count(*) FROM media.collections") == 0, "its ended refs are young"
    await world.set("media_ref_retention_seconds", "0")
    for _ in range(2):
        await world.control.fetchval(tend, epoch)
    assert await world.value("SELECT count(*) FROM media.collections WHERE status = 'pending'") == 2
    assert await world.value("SELECT count(*) FROM public.media_refs") == 0
    await refused("TN001", world.control.fetchval(tend, epoch + 1))


async def test_a_blob_that_is_taken_up_again_stays(shop: Shop) -> None:
    """R002-26: queued already, and then attached: it is kept, and so is its artifact."""
    world = shop.world
    answer = await shop.attach(b"again")
    await world.detach(answer.ref_id or 0)
    await at_once(world)
    assert await shop.queue() == 1
    assert (await shop.attach(b"again", 5)).storage_key == answer.storage_key
    async with shop.collecting():
        [row] = await eventually(shop.ended)
    assert row["outcome"] == "kept"
    assert await world.value(HASHES) == answer.blob_hash
    assert await shop.keys() == {answer.storage_key}


async def test_an_upload_after_the_row_is_gone_keeps_its_own_artifact(shop: Shop) -> None:
    """R002-26: the worker is lost between row and artifact, the content comes again, another goes on."""
    world = shop.world
    first = await shop.attach(b"content")
    await world.detach(first.ref_id or 0)
    await at_once(world)
    await shop.queue()
    collection, claim = await shop.claim()
    key = await world.worker.fetchval("SELECT media.collect($1, $2)", collection, claim)
    assert key == first.storage_key
    second = await shop.attach(b"content")
    assert second.result == "OK_INSERTED"
    assert second.storage_key != first.storage_key
    await world.admin.execute("UPDATE media.collections SET lease_expires_at = now()")
    async with shop.collecting():
        [row] = await eventually(shop.ended)
    assert row["outcome"] == "removed"
    assert await shop.keys() == {second.storage_key}
    async with shop.artifacts.open(second.storage_key or "") as pieces:
        assert b"".join([piece async for piece in pieces]) == b"content"
    await refused("TN021", world.worker.fetchval("SELECT media.collect($1, $2)", collection, claim))


async def test_an_attach_that_waits_for_the_removal_finds_it_gone(shop: Shop) -> None:
    """R002-26: and is asked for the content, instead of a ref without a blob."""
    world = shop.world
    first = await shop.attach(b"content")
    await world.detach(first.ref_id or 0)
    await at_once(world)
    await shop.queue()
    collection, claim = await shop.claim()
    [hand] = await many(world.urls, 1)
    transaction = world.worker.transaction()
    await transaction.start()
    assert await world.worker.fetchval("SELECT media.collect($1, $2)", collection, claim) is not None
    facts = {"hash": first.blob_hash, "mime_type": "text/plain", "size": 7}
    waiting = asyncio.create_task(world.write("attach", slot(3, "attachment"), facts, by=hand))
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
    await eventually(lambda: world.value(waits, hand.get_server_pid()), what="the attach to wait")
    await transaction.commit()
    answer = await waiting
    await give_back(hand)
    assert answer["needs_content"]
    assert await world.value("SELECT count(*) FROM public.media_refs") == 0


async def test_a_removal_that_waits_for_an_attach_keeps_it(shop: Shop) -> None:
    """R002-26"""
    world = shop.world
    first = await shop.attach(b"content")
    await world.detach(first.ref_id or 0)
    await at_once(world)
    await shop.queue()
    collection, claim = await shop.claim()
    transaction = world.control.transaction()
    await transaction.start()
    facts = {"hash": first.blob_hash}
    assert (await world.write("attach", slot(3, "attachment"), facts))["result"] == "OK_INSERTED"
    collect = "SELECT media.collect($1, $2)"
    waiting = asyncio.create_task(world.worker.fetchval(collect, collection, claim))
    waits = "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND wait_event_type = 'Lock'"
    await eventually(lambda: world.value(waits, world.worker.get_server_pid()), what="the removal to wait")
    await transaction.commit()
    assert await waiting is None
    assert await world.value(HASHES) == first.blob_hash


async def test_what_an_interrupted_upload_left_is_found(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """R002-32: a crash between artifact and row leaves an artifact that no row names, and nothing else."""
    world, wish = shop.world, Request(uuid4(), "attach", ANNA, Slot("w1", "post", "7", "attachment", 0))

    class Crash(Exception):
        pass

    async def crashing(store: Store, request: Request, facts: Any) -> Answer:
        if "storage_key" in facts:
            raise Crash
        return await write(store, request, facts)

    with TemporaryFile() as file:
        file.write(b"content")
        with pytest.raises(Crash):
            await upload(shop.artifacts, examine(file, 100), lambda facts: crashing(shop.store, wish, facts))
    [orphan] = await shop.keys()
    assert (await world.tables(), await world.events(wish.id)) == ([[], []], [])
    kept = await shop.send(b"content", wish)
    assert kept.result == "OK_INSERTED"
    source = Source("public.media_blobs.storage_key", "list_media_references")
    named = await protected_keys(shop.artifacts, list_references(shop.store, [source]))
    assert named == {kept.storage_key}
    assert await shop.keys() - named == {orphan}


async def test_a_lost_artifact_comes_back_with_its_content(shop: Shop) -> None:
    """R002-08: the row is reused, and what it names is there again."""
    first = await shop.attach(b"content")
    assert await shop.artifacts.delete(first.storage_key or "")
    again = await shop.attach(b"content", 1)
    assert again.storage_key == first.storage_key
    assert await shop.artifacts.get(first.storage_key or "") == b"content"


async def test_an_artifact_that_cannot_be_removed_is_tried_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R002-26"""
    from supervisor.artifacts import StoreFailed

    world = shop.world
    answer = await shop.attach(b"content")
    await world.detach(answer.ref_id or 0)
    await at_once(world)
    await shop.queue()
    tries: list[str] = []

    class Failing:
        async def delete(self, key: str) -> bool:
            tries.append(key)
            raise StoreFailed(path=key, what="no")

        async def aclose(self) -> None: ...

    monkeypatch.setattr(gc, "open_shelf", lambda _settings: Failing())
    async with shop.collecting():
        sql = "SELECT error_code FROM media.collections WHERE failures = 1 AND status = 'pending'"
        assert await eventually(lambda: world.value(sql)) == "IO_ERROR"
    assert tries == [answer.storage_key]


async def test_a_stored_content_that_comes_again_is_young_again(shop: Shop) -> None:
    """R002-26: whoever uploads it is about to use it."""
    world = shop.world
    wish = Request(uuid4(), "store", ANNA)
    await shop.send(b"content", wish)
    await world.admin.execute("UPDATE public.media_blobs SET unreferenced_since = now() - interval '1 year'")
    await world.set("media_gc_execute", "true")
    again = await shop.send(b"content", Request(uuid4(), "store", ANNA))
    assert again.decision == "DUPLICATE"
    assert await shop.queue() == 0
