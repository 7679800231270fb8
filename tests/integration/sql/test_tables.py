"""The tables there are, under their pinned names."""

from tests.integration.sql.world import World

PINNED = {
    "leader_epoch", "leader_lease", "tenure_log", "worker", "job_definition", "job_run", "job_run_history",
    "job_run_log", "late_finish", "event", "setting", "audit",
}  # fmt: skip


async def test_the_pinned_tables_are_there(world: World) -> None:
    """R003-52: JobDefinition, JobRun, Event, Settings, Audit, and what stands beside them."""
    rows = await world.admin.sql(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'supervisor'"
        " UNION SELECT relname FROM pg_class"
        " WHERE relnamespace = 'supervisor'::regnamespace AND relkind = 'p'"
    )
    assert {row["tablename"] for row in rows} >= PINNED


async def test_log_bodies_are_apart_from_the_runs(world: World) -> None:
    """R003-53: a run's row holds a reference to its log, never the body."""
    rows = await world.admin.sql(
        "SELECT table_name, column_name FROM information_schema.columns"
        " WHERE table_schema = 'supervisor' AND column_name IN ('body', 'log_ref')"
    )
    assert {(row["table_name"], row["column_name"]) for row in rows} == {
        ("job_run_log", "body"),
        ("job_run", "log_ref"),
    }
