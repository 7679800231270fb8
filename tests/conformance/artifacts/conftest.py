"""`artifacts` is an empty store of each backend; a new backend joins BACKENDS."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.artifacts import Artifacts
from supervisor.artifacts.local import LocalArtifacts

Make = Callable[..., Artifacts]

BACKENDS: dict[str, Callable[..., Artifacts]] = {"local": LocalArtifacts}


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Another store over the same content, with other options."""

    def made(**options: Any) -> Artifacts:
        return BACKENDS[request.param](tmp_path / "artifacts", **options)

    return made


@pytest.fixture
def artifacts(make: Make) -> Artifacts:
    return make()
