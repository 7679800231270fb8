"""What is streamed: live changes, and the log of a run that is still running."""

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from supervisor.api.v1 import changes, run_logs, sse, stream
from supervisor.api.v1.changes import Changes, Subscriber
from supervisor.store import Store
from tests.integration.api.conftest import Api, listening, served
from tests.integration.api.test_v1_runs import write_log
from tests.support.eventually import eventually
from tests.support.slowness import patient


@pytest.fixture
async def led(api: Api) -> AsyncIterator[Api]:
    await api.scene.lead()
    await api.scene.beat()
    await api.scene.job()
    yield api
    api.replica.draining = True


class CountingStore(Store):
    """The real one, and how often each statement was sent."""

    sent: dict[str, int]

    async def rows(self, query: Any, *args: Any, **more: Any) -> Any:
        self.sent[query] = self.sent.get(query, 0) + 1
        return await super().rows(query, *args, **more)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(run_logs, "POLL_SECONDS", 0.05)


async def test_changes_are_told_as_they_happen(led: Api, quick: None) -> None:
    async with served(led.app) as http, listening(http, "/stream") as events:
        hello = await events.until("hello")
        assert hello["leader"] == {"epoch": 1, "worker_id": "w1"}
        assert hello["workers"] == {"w1": "active"}
        run = await led.scene.enqueue()
        assert (await events.until("run"))["state"] == "PENDING"
        await led.scene.assign(run)
        told = await events.until("run")
        assert (told["id"], told["state"], told["worker_id"], told["version"]) == (run, "ASSIGNED", "w1", 2)
        await led.scene.beat("w2")
        assert await events.until("workers") == {"w1": "active", "w2": "active"}
        await led.scene.value("SELECT supervisor.resign(1, 'w1', 'test')")
        assert await events.until("leader") == {"epoch": 1, "worker_id": None}
        await led.scene.lead("w2")
        assert await events.until("leader") == {"epoch": 2, "worker_id": "w2"}
        led.replica.draining = True
        assert await events.until("end") == {"why": "this replica drains"}
        assert await events.next() == ("", None), "and it is over"


async def test_a_broken_stream_goes_on_where_it_was(led: Api, quick: None) -> None:
    async with served(led.app) as http:
        async with listening(http, "/stream") as events:
            await events.until("hello")
            place = events.last_id
        missed = await led.scene.enqueue()
        async with listening(http, "/stream", {"Last-Event-ID": place}) as events:
            assert (await events.until("run"))["id"] == missed
            await events.until("hello")
        for nonsense in ("x", "1", "9" * 400):
            async with listening(http, "/stream", {"Last-Event-ID": nonsense}) as events:
                assert await events.next() == ("reset", {})


async def test_all_who_listen_share_one_look_and_nobody_costs_nothing(
    led: Api, database: Any, quick: None
) -> None:
    store = CountingStore(database.control, name="count", size=4)
    store.sent = {}
    led.replica.store = store
    live = Changes(store)
    try:
        with live.subscribed() as one, live.subscribed() as two, live.subscribed() as three:
            for subscriber in (one, two, three):
                await live.begin(subscriber, None)
                subscriber.take()
            before = store.sent["read_standing"]
            run = await led.scene.enqueue()
            got: list[list[str]] = []

            async def hear(subscriber: Subscriber) -> None:
                texts: list[str] = []
                while not texts:
                    texts = await live.wait(subscriber)
                got.append(texts)

            with anyio.fail_after(patient(10)):
                async with anyio.create_task_group() as group:
                    for subscriber in (one, two, three):
                        group.start_soon(hear, subscriber)
            assert all(f'"id":{run},' in texts[0] for texts in got)
            assert len(got) == 3
            assert store.sent["read_standing"] == before + 1
        sent = dict(store.sent)
        await anyio.sleep(3 * changes.LOOK_SECONDS)
        assert store.sent == sent, "nobody listens: nobody looks"
    finally:
        await store.close()


async def test_whoever_is_too_slow_is_told_to_read_again(led: Api, quick: None) -> None:
    live = Changes(led.replica.store)
    with live.subscribed() as slow:
        await live.begin(slow, None)
        slow.take()
        for n in range(changes.QUEUE + 10):
            slow.tell(str(n))
        assert len(slow.waiting) <= changes.QUEUE
        assert slow.take()[0] == sse.event("reset", {})


