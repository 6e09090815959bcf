"""The cheapest set of vertices that is closed under given needs, by a minimum cut."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

Node = int | tuple[int, int] | str
Edges = dict[Node, dict[Node, int]]
_SOURCE, _SINK = "source", "sink"


def least_closed_set(
    costs: Mapping[int, int], savings: Mapping[tuple[int, int], int], needs: Iterable[tuple[int, int | None]]
) -> set[int]:
    """The set X that minimises sum of its ``costs`` less the ``savings`` (>= 0) of the pairs in it.

    (k, j) in ``needs``: with k also j is in X; (k, None): k is not in X. Of equal sets, a smallest one.

    Kind of truth: theorem (Picard 1976; a minimum cut is a maximum flow).

    By hand: 1 and 2 cost 2 each and save 5 together; 3 would gain 9, but needs 4, which is forbidden.

    >>> least_closed_set({1: 2, 2: 2, 3: -9, 4: 0}, {(1, 2): 5}, [(3, 4), (4, None)])
    {1, 2}
    """
    gains: dict[Node, int] = {k: -cost for k, cost in costs.items()}
    gains |= {pair: saving for pair, saving in savings.items() if saving}
    endless = 1 + sum(map(abs, gains.values()))
    edges: Edges = {_SOURCE: {}, _SINK: {}, **{item: {} for item in gains}}
    for item, gain in gains.items():
        _add(edges, *((_SOURCE, item, gain) if gain > 0 else (item, _SINK, -gain)))
        for end in item if isinstance(item, tuple) else ():
            _add(edges, item, end, endless)
    for mover, other in needs:
        _add(edges, mover, _SINK if other is None else other, endless)
    while (path := _path(edges)) is not None:
        flow = min(edges[a][b] for a, b in path)
        for a, b in path:
            edges[a][b] -= flow
            edges[b][a] += flow
    reached = _reachable_nodes(edges)
    return {k for k in costs if k in reached}


def _add(edges: Edges, start: Node, end: Node, capacity: int) -> None:
    edges[start][end] = edges[start].get(end, 0) + capacity
    edges[end].setdefault(start, 0)


def _reachable_nodes(edges: Edges) -> dict[Node, Node]:
    """Everything that flow can still reach from the source, each with where it is reached from; nearest first."""
    origins: dict[Node, Node] = {_SOURCE: _SOURCE}
    waiting: deque[Node] = deque([_SOURCE])
    while waiting:
        start = waiting.popleft()
        for end, capacity in edges[start].items():
            if capacity and end not in origins:
                origins[end] = start
                waiting.append(end)
    return origins


def _path(edges: Edges) -> list[tuple[Node, Node]] | None:
    """A shortest way for more flow, as its edges; None where there is none."""
    origins = _reachable_nodes(edges)
    if _SINK not in origins:
        return None
    path: list[tuple[Node, Node]] = []
    end: Node = _SINK
    while end != _SOURCE:
        path.append((origins[end], end))
        end = origins[end]
    return path
