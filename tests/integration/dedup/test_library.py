"""A library from the first look to the last thumbnail, by three replicas of which one is killed.

TENURE_TEST_LIBRARY_FILES and TENURE_TEST_LIBRARY_PHOTOS make it as large as a real one.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from supervisor.embedded import Urls
from tests.support.libraries import (
    Groups,
    duplicates_in,
    fingerprint,
    jdupes,
    parsed_jdupes,
    photos,
    small_files,
)
from tests.support.replicas import Fleet, replicas

FILES = int(os.environ.get("TENURE_TEST_LIBRARY_FILES", "6000"))
PHOTOS = int(os.environ.get("TENURE_TEST_LIBRARY_PHOTOS", "60"))
PATIENCE = 60 + (FILES + 20 * PHOTOS) / 100


async def start(fleet: Fleet, action: str, **payload: object) -> int:
    name = f"dedup/{action}"
    spec = {"domain": "dedup", "action": action, "max_attempts": 5, "backoff_seconds": 0.1}
    if not await fleet.value("SELECT count(*) FROM supervisor.job_definition WHERE name = $1", name):
        await fleet.rows(
            "SELECT FROM supervisor.save_job('test', $1, $2::jsonb, true)", name, json.dumps(spec)
        )
    run: int = await fleet.value(
        "SELECT id FROM supervisor.enqueue($1, $2::jsonb)", name, json.dumps(payload)
    )
    return run


async def ended(fleet: Fleet, run: int) -> bool:
    (row,) = await fleet.last([run])
    assert row["state"] not in {"FAILED", "CANCELED"} or row["retry_at"] is not None, dict(row)
    return bool(row["state"] == "SUCCEEDED")


async def groups(fleet: Fleet, libraries: Path) -> Groups:
    rows = await fleet.rows(
        """SELECT array_agg($1 || '/' || l.root_path || '/' || f.relative_path) AS paths
             FROM dedup.library_files f JOIN dedup.library_roots l ON l.id = f.library_id
            WHERE NOT f.is_missing AND NOT f.needs_hash GROUP BY f.hash_algorithm, f.content_hash
           HAVING count(*) > 1""",
        str(libraries),
    )
    return {frozenset(row["paths"]) for row in rows}


@pytest.mark.slow
@pytest.mark.timeout(6 * (60 + 4 * PATIENCE))
async def test_three_replicas_one_killed_find_what_others_find(database: Urls, tmp_path: Path) -> None:
    """R000-30, R000-98, R000-103: the same groups as an oracle and jdupes; no original was changed."""
    libraries = tmp_path / "libraries"
    small_files(libraries / "texts", FILES)
    photos(libraries / "photos", PHOTOS)
    before = fingerprint(libraries)
    env = {"TENURE_LIBRARIES_DIR": str(libraries), "TENURE_STATE_DIR": str(tmp_path / "state")}
    async with replicas(database, tmp_path, count=0, **env) as fleet:  # type: ignore[arg-type]  # settings
        await fleet.start(3, variant="short-leases")
        await fleet.leader()
        for name in ("texts", "photos"):
            await fleet.rows("SELECT FROM dedup.add_library('test', $1, $1)", name)
        first = await start(fleet, "scan", library="texts", hash=True)
        half = FILES // 2
        hashed = "SELECT count(*) FROM dedup.library_files WHERE NOT needs_hash"

        async def in_the_middle() -> bool:
            assert await fleet.value(hashed) >= half
            return True

        await fleet.until(in_the_middle, within=PATIENCE, what="half of the hashes", interval=0.02)
        busy = "SELECT worker_id FROM dedup.library_files WHERE hash_status = 'running' LIMIT 1"
        victim_id = await fleet.value(busy)
        victim = next((one for one in fleet.members if one.worker_id == victim_id), fleet.members[0])
        await victim.kill()
        await fleet.until(lambda: ended(fleet, first), within=PATIENCE, what="the scan of the texts")
        second = await start(fleet, "scan", library="photos", hash=True)
        await fleet.until(lambda: ended(fleet, second), within=PATIENCE, what="the scan of the photos")
        third = await start(
            fleet, "thumbnails-for-library", library="photos", format="webp", max_dimension=128
        )
        await fleet.until(lambda: ended(fleet, third), within=PATIENCE, what="the thumbnails")

        assert await groups(fleet, libraries) == duplicates_in(libraries)
        if command := jdupes():
            listed = subprocess.run([*command, str(libraries)], capture_output=True, check=True, text=True)
            assert await groups(fleet, libraries) == parsed_jdupes(listed.stdout)
        thumbs = await fleet.rows("SELECT status, output_relpath, bytes_size FROM dedup.thumbnails")
        assert len(thumbs) == PHOTOS
        for thumb in thumbs:
            assert thumb["status"] == "ready"
            made = tmp_path / "state" / "thumbs" / thumb["output_relpath"]
            assert made.stat().st_size == thumb["bytes_size"]
        assert fingerprint(libraries) == before
