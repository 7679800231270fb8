"""Whether the rights in a live database are those of the contracts: no column less, no column more."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from supervisor.lease import Lease
from supervisor.store import Store


async def grant_faults(store: Store, leases: Iterable[Lease]) -> list[str]:
    """What differs, in words; empty when the database permits exactly what the contracts say."""
    by_table: dict[str, list[Lease]] = defaultdict(list)
    for lease in leases:
        by_table[lease.table].append(lease)
    return [fault for table, group in by_table.items() for fault in await _faults_of(store, table, group)]


async def _faults_of(store: Store, table: str, leases: Sequence[Lease]) -> list[str]:
    worker = await store.rows("read_rights", "tenure_worker", table)
    control = await store.rows("read_rights", "tenure_control", table)
    if not worker:
        return [f"{table} does not exist"]
    may = {row["column_name"] for row in worker if row["may_update"]}
    recovers = {row["column_name"] for row in control if row["may_update"]}
    should = frozenset().union(*(lease.writable() for lease in leases))
    recovery = frozenset().union(*(lease.recovery_columns() for lease in leases))
    faults = [f"tenure_worker may write {table}.{column}" for column in sorted(may - should)]
    faults += [f"tenure_worker may not write {table}.{column}" for column in sorted(should - may)]
    faults += [f"tenure_control may not write {table}.{column}" for column in sorted(recovery - recovers)]
    rights = {right for lease in leases for right in lease.rights}
    for right in ("insert", "delete", "truncate"):
        if worker[0][f"may_{right}"] != (right.upper() in rights):
            faults.append(f"tenure_worker {'lacks' if right.upper() in rights else 'has'} {right} on {table}")
    if not worker[0]["may_select"]:
        faults.append(f"tenure_worker cannot read {table}")
    return faults
