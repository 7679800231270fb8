"""Sample work in every domain, to have something to look at after `tenure up --sample`.

Added once: a sample job that is there stays as it is, and each sample run has a key, so a second start adds
nothing.
"""

import json
from typing import Any, Final

from supervisor.errors import Conflict
from supervisor.store import Store

ACTOR: Final = "sample"
FLAKY: Final = 'echo "attempt $TENURE_ATTEMPT"; test "$TENURE_ATTEMPT" -gt 1'
JOBS: Final[dict[str, dict[str, Any]]] = {
    "sample/hello": {
        "payload": {"argv": ["echo", "hello from", {"argument": "name"}]},
        "parameters": {"name": {"type": "text", "default": "Tenure", "max_length": 100}},
    },
    "sample/slow": {"payload": {"argv": ["sleep", "8"]}, "concurrency": 2, "timeout_seconds": 60},
    "sample/flaky": {"payload": {"argv": ["sh", "-c", FLAKY]}, "max_attempts": 3, "backoff_seconds": 2},
}
RUNS: Final = {"sample/hello": 3, "sample/slow": 4, "sample/flaky": 1}


async def seed(store: Store) -> None:
    for name, spec in JOBS.items():
        try:
            await store.row("save_job", ACTOR, name, json.dumps({"domain": "command", **spec}), True, True)
        except Conflict:
            continue
    for name, count in RUNS.items():
        for number in range(1, count + 1):
            try:
                await store.row("enqueue_run", name, "{}", f"{name}:{number}", None, None)
            except Conflict:  # the job was changed since: its key belongs to a run with another payload
                continue
