"""The practical limit: two statements a batch, written by hand for one table, with nothing checked."""

import asyncio
import time
from typing import Final

import asyncpg

from tests.bench.stage import script

BATCH: Final = 100
TABLE: Final = """
CREATE TABLE job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    payload jsonb NOT NULL,
    state text NOT NULL DEFAULT 'pending'
);
CREATE INDEX job_pending ON job (id) WHERE state = 'pending'
"""
INSERT: Final = "INSERT INTO job (payload) SELECT unnest($1::text[])::jsonb"
CLAIM: Final = """
UPDATE job SET state = 'running' WHERE id = ANY (ARRAY(
    SELECT id FROM job WHERE state = 'pending' ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""
FINISH: Final = "UPDATE job SET state = 'done' WHERE id = ANY ($1::bigint[])"


async def main() -> None:
    connection = await asyncpg.connect(script.arguments()["url"])
    await connection.execute(TABLE)

    async def enqueue(jobs: int) -> None:
        for start in range(0, jobs, 1000):
            await connection.execute(INSERT, ["{}"] * min(1000, jobs - start))

    async def work(jobs: int) -> script.Figures:
        await connection.execute("ANALYZE job")
        began, done = time.monotonic(), 0
        while done < jobs:
            rows = await connection.fetch(CLAIM, BATCH)
            await connection.execute(FINISH, [row["id"] for row in rows])
            done += len(rows)
        return {"wall": time.monotonic() - began}

    await script.perform({"enqueue": enqueue, "work": work})


if __name__ == "__main__":
    asyncio.run(main())
