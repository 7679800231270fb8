"""What runs as a replica: the product, with its calls logged. `python -m tests.chaos.recorder VARIANT`.

CHAOS_HOST is the host's name, CHAOS_WORKER the worker's, CHAOS_CALLS the file for the calls; CHAOS_GUARDS
names guards that are taken out in this process (guards.py). Commands get CHAOS_ROOT, CHAOS_HOST,
CHAOS_EFFECTS, CHAOS_SINK, CHAOS_STRETCH and CHAOS_WORLD in their environment. Nothing else differs from
`tenure up`.
"""

import asyncio
import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import actors.command
import supervisor.replica
from actors.command.payload import Order, environment
from schemas import Query
from supervisor.actor import Claim
from supervisor.config import load_settings
from supervisor.errors import OutcomeUnknown, TenureError
from supervisor.identity import Identity
from supervisor.store import Canceled, Record, Store
from supervisor.wiring import run_replica
from tests.chaos.calls import answer, arguments
from tests.chaos.guards import take_out
from tests.chaos.journal import Journal
from tests.chaos.strays import MARK
from tests.chaos.variants import VARIANTS

PASSED_ON = ("CHAOS_HOST", "CHAOS_EFFECTS", "CHAOS_SINK", "CHAOS_STRETCH", MARK)


def record_calls(journal: Journal, worker: str) -> None:
    """Every call of every store of this process, before it is sent and when its outcome is known."""
    original = Store.rows
    numbers = itertools.count(1)

    async def rows(
        self: Store, query: str | Query, *args: Any, timeout: float | None = None
    ) -> Sequence[Record]:
        name = query if isinstance(query, str) else query.name
        number = next(numbers)
        call = {"n": number, "worker": worker, "op_id": f"{worker}:{number}", "f": name}
        journal.write(**call, kind="invoke", args=arguments(name, args))
        try:
            found = await original(self, query, *args, timeout=timeout)
        except BaseException as error:
            journal.write(
                **call, kind=_kind(error), sqlstate=_sqlstate(error), result={"error": str(error)[:300]}
            )
            raise
        journal.write(**call, kind="ok", result=answer(name, found))
        return found

    Store.rows = rows  # type: ignore[method-assign]  # recording is what this process is for


def _kind(error: BaseException) -> str:
    # cancelled by the server is rolled back; cancelled by us may have been done
    if isinstance(error, Canceled):
        return "fail"
    return "unknown" if isinstance(error, OutcomeUnknown | asyncio.CancelledError) else "fail"


def _sqlstate(error: BaseException) -> str | None:
    cause = error.__cause__ if isinstance(error, TenureError) else error
    return getattr(cause, "sqlstate", None)


def name_worker(worker: str) -> None:
    vars(supervisor.replica)["Identity"] = lambda: Identity(worker_id=worker)


def tell_commands() -> None:
    """Whose attempt it is and where its effects go."""

    def with_place(order: Order, claim: Claim, file: Path, taken_over: Mapping[str, str]) -> dict[str, str]:
        place = {name: os.environ.get(name, "") for name in PASSED_ON}
        return {**environment(order, claim, file, taken_over), **place, "CHAOS_ROOT": str(claim.root_id)}

    vars(actors.command)["environment"] = with_place


def main() -> int:
    worker = os.environ["CHAOS_WORKER"]
    record_calls(Journal(Path(os.environ["CHAOS_CALLS"])), worker)
    name_worker(worker)
    tell_commands()
    take_out(os.environ.get("CHAOS_GUARDS", "").split())
    return run_replica(load_settings(), VARIANTS[sys.argv[1]])


if __name__ == "__main__":
    sys.exit(main())
