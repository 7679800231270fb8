"""Evidence compared with what is recorded of it: a page of it at once."""

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Final, Literal

from actors.scm.evidence import Located
from supervisor.artifacts import ArtifactError, ArtifactMissing, Artifacts
from supervisor.artifacts.backends import open_artifacts
from supervisor.artifacts.parallel import for_each
from supervisor.artifacts.settings import load_artifact_settings
from supervisor.config import Settings
from supervisor.store import Record

Verdict = Literal["verified", "missing", "wrong"]
BADGES: Final[Mapping[str, str]] = {"verified": "SUCCEEDED", "missing": "FAILED", "wrong": "FAILED"}


class Shelf:
    """The artifact store, opened when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opened: Artifacts | None = None

    @property
    def artifacts(self) -> Artifacts:
        if self._opened is None:
            self._opened = open_artifacts(load_artifact_settings(), self._settings.state_dir)
        return self._opened


async def check(artifacts: Artifacts, rows: Iterable[Record]) -> dict[str, Verdict]:
    """By evidence URI; of rows with `uri`, `sha256` and `size_bytes`. All of each is read."""
    verdicts: dict[str, Verdict] = {}

    async def recorded() -> AsyncIterator[Record]:
        for row in rows:
            if row["uri"] is not None:
                yield row

    async def one(row: Record) -> None:
        verdicts[row["evidence_uri"]] = await _verdict(artifacts, row)

    await for_each(recorded(), one)
    return verdicts


async def _verdict(artifacts: Artifacts, row: Record) -> Verdict:
    try:
        located = Located(row["evidence_uri"], row["uri"], row["sha256"], row["size_bytes"])
        found = await artifacts.verify(await located.place(artifacts), located.sha256)
    except ArtifactMissing:
        return "missing"
    except ArtifactError:
        return "wrong"
    return "verified" if found.size == located.size_bytes else "wrong"