async def test_too_many_moves_to_tell_are_a_reset(
    led: Api, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "MOVES", 3)
    live = Changes(led.replica.store)
    with live.subscribed() as subscriber:
        await live.begin(subscriber, None)
        subscriber.take()
        for _ in range(5):
            await led.scene.enqueue()
        texts = await eventually(lambda: live.wait(subscriber))
        assert texts[0] == sse.event("reset", {})


async def test_a_move_that_is_committed_late_is_told_once(
    led: Api, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was written before a look, and became visible after it."""
    monkeypatch.setattr(changes, "OVERLAP", changes.OVERLAP * patient(1))
    live = Changes(led.replica.store)
    with live.subscribed() as subscriber:
        await live.begin(subscriber, None)
        subscriber.take()
        async with led.scene.connection.transaction():
            late = await led.scene.enqueue()
            await live.wait(subscriber)
            await live.wait(subscriber)
        texts = await eventually(lambda: live.wait(subscriber))
        assert f'"id":{late},' in texts[0]
        for _ in range(3):
            assert await live.wait(subscriber) == []


async def test_only_so_many_listen(led: Api, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    from supervisor.api import create_app

    monkeypatch.setattr(stream, "SUBSCRIBERS", 2)
    monkeypatch.setattr(run_logs, "FOLLOWERS", 1)
    run = await led.scene.run_to("RUNNING")
    async with served(create_app(led.replica)) as http:
        async with listening(http, "/stream") as one, listening(http, "/stream") as two:
            await one.until("hello")
            await two.until("hello")
            with anyio.fail_after(patient(10)):
                refused = await http.get("/stream")
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
            assert refused.headers["content-type"] == "application/problem+json"
        async with listening(http, f"/runs/{run}/logs?follow=true"):
            with anyio.fail_after(patient(10)):
                assert (await http.get(f"/runs/{run}/logs?follow=true")).status_code == 503

        async def there_is_room() -> bool:
            async with http.stream("GET", "/stream") as answer:
                return answer.status_code == 200

        assert await eventually(there_is_room), "whoever left has made room"


async def test_a_log_is_followed_until_the_run_has_ended(led: Api, quick: None) -> None:
    run = await led.scene.run_to("RUNNING")
    await write_log(led, run, ["one\n"])
    async with served(led.app) as http:
        async with listening(http, f"/runs/{run}/logs?follow=true") as events:
            assert (await events.until("line"))["body"] == "one\n"
            await write_log(led, run, ["two\n", "three\n"], first=1)
            assert [(await events.until("line"))["body"] for _ in range(2)] == ["two\n", "three\n"]
            assert events.last_id == "2"
            await led.scene.finish(run)
            assert await events.until("end") == {"id": run, "state": "SUCCEEDED"}
            assert await events.next() == ("", None)
        async with listening(http, f"/runs/{run}/logs?follow=true", {"Last-Event-ID": "1"}) as events:
            assert (await events.next())[1]["body"] == "three\n"
            assert (await events.next())[0] == "end"


async def test_lines_of_a_log_cannot_forge_events(led: Api, quick: None) -> None:
    run = await led.scene.run_to("RUNNING")
    hostile = "x\n\nevent: end\ndata: {}\n\n\r\ndata: \u2028\x85"
    await write_log(led, run, [hostile])
    await led.scene.finish(run)
    async with served(led.app) as http, listening(http, f"/runs/{run}/logs?follow=true") as events:
        assert (await events.next())[1]["body"] == hostile
        assert (await events.next())[0] == "end"


async def test_a_stream_keeps_itself_alive(led: Api, quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.1)
    run = await led.scene.run_to("RUNNING")
    async with served(led.app) as http:
        for path in ("/stream", f"/runs/{run}/logs?follow=true"):
            async with http.stream("GET", path) as answer:
                beats = 0
                with anyio.fail_after(patient(10)):
                    async for line in answer.aiter_lines():
                        beats += line.startswith(":")
                        if beats == 3:
                            break
