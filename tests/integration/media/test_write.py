"""The one way to write: what is decided, what comes of it, and what is written down."""

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.integration.media.world import (
    COVER,
    NO_SLOT,
    SLOT,
    World,
    blob,
    hash_of,
    refused,
    slot,
)


def outcome(answer: Any) -> tuple[str, str]:
    return answer["decision"], answer["result"]


async def test_an_empty_slot_takes_it(world: World) -> None:
    """R002-33, R002-28: INSERT, a new ref, and the whole story of it."""
    request = uuid4()
    answer = await world.attach("a", request=request)
    assert outcome(answer) == ("INSERT", "OK_INSERTED")
    assert await world.refs() == {("7", "gallery", 0): answer["ref_id"]}
    assert await world.story(request) == [
        ("WRITE_REQUEST", None, None),
        ("WRITE_DECISION", "INSERT", None),
        ("WRITE_DB", None, None),
        ("WRITE_DB", None, None),
        ("WRITE_RESULT", None, "OK_INSERTED"),
    ]
    events = await world.events(request)
    assert {(e["workspace_id"], e["entity_id"], e["role"], e["position"]) for e in events} == {
        ("w1", "7", "gallery", 0)
    }
    for event in events[2:4]:
        payload = json.loads(event["payload"])
        assert {"action", "target_table", "blob_hash", "slot"} <= set(payload)
    assert [json.loads(e["payload"])["target_table"] for e in events[2:4]] == [
        "public.media_blobs",
        "public.media_refs",
    ]


async def test_the_same_content_in_the_same_slot_is_found(world: World) -> None:
    """R002-10, R002-13, R002-15: a new request, the existing ref, nothing added."""
    ref = await world.attached("a")
    before = await world.tables()
    for _ in range(3):
        answer = await world.attach("a")
        assert (*outcome(answer), answer["ref_id"]) == ("DUPLICATE", "OK_RETURN_EXISTING", ref)
    assert await world.tables() == before


async def test_another_content_takes_the_place(world: World) -> None:
    """R002-14, R002-18: the old ref is ended, not erased."""
    old = await world.attached("a")
    answer = await world.attach("b")
    assert outcome(answer) == ("REPLACE", "OK_REPLACED")
    assert await world.refs() == {("7", "gallery", 0): answer["ref_id"]}
    assert (await world.row(old))["deleted_at"] is not None
    assert (await world.row(old))["blob_hash"] == hash_of("a")


async def test_a_content_is_kept_once(world: World) -> None:
    """R002-08, R002-04: the second one reuses the row, in another entity and another role."""
    await world.attached("a")
    first = await world.value("SELECT storage_key FROM public.media_blobs")
    for where in (slot(entity="8"), slot(role="attachment"), slot(3)):
        answer = await world.attach("a", where)
        assert (*outcome(answer), answer["storage_key"]) == ("INSERT", "OK_INSERTED", first)
    assert await world.value("SELECT count(*) FROM public.media_blobs") == 1
    assert len(await world.refs()) == 4


async def test_the_same_content_in_another_position(world: World) -> None:
    """R002-11: allowed, unless a content stands once only."""
    first = await world.attached("a", slot(0))
    second = await world.attached("a", slot(1))
    assert first != second
    await world.set("media_one_ref_per_blob", "true")
    answer = await world.attach("a", slot(2))
    assert (*outcome(answer), answer["ref_id"]) == ("DUPLICATE", "OK_RETURN_EXISTING", first)
    assert outcome(await world.attach("a", slot(0, "image"))) == ("INSERT", "OK_INSERTED"), "another role"


async def test_a_cover_is_at_0_and_a_list_has_positions(world: World) -> None:
    """R002-20"""
    await world.attached("a", COVER)
    for position in (0, 1, 5, 9999):
        await world.attached("b", slot(position))
    answer = await world.attach("c", slot(1, "cover"))
    assert (*outcome(answer), answer["error_code"]) == ("REJECT", "REJECTED", "POSITION_OUT_OF_RANGE")


