"""What the conformance suite needs to know of a leased table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.lease import Lease

CREATED = "timestamptz '2026-01-01 00:00:00+00' + $1::integer * interval '1 second'"


@dataclass(frozen=True)
class Contract:
    """A lease, and how to fill its table. The statements are run by the administrator.

    `insert`: one claimable row; a larger $1 (integer) comes later in the claim order. `finished`: $1 rows
    whose work is over. `others`: rows that must not be claimed, each for another reason. `most`: how many
    claimable rows the table permits at a time. `setup`: what no migration has created yet. `gives`: what an
    outcome always carries. `settled`: where the table's own trigger moves on from the state of a path, in
    the same transaction; `derived`: what its triggers write beside the contract. `always_bound`: a running
    row without a heartbeat is refused by the table itself.
    """

    lease: Lease
    insert: str
    finished: str
    others: Sequence[str] = ()
    most: int = 1000
    setup: str = ""
    gives: Mapping[str, object] = field(default_factory=dict)
    settled: Mapping[str, str] = field(default_factory=dict)
    derived: frozenset[str] = frozenset()
    always_bound: bool = False

    @property
    def name(self) -> str:
        return self.lease.name
