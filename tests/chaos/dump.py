"""The database into the recorded directory: every row of the tables that a history is judged by."""

import json
import time
from pathlib import Path
from typing import Final

import asyncpg

from supervisor.clock import boottime
from tests.support.slowness import patient

TABLES: Final = (
    *("tenure_log", "job_run", "job_run_history", "late_finish", "worker", "leader_epoch"),
    *("job_definition", "skipped_fire"),
)


async def dump(url: str, history: Path, name: str = "database") -> None:
    """`name` is database-lost for the timeline that a failover left behind."""
    directory = history / name
    directory.mkdir()
    connection = await asyncpg.connect(url, timeout=patient(10))
    try:
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            for table in TABLES:
                rows = await connection.fetch(f"SELECT row_to_json(t)::text FROM supervisor.{table} t")
                (directory / f"{table}.jsonl").write_text("".join(f"{row[0]}\n" for row in rows))
    finally:
        await connection.close()
    if name == "database":
        clock = {"boottime": boottime(), "wall": time.time()}
        (history / "clock.json").write_text(json.dumps(clock))
