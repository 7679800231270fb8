"""Many at once: one content, one slot, one request, two slots that change places."""

import asyncio
import random
from collections import Counter
from typing import Any
from uuid import uuid4

import asyncpg

from tests.integration.media.world import NO_SLOT, SLOT, World, blob, hash_of, many, slot
from tests.support.sessions import give_back
from tests.support.waiting import blocked

WRITERS = 50
CONFLICTS = """SELECT count(*) FROM (SELECT FROM public.media_refs WHERE deleted_at IS NULL
    GROUP BY workspace_id, entity_type, entity_id, role, position HAVING count(*) > 1) AS c"""
INCOMPLETE = """SELECT count(*) FROM (SELECT FROM public.media_write_events GROUP BY request_id
    HAVING NOT (bool_or(event_type = 'WRITE_DECISION') AND bool_or(event_type = 'WRITE_RESULT'))) AS i"""


async def repeated(call: Any) -> Any:
    """As the store does: what only has to be repeated is."""
    for _ in range(20):
        try:
            return await call()
        except (
            asyncpg.DeadlockDetectedError,
            asyncpg.SerializationError,
            asyncpg.LockNotAvailableError,
        ):
            await asyncio.sleep(0.02)
    raise AssertionError("it never came through")


async def close(hands: list[Any]) -> None:
    for hand in hands:
        await give_back(hand)


async def test_fifty_writers_to_one_slot(world: World) -> None:
    """R002-19: one active ref is left, each other was ended by the one behind it, every story is whole."""
    hands = await many(world.urls, WRITERS)
    answers = await asyncio.gather(
        *(repeated(lambda n=n, hand=hand: world.attach(f"c{n}", by=hand)) for n, hand in enumerate(hands))
    )
    await close(hands)
    assert Counter(answer["decision"] for answer in answers) == {"INSERT": 1, "REPLACE": WRITERS - 1}
    assert Counter(answer["result"] for answer in answers) == {"OK_INSERTED": 1, "OK_REPLACED": WRITERS - 1}
    [active] = (await world.refs()).values()
    rows = await world.admin.fetch("SELECT id, created_at, deleted_at FROM public.media_refs ORDER BY id")
    assert {row["id"] for row in rows} == {answer["ref_id"] for answer in answers}
    assert [row["id"] for row in rows if row["deleted_at"] is None] == [active]
    ended = await world.admin.fetch(
        "SELECT ref_id FROM public.media_write_events "
        "WHERE event_type = 'WRITE_DB' AND payload ->> 'action' = 'end'"
    )
    assert Counter(row["ref_id"] for row in ended) == Counter(
        row["id"] for row in rows if row["id"] != active
    )
    assert await world.value(INCOMPLETE) == 0
    used = await world.admin.fetch(
        "SELECT file_hash FROM public.media_blobs WHERE unreferenced_since IS NULL"
    )
    assert len(used) == 1


async def test_many_upload_the_same_content(world: World) -> None:
    """R002-09: one blob is left, and one of them made it."""
    hands = await many(world.urls, 16)
    answers = await asyncio.gather(
        *(
            repeated(lambda hand=hand: world.write("store", NO_SLOT, blob("same"), by=hand))
            for hand in hands[:8]
        ),
        *(
            repeated(lambda n=n, hand=hand: world.attach("same", slot(n), by=hand))
            for n, hand in enumerate(hands[8:])
        ),
    )
    await close(hands)
    assert {answer["result"] for answer in answers} <= {"OK_INSERTED", "OK_RETURN_EXISTING"}
    assert await world.value("SELECT count(*) FROM public.media_blobs") == 1
    key = await world.value("SELECT storage_key FROM public.media_blobs")
    assert {answer["storage_key"] for answer in answers} == {key}
    inserts = await world.value(
        "SELECT count(*) FROM public.media_write_events WHERE event_type = 'WRITE_DB' "
        "AND payload ->> 'target_table' = 'public.media_blobs' AND payload ->> 'action' = 'insert'"
    )
    assert inserts == 1


async def test_one_request_sent_by_many(world: World) -> None:
    """R002-10: one of them writes, all get the same answer."""
    request, content = uuid4(), blob("a")
    hands = await many(world.urls, 12)
    answers = await asyncio.gather(
        *(
            repeated(lambda hand=hand: world.write("attach", SLOT, content, request=request, by=hand))
            for hand in hands
        )
    )
    await close(hands)
    assert [answer["is_replay"] for answer in answers].count(False) == 1
    assert len({(answer["decision"], answer["result"], answer["ref_id"]) for answer in answers}) == 1
    assert len(await world.events(request)) == 5


