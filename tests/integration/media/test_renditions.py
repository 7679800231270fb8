"""Small pictures of pictures: made beside them, following them, and gone with them."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from actors.media import RENDITIONS
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from tests.integration.media.api_scene import Scene
from tests.support.eventually import eventually
from tests.support.pictures import corners, encoded, quadrants
from tests.support.row_work import at_work

UPRIGHT = ("red", "green", "blue", "yellow")


class Studio:
    def __init__(self, scene: Scene, place: Path) -> None:
        self.scene = scene
        self.world = scene.world
        self.place = place
        self.epoch = 0

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        async with at_work(self.world.urls, RENDITIONS, state_dir=self.place / ".tenure"):
            yield

    async def tend(self) -> None:
        self.epoch = self.epoch or await self.world.lead()
        await self.world.control.fetchval("SELECT media.tend($1)", self.epoch)

    async def settled(self) -> bool:
        """Nothing is left to be done."""
        await self.tend()
        sql = "SELECT * FROM media.rendition_jobs WHERE again OR status IN ('pending', 'running')"
        left = await self.world.admin.fetch(sql)
        assert not left, left
        return True

    async def thumbnails(self) -> list[Any]:
        sql = "SELECT * FROM public.media_refs WHERE role = 'thumbnail' AND deleted_at IS NULL"
        return list(await self.world.admin.fetch(f"{sql} ORDER BY position"))

    async def content(self, hash_: str) -> bytes:
        key = await self.world.value("SELECT storage_key FROM public.media_blobs WHERE file_hash = $1", hash_)
        artifacts = open_artifacts(load_artifact_settings(), self.place / ".tenure")
        return await artifacts.get(key)


@pytest.fixture
def studio(scene: Scene, tmp_path: Path) -> Studio:
    return Studio(scene, tmp_path)


@pytest.mark.parametrize("form", ["png", "jpeg", "webp", "gif", "tiff", "bmp", "heic", "avif"])
async def test_a_picture_gets_its_rendition(studio: Studio, form: str) -> None:
    """The configured one, in role thumbnail of the same entity; R002-28 holds for it as for any other ref."""
    source = await studio.scene.attached(encoded(form), "gallery", 3)
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    [made] = await studio.thumbnails()
    assert (made["entity_type"], made["entity_id"], made["position"]) == ("post", "7", 3)
    assert (made["source_ref_id"], made["rendition"]) == (source["ref_id"], "small")
    picture = await studio.content(made["blob_hash"])
    assert Image.open(io.BytesIO(picture)).format == "WEBP"
    assert corners(picture) == (320, 160, UPRIGHT)
    requests = await studio.world.admin.fetch(
        "SELECT request_id FROM public.media_write_events WHERE ref_id = $1 AND result IS NOT NULL",
        made["id"],
    )
    [story] = [await studio.world.story(row["request_id"]) for row in requests]
    assert (story[1][1], story[-1][2]) == ("INSERT", "OK_INSERTED")


async def test_what_is_configured_is_made(studio: Studio) -> None:
    """Several renditions have places of their own, and never larger ones than the source."""
    await studio.world.control.execute("SELECT media.save_rendition('root', 'large', 4000, 'jpeg', 90)")
    await studio.scene.attached(encoded("png"), "cover")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    made = {row["rendition"]: row for row in await studio.thumbnails()}
    assert sorted(row["position"] for row in made.values()) == [0, 1]
    large = Image.open(io.BytesIO(await studio.content(made["large"]["blob_hash"])))
    assert (large.format, large.size) == ("JPEG", (640, 320))
    await studio.world.control.execute("SELECT media.remove_rendition('root', 'large')")
    async with studio.at_work():
        await eventually(studio.settled)
    assert [row["rendition"] for row in await studio.thumbnails()] == ["small"]


async def test_it_follows_its_source(studio: Studio) -> None:
    """R002-22: replaced and withdrawn with it, by requests of their own; the end of a ref ends no other."""
    first = await studio.scene.attached(encoded("png"), "cover")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
        [old] = await studio.thumbnails()
        second = await studio.scene.attached(encoded("png", quadrants(400, 200)), "cover")
        assert [row["id"] for row in await studio.thumbnails()] == [old["id"]], "not by the write itself"
        await eventually(studio.settled, timeout=30)
        [new] = await studio.thumbnails()
        assert (new["source_ref_id"], new["position"]) == (second["ref_id"], 0)
        assert first["ref_id"] != second["ref_id"]
        await studio.world.write("move", (None, None, "8", None, None), ref=second["ref_id"])
        await eventually(studio.settled, timeout=30)
        [moved] = await studio.thumbnails()
        assert (moved["entity_id"], moved["source_ref_id"]) == ("8", second["ref_id"])
        await studio.world.detach(second["ref_id"])
        await eventually(studio.settled, timeout=30)
    assert await studio.thumbnails() == []


async def test_the_same_picture_again_has_its_rendition_too(studio: Studio) -> None:
    """Detached and attached anew before the first one was withdrawn."""
    picture = encoded("png")
    first = await studio.scene.attached(picture, "cover")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    await studio.world.detach(first["ref_id"])
    again = await studio.scene.attached(picture, "cover")
    done = "SELECT count(*) FROM media.rendition_jobs WHERE source_ref_id = $1 AND status = 'done'"
    async with studio.at_work():
        await eventually(lambda: studio.world.value(done, again["ref_id"]), timeout=30)
        await eventually(studio.settled, timeout=30)
    made = await studio.thumbnails()
    assert [(row["source_ref_id"], row["position"]) for row in made] == [(again["ref_id"], 0)]


async def test_a_thumbnail_of_ones_own_is_left_alone(studio: Studio) -> None:
    """What people put there has its place; the made one takes the next."""
    own = await studio.scene.attached(encoded("png", quadrants(60, 30)), "thumbnail", 0)
    await studio.scene.attached(encoded("png"), "cover")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    assert [(row["position"], row["source_ref_id"] is None) for row in await studio.thumbnails()] == [
        (0, True),
        (1, False),
    ]
    assert (await studio.thumbnails())[0]["id"] == own["ref_id"]


async def test_a_damaged_picture_fails_alone(studio: Studio) -> None:
    """Told with a code; the ref and everything else stay as they are."""
    source = await studio.scene.attached(encoded("png")[:300], "gallery", 0)
    await studio.scene.attached(encoded("png"), "gallery", 1)
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    sql = "SELECT status, error_code FROM media.rendition_jobs WHERE source_ref_id = $1"
    [job] = await studio.world.admin.fetch(sql, source["ref_id"])
    assert tuple(job) == ("failed", "DECODE_FAILED")
    assert [row["position"] for row in await studio.thumbnails()] == [1]


async def test_only_pictures_in_rendered_roles(studio: Studio) -> None:
    await studio.scene.attached(encoded("png"), "attachment")
    await studio.scene.attached(b"plain text", "attachment", 1)
    assert await studio.world.value("SELECT count(*) FROM media.rendition_jobs") == 0


async def test_a_lost_answer_and_a_lost_worker_make_one(studio: Studio) -> None:
    """R002-15: the same request again is its replay; another claim finds the ref that is there."""
    await studio.scene.attached(encoded("png"), "cover")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    [made] = await studio.thumbnails()
    await studio.world.admin.execute("UPDATE media.rendition_jobs SET status = 'pending', claim_id = NULL")
    async with studio.at_work():
        await eventually(studio.settled, timeout=30)
    assert [row["id"] for row in await studio.thumbnails()] == [made["id"]]
