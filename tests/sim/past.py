"""A standby that lags: the tables as they were, to be promoted in the place of what was committed since."""

from typing import TYPE_CHECKING

from tests.sim.database import TABLES

if TYPE_CHECKING:
    from tests.sim.world import World


class Past:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._run("CREATE SCHEMA sim_past")
        for table in TABLES:
            self._run(f"CREATE TABLE sim_past.{table} AS SELECT * FROM supervisor.{table}")

    def restore(self) -> None:
        """A new timeline. Sequences stay ahead, as their records in the log do."""
        tables = ", ".join(f"supervisor.{table}" for table in TABLES)
        self._run("SET session_replication_role = replica")
        self._run(f"TRUNCATE {tables}")
        for table in TABLES:
            self._run(
                f"INSERT INTO supervisor.{table} OVERRIDING SYSTEM VALUE SELECT * FROM sim_past.{table}"
            )
        self._run("SET session_replication_role = origin")
        self._run("DROP SCHEMA sim_past CASCADE")
        self._run("UPDATE sim.server SET timeline = timeline + 1")

    def _run(self, sql: str) -> None:
        self._world.execute("admin", sql)
