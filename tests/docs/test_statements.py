"""The SQL of docs/operations.md does what the page says."""

import re

import asyncpg

from supervisor.embedded import Urls
from tests.docs.pages import FENCE, ROOT, text_of

BLOCKS = [block for kind, block in FENCE.findall(text_of(ROOT / "docs/operations.md")) if kind == "sql"]
RESTORED = next(block for block in BLOCKS if "supervisor.acquire" in block)


async def test_after_a_restore_the_epoch_is_higher_than_any_and_nothing_is_given_out(database: Urls) -> None:
    control = await asyncpg.connect(database.control)
    try:
        first = await control.fetchrow(
            "SELECT * FROM supervisor.acquire('before', 0.01, 30, 0, NULL, NULL)"  # what the backup knew
        )
        assert first is not None
        assert (first["epoch"], first["quarantine_seconds"]) == (1, 0)
        said = await control.fetchrow(RESTORED)
        assert said is not None
        assert said["epoch"] == 8
        assert said["quarantine_seconds"] > 29
        first_epoch = await control.fetchval("SELECT first_epoch FROM supervisor.leader_epoch")
        assert first_epoch == 8  # so that no assignment of the backup can start
    finally:
        await control.close()


async def test_what_to_watch_can_be_asked(database: Urls) -> None:
    admin = await asyncpg.connect(database.admin)
    try:
        asked = [one for block in BLOCKS if block is not RESTORED for one in re.split(r";\s*\n", block)]
        for statement in filter(str.strip, asked):
            await admin.fetch(statement)
        assert len(asked) > 2
    finally:
        await admin.close()
