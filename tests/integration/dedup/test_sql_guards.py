"""Cleanups, checkpoints and batches of files: which moves pass, under whose claim, and what never changes."""

from dataclasses import dataclass

import pytest

from actors.dedup import leases
from supervisor.lease import Lease
from supervisor.lease_sql import render
from tests.integration.dedup.sql_world import Claimed, DedupWorld, refused


@dataclass(frozen=True)
class Guarded:
    lease: Lease
    states: tuple[str, ...]
    moves: frozenset[tuple[str, str]]
    made: str
    """One row in state $1."""

    @property
    def table(self) -> str:
        return self.lease.table

    @property
    def ended(self) -> set[str]:
        return set(self.states) - {before for before, _ in self.moves}


def moves(*given: str) -> frozenset[tuple[str, str]]:
    return frozenset((before, after) for before, after in (move.split(">") for move in given))


CLEANUP = Guarded(
    leases.CLEANUP,
    ("pending", "running", "completed", "failed"),
    moves("pending>running", "running>pending", "running>completed", "running>failed"),
    "INSERT INTO dedup.thumbnail_cleanup_jobs (group_key, status) "
    "VALUES (gen_random_uuid()::text, $1) RETURNING id",
)
WAL = Guarded(
    leases.WAL,
    ("pending", "running", "retryable", "completed", "failed"),
    moves("pending>running", "retryable>running", "running>retryable", "running>completed", "running>failed"),
    "INSERT INTO dedup.wal_maintenance_jobs (status) VALUES ($1) RETURNING id",
)
FILES = Guarded(
    leases.FILES,
    ("idle", "pending", "running"),
    moves("idle>pending", "pending>idle", "pending>running", "running>pending", "running>idle"),
    "INSERT INTO dedup.library_files (library_id, relative_path, size_bytes, mtime_ns, hash_status) "
    "SELECT id, gen_random_uuid()::text, 1, 1, $1 FROM dedup.library_roots RETURNING id",
)
GUARDED = pytest.mark.parametrize(
    "kind", [CLEANUP, WAL, FILES], ids=lambda kind: kind.table.removeprefix("dedup.")
)
CLAIMS = "claim_id = gen_random_uuid(), worker_id = 'w1', lease_expires_at = now() + interval '1 minute'"


async def held(world: DedupWorld, kind: Guarded) -> Claimed:
    await world.admin.sql(kind.made, "pending")
    [row] = await world.claim(kind.lease)
    return row


@GUARDED
async def test_exactly_these_moves_pass(world: DedupWorld, kind: Guarded) -> None:
    """R000-104: whoever asks; what has ended has no move."""
    for before in kind.states:
        for after in kind.states:
            row = await world.admin.value(kind.made, before)
            claims = f", {CLAIMS}" if after == "running" != before else ""
            change = world.admin.sql(
                f"UPDATE {kind.table} SET {kind.lease.state} = $1{claims} WHERE id = $2", after, row
            )
            if (before, after) in kind.moves or before == after:
                await change
            else:
                await refused("TN010" if before in kind.ended else "TN011", change)


@pytest.mark.parametrize("status", ["completed", "failed"])
@pytest.mark.parametrize("kind", [CLEANUP, WAL], ids=["cleanup", "checkpoint"])
async def test_what_has_ended_never_changes(world: DedupWorld, kind: Guarded, status: str) -> None:
    """R000-104: not its error either, by the owner or by the worker."""
    await world.admin.sql(kind.made, status)
    for hand in (world.admin, world.worker):
        for change in ("error_message = 'other'", "status = 'pending'", f"status = 'running', {CLAIMS}"):
            await refused("TN010", hand.sql(f"UPDATE {kind.table} SET {change}"))


@pytest.mark.parametrize(
    ("kind", "change"),
    [(CLEANUP, "group_key = 'other'"), (CLEANUP, "id = 99"), (WAL, "requested_mode = 'truncate'")],
)
async def test_what_it_is_never_changes(world: DedupWorld, kind: Guarded, change: str) -> None:
    """R000-96"""
    await world.admin.sql(kind.made, "pending")
    await refused("TN013", world.admin.sql(f"UPDATE {kind.table} SET {change}"))


@GUARDED
@pytest.mark.parametrize("left_out", ["claim_id", "worker_id", "lease_expires_at"])
async def test_nothing_runs_without_a_claim(world: DedupWorld, kind: Guarded, left_out: str) -> None:
    """R000-17: the worker's rights reach the columns, the guard wants all of them."""
    await world.admin.sql(kind.made, "pending")
    given = ", ".join(part for part in CLAIMS.split(", ") if not part.startswith(left_out))
    for hand in (world.admin, world.worker):
        await refused("TN013", hand.sql(f"UPDATE {kind.table} SET {kind.lease.state} = 'running', {given}"))


@GUARDED
async def test_a_claim_is_never_used_again(world: DedupWorld, kind: Guarded) -> None:
    """R000-17: neither a second time nor on a row that does not run."""
    await world.admin.sql(kind.made, "pending")
    await refused("TN013", world.admin.sql(f"UPDATE {kind.table} SET claim_id = gen_random_uuid()"))
    row = await held(world, kind)
    if kind is WAL:
        assert await world.finish(kind.lease, row, "retry") == "RECORDED"
    else:
        await world.unguarded(f"UPDATE {kind.table} SET {kind.lease.state} = 'pending' WHERE id = {row.id}")
    again = "worker_id = 'w1', lease_expires_at = now() + interval '1 minute'"
    await refused(
        "TN013",
        world.worker.sql(
            f"UPDATE {kind.table} SET {kind.lease.state} = 'running', {again} WHERE id = $1", row.id
        ),
    )