@pytest.mark.parametrize(
    ("where", "content", "code"),
    [
        (slot(-1), {}, "POSITION_OUT_OF_RANGE"),
        (slot(10000), {}, "POSITION_OUT_OF_RANGE"),
        (slot(2147483647), {}, "POSITION_OUT_OF_RANGE"),
        (slot(role="nonsense"), {}, "ROLE_NOT_ALLOWED"),
        (slot(), {"mime_type": "application/pdf"}, "TYPE_NOT_ALLOWED"),
        (slot(), {"mime_type": "imagery/png"}, "TYPE_NOT_ALLOWED"),
        (slot(), {"size": 104857601}, "TOO_LARGE"),
        (("closed", "post", "7", "gallery", 0), {}, "NOT_PERMITTED"),
    ],
)
async def test_what_the_rules_reject(world: World, where: Any, content: dict[str, Any], code: str) -> None:
    """R002-34: REJECT, REJECTED, and nothing but its story is written."""
    await world.control.execute("SELECT media.save_writers('root', 'closed', '{berta}')")
    before = await world.tables()
    request = uuid4()
    answer = await world.write("attach", where, blob("a", **content), request=request)
    assert (*outcome(answer), answer["error_code"], answer["ref_id"]) == ("REJECT", "REJECTED", code, None)
    assert answer["error_message"]
    assert await world.tables() == before
    assert await world.story(request) == [
        ("WRITE_REQUEST", None, None),
        ("WRITE_DECISION", "REJECT", None),
        ("WRITE_RESULT", None, "REJECTED"),
    ]
    assert (await world.events(request))[-1]["error_code"] == code


async def test_who_writes_to_a_workspace(world: World) -> None:
    """R002-34: exactly those who are named, to all that is in it; a workspace nobody named is open."""
    await world.control.execute("SELECT media.save_writers('root', 'w1', '{token:shop,berta,carl}')")
    shop: dict[str, Any] = {"actor": "berta", "principal": "token:shop"}
    ref = (await world.attach("a", **shop))["ref_id"]
    assert ref is not None
    for answer in (
        await world.attach("b"),
        await world.move(ref, 3),
        await world.detach(ref),
        await world.attach("b", actor="renditions", principal="token:other"),
        await world.attach("b", actor="berta", principal="token:other"),
        await world.detach(ref, actor="token:shop", principal="token:other"),
        await world.attach("b", actor="dora", principal="token:shop"),
        await world.attach("b", actor="dora", principal="cli:root", is_admin=True),
    ):
        assert (answer["result"], answer["error_code"]) == ("REJECTED", "NOT_PERMITTED")
    for name, who in (("b", {"actor": "token:shop"}), ("c", shop), ("d", shop | {"actor": "carl"})):
        assert (await world.attach(name, **who))["result"] == "OK_REPLACED"
    for actor in ("berta", "cli:root"):
        answer = await world.attach(actor, actor=actor, principal="cli:root", is_admin=True)
        assert answer["result"] == "OK_REPLACED"
    await world.control.execute("SELECT media.save_writers('root', 'w1', '{token:shop}')")
    answer = await world.attach("e", actor="whoever", principal="token:shop")
    assert answer["result"] == "OK_REPLACED", "no name bounds it"
    await world.control.execute("SELECT media.save_writers('root', 'w1', '{}')")
    assert (await world.detach(answer["ref_id"]))["result"] == "OK_REPLACED"


async def test_the_story_has_who_wrote_beside_on_whose_behalf(world: World) -> None:
    """R002-47: each event of a request, rejected ones too."""
    requests = uuid4(), uuid4()
    await world.attach("a", request=requests[0], actor="user:7", principal="token:shop")
    await world.attach(
        "a", slot(role="nonsense"), request=requests[1], actor="user:7", principal="token:shop"
    )
    for request in requests:
        told = {(event["actor"], event["principal"]) for event in await world.events(request)}
        assert told == {("user:7", "token:shop")}
    [ref] = (await world.refs()).values()
    assert (await world.row(ref))["created_by"] == "user:7"


