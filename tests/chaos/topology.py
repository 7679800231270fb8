"""What a world is made of."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Topology:
    """`replicas` plain ones named r1, r2, ...; `variants` makes some of them others, by host.

    standby: pg2 streams from pg1, and replicas have both addresses; `synchronous` makes pg1 wait for it.
    redis, pgbouncer: there is one, and the replicas use it.
    relayed: the replicas' ways to the servers can be delayed on every layer.
    clocks: hosts whose clock can be set (libfaketime), to whether CLOCK_MONOTONIC and BOOTTIME are faked too.
    disk_bytes: PostgreSQL's data on a file system of that size, which can be filled.
    """

    replicas: int = 3
    variants: Mapping[str, str] = field(default_factory=dict)
    slots: int = 4
    standby: bool = False
    synchronous: bool = False
    redis: bool = False
    pgbouncer: bool = False
    relayed: bool = False
    clocks: Mapping[str, bool] = field(default_factory=dict)
    disk_bytes: int = 0
    postgres: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)

    @property
    def replica_hosts(self) -> list[str]:
        return [f"r{number}" for number in range(1, self.replicas + 1)]

    @property
    def hosts(self) -> list[str]:
        wanted = {"pg1": True, "pg2": self.standby, "redis": self.redis, "pgb": self.pgbouncer, "sink": True}
        return [*(host for host, there in wanted.items() if there), *self.replica_hosts]
