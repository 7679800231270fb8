"""The handler of dedup runs over a real database; the jobs it asks for are moved by hand."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

import anyio
import asyncpg
import pytest

from actors.dedup.runs import handle
from supervisor import Cancel, Claim, Done, Outcome, Retry
from supervisor.actor import Place
from supervisor.embedded import Urls
from supervisor.store import Store
from tests.support.eventually import eventually
from tests.support.scene import Scene
from tests.support.shelf import Shelf
from tests.support.stores import place_of


class Tools:
    kill_seconds = 2.0
    equipment = None

    def __init__(self, place: Place) -> None:
        self.place = place
        self.lines: list[str] = []

    async def log(self, stream: str, data: bytes) -> None:
        assert stream == "stdout"
        self.lines.append(data.decode())

    def stop_deadline(self) -> float:
        raise AssertionError("it runs nothing itself")

    def on_stop_deadline(self, callback: Callable[[float], None]) -> None:
        raise AssertionError(callback)

    def progress(self, **columns: object) -> None:
        raise AssertionError(columns)


class Attempt:
    """A handler at work on a run that is RUNNING, with the worker's rights."""

    def __init__(self, scene: Scene, shelf: Shelf, tools: Tools) -> None:
        self.scene = scene
        self.shelf = shelf
        self.tools = tools
        self.outcome: Outcome | None = None

    async def claim(self, run: int) -> Claim:
        row = await self.scene.connection.fetchrow("SELECT * FROM supervisor.job_run WHERE id = $1", run)
        assert row is not None
        return Claim(
            run, row["root_id"], row["attempt"], row["leader_epoch"], row["claim_id"], "dedup", row["action"],
            json.loads(row["payload"]), None,
        )  # fmt: skip

    async def run(self, action: str, **payload: Any) -> int:
        await self.scene.job(action, domain="dedup", action=action, payload=payload, backoff_seconds=0)
        return await self.scene.run_to("RUNNING", action)

    @asynccontextmanager
    async def at(self, run: int, **more: Any) -> AsyncIterator[anyio.CancelScope]:
        """`more` is put into the payload behind the database's back."""
        claim = await self.claim(run)
        claim = replace(claim, payload={**claim.payload, **more})

        async def work() -> None:
            with scope:
                self.outcome = await handle(claim, self.tools)

        scope = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            yield scope

    async def job(self, kind: str) -> UUID:
        """The one of this kind that is active, as soon as there is one."""
        found = await eventually(lambda: self.shelf.active(kind), what=f"an active {kind}")
        assert found is not None
        return found

    async def said(self, word: str) -> None:
        def heard() -> bool:
            assert any(word in line for line in self.tools.lines), self.tools.lines
            return True

        await eventually(heard, what=word)


@pytest.fixture
async def attempt(database: Urls) -> AsyncIterator[Attempt]:
    scene, shelf = await Scene.open(database), await Shelf.open(database)
    await scene.lead("w1")
    await scene.beat("w1")
    await scene.connection.execute("UPDATE supervisor.worker SET domains = '{dedup}'")
    store = Store(database.worker)
    yield Attempt(scene, shelf, Tools(place_of(store)))
    await store.close()
    await shelf.close()
    await scene.close()


async def test_a_scan_then_its_hash_then_its_thumbnails(attempt: Attempt) -> None:
    """The hash is asked for when the scan has ended, never beside it."""
    await attempt.shelf.library()
    payload = {"library": "photos", "hash": True, "algorithm": "sha256", "thumbnails": True}
    async with attempt.at(await attempt.run("scan", **payload)):
        scan = await attempt.job("scan")
        assert [job["kind"] for job in await attempt.shelf.jobs()] == ["scan"]
        await attempt.shelf.begin(scan, done=40, progress=0.5)
        await attempt.said("scan of photos: running, 40 files, 50%")
        await attempt.shelf.walked(
            scan, files_seen=90, files_new=3, files_changed=2, files_moved=1, error_count=4
        )
        await attempt.shelf.end(scan)
        hashing = await attempt.job("hash")
        await attempt.shelf.begin(hashing, total=5)
        await attempt.shelf.end(hashing)
        await attempt.shelf.end(await attempt.job("thumbnail"))
    jobs = await attempt.shelf.jobs()
    assert [(job["kind"], job["library"]) for job in jobs] == [
        ("scan", "photos"), ("hash", "photos"), ("thumbnail", "photos"),
    ]  # fmt: skip
    assert json.loads(jobs[1]["payload"]) == {"algorithm": "sha256"}
    assert attempt.outcome == Done(
        {
            "files": 90,
            "files_new": 3,
            "files_changed": 2,
            "files_moved": 1,
            "files_missing": 0,
            "error_count": 4,
            "hashed": 5,
            "thumbnails": 0,
        }
    )


async def test_it_waits_for_whoever_has_the_place(attempt: Attempt) -> None:
    """R000-50: one scan or hash at a time, and nobody fails over it."""
    await attempt.shelf.library()
    await attempt.shelf.library("other")
    before = await attempt.shelf.job("hash", "other")
    async with attempt.at(await attempt.run("scan", library="photos")):
        await attempt.said("scan of photos waits")
        assert len(await attempt.shelf.jobs()) == 1
        await attempt.shelf.end(before)
        await attempt.shelf.end(await attempt.job("scan"))
    assert isinstance(attempt.outcome, Done)
    assert sum("waits" in line for line in attempt.tools.lines) == 1, "it is said once"