async def test_a_replica_of_the_release_before_writes_as_it_did(world: World) -> None:
    """It names the actor of the request and nobody else."""
    old = "SELECT * FROM media.write($1, 'attach', $2, $3, $4, $5, $6, $7, NULL, $8::text::jsonb, NULL)"
    await world.control.execute("SELECT media.save_writers('root', 'w1', '{berta}')")
    request = uuid4()
    for actor, result in (("carl", "REJECTED"), ("berta", "OK_INSERTED")):
        content = json.dumps(blob("a"))
        row = await world.control.fetchrow(old, request, actor, *SLOT, content)
        assert row is not None
        assert row["result"] == result
        assert {event["principal"] for event in await world.events(request)} == {None}
        request = uuid4()


async def test_a_write_without_an_author_is_refused(world: World) -> None:
    call = "SELECT media.write($1, 'detach', 'a', $2, $3, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL)"
    for principal, is_admin in ((None, False), ("", False), ("token:a", None)):
        await refused("TN022", world.control.execute(call, uuid4(), principal, is_admin))


async def test_the_rules_are_rows_that_people_change(world: World) -> None:
    """R002-34"""
    await world.control.execute(
        "SELECT media.save_role('root', 'poster', 2, '{application/pdf}', false, false)"
    )
    where = slot(2, "poster")
    assert (await world.write("attach", where, blob("a", mime_type="application/pdf")))[
        "result"
    ] == "OK_INSERTED"
    answer = await world.write("attach", where, blob("b", mime_type="application/pdf"))
    assert answer["error_code"] == "SLOT_OCCUPIED", "this role has no replacing"
    await world.control.execute("SELECT media.remove_role('root', 'poster')")
    assert (await world.attach("c", slot(0, "poster")))["error_code"] == "ROLE_NOT_ALLOWED"
    await refused("TN022", world.control.execute("SELECT media.save_role('r', 'x', 2, '{../*}', true, true)"))
    assert await world.value("SELECT count(*) FROM supervisor.audit WHERE action = 'media.role'") == 2


async def test_an_occupied_slot_says_what_to_do(world: World) -> None:
    """R002-51: where it must not be replaced, the refusal names the ref and the two ways out."""
    ref = await world.attached("a")
    answer = await world.attach("b", on_occupied="reject")
    assert (*outcome(answer), answer["error_code"]) == ("REJECT", "REJECTED", "SLOT_OCCUPIED")
    assert f"holds ref {ref}" in answer["error_message"]
    assert "replace it, or move it" in answer["error_message"]
    assert (await world.attach("a", on_occupied="reject"))["decision"] == "DUPLICATE"


async def test_a_replace_insists_that_there_is_something(world: World) -> None:
    """R002-18: of what is believed to be there."""
    answer = await world.write("replace", SLOT, blob("a"))
    assert answer["error_code"] == "SLOT_EMPTY"
    ref = await world.attached("a")
    answer = await world.write("replace", SLOT, blob("b"), ref=ref + 1)
    assert answer["error_code"] == "SLOT_CHANGED"
    answer = await world.write("replace", SLOT, blob("b"), ref=ref)
    assert outcome(answer) == ("REPLACE", "OK_REPLACED")


async def test_a_move_to_a_free_place_and_to_its_own(world: World) -> None:
    """R002-21, R002-35: NOOP changes nothing at all."""
    ref = await world.attached("a")
    answer = await world.move(ref, 4)
    assert (*outcome(answer), answer["ref_id"]) == ("REPLACE", "OK_REPLACED", ref)
    assert await world.refs() == {("7", "gallery", 4): ref}
    before = await world.tables()
    request = uuid4()
    answer = await world.move(ref, 4, request=request)
    assert (*outcome(answer), answer["ref_id"]) == ("NOOP", "OK_RETURN_EXISTING", ref)
    assert await world.tables() == before
    assert await world.story(request) == [
        ("WRITE_REQUEST", None, None),
        ("WRITE_DECISION", "NOOP", None),
        ("WRITE_RESULT", None, "OK_RETURN_EXISTING"),
    ]


