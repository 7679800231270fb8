"""A database, the three stores beside it and the command line, for tests of `tenure artifacts`."""

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from supervisor.artifacts import Artifacts, Overwrite
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.embedded import Urls
from tests.support.command_line import Answer, command_line
from tests.support.place import connected, run_sql
from tests.support.s3 import s3_server


@dataclass
class World:
    """Stores by the name of their backend, opened by the settings that the command line reads too."""

    urls: Urls
    directory: Path
    run: Callable[..., Any]
    stores: dict[str, Artifacts] = field(default_factory=dict)
    base: str = ""

    def store(self, backend: Any) -> Artifacts:
        if backend not in self.stores:
            settings = load_artifact_settings()
            self.stores[backend] = open_artifacts(settings, self.directory / ".tenure", backend)
        return self.stores[backend]

    async def cli(self, *args: str) -> Answer:
        answer: Answer = await self.run("artifacts", *args)
        return answer

    async def put(self, backend: str, key: str, content: bytes, *, days: float = 0) -> str:
        """An artifact that was put so many days ago; its address."""
        store = self.store(backend)
        if backend == "object" and days:
            s3_server().put_aged(f"{self.base}/{key}", content, days)
            return await store.uri(key)
        uri = (await store.put(key, content, overwrite=Overwrite.REPLACE)).uri
        if days:
            self.age(backend, key, days)
        return uri

    def age(self, backend: str, key: str, days: float) -> None:
        os.utime(self.path(backend, key), (time.time() - days * 86400,) * 2)

    def path(self, backend: str, key: str) -> Path:
        return self.directory / {"local": "local", "file": "share"}[backend] / key

    async def refer(self, uri: str) -> None:
        """A row that refers to it: on the list of what the leader removes, which is a row as any other."""
        await run_sql(self.urls.admin, f"INSERT INTO supervisor.discarded_artifact (uri) VALUES ('{uri}')")

    async def refer_by_run(self, uri: str) -> None:
        """A run whose log was moved there; how it came to that is of no interest here."""
        await self._insert(
            "INSERT INTO supervisor.job_run (root_id, job_definition_id, domain, action, payload, state,"
            " not_before, max_attempts, log_ref)"
            " VALUES (1, 1, 'command', 'run', '{}', 'PENDING', now(), 1, $1)",
            uri,
        )

    async def refer_by_patch(self, revision: int, key: str, content: bytes) -> None:
        """A diff of revision so-and-so of repository 1."""
        await self._insert(
            "INSERT INTO scm.patch_blobs"
            " (source_type, source_id, repo_id, uri, sha256, size_bytes, meta_json)"
            " VALUES ('svn', '1:' || $1::text, 1, $2, $3, $4, jsonb_build_object('evidence_uri',"
            " 'memory://patch_blobs/svn/1:' || $1::text || '/' || $3::text))",
            str(revision), key, sha256(content).hexdigest(), len(content),
        )  # fmt: skip

    async def refer_by_attachment(self, key: str, content: bytes) -> None:
        await self._insert(
            "INSERT INTO logbook.attachments (item_id, kind, uri, sha256, size_bytes)"
            " VALUES (1, 'log', $1, $2, $3)",
            key, sha256(content).hexdigest(), len(content),
        )  # fmt: skip

    async def _insert(self, statement: str, *values: object) -> None:
        """Without what it would belong to: only the reference is of interest."""
        async with connected(self.urls.admin) as connection:
            await connection.execute("SET session_replication_role = replica")
            await connection.execute(statement, *values)

    async def keys(self, backend: str) -> set[str]:
        return {entry.key async for entry in self.store(backend).entries()}


@asynccontextmanager
async def artifact_world(
    database: Urls, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> AsyncIterator[World]:
    base = uuid4().hex
    (directory / "share").mkdir()
    run = command_line(database, monkeypatch, directory)
    monkeypatch.setenv("TENURE_ARTIFACTS_ROOT", str(directory / "local"))
    monkeypatch.setenv("TENURE_ARTIFACTS_URI", f"file://{directory}/share")
    monkeypatch.setenv("TENURE_ARTIFACTS_S3_PREFIX", f"{base}/")
    monkeypatch.setenv("PROJECT_KEY", "proj_a")
    world = World(database, directory, run, base=f"{base}/proj_a")
    yield world
    for store in world.stores.values():
        await store.aclose()


def use_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3_server().environment.items():
        monkeypatch.setenv(name, value)
