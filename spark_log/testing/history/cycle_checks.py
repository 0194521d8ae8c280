"""Checks for dependency cycles: transactions that depend on each other in a circle.

An operation depends on another if its record is the next one after the other's in a partition
(ww), or if it polled a record that the other sent (wr).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from spark_log.testing.history.anomaly import Anomaly
from spark_log.testing.history.columns import NONE, Bools, HistoryColumns, Ints
from spark_log.testing.history.components import strong_components
from spark_log.testing.history.findings import Finding
from spark_log.testing.history.report import SHOWN_OPERATIONS, Report


@dataclass(frozen=True, slots=True)
class _Edges:
    """Dependencies: ``target`` depends on ``source``; ``is_read`` tells wr from ww."""

    source: Ints
    target: Ints
    value: Ints
    is_read: Bools

    def where(self, chosen: Bools) -> _Edges:
        return _Edges(
            self.source[chosen], self.target[chosen], self.value[chosen], self.is_read[chosen]
        )


def check_cycles(columns: HistoryColumns, report: Report) -> None:
    """Report cycles: of ww alone (G0), of wr alone (G1c), and of both (G1c-ww).

    Each set of operations that all depend on each other is one finding, which shows a shortest
    cycle through one of its dependencies.
    """
    edges = _edges(columns)
    edges = edges.where(_is_in_cycle(columns, edges))
    writes, reads = edges.where(~edges.is_read), edges.where(edges.is_read)
    is_in_reads = _is_in_cycle(columns, reads)
    _report_cycles(columns, report, Anomaly.WRITE_CYCLE, writes, _is_in_cycle(columns, writes))
    _report_cycles(columns, report, Anomaly.READ_CYCLE, reads, is_in_reads)
    # A wr edge that is in no cycle of wr edges is in a cycle of both kinds.
    is_in_both = edges.is_read.copy()
    is_in_both[edges.is_read] = ~is_in_reads
    _report_cycles(columns, report, Anomaly.WRITE_READ_CYCLE, edges, is_in_both)


def _edges(columns: HistoryColumns) -> _Edges:
    """Return the dependencies between operations that took effect."""
    sends, reads = columns.sends, columns.reads
    rows = np.flatnonzero(
        columns.is_committed[sends.operation]
        & (columns.located != NONE)
        & (columns.writer[sends.value] != NONE)
    )
    rows = rows[np.lexsort((columns.located[rows], sends.partition[rows]))]
    before, after = rows[:-1], rows[1:]
    follows = sends.partition[before] == sends.partition[after]
    before, after = before[follows], after[follows]
    polled = np.flatnonzero(reads.is_committed & (columns.writer[reads.value] != NONE))
    writers = sends.operation[columns.writer[reads.value[polled]]]
    is_dependency = columns.is_committed[writers] & columns.is_committed[reads.operation[polled]]
    polled, writers = polled[is_dependency], writers[is_dependency]
    edges = _Edges(
        np.concatenate([sends.operation[before], writers]),
        np.concatenate([sends.operation[after], reads.operation[polled]]),
        np.concatenate([sends.value[after], reads.value[polled]]),
        np.concatenate([np.zeros(len(before), np.bool_), np.ones(len(polled), np.bool_)]),
    )
    # An operation on which nothing depends is in no cycle: most polls are not.
    has_dependents = np.zeros(len(columns.operations), dtype=np.bool_)
    has_dependents[edges.source] = True
    return edges.where((edges.source != edges.target) & has_dependents[edges.target])


def _is_in_cycle(columns: HistoryColumns, edges: _Edges) -> Bools:
    """Return for each edge whether it is part of a cycle of these edges."""
    component = strong_components(len(columns.operations), edges.source, edges.target)
    found: Bools = component[edges.source] == component[edges.target]
    return found


def _report_cycles(
    columns: HistoryColumns, report: Report, anomaly: Anomaly, edges: _Edges, chosen: Bools
) -> None:
    """Report a cycle through one of the chosen edges of each component of the graph."""
    component = strong_components(len(columns.operations), edges.source, edges.target)
    rows = np.flatnonzero(chosen)
    firsts = rows[np.unique(component[edges.source[rows]], return_index=True)[1]]
    leaving: dict[int, list[int]] = {}
    if len(firsts):
        for row, source in enumerate(edges.source.tolist()):
            leaving.setdefault(source, []).append(row)

    def explain(row: int) -> Finding:
        cycle = [row, *_shortest_path(edges, leaving, edges.target[row], edges.source[row])]
        steps = [_step(columns, edges, each) for each in cycle[:SHOWN_OPERATIONS]]
        more = len(cycle) - len(steps)
        return report.finding(
            anomaly,
            NONE,
            NONE,
            edges.source[cycle],
            "; ".join(steps) + (f"; and {more} more steps" if more else ""),
        )

    report.add(anomaly, np.sort(firsts), explain)


def _shortest_path(edges: _Edges, leaving: dict[int, list[int]], start: int, end: int) -> list[int]:
    """Return the edges of a shortest path, which exists."""
    reached_by: dict[int, int] = {}
    queue = deque([int(start)])
    while int(end) not in reached_by:
        for row in leaving.get(queue.popleft(), ()):
            target = int(edges.target[row])
            if target not in reached_by:
                reached_by[target] = row
                queue.append(target)
    path = [reached_by[int(end)]]
    while edges.source[path[-1]] != start:
        path.append(reached_by[int(edges.source[path[-1]])])
    return path[::-1]


def _step(columns: HistoryColumns, edges: _Edges, row: int) -> str:
    source, target = columns.name(edges.source[row]), columns.name(edges.target[row])
    value = edges.value[row]
    where = columns.partitions[columns.value_partition[value]]
    if edges.is_read[row]:
        return f"{target} polled {columns.text(value)} ({where}), which {source} sent"
    return f"{target} sent {columns.text(value)} ({where}) next after a record of {source}"
