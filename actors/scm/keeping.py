"""The diffs of a batch into the artifacts: small ones many at a time, large ones a few.

Each has its own answer. Evidence is never written over: where another diff has the name already, the new one
goes beside it.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Final

from anyio import to_thread

from actors.scm.diffs import Diff
from supervisor.artifacts import ArtifactError, ArtifactExists, Artifacts, Overwrite, Put
from supervisor.artifacts.parallel import side_by_side

__all__ = ["Keyed", "keep"]

TOGETHER: Final = 128
LARGE_PUTS: Final = 8
LARGE_BYTES: Final = 1 << 16
"""A diff up to here is read without a thread, which would take longer than the reading."""

Keyed = tuple[str, Diff]
"""A diff, and the key it is to have."""
Kept = tuple[Diff, str | ArtifactError]
"""The key it has, or why it has none."""


async def keep(artifacts: Artifacts, diffs: Sequence[Keyed], limit: int) -> AsyncGenerator[Kept, None]:
    """Each is stored when it is told of. `limit` is the largest that may be stored."""
    small = [one for one in diffs if one[1].size <= LARGE_BYTES]
    for start in range(0, len(small), TOGETHER):
        some = small[start : start + TOGETHER]
        puts = [Put(key, diff.read(), diff.sha256) for key, diff in some]
        for (_, diff), answer in zip(some, await _put(artifacts, puts, limit), strict=True):
            yield diff, answer

    async def alone(one: Keyed) -> Kept:
        key, diff = one
        put = Put(key, await to_thread.run_sync(diff.read), diff.sha256)
        (answer,) = await _put(artifacts, [put], limit)
        return diff, answer

    large = [one for one in diffs if one[1].size > LARGE_BYTES]
    for kept in await side_by_side(large, alone, LARGE_PUTS):
        yield kept


async def _put(artifacts: Artifacts, puts: Sequence[Put], limit: int) -> list[str | ArtifactError]:
    found = await artifacts.put_all(puts, overwrite=Overwrite.SAME, limit=limit)
    taken = [put for put, answer in zip(puts, found, strict=True) if isinstance(answer, ArtifactExists)]
    beside = [Put(_beside(put), put.content, put.expected_sha256) for put in taken]
    second = iter(await artifacts.put_all(beside, overwrite=Overwrite.SAME, limit=limit) if beside else ())
    answers = [next(second) if isinstance(answer, ArtifactExists) else answer for answer in found]
    return [answer if isinstance(answer, ArtifactError) else answer.key for answer in answers]


def _beside(put: Put) -> str:
    return put.key.removesuffix(".diff") + f"-{(put.expected_sha256 or '')[:12]}.diff"
