"""The test bed itself: two databases are apart, and each has what the migrations make."""

import asyncpg

from supervisor.embedded import Urls


async def test_the_database_of_a_test_is_migrated_and_safe(database: Urls) -> None:
    connection = await asyncpg.connect(database.admin)
    try:
        assert await connection.fetchval("SELECT to_regnamespace('supervisor') IS NOT NULL")
        assert await connection.fetchval("SHOW fsync") == "on"
        assert await connection.fetchval("SHOW synchronous_commit") == "on"
    finally:
        await connection.close()


async def test_every_role_can_connect(database: Urls) -> None:
    for role, url in database.runtime().items():
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT current_user") == f"tenure_{role}"
        await connection.close()