async def test_what_is_retryable_is_still_alive(attempt: Attempt) -> None:
    await attempt.shelf.library()
    async with attempt.at(await attempt.run("scan", library="photos")):
        scan = await attempt.job("scan")
        await attempt.shelf.end(scan, "retryable", "LEASE_EXPIRED")
        await attempt.said("retryable")
        assert attempt.outcome is None
        await attempt.shelf.connection.execute("UPDATE dedup.jobs SET status = 'pending' WHERE id = $1", scan)
        await attempt.shelf.end(scan)
    assert isinstance(attempt.outcome, Done)
    assert len(await attempt.shelf.jobs()) == 1


async def test_a_failed_job_fails_the_attempt_and_the_next_one_asks_anew(attempt: Attempt) -> None:
    await attempt.shelf.library()
    run = await attempt.run("scan", library="photos", hash=True)
    async with attempt.at(run):
        await attempt.shelf.end(await attempt.job("scan"), "failed", "LIBRARY_LOOKS_EMPTY")
    assert attempt.outcome == Retry("LIBRARY_LOOKS_EMPTY", "scan of photos: it broke")
    assert [job["kind"] for job in await attempt.shelf.jobs()] == ["scan"], "nothing is hashed after that"
    await attempt.scene.finish(run, "FAILED", "LIBRARY_LOOKS_EMPTY", 0)
    (second,) = await attempt.scene.next_attempts()
    await attempt.scene.assign(second)
    await attempt.scene.start(second)
    async with attempt.at(second):
        await attempt.shelf.end(await attempt.job("scan"))
        await attempt.shelf.end(await attempt.job("hash"))
    assert isinstance(attempt.outcome, Done)


async def test_the_next_attempt_goes_on_with_what_is_there(attempt: Attempt) -> None:
    """A lost or drained attempt leaves its jobs; they are keyed by the root of the run."""
    await attempt.shelf.library()
    run = await attempt.run("scan", library="photos")
    async with attempt.at(run) as scope:
        scan = await attempt.job("scan")
        await attempt.shelf.begin(scan)
        scope.cancel()
    await attempt.scene.finish(run, "FAILED", "DRAINED")
    (second,) = await attempt.scene.next_attempts()
    await attempt.scene.assign(second)
    await attempt.scene.start(second)
    async with attempt.at(second):
        await attempt.shelf.end(scan)
    assert isinstance(attempt.outcome, Done)
    assert [job["id"] for job in await attempt.shelf.jobs()] == [scan]


async def test_a_cancelled_run_takes_its_job_along(attempt: Attempt) -> None:
    await attempt.shelf.library()
    run = await attempt.run("scan", library="photos")
    async with attempt.at(run) as scope:
        scan = await attempt.job("scan")
        await attempt.shelf.begin(scan)
        await attempt.scene.value("SELECT supervisor.request_cancel('test', $1)", run)
        scope.cancel()
    (job,) = await attempt.shelf.jobs()
    assert (job["id"], job["status"]) == (scan, "cancelled")


async def test_a_cancelled_job_ends_the_run_for_good(attempt: Attempt) -> None:
    await attempt.shelf.library()
    async with attempt.at(await attempt.run("scan", library="photos", hash=True)):
        await attempt.shelf.value("SELECT dedup.cancel_job('ann', $1)", await attempt.job("scan"))
    assert attempt.outcome == Cancel("cancelled by ann", "CANCELLED")
    assert len(await attempt.shelf.jobs()) == 1


async def test_all_libraries_are_gone_through_although_one_fails(attempt: Attempt) -> None:
    for name in ("a", "b"):
        await attempt.shelf.library(name)
    async with attempt.at(await attempt.run("rescan-all", hash=True)):
        await attempt.shelf.end(await attempt.job("scan"), "failed", "NOT_FOUND")
        await attempt.shelf.end(await attempt.job("scan"))
        await attempt.shelf.end(await attempt.job("hash"))
    assert attempt.outcome == Retry("NOT_FOUND", "scan of a: it broke")
    jobs = await attempt.shelf.jobs()
    assert [(job["kind"], job["library"]) for job in jobs] == [("scan", "a"), ("scan", "b"), ("hash", None)]


async def test_a_library_that_is_not_there_or_goes_away(attempt: Attempt) -> None:
    async with attempt.at(await attempt.run("scan", library="photos")):
        pass
    assert attempt.outcome == Retry("LIBRARY_GONE", "scan of photos: no library photos")
    await attempt.shelf.library()
    async with attempt.at(await attempt.scene.run_to("RUNNING", "scan")):
        await attempt.shelf.end(await attempt.job("scan"), "retryable", "LEASE_EXPIRED")
        await attempt.said("retryable")
        await attempt.shelf.value("SELECT dedup.remove_library('test', 'photos')")
    assert attempt.outcome == Retry("LIBRARY_GONE", "scan of photos: no library photos")


async def test_a_payload_that_cannot_be_run_makes_no_job(attempt: Attempt) -> None:
    await attempt.shelf.library()
    with pytest.raises(asyncpg.PostgresError, match="job scan needs the argument library"):
        await attempt.run("scan", hash=True)
    # a run of a release before the database refused it
    async with attempt.at(await attempt.run("rescan-all"), library="photos"):
        pass
    assert isinstance(attempt.outcome, Cancel)
    assert "library" in attempt.outcome.reason
    assert await attempt.shelf.jobs() == []
