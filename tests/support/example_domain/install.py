"""What `tenure migrate` would do with the domain's own migration."""

from supervisor.embedded import Urls
from tests.support.sessions import connected


async def apply_as_owner(database: Urls, script: str) -> None:
    async with connected(database.admin) as admin, admin.transaction():
        # a database cloned from a template has none of the rights that were granted on the template itself
        name = await admin.fetchval("SELECT quote_ident(current_database())")
        await admin.execute(f"GRANT CREATE ON DATABASE {name} TO tenure_owner")
        await admin.execute("SET LOCAL ROLE tenure_owner")
        await admin.execute(script)
