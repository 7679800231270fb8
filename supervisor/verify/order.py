"""K5: the calls about a run can be put in one order, that of its versions, against which no clock speaks.

Versions give the order of the writes. A call that wrote a version comes after the one that wrote the version
before it; a call that saw a version comes between its writing and the next one's; and a call that was
answered before another was sent comes before it. A cycle among these is a read of the past, or a write that
others did not see.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence

from supervisor.verify.graph import knots, shortest_cycle
from supervisor.verify.history import History
from supervisor.verify.records import Call
from supervisor.verify.report import Finding
from supervisor.verify.touches import Touch, touches

Node = tuple[str, int]


def check(history: History) -> Iterator[Finding]:
    by_run: dict[int, list[Touch]] = defaultdict(list)
    for touch in touches(history):
        by_run[touch.run].append(touch)
    history.figures["ordered_calls"] = sum(map(len, by_run.values()))
    for run, touched in sorted(by_run.items()):
        yield from of_run(run, touched)


def of_run(run: int, touched: Sequence[Touch]) -> Iterator[Finding]:
    graph = _Graph(touched)
    for knot in knots(graph.edges):
        lines = graph.told(shortest_cycle(graph.edges, knot))
        yield Finding("K5", f"run {run}: no order of these calls fits its versions and real time", lines)


class _Graph:
    """Nodes are calls, versions that no recorded call wrote, and moments, so that edges of time stay few."""

    def __init__(self, touched: Sequence[Touch]) -> None:
        self.calls = {touch.call.n: touch.call for touch in touched}
        self.edges: dict[Node, list[Node]] = defaultdict(list)
        self.about: dict[int, list[str]] = defaultdict(list)
        self._versions(touched)
        self._moments()

    def _versions(self, touched: Sequence[Touch]) -> None:
        writers: dict[int, list[Node]] = defaultdict(list)
        for touch in touched:
            verb = "wrote" if touch.wrote else "saw"
            self.about[touch.call.n].append(f"{verb} version {touch.version}")
            if touch.wrote:
                writers[touch.version].append(("call", touch.call.n))
        last = max(touch.version for touch in touched) + 1
        nodes = {version: writers.get(version) or [("version", version)] for version in range(1, last + 1)}
        for version in range(1, last):
            for one in nodes[version]:
                self.edges[one].extend(other for other in nodes[version + 1] if other != one)
        for touch in touched:
            if not touch.wrote:
                node = ("call", touch.call.n)
                for writer in nodes[touch.version]:
                    self.edges[writer].append(node)
                self.edges[node].extend(nodes[touch.version + 1])

    def _moments(self) -> None:
        moments = sorted({call.answered for call in self.calls.values() if call.answered is not None})
        places = {moment: place for place, moment in enumerate(moments)}
        for place in range(len(moments) - 1):
            self.edges["moment", place].append(("moment", place + 1))
        for n, call in self.calls.items():
            if call.answered is not None:
                self.edges["call", n].append(("moment", places[call.answered]))
            if before := bisect_left(moments, call.sent):
                self.edges["moment", before - 1].append(("call", n))

    def told(self, cycle: Sequence[Node]) -> tuple[str, ...]:
        """The cycle in words; a moment between two calls: one was answered before the other was sent."""
        lines = []
        for kind, number in cycle:
            if kind == "call":
                lines.append(self._line(self.calls[number]))
            elif kind == "version":
                lines.append(f"version {number} was written")
            elif not lines or lines[-1] != "... answered before the next was sent":
                lines.append("... answered before the next was sent")
        return tuple(lines)

    def _line(self, call: Call) -> str:
        about = ", ".join(self.about[call.n])
        return f"{call.worker} {call.name} sent {call.sent:.6f} answered {call.answered}: {about}"