async def test_two_change_places(world: World) -> None:
    """R002-21: in one request, and both keep their refs."""
    one, other = await world.attached("a", slot(0)), await world.attached("b", slot(1))
    assert outcome(await world.move(one, 1)) == ("REPLACE", "OK_REPLACED")
    assert await world.refs() == {("7", "gallery", 0): other, ("7", "gallery", 1): one}
    target = (None, None, "8", "image", 3)
    assert (await world.write("move", target, ref=other))["result"] == "OK_REPLACED"
    assert (await world.write("move", (None, None, "7", "gallery", 1), ref=other))["result"] == "OK_REPLACED"
    assert await world.refs() == {("7", "gallery", 1): other, ("8", "image", 3): one}, (
        "over entities and roles"
    )


async def test_a_move_may_end_what_is_there(world: World) -> None:
    """R002-21"""
    one, other = await world.attached("a", slot(0)), await world.attached("b", slot(1))
    assert (await world.move(one, 1, on_occupied="reject"))["error_code"] == "SLOT_OCCUPIED"
    assert (await world.move(one, 1, on_occupied="replace"))["result"] == "OK_REPLACED"
    assert await world.refs() == {("7", "gallery", 1): one}
    assert (await world.row(other))["deleted_at"] is not None


async def test_a_move_keeps_the_rules_for_both(world: World) -> None:
    """R002-34: of a swap, the one that gives way has to suit the other place too."""
    picture = await world.attached("a", COVER)
    film = (await world.write("attach", slot(0), blob("f", mime_type="video/mp4")))["ref_id"]
    for answer in (
        await world.write("move", (None, None, None, "cover", 0), ref=film),
        await world.write("move", (None, None, None, "gallery", 0), ref=picture),
    ):
        assert (answer["result"], answer["error_code"]) == ("REJECTED", "TYPE_NOT_ALLOWED")
    assert await world.refs() == {("7", "cover", 0): picture, ("7", "gallery", 0): film}


async def test_a_detach_ends_that_ref_and_nothing_else(world: World) -> None:
    """R002-22, R002-23, R002-24, R002-35: content and other refs stay; a second one changes nothing."""
    ref = await world.attached("a")
    others = [await world.attached("a", where) for where in (slot(1), slot(role="image"), slot(entity="8"))]
    kept = [await world.row(other) for other in others]
    before = (await world.tables())[0]
    request = uuid4()
    assert outcome(await world.detach(ref, request=request)) == ("REPLACE", "OK_REPLACED")
    assert [await world.row(other) for other in others] == kept
    assert (await world.tables())[0] == before, "the blob"
    assert (await world.row(ref))["deleted_at"] is not None
    assert [row[0] for row in await world.story(request)] == [
        "WRITE_REQUEST",
        "WRITE_DECISION",
        "WRITE_DB",
        "WRITE_RESULT",
    ]
    after = await world.tables()
    assert outcome(await world.detach(ref)) == ("NOOP", "OK_RETURN_EXISTING")
    assert await world.tables() == after
    assert (await world.detach(999))["error_code"] == "REF_UNKNOWN"
    assert (await world.move(ref, 5))["error_code"] == "REF_UNKNOWN"
    await world.admin.execute("DELETE FROM public.media_refs WHERE id = $1", ref)
    assert [await world.row(other) for other in others] == kept, "erased, it takes nothing along either"
    assert await world.value("SELECT count(*) FROM public.media_blobs") == 1


async def test_a_slot_that_was_left_is_free(world: World) -> None:
    """R002-06"""
    ref = await world.attached("a")
    await world.detach(ref)
    again = await world.attach("a")
    assert outcome(again) == ("INSERT", "OK_INSERTED")
    assert again["ref_id"] != ref


