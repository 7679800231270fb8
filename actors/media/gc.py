"""Collects one blob: its row goes by a call that finds it unused, then its artifact.

A worker that is lost between the two leaves the key in the collection, and the next one goes on with it. An
artifact that cannot be removed after some attempts stays, and `tenure artifacts gc` finds it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from actors.media.shelf import open_shelf
from supervisor import Claim, Done, Outcome, Retry, Tools
from supervisor.actor import Place
from supervisor.artifacts import ArtifactError, Artifacts
from supervisor.asking import ask


@asynccontextmanager
async def equip(place: Place) -> AsyncIterator[Artifacts]:
    artifacts = open_shelf(place.settings)
    try:
        yield artifacts
    finally:
        await artifacts.aclose()


async def handle(claim: Claim, tools: Tools) -> Outcome:
    artifacts: Artifacts = tools.equipment
    [row] = await ask(tools.place.store, "collect_blob", claim.key, claim.claim_id)
    key: str | None = row[0]
    if key is None:
        return Done({"outcome": "kept"})
    try:
        await artifacts.delete(key)
    except ArtifactError as error:
        return Retry(error.code, str(error))
    return Done({"outcome": "removed"})
