"""Sessions read by replicas: from pictures to versions, through kills, drains and pictures that are none."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from actors.capture.config import capture_config
from actors.capture.submit import Picture, submit
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.config import Settings
from supervisor.embedded import Urls
from supervisor.errors import BadSettings
from supervisor.store import Store
from supervisor.wiring import check_domains, chosen_actors
from tests.integration.capture.pictures import DAY, blank, picture
from tests.support.replicas import D, Fleet, Member, replicas

PATIENCE = 90.0


@asynccontextmanager
async def readers(database: Urls, directory: Path, count: int) -> AsyncIterator[Fleet]:
    env = {"TENURE_DOMAINS": "capture", "TENURE_STATE_DIR": str(directory / "state")}
    async with replicas(database, directory, count=0, **env) as fleet:  # type: ignore[arg-type]  # settings
        # as short as the leases of these replicas are: what a killed one held is soon free
        shortest = f"{D * fleet.stretch:g}"
        await fleet.rows(
            "SELECT supervisor.save_setting('test', 'capture_lease_seconds', $1::jsonb)", shortest
        )
        await fleet.start(count, variant="short-leases")
        yield fleet


async def send(fleet: Fleet, *contents: bytes, user: int = 7) -> UUID:
    store = Store(fleet.urls.control, name="test", size=1)
    artifacts = open_artifacts(load_artifact_settings(), fleet.directory / "state")
    try:
        pictures = [Picture(f"picture {number}", BytesIO(one)) for number, one in enumerate(contents)]
        session, _ = await submit(store, artifacts, "test", user, pictures)
        return session
    finally:
        await artifacts.aclose()
        await store.close()


async def session_of(fleet: Fleet, session: UUID) -> Any:
    [row] = await fleet.rows("SELECT * FROM schedule_ingest.capture_session WHERE id = $1", session)
    return row


async def ended(fleet: Fleet, session: UUID) -> Any:
    async def over() -> Any:
        row = await session_of(fleet, session)
        assert row["state"] in ("done", "failed"), row
        return row

    return await fleet.until(over, within=PATIENCE, what=f"the end of session {session}")


async def reader(fleet: Fleet, session: UUID) -> Member:
    async def taken() -> Member | None:
        name = (await session_of(fleet, session))["locked_by"]
        return next((one for one in fleet.members if one.worker_id == name), None)

    found: Member = await fleet.until(taken, within=PATIENCE, what="a reader")
    return found


async def versions(fleet: Fleet) -> list[Any]:
    return await fleet.rows("SELECT * FROM schedule_ingest.schedule_version ORDER BY version")


def titles(version: Any) -> list[str]:
    return [entry["title"] for entry in json.loads(version["payload"])["entries"]]


async def test_pictures_become_a_version(database: Urls, tmp_path: Path) -> None:
    """R004-28, R004-42, R004-43, R004-44: what they say, in the order of the pictures; then the next one."""
    evening = (("18:00 - 19:30", "Swimming"), ("20:00 - 21:00", "Call home"))
    async with readers(database, tmp_path, 1) as fleet:
        first = await ended(fleet, await send(fleet, picture(*DAY), picture(*evening)))
        assert (first["state"], first["error"], first["locked_by"]) == ("done", None, None)
        second = await ended(fleet, await send(fleet, picture(*DAY)))
        assert second["state"] == "done"
        one, two = await versions(fleet)
        assert titles(one) == ["Pottery class", "Dentist", "Swimming", "Call home"]
        assert titles(two) == ["Pottery class", "Dentist"]
        assert [str(version["schedule_date"]) for version in (one, two)] == ["2026-11-16"] * 2


async def test_what_cannot_be_read_fails_with_a_reason(database: Urls, tmp_path: Path) -> None:
    """R004-45: no text, no time, a picture that is none: a sentence, and no version."""
    torn = picture(*DAY)[:900]
    async with readers(database, tmp_path, 1) as fleet:
        for contents, words in (
            ((blank(),), "no text was found"),
            ((picture(("Monday", "Holiday"), heading="Notes"),), "no line with a time"),
            ((picture(*DAY), torn), "picture 2 of 2"),
        ):
            row = await ended(fleet, await send(fleet, *contents))
            assert row["state"] == "failed"
            assert words in row["error"], row["error"]
            assert (row["locked_by"], row["locked_at"]) == (None, None)
        assert await versions(fleet) == []


async def test_a_reader_killed_in_the_middle_leaves_one_version(database: Urls, tmp_path: Path) -> None:
    """R004-12, R004-46: another takes the session over when the lease is over, and reads it once."""
    async with readers(database, tmp_path, 2) as fleet:
        session = await send(fleet, *[picture(*DAY)] * 6)
        first = await reader(fleet, session)
        await first.kill()
        assert (await session_of(fleet, session))["state"] == "processing", "killed before its end"
        row = await ended(fleet, session)
        assert row["state"] == "done"
        [version] = await versions(fleet)
        assert (version["session_id"], version["version"]) == (session, 1)
        assert titles(version) == ["Pottery class", "Dentist"]


async def test_a_frozen_reader_that_comes_back_writes_nothing(database: Urls, tmp_path: Path) -> None:
    """R004-19: it is stopped, overtaken, and goes on: the version is the other one's."""
    async with readers(database, tmp_path, 2) as fleet:
        session = await send(fleet, *[picture(*DAY)] * 6)
        frozen = await reader(fleet, session)
        frozen.stop()
        row = await ended(fleet, session)
        assert row["state"] == "done"
        frozen.cont()
        again = await send(fleet, picture(DAY[0]))
        assert (await ended(fleet, again))["state"] == "done"
        assert [version["session_id"] for version in await versions(fleet)] == [session, again]


async def test_a_reader_that_leaves_gives_its_session_back(database: Urls, tmp_path: Path) -> None:
    """There is no way back to pending: it is stale at once, and another one reads it."""
    async with readers(database, tmp_path, 1) as fleet:
        session = await send(fleet, *[picture(*DAY)] * 6)
        first = await reader(fleet, session)
        first.term()

        async def told() -> bool:
            return any(line["event"] == "draining" for line in first.said())

        await fleet.until(told, within=10, what="the drain", interval=0.01)
        first.term()  # at once, not when it has finished
        await first.replica.wait()
        assert (await session_of(fleet, session))["state"] == "processing", "it left before its end"
        await fleet.start(1, variant="short-leases")
        row = await ended(fleet, session)
        assert row["state"] == "done"
        assert len(await versions(fleet)) == 1


async def test_a_reader_without_the_pictures_leaves_the_session_to_another(
    database: Urls, tmp_path: Path
) -> None:
    """A failure is final, so a replica with another artifact store must not be the one to fail it."""
    async with readers(database, tmp_path, 0) as fleet:
        elsewhere = {"TENURE_STATE_DIR": str(tmp_path / "elsewhere")}
        [lost] = await fleet.start(1, variant="short-leases", env=elsewhere)
        session = await send(fleet, picture(*DAY))
        assert await reader(fleet, session) is lost
        await fleet.start(1, variant="short-leases")
        assert (await ended(fleet, session))["state"] == "done"
        assert [line["event"] for line in lost.said() if line.get("part") == "capture"] != []


def test_a_replica_without_the_language_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CAPTURE_LANGUAGES", "eng+xxx")
    capture_config.cache_clear()
    try:
        with pytest.raises(BadSettings, match="install tessdata-xxx"):
            check_domains(Settings())
        assert [name for name in chosen_actors(Settings()) if name.startswith("capture")] == []
    finally:
        capture_config.cache_clear()
