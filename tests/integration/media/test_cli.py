"""`tenure media`: attach, move, detach, look, replay, collect, and the rules."""

import json
import os
from pathlib import Path
from uuid import uuid4

import pytest
from blake3 import blake3

from tests.integration.media.world import World
from tests.support.command_line import Cli
from tests.support.pictures import encoded, quadrants

WHERE = ("--workspace", "w1", "--entity", "post:7")


@pytest.fixture
def pictures(tmp_path: Path) -> tuple[str, str]:
    (tmp_path / "a.png").write_bytes(encoded("png"))
    (tmp_path / "b.txt").write_bytes(encoded("png", quadrants(64, 32)))
    return str(tmp_path / "a.png"), str(tmp_path / "b.txt")


async def test_a_file_is_attached(cli: Cli, pictures: tuple[str, str], world: World) -> None:
    """R002-33, R002-10, R002-14: the answer has the shape that scripts rely on."""
    picture, other = pictures
    said = (
        await cli("media", "attach", picture, *WHERE, "--role", "cover", "--position", "0", "--json")
    ).json()
    assert {"decision": "INSERT", "result": "OK_INSERTED"}.items() <= said.items()
    assert said["blob_hash"] == blake3(Path(picture).read_bytes()).hexdigest()
    again = (await cli("media", "attach", picture, *WHERE, "--role", "cover", "--json")).json()
    assert (again["decision"], again["ref_id"]) == ("DUPLICATE", said["ref_id"])
    replaced = (await cli("media", "attach", other, *WHERE, "--role", "cover", "--json")).json()
    assert (replaced["decision"], replaced["result"]) == ("REPLACE", "OK_REPLACED"), "its bytes are a picture"
    shown = (await cli("media", "show", *WHERE, "--json")).json()
    assert [ref["id"] for ref in shown["refs"]] == [replaced["ref_id"]]
    assert str(replaced["ref_id"]) in (await cli("media", "show", *WHERE)).out
    one = (await cli("media", "show", str(said["ref_id"]), "--json")).json()
    assert one["deleted_at"] is not None
    blob = (await cli("media", "show", said["blob_hash"], "--json")).json()
    assert (blob["active_refs"], len(blob["refs"])) == (0, 1)
    assert await world.value("SELECT DISTINCT created_by LIKE 'cli:%' FROM public.media_refs")
    assert await world.value("SELECT bool_and(principal LIKE 'cli:%') FROM public.media_write_events")


async def test_a_request_is_sent_again_and_told(cli: Cli, pictures: tuple[str, str]) -> None:
    """R002-35, R002-47"""
    request = str(uuid4())
    attach = ("media", "attach", pictures[0], *WHERE, "--role", "cover", "--request-id", request)
    first = (await cli(*attach, "--json")).json()
    again = (await cli(*attach, "--json")).json()
    assert (again["is_replay"], again["ref_id"], again["request_id"]) == (True, first["ref_id"], request)
    told = (await cli("media", "replay", request, "--json")).json()
    assert [event["event_type"] for event in told["events"]][0::4] == ["WRITE_REQUEST", "WRITE_RESULT"]
    table = (await cli("media", "replay", request)).out
    assert table.index("INSERT") < table.index("OK_INSERTED")
    assert table.startswith("by cli:")
    for_anna = [*attach[:-1], str(uuid4()), "--position", "0", "--actor", "anna"]
    assert (await cli(*for_anna)).code == 0
    assert "on behalf of anna" in (await cli("media", "replay", for_anna[-5])).out
    assert (await cli("media", "replay", str(uuid4()))).code == 5
    assert (await cli("media", "attach", pictures[1], *attach[3:])).code == 4, "another wish under its id"


async def test_refs_move_and_end(cli: Cli, pictures: tuple[str, str], world: World) -> None:
    """R002-21, R002-52"""
    refs = [
        (
            await cli("media", "attach", file, *WHERE, "--role", "gallery", "--position", str(n), "--json")
        ).json()
        for n, file in enumerate(pictures)
    ]
    one, other = (ref["ref_id"] for ref in refs)
    moved = (await cli("media", "move", str(one), "--position", "1", "--json")).json()
    assert (moved["decision"], moved["result"]) == ("REPLACE", "OK_REPLACED")
    assert await world.refs() == {("7", "gallery", 0): other, ("7", "gallery", 1): one}
    assert (await cli("media", "move", str(one), "--position", "1")).out.startswith("NOOP")
    assert (await cli("media", "move", str(one), "--entity", "post:8", "--role", "image")).code == 0
    ended = (await cli("media", "detach", str(one), "--json")).json()
    assert ended["result"] == "OK_REPLACED"
    assert await world.refs() == {("7", "gallery", 0): other}
    assert (await cli("media", "detach", "999")).code == 4


