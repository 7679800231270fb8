"""`artifacts` is an empty store of each backend; a new backend joins BACKENDS."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from supervisor.artifacts import Artifacts
from supervisor.artifacts.file import FileArtifacts
from supervisor.artifacts.local import LocalArtifacts
from supervisor.artifacts.object import ObjectArtifacts
from tests.support.s3 import S3Server, s3_server

Make = Callable[..., Artifacts]


def _local(directory: Path, **options: Any) -> Artifacts:
    return LocalArtifacts(directory / "artifacts", **options)


def _file(directory: Path, **options: Any) -> Artifacts:
    (directory / "share").mkdir(exist_ok=True)
    return FileArtifacts(f"file://{directory}/share", **options)


def _object(directory: Path, **options: Any) -> Artifacts:
    # in one bucket for all tests; a test's directory is its own, and so is its prefix
    return ObjectArtifacts(s3_server().target, base=f"tests/{directory.name}-{_run}", **options)


_run = uuid4().hex
BACKENDS: dict[str, Make] = {"local": _local, "file": _file, "object": _object}


@pytest.fixture(params=BACKENDS)
async def make(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Make]:
    """Another store over the same content, with other options."""
    opened: list[Artifacts] = []

    def made(**options: Any) -> Artifacts:
        opened.append(BACKENDS[request.param](tmp_path, **options))
        return opened[-1]

    yield made
    for store in opened:
        await store.aclose()


@pytest.fixture
def artifacts(make: Make) -> Artifacts:
    return make()


@pytest.fixture
def s3() -> S3Server:
    return s3_server()