@GUARDED
@pytest.mark.parametrize("change", ["claim_id = gen_random_uuid()", "worker_id = 'w2'", "claim_id = NULL"])
async def test_nobody_else_takes_what_runs(world: DedupWorld, kind: Guarded, change: str) -> None:
    """R000-18, R000-22: also after its lease has run out: it is first taken back."""
    await held(world, kind)
    for hand in (world.worker, world.admin):
        await refused("TN013", hand.sql(f"UPDATE {kind.table} SET {change}"))
    await world.expire(kind.table.removeprefix("dedup."))
    await refused("TN013", world.worker.sql(f"UPDATE {kind.table} SET {change}"))


@GUARDED
async def test_an_outcome_is_that_of_the_claim(world: DedupWorld, kind: Guarded) -> None:
    """R000-22: with its owner and token; without them it could not be told from another's."""
    await held(world, kind)
    ended = kind.lease.done.state
    for change in ("claim_id = NULL", "claim_id = gen_random_uuid()", "worker_id = 'w2'"):
        await refused(
            "TN013", world.worker.sql(f"UPDATE {kind.table} SET {kind.lease.state} = '{ended}', {change}")
        )


@GUARDED
async def test_the_worker_writes_only_what_it_works_on(world: DedupWorld, kind: Guarded) -> None:
    """R000-80 to R000-97: a row that waits is claimed or left alone, whatever columns the rights reach."""
    await world.admin.sql(kind.made, "pending")
    error = "hash_error_code" if kind is FILES else "error_code"
    for change in (f"{error} = 'X'", "worker_id = 'w1'", "lease_expires_at = now()"):
        await refused("TN013", world.worker.sql(f"UPDATE {kind.table} SET {change}"))


@pytest.mark.parametrize("move", ["idle>pending", "pending>idle"])
async def test_what_is_to_be_hashed_is_not_the_workers(world: DedupWorld, move: str) -> None:
    """R000-97: batches are made and dropped by the functions that plan."""
    before, after = move.split(">")
    await world.admin.sql(FILES.made, before)
    for role in ("worker", "control"):
        hand = await world.hand(role)
        await refused("TN013", hand.sql("UPDATE dedup.library_files SET hash_status = $1", after))


@GUARDED
async def test_a_lease_that_has_run_out_is_not_extended(world: DedupWorld, kind: Guarded) -> None:
    """R000-16, R000-20"""
    await held(world, kind)
    later = f"UPDATE {kind.table} SET lease_expires_at = now() + interval '1 hour'"
    await world.worker.sql(later)
    await world.expire(kind.table.removeprefix("dedup."))
    await refused("TN013", world.worker.sql(later))


UNBOUND = "claim_id = NULL, worker_id = NULL, worker_heartbeat_at = NULL, lease_expires_at = NULL"


@GUARDED
async def test_only_what_has_run_out_is_taken_back(world: DedupWorld, kind: Guarded) -> None:
    """R000-16, R000-39, R000-44: the control plane takes no live claim away, whatever it asks."""
    row = await held(world, kind)
    waits = kind.lease.stale.state
    taken = f"UPDATE {kind.table} SET {kind.lease.state} = '{waits}', {UNBOUND}"
    await refused("TN013", world.control.sql(taken))
    if kind is WAL:
        await refused("TN013", world.worker.sql(taken))
    await world.expire(kind.table.removeprefix("dedup."))
    assert await world.recover(kind.lease) == 1
    assert await world.finish(kind.lease, row) == "SUPERSEDED"


@pytest.mark.parametrize("kind", [CLEANUP, FILES], ids=["cleanup", "files"])
async def test_the_worker_gives_its_own_back(world: DedupWorld, kind: Guarded) -> None:
    """A replica that leaves need not wait for the end of its leases."""
    row = await held(world, kind)
    statement = render(kind.lease).release
    assert statement is not None
    assert len(await world.worker.sql(statement.sql, "w1", [row.id], [row.claim])) == 1
    [again] = await world.claim(kind.lease, owner="w2")
    assert (again.id, again.claim != row.claim) == (row.id, True)


@GUARDED
async def test_of_two_that_take_one_row_the_second_is_refused(world: DedupWorld, kind: Guarded) -> None:
    """R000-18: by hand, without the lock of the claim: it waits for the first and finds the row running."""
    row = await world.admin.value(kind.made, "pending")
    take = (
        f"UPDATE {kind.table} SET {kind.lease.state} = 'running', {CLAIMS.replace('w1', '{}')} WHERE id = $1"
    )
    other = await world.hand("worker")
    await world.worker.begin()
    await world.worker.sql(take.format("w1"), row)
    waiting = await world.waiting(other, other.sql(take.format("w2"), row))
    await world.worker.commit()
    await refused("TN013", waiting)
    assert await world.admin.value(f"SELECT worker_id FROM {kind.table}") == "w1"


@GUARDED
async def test_an_outcome_that_waited_for_a_recovery_is_refused(world: DedupWorld, kind: Guarded) -> None:
    """R000-22: by hand, without its token: the row is nobody's when its turn comes."""
    await held(world, kind)
    await world.expire(kind.table.removeprefix("dedup."))
    other = await world.hand("worker")
    await world.control.begin()
    assert await world.recover(kind.lease) == 1
    change = f"UPDATE {kind.table} SET {kind.lease.state} = $1"
    waiting = await world.waiting(other, other.sql(change, kind.lease.done.state))
    await world.control.commit()
    await refused("TN013" if kind is FILES else "TN011", waiting)