async def test_what_the_rules_reject(cli: Cli, pictures: tuple[str, str], world: World) -> None:
    """R002-34, R002-51: exit 4, in JSON too, with what to do."""
    picture, other = pictures
    said = await cli("media", "attach", picture, *WHERE, "--role", "nonsense", "--json")
    assert said.code == 4
    assert json.loads(said.out)["error_code"] == "ROLE_NOT_ALLOWED"
    assert json.loads(said.out)["result"] == "REJECTED"
    await cli("media", "attach", picture, *WHERE, "--role", "cover")
    taken = await cli("media", "attach", other, *WHERE, "--role", "cover", "--on-occupied", "reject")
    assert taken.code == 4
    assert "replace it, or move it" in taken.err
    await world.set("media_max_bytes", "10")
    assert (await cli("media", "attach", picture, *WHERE, "--role", "cover")).code == 2


async def test_what_cannot_be_meant(cli: Cli, pictures: tuple[str, str], tmp_path: Path) -> None:
    """R002-15: exit 2, and nothing is changed."""
    os.mkfifo(tmp_path / "pipe")
    for file in ("nothing.png", str(tmp_path)):
        assert (await cli("media", "attach", file, *WHERE, "--role", "cover")).code == 2
    attach = ("media", "attach", pictures[0], "--role", "cover", "--workspace", "w1")
    assert (await cli(*attach, "--entity", "post")).code == 2
    assert (await cli(*attach, "--entity", "post:7", "--request-id", "7")).code == 2
    assert (await cli(*attach, "--entity", "post:\udc80")).code == 2
    assert (await cli("media", "show")).code == 2
    assert (await cli("media", "show", "nonsense")).code == 2
    assert (await cli("media", "show", "999")).code == 5
    assert (await cli("media", "show", "0" * 64)).code == 5
    assert (await cli("media", "writers", "w1")).code == 2


async def test_what_may_go(cli: Cli, pictures: tuple[str, str], world: World) -> None:
    """R002-26: a report first; --execute only where the setting allows it."""
    said = (await cli("media", "attach", pictures[0], *WHERE, "--role", "cover", "--json")).json()
    await cli("media", "detach", str(said["ref_id"]))
    await world.set("media_gc_delay_seconds", "0")
    await world.set("media_ref_retention_seconds", "0")
    report = (await cli("media", "gc", "--json")).json()
    assert (report["execute"], report["due_blobs"], report["queued"]) == (False, 1, None)
    assert [one["file_hash"] for one in report["candidates"]] == [said["blob_hash"]]
    assert "media_gc_execute" in (await cli("media", "gc")).out
    assert (await cli("media", "gc", "--execute")).code == 4
    await world.set("media_gc_execute", "true")
    assert (await cli("media", "gc", "--execute", "--json")).json()["queued"] == 1
    assert await world.value("SELECT count(*) FROM media.collections WHERE blob_hash = $1", said["blob_hash"])


async def test_the_rules_are_changed(cli: Cli, pictures: tuple[str, str], world: World) -> None:
    """R002-34"""
    role = ("media", "role", "poster", "--types", "image/png", "--max-position", "0", "--no-replace")
    assert (await cli(*role)).code == 0
    attach = ("media", "attach", pictures[0], *WHERE, "--role", "poster")
    assert (await cli(*attach)).code == 0
    assert (await cli("media", "writers", "w1", "user:7")).code == 0
    assert (await cli(*attach, "--actor", "user:8")).code == 4
    assert (await cli(*attach, "--actor", "user:7")).code == 0
    assert (await cli("media", "writers", "w1", "--everybody")).code == 0
    assert (await cli("media", "rendition", "big", "--size", "900")).code == 0
    rules = (await cli("media", "rules", "--json")).json()
    assert [one for one in rules["roles"] if one["role"] == "poster"] == [
        {"role": "poster", "max_position": 0, "mime_types": ["image/png"], "may_replace": False,
         "is_rendered": False}
    ]  # fmt: skip
    assert [one["name"] for one in rules["renditions"]] == ["big", "small"]
    assert "poster" in (await cli("media", "rules")).out
    assert (await cli("media", "role", "poster", "--remove")).code == 0
    assert (await cli("media", "role", "poster", "--remove")).code == 5
    assert (await cli("media", "rendition", "big", "--remove")).code == 0
    assert (await cli("media", "role", "x", "--types", "../etc")).code == 2
    assert await world.value("SELECT count(*) FROM supervisor.audit WHERE action LIKE 'media.%'") == 6
