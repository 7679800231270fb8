"""Cycles in a directed graph, without recursion."""

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Edges = Mapping[Node, Sequence[Node]]


def knots(edges: Edges[Node]) -> Iterator[list[Node]]:
    """The strongly connected components with more than one node (Tarjan)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    standing: set[Node] = set()
    for start in edges:
        if start in index:
            continue
        work: list[tuple[Node, Iterator[Node]]] = []
        _enter(start, edges, index, low, stack, standing, work)
        while work:
            node, nexts = work[-1]
            for other in nexts:
                if other not in index:
                    _enter(other, edges, index, low, stack, standing, work)
                    break
                if other in standing:
                    low[node] = min(low[node], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    knot = _leave(node, stack, standing)
                    if len(knot) > 1:
                        yield knot


def _enter(
    node: Node,
    edges: Edges[Node],
    index: dict[Node, int],
    low: dict[Node, int],
    stack: list[Node],
    standing: set[Node],
    work: list[tuple[Node, Iterator[Node]]],
) -> None:
    index[node] = low[node] = len(index)
    stack.append(node)
    standing.add(node)
    work.append((node, iter(edges.get(node, ()))))


def _leave(node: Node, stack: list[Node], standing: set[Node]) -> list[Node]:
    knot = []
    while True:
        other = stack.pop()
        standing.discard(other)
        knot.append(other)
        if other == node:
            return knot


def shortest_cycle(edges: Edges[Node], knot: Sequence[Node]) -> list[Node]:
    """The shortest way round within a component, from its beginning to before its return."""
    inside = set(knot)
    best: list[Node] = []
    for start in knot[:200]:
        came: dict[Node, Node] = {}
        queue = deque([start])
        found = False
        while queue and not found:
            node = queue.popleft()
            for other in edges.get(node, ()):
                if other == start:
                    way = [node]
                    while way[-1] != start:
                        way.append(came[way[-1]])
                    if not best or len(way) < len(best):
                        best = way[::-1]
                    found = True
                    break
                if other in inside and other not in came:
                    came[other] = node
                    queue.append(other)
    return best
