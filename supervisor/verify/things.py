"""K16: what runs published outside the database."""

import re
from collections.abc import Iterator
from typing import Final

from supervisor.verify.history import History
from supervisor.verify.report import Finding

DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def check(history: History) -> Iterator[Finding]:
    bound = history.limits.stop_bound
    for thing in history.things or ():
        if thing.temporary:
            if bound is not None and thing.age > 2 * bound:
                yield Finding("K16", f"{thing.name} is temporary, and {thing.age:.1f} s old")
            continue
        named = DIGEST.search(thing.name)
        if named is not None and named.group() != thing.sha256:
            yield Finding("K16", f"{thing.name} is not what its name says", (f"sha256 {thing.sha256}",))
        states = {run: history.by_run[run][1].state for run in thing.named_by if run in history.by_run}
        owners = [run for run, state in states.items() if state == "SUCCEEDED"]
        if len(owners) != 1:
            text = f"{thing.name} is named by {len(owners)} succeeded runs"
            yield Finding("K16", text, tuple(f"run {run} {state}" for run, state in states.items()))
