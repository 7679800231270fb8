"""This project's contestant for libraries: a real replica with the domain's own actors, already running."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from supervisor.embedded import Urls
from tests.bench import tables, tenure
from tests.bench.arena import Arena
from tests.bench.contest import Figures
from tests.bench.contestant import Contestant, on_stage
from tests.support.libraries import Groups
from tests.support.place import connected

ACTIONS: Final = ("scan", "thumbnails-for-library")
GROUPS: Final = """
SELECT array_agg($1 || '/' || l.root_path || '/' || f.relative_path) AS paths
  FROM dedup.library_files f JOIN dedup.library_roots l ON l.id = f.library_id
 WHERE NOT f.is_missing AND NOT f.needs_hash GROUP BY f.hash_algorithm, f.content_hash HAVING count(*) > 1
"""


@asynccontextmanager
async def at_work(arena: Arena, libraries: Path, *roots: str) -> AsyncIterator[tuple[Urls, Contestant]]:
    """A replica on a fresh database, with these libraries in it, each named as the end of its path."""
    async with arena.tenure() as urls:
        async with connected(urls.admin) as admin:
            for action in ACTIONS:
                await tables.save_job(admin, f"dedup/{action}", domain="dedup", action=action)
            for root in roots:
                await admin.execute("SELECT dedup.add_library('bench', $1, $2)", Path(root).name, root)
        environment = {
            **tenure.environment(urls),
            "TENURE_DOMAINS": "dedup",
            "TENURE_SLOTS": "8",
            "TENURE_LIBRARIES_DIR": str(libraries),
        }
        given = {"client": urls.client, "control": urls.control}
        servers = [arena.postmaster]
        async with on_stage("librarian", given, servers=servers, environment=environment) as one:
            yield urls, one


async def asked(replica: Contestant, action: str, library: str, **payload: Any) -> Figures:
    """From the request to its run's end and the first page of the groups."""
    cost = await replica.phase("ask", action=action, payload={"library": library, **payload})
    return {"s": cost.wall, "CPU s": cost.own + cost.servers}


async def groups(urls: Urls, libraries: Path) -> Groups:
    async with connected(urls.admin) as admin:
        return {frozenset(row["paths"]) for row in await admin.fetch(GROUPS, str(libraries))}


async def forget(urls: Urls, library: str) -> None:
    async with connected(urls.admin) as admin:
        while await admin.fetchval("SELECT dedup.empty_library($1, 1000)", library):
            pass
        await admin.execute("SELECT dedup.remove_library('bench', $1)", library)


async def value(urls: Urls, query: str, *arguments: object) -> Any:
    async with connected(urls.admin) as admin:
        return await admin.fetchval(query, *arguments)


def cores() -> int:
    return os.cpu_count() or 1
