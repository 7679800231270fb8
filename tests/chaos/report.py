"""`python -m tests.chaos.report RESULTS...`: the page of docs about many plays, out of their results.jsonl.

A play of a later file takes the place of the same play (scenario and seed) in an earlier one.
"""

import json
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from tests.bench.machine import cpu
from tests.chaos import judge
from tests.chaos.runner import TIMINGS
from tests.chaos.scenarios import SCENARIOS
from tests.chaos.summary import row, spread

Play = dict[str, Any]

HEAD: Final = """# Faults

What the fault scenarios of `make chaos` measured: {plays} plays of {scenarios} scenarios, each with at least
{seeds} seeds that decide when a fault strikes, whom, and for how long. Hosts are network namespaces, faults
are real (packets dropped, processes killed and stopped, servers promoted, disks full), and what was recorded
is judged by [`tenure verify`](verify.md), which shares no code with what it judges. A play in which the fault
was not seen to take effect is INCONCLUSIVE and does not hold.

- {machine}, four worlds of three replicas at a time
- timings: {timings}; C18a and C30a have the delivered ones
- made by `make chaos SEED={first} REPEAT=10 AT_ONCE=4` and further seeds
- one play again, with the same faults: `make chaos SCENARIO=C01 SEED={first}`
"""
QUOTED: Final = (
    ("the leader is killed: until another leads", "leader_gap", ("C01",)),
    ("the leader stands still: until another leads", "leader_gap", ("C03a", "C03b", "C03c")),
    ("the leader is cut off: until another leads", "leader_gap", ("C12", "C13")),
    ("the leader drains: until another leads", "leader_gap", ("C02",)),
    ("the database fails over: until somebody leads", "leader_gap", ("C22a", "C22d", "C23")),
    ("a worker is killed: until its work runs again", "rerun", ("C06",)),
    ("a worker is cut off: until its work runs again", "rerun", ("C11",)),
    ("a schedule's instant: until its run is made, under faults", "schedule_late", ()),
    ("after everything is well again: until the last run has ended", "settled", ()),
)


def main() -> int:
    plays = merged(Path(name) for name in sys.argv[1:])
    sys.stdout.write(page(plays))
    return 0


def merged(files: Iterable[Path]) -> list[Play]:
    found: dict[tuple[str, int], Play] = {}
    for file in files:
        for line in file.read_text().splitlines():
            play = json.loads(line)
            found[play["name"], play["seed"]] = play
    return [play for play in found.values() if play["verdict"]["word"] != judge.NOT_RUN]


def page(plays: Sequence[Play]) -> str:
    by_name: dict[str, list[Play]] = defaultdict(list)
    for play in plays:
        by_name[play["name"]].append(play)
    system = f"{cpu()}, {os.cpu_count()} cores, Linux {platform.release()}"
    head = HEAD.format(
        plays=len(plays),
        scenarios=len(by_name),
        seeds=min(len(some) for some in by_name.values()),
        first=min(play["seed"] for play in plays),
        machine=system,
        timings=", ".join(f"{name}={value:g}" for name, value in TIMINGS.items()),
    )
    return "\n".join([head, *quoted(by_name), "", "## Every scenario", "", *matrix(by_name), ""])


def quoted(by_name: dict[str, list[Play]]) -> list[str]:
    """What somebody wants to know of it, in seconds."""
    lines = [row(["from", "p50 / p99 s", "plays"]), row(["---"] * 3)]
    for what, figure, names in QUOTED:
        some = [play for name in names or by_name for play in by_name[name] if figure in play["figures"]]
        lines.append(row([what, spread([play["figures"][figure] for play in some]), str(len(some))]))
    controls = {one.id for one in SCENARIOS if one.reports}
    checked = [play for name, some in by_name.items() if name not in controls for play in some]
    late, overlaps = (sum(play["figures"].get(name, 0) for play in checked) for name in ("late", "overlaps"))
    runs, again = (sum(play["figures"].get(name, 0) for play in checked) for name in ("runs", "reruns"))
    told = (
        f"{runs:,.0f} runs, {again:,.0f} of them once more after a fault; {late:,.0f} late completions "
        f"refused and kept; **{overlaps:,.0f} overlapping executions** outside the controls, where they are "
        "wanted."
    )
    return [*lines, "", told]


def matrix(by_name: dict[str, list[Play]]) -> list[str]:
    """In the order of the scenarios; a control holds when what it breaks was reported."""
    head = ["scenario", "hold", "what", "overlaps"]
    lines = [row(head), row(["---"] * len(head))]
    for one in SCENARIOS:
        if some := by_name.get(one.id):
            hold = sum(play["verdict"]["word"] == judge.HOLDS for play in some)
            overlaps = sum(play["figures"].get("overlaps", 0) for play in some)
            lines.append(row([one.id, f"{hold} of {len(some)}", one.title, f"{overlaps:g}"]))
    return lines


if __name__ == "__main__":
    sys.exit(main())