@pytest.mark.parametrize("action", ["attach", "move", "detach", "store", "reject"])
async def test_a_request_that_is_sent_again_is_answered_as_before(world: World, action: str) -> None:
    """R002-35, R002-28: from what is written down; nothing is added, neither refs nor events."""
    ref, request = await world.attached("a", slot(9)), uuid4()
    arguments: dict[str, dict[str, Any]] = {
        "attach": {"action": "attach", "where": SLOT, "content": blob("b")},
        "move": {"action": "move", "where": (None, None, None, None, 2), "ref": ref},
        "detach": {"action": "detach", "ref": ref},
        "store": {"action": "store", "content": blob("c")},
        "reject": {"action": "attach", "where": slot(role="nonsense"), "content": blob("b")},
    }
    first = await world.write(**arguments[action], request=request)
    assert not first["is_replay"]
    await world.attached("z", slot(77))
    before, story = await world.tables(), await world.events(request)
    again = await world.write(**arguments[action], request=request)
    assert again["is_replay"]
    names = ("decision", "result", "ref_id", "blob_hash", "error_code", "error_message")
    assert [again[name] for name in names] == [first[name] for name in names]
    assert await world.tables() == before
    assert await world.events(request) == story


async def test_an_id_belongs_to_one_request(world: World) -> None:
    """R002-28: another wish under it is a conflict, and changes nothing."""
    request = uuid4()
    await world.attach("a", request=request)
    before = await world.tables()
    for call in (
        world.attach("b", request=request),
        world.attach("a", slot(1), request=request),
        world.attach("a", on_occupied="reject", request=request),
        world.detach(1, request=request),
    ):
        await refused("TN021", call)
    assert await world.tables() == before


async def test_a_content_is_asked_for_before_it_is_decided(world: World) -> None:
    """R002-28: a request whose content is not there yet leaves no trace."""
    request = uuid4()
    answer = await world.write("attach", SLOT, blob("a", stored=False), request=request)
    assert answer["needs_content"]
    assert (answer["decision"], await world.events(request)) == (None, [])
    assert (await world.attach("a", request=request))["result"] == "OK_INSERTED"
    later = await world.write("attach", slot(1), blob("a", stored=False))
    assert later["result"] == "OK_INSERTED", "it is there now"
    unknown = await world.write("attach", slot(2), {"hash": hash_of("z")})
    assert (unknown["result"], unknown["error_code"]) == ("REJECTED", "BLOB_UNKNOWN")
    duplicate = await world.write("attach", SLOT, blob("a", stored=False))
    assert duplicate["decision"] == "DUPLICATE"


async def test_a_content_may_be_kept_without_a_slot(world: World) -> None:
    """R002-08, R002-28"""
    request = uuid4()
    assert outcome(await world.write("store", NO_SLOT, blob("a"), request=request)) == (
        "INSERT",
        "OK_INSERTED",
    )
    assert outcome(await world.write("store", NO_SLOT, blob("a"))) == ("DUPLICATE", "OK_RETURN_EXISTING")
    assert [row[0] for row in await world.story(request)][-1] == "WRITE_RESULT"
    answer = await world.write("store", NO_SLOT, blob("b", size=104857601))
    assert answer["error_code"] == "TOO_LARGE"
    assert await world.refs() == {}


@pytest.mark.parametrize(
    "call",
    [
        {"action": "burn", "content": blob("a")},
        {"action": "attach", "content": blob("a")},
        {"action": "attach", "where": ("w1", "post", "7", "gallery", None), "content": blob("a")},
        {"action": "attach", "where": ("", "post", "7", "gallery", 0), "content": blob("a")},
        {"action": "attach", "where": ("w" * 201, "post", "7", "gallery", 0), "content": blob("a")},
        {"action": "attach", "where": SLOT},
        {"action": "attach", "where": SLOT, "content": blob("a") | {"hash": "../../etc"}},
        {"action": "attach", "where": SLOT, "content": blob("a") | {"hash": "A" * 64}},
        {"action": "attach", "where": SLOT, "content": blob("a") | {"size": -1}},
        {"action": "attach", "where": SLOT, "content": blob("a"), "on_occupied": "swap"},
        {"action": "attach", "where": SLOT, "content": blob("a"), "actor": ""},
        {"action": "store", "content": {"hash": hash_of("a")}},
        {"action": "move", "where": SLOT},
        {"action": "detach"},
    ],
)
async def test_what_is_no_request_leaves_no_trace(world: World, call: dict[str, Any]) -> None:
    """R002-15: it is refused as bad input, not as an error of ours."""
    request = uuid4()
    await refused("TN022", world.write(**call, request=request))
    assert await world.events(request) == []
