"""Strongly connected components of a graph, by Tarjan's algorithm, in linear time, with a loop."""

from __future__ import annotations

import numpy as np

from spark_log.testing.history.columns import Ints


def strong_components(count: int, source: Ints, target: Ints) -> Ints:
    """Return a number for each node; two nodes have the same one if each is reached from the other.

    Args:
        count: number of nodes.
        source: the node from which each edge leads.
        target: the node to which each edge leads.
    """
    component = np.arange(count, dtype=np.int64)
    nodes, ends = np.unique(np.concatenate([source, target]), return_inverse=True)
    source, target = ends[: len(source)], ends[len(source) :]
    order = np.argsort(source, kind="stable")
    first = np.searchsorted(source[order], np.arange(len(nodes) + 1)).tolist()
    roots = _roots(len(nodes), first, target[order].tolist())
    component[nodes] = nodes[np.array(roots, dtype=np.int64)]
    return component


def _roots(count: int, first: list[int], targets: list[int]) -> list[int]:
    """Return a node of its component for each node.

    Args:
        count: the number of nodes.
        first: the index in ``targets`` at which the edges of each node begin, and its length.
        targets: the nodes to which the edges lead, by the node that they leave.
    """
    unvisited, done = -1, count
    lowest = [unvisited] * count  # the earliest visited node that is reached; `done` at the end
    root = [unvisited] * count
    upcoming = first[:count]
    visits = 0
    open_nodes: list[int] = []
    visited_at = [unvisited] * count
    for start in range(count):
        if visited_at[start] != unvisited:
            continue
        path = [start]
        visited_at[start] = lowest[start] = visits
        visits += 1
        open_nodes.append(start)
        while path:
            node = path[-1]
            edge = upcoming[node]
            if edge < first[node + 1]:
                upcoming[node] = edge + 1
                other = targets[edge]
                if visited_at[other] == unvisited:
                    visited_at[other] = lowest[other] = visits
                    visits += 1
                    open_nodes.append(other)
                    path.append(other)
                elif lowest[other] < lowest[node]:
                    lowest[node] = lowest[other]
                continue
            path.pop()
            if path and lowest[node] < lowest[path[-1]]:
                lowest[path[-1]] = lowest[node]
            if lowest[node] == visited_at[node]:
                while True:
                    member = open_nodes.pop()
                    root[member] = node
                    lowest[member] = done
                    if member == node:
                        break
    return root
