"""What runs inside a replica, and what it talks to. Not a test."""

from typing import Final

from supervisor.keeper import CONNECTIONS
from tests.docs.pen import Pen

# connections that each part may open at most; `tests/docs/test_pictures.py` counts those of a replica
POOLS: Final[dict[str, int]] = {
    "control": 8,
    "term": 1,
    "duty": 2,
    "runs": 8,
    "rows": 8,
    "upkeep": 2,
    "beat": 1,
    "leases": CONNECTIONS,
    "listen": 1,
}


def draw_replica() -> str:
    pen = Pen("The parts of a replica and what they talk to", 940, 560)
    pen.frame((16, 16), (560, 528), "replica: one process")
    pen.frame((34, 46), (524, 286), "event loop", hue="ink")
    rows = [
        (["election", "stands, renews, steps down"], "leader"),
        (["leader's duties", "while it leads"], "leader"),
        (["runner", "starts and ends runs"], "worker"),
        (["claim loops", "rows of domains, by leases"], "worker"),
        (["HTTP", "console, API, metrics, probes"], "faint"),
        (["wake-ups", "LISTEN, Redis, timers"], "faint"),
    ]
    for number, (lines, hue) in enumerate(rows):
        pen.box((50 + (number % 2) * 252, 80 + (number // 2) * 82), (240, 64), lines, hue=hue)
    pen.box((34, 346), (254, 64), ["thread: pulse", "one beat every H, for all claims"], hue="worker")
    pen.box((304, 346), (254, 64), ["thread: keeper", "extends the leases of rows"], hue="worker")
    pen.box((34, 424), (254, 50), ["kernel timer", "SIGKILL at the stop deadline + k"], hue="stop")
    pen.box((304, 424), (254, 50), ["children", "launcher: commands; chamber: pictures"], hue="stop")
    pen.box((34, 488), (524, 42), ["no task without a parent, no SQL outside a named statement"], hue="faint")
    _draw_outside(pen)
    return pen.svg()


def _draw_outside(pen: Pen) -> None:
    pen.frame((690, 16), (234, 330), "PostgreSQL", hue="ink")
    tables = [
        (["epoch and lease", "who leads, until when"], "leader"),
        (["job_run, its history", "moves are functions"], "both"),
        (["worker", "one row a replica"], "worker"),
        (["tables of domains", "columns granted by leases"], "worker"),
    ]
    for number, (lines, hue) in enumerate(tables):
        pen.box((706, 48 + number * 72), (202, 60), lines, hue=hue)
    pen.box((690, 364), (234, 54), ["Redis, if there is one", "hints; never believed"], dashed=True)
    pen.box((690, 432), (234, 54), ["artifacts", "a directory, a share or S3"])
    pen.box((690, 500), (234, 44), ["Prometheus, browsers, clients"])
    _draw_ways(pen)


def _draw_ways(pen: Pen) -> None:
    total = sum(POOLS.values())
    for number, (name, most) in enumerate(POOLS.items()):
        y = 64 + number * 30
        pen.arrow([(578, y), (688, y)], hue="faint")
        pen.text(
            (633, y - 6), f"{name} ≤ {most}" if most > 1 else f"{name} {most}", kind="small", anchor="middle"
        )
    pen.text((633, 338), f"≤ {total} in all", kind="small bold", anchor="middle")
    pen.arrow([(578, 391), (688, 391)], hue="faint", dashed=True)
    pen.arrow([(578, 459), (688, 459)], hue="faint")
    pen.arrow([(688, 522), (578, 522)], hue="faint")