async def test_swaps_that_meet(world: World) -> None:
    """R002-21: whatever the order, each ref has one place and each place one ref."""
    refs = [await world.attached(f"c{n}", slot(n)) for n in range(4)]
    dice = random.Random(7)  # noqa: S311  a story, not a secret
    hands = await many(world.urls, 12)

    async def swap(hand: Any) -> list[asyncpg.Record]:
        moves = [(dice.choice(refs), dice.randrange(4)) for _ in range(6)]
        return [await repeated(lambda r=r, p=p: world.move(r, p, by=hand)) for r, p in moves]

    answers = [answer for group in await asyncio.gather(*map(swap, hands)) for answer in group]
    await close(hands)
    assert {answer["result"] for answer in answers} <= {"OK_REPLACED", "OK_RETURN_EXISTING"}
    found = await world.refs()
    assert sorted(found) == [("7", "gallery", n) for n in range(4)]
    assert sorted(found.values()) == sorted(refs)
    assert await world.value(INCOMPLETE) == 0


async def test_the_last_two_refs_end_at_once(world: World) -> None:
    """R002-26: the blob is known to be unused, whoever was second."""
    for turn in range(5):
        refs = [await world.attached("a", slot(n, entity=f"e{turn}")) for n in range(2)]
        hands = await many(world.urls, 2)
        await asyncio.gather(
            *(
                repeated(lambda ref=ref, hand=hand: world.detach(ref, by=hand))
                for ref, hand in zip(refs, hands, strict=True)
            )
        )
        await close(hands)
        since = "SELECT unreferenced_since FROM public.media_blobs WHERE file_hash = $1"
        assert await world.value(since, hash_of("a")) is not None


async def test_the_end_of_the_last_ref_waits_for_the_end_of_the_other(world: World) -> None:
    """R002-26: the lock, not luck: who counts before the other has committed still sees its ref in use."""
    refs = [await world.attached("a", slot(entity=entity)) for entity in ("e1", "e2")]
    one, other = await many(world.urls, 2)
    async with one.transaction():
        await world.detach(refs[0], by=one)
        waiting = asyncio.create_task(world.detach(refs[1], by=other))
        await blocked(one, other)
    assert (await waiting)["result"] == "OK_REPLACED"
    await close([one, other])
    since = "SELECT unreferenced_since FROM public.media_blobs WHERE file_hash = $1"
    assert await world.value(since, hash_of("a")) is not None


async def test_a_long_story(world: World) -> None:
    """R002-18, R002-28: many writes in any order, compared with a model that is a dictionary."""
    seed = random.randrange(10**6)  # noqa: S311  a story, not a secret
    dice = random.Random(seed)  # noqa: S311  the same
    model: dict[int, tuple[int, str]] = {}
    try:
        for _ in range(150):
            position, name = dice.randrange(4), f"c{dice.randrange(3)}"
            match dice.choice(["attach", "move", "detach"]):
                case "attach":
                    answer = await world.attach(name, slot(position))
                    held = model.get(position)
                    expected = "INSERT" if held is None else "DUPLICATE" if held[1] == name else "REPLACE"
                    assert answer["decision"] == expected
                    model[position] = (answer["ref_id"], name)
                case "move" if model:
                    source = dice.choice(list(model))
                    answer = await world.move(model[source][0], position)
                    assert answer["decision"] == ("NOOP" if source == position else "REPLACE")
                    moved, other = model.pop(source), model.pop(position, None)
                    if source != position and other is not None:
                        model[source] = other
                    model[position] = moved
                case "detach" if model:
                    gone = model.pop(dice.choice(list(model)))
                    assert (await world.detach(gone[0]))["decision"] == "REPLACE"
                case _:
                    continue
            wanted = {("7", "gallery", place): ref for place, (ref, _) in model.items()}
            assert await world.refs() == wanted
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error
    assert await world.value(CONFLICTS) == 0
    assert await world.value(INCOMPLETE) == 0
    used = {
        row["file_hash"]
        for row in await world.admin.fetch(
            "SELECT file_hash FROM public.media_blobs WHERE unreferenced_since IS NULL"
        )
    }
    assert used == {hash_of(name) for _, name in model.values()}, f"seed {seed}"
