"""A replica's whole API over objects of every domain, as people, workers and a leader left them. Not a test.

The objects are made once in a module, and are as they were before each test. The clock of the app stands
still, so that a token that was right once is not looked up again: nothing but the requests themselves
changes a row.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx
from fastapi import FastAPI

from actors import DOMAINS
from supervisor.api import create_app
from supervisor.api.tokens import new_secret, shown
from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.integration.scm.ledger import opened
from tests.integration.test_domain_pages import Site, settings_in
from tests.support import lending
from tests.support.fake_clock import FakeClock
from tests.support.fake_replica import LendingReplica
from tests.support.lending import Original, Shared
from tests.support.scene import Scene
from tests.support.shelf import Shelf

ROLES: Final = ("view", "operate", "admin")
HOUR: Final = 3600.0
LAST: Final = """SELECT (SELECT coalesce(max(id), 0) FROM supervisor.audit) AS audit,
    (SELECT coalesce(max(id), 0) FROM public.media_write_events) AS media"""
SINCE: Final = """SELECT a.actor FROM supervisor.audit a WHERE a.id > $1
    UNION SELECT e.principal FROM public.media_write_events e WHERE e.id > $2"""


@dataclass(frozen=True)
class Ids:
    """What the requests name."""

    pending: int
    running: int
    failed: int
    file: int
    group: str
    scan: UUID
    walk: int
    thumb: str
    ref: int
    blob: str
    write: UUID
    read: UUID
    waiting: UUID
    item: int
    attached: str
    sync: str
    evidence: str


@dataclass
class Existing:
    urls: Urls
    place: Path
    app: FastAPI
    replica: LendingReplica
    shared: Shared
    scene: Scene
    shelf: Shelf
    http: Mapping[str | None, httpx.AsyncClient]
    """By role; None sends no token."""
    ids: Ids
    original: Original

    async def renew(self) -> None:
        """Undo what a test did."""
        assert await lending.restore(self.shared.connection, self.original)

    async def digest(self) -> dict[str, str]:
        """Each table that has rows, and what they are."""
        connection = self.shared.connection
        found = await lending.digests(connection, list(await lending.written(connection)))
        return {str(table): digest for table, digest in found.items() if digest}

    async def last(self) -> tuple[int, int]:
        row = await self.shared.connection.fetchrow(LAST)
        assert row is not None
        return row["audit"], row["media"]

    async def who(self, since: tuple[int, int]) -> list[str | None]:
        """Those whom the audit, and that of the media, name since then."""
        return sorted(row["actor"] for row in await self.shared.connection.fetch(SINCE, *since))

    async def value(self, sql: str, *args: Any) -> Any:
        return await self.shared.connection.fetchval(sql, *args)


@asynccontextmanager
async def existing_objects(shared: Shared, place: Path) -> AsyncIterator[Existing]:
    """`place` is the working directory."""
    urls, stack = shared.urls, AsyncExitStack()
    async with stack:
        store, work = Store(urls.control, name="api", size=4), Store(urls.worker, name="work", size=2)
        stack.push_async_callback(store.close)
        stack.push_async_callback(work.close)
        chosen = Settings(**settings_in(place), http_host="0.0.0.0")
        replica = LendingReplica(store, chosen, work_store=work)
        app = create_app(replica, DOMAINS, clock=FakeClock())
        http = {role: await stack.enter_async_context(_client(app)) for role in (None, *ROLES)}
        for role in ROLES:
            http[role].headers["Authorization"] = f"Bearer {await _token(store, role)}"
            assert (await http[role].get("/status")).status_code == 200
        scene, shelf = await Scene.open(urls), await Shelf.open(urls)
        stack.push_async_callback(scene.close)
        stack.push_async_callback(shelf.close)
        ids = await _fill(Site(urls, place, http["admin"], shelf), scene)
        original = await lending.read_original(shared.connection)
        yield Existing(urls, place, app, replica, shared, scene, shelf, http, ids, original)


def _client(app: FastAPI) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=("192.0.2.1", 50000))
    return httpx.AsyncClient(transport=transport, base_url="http://replica.example:8080")


async def _token(store: Store, role: str) -> str:
    """The token of this role has its name."""
    secret, encoded_secret = new_secret()
    row = await store.row("create_token", "cli:test", role, role, encoded_secret, None)
    assert row is not None
    return shown(row["id"], secret)


async def _fill(site: Site, scene: Scene) -> Ids:
    runs = await _kernel(scene)
    group = await site.fill_dedup()
    await site.fill_scm()
    write = await site.fill_media()
    await site.fill_capture()
    (site.place / "libraries" / "more").mkdir(parents=True)
    item, attached = await _ledger(site)
    often = "UPDATE supervisor.setting SET value = '0' WHERE name = 'dedup_wal_interval_seconds'"
    await site.shelf.value(often)
    await site.shelf.value("SELECT dedup.request_checkpoint('test', 'passive', 'test', NULL)")
    await scene.connection.execute("SELECT supervisor.pause_domain('test', 'capture', true)")
    value = site.shelf.value
    return Ids(
        *runs,
        file=await value("SELECT min(id) FROM dedup.library_files WHERE relative_path LIKE '%.jpg'"),
        group=group,
        scan=await value("SELECT id FROM dedup.jobs WHERE status = 'running'"),
        walk=await value("SELECT min(id) FROM dedup.scan_sessions"),
        thumb=await value("SELECT thumb_key FROM dedup.thumbnails WHERE status = 'ready'"),
        ref=await value("SELECT min(id) FROM public.media_refs WHERE workspace_id = 'w1'"),
        blob=await value(
            "SELECT blob_hash FROM public.media_refs WHERE workspace_id = 'w1' ORDER BY id LIMIT 1"
        ),
        write=write,
        read=UUID(site.sessions[0]),
        waiting=UUID(site.sessions[2]),
        item=item,
        attached=attached,
        sync=await value("SELECT min(run_id) FROM scm.sync_runs WHERE status = 'completed'"),
        evidence=await value("SELECT min(meta_json ->> 'evidence_uri') FROM scm.patch_blobs"),
    )


async def _kernel(scene: Scene) -> tuple[int, int, int]:
    """Jobs with runs in several states and one without any, of role admin (programs) and of role operate."""
    await scene.lead("w1", HOUR)
    for worker in ("w1", "w2"):
        await scene.beat(worker)
    await scene.job("program")
    await scene.job("idle")
    await scene.job("scan", domain="dedup", action="scan", payload={})
    pending, running, failed = [
        await scene.run_to(state, "program") for state in ("PENDING", "RUNNING", "FAILED")
    ]
    await scene.run_to("FAILED", "program")
    await scene.connection.execute("SELECT supervisor.emit('order.paid', '{}', NULL)")
    return pending, running, failed


async def _ledger(site: Site) -> tuple[int, str]:
    """An item of the logbook, and the key of an artifact that nobody has attached yet."""
    key = "attachments/1/1.log"
    path = site.place / ".tenure" / "artifacts" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(b"it happened")
    async with opened(site.urls) as ledger:
        item = await ledger.control.fetchval("SELECT logbook.add_item('note', 'n', 'open', 'proj', '{}')")
    return int(item), key
