"""Checks of the order in which each client polls a partition: no offset skipped or repeated."""

from __future__ import annotations

from functools import partial

import numpy as np

from spark_log.testing.history.anomaly import Anomaly
from spark_log.testing.history.columns import NONE, HistoryColumns, Ints
from spark_log.testing.history.findings import Finding
from spark_log.testing.history.report import Report


def check_order_of_polls(columns: HistoryColumns, report: Report) -> None:
    """Report polls that skip committed records, and polls that go back.

    A committed record is one whose operation took effect, or that a read_committed client polled.
    A client whose position is not known, as after an assignment, may poll any offset.
    """
    reads = columns.reads
    is_next = reads.since >= NONE  # and not below: position not known
    is_internal = reads.since_operation == reads.operation
    goes_back = is_next & (reads.offset <= reads.since)
    visible = _visible_places(columns)
    after = np.searchsorted(visible, columns.place(reads.partition, reads.since), side="right")
    here = columns.place(reads.partition, reads.offset)
    before = np.searchsorted(visible, here, side="left")
    skips = is_next & (before > after)

    def explain_skip(anomaly: Anomaly, row: int) -> Finding:
        left_out = reads.offset[row] - (here[row] - visible[after[row]])
        return report.finding(
            anomaly,
            reads.partition[row],
            left_out,
            [reads.since_operation[row], reads.operation[row]],
            f"{columns.processes[columns.process[reads.operation[row]]]} polled "
            f"{reads.offset[row]} next after {_position(reads.since[row])}, and left out "
            f"{before[row] - after[row]} committed records, from {left_out} on",
        )

    def explain_return(anomaly: Anomaly, row: int) -> Finding:
        return report.finding(
            anomaly,
            reads.partition[row],
            reads.offset[row],
            [reads.since_operation[row], reads.operation[row]],
            f"{columns.processes[columns.process[reads.operation[row]]]} polled "
            f"{reads.offset[row]} next after {_position(reads.since[row])}",
        )

    for anomaly, found, explain in (
        (Anomaly.POLL_SKIP, skips & ~is_internal, explain_skip),
        (Anomaly.INTERNAL_POLL_SKIP, skips & is_internal, explain_skip),
        (Anomaly.NONMONOTONIC_POLL, goes_back & ~is_internal, explain_return),
        (Anomaly.INTERNAL_NONMONOTONIC_POLL, goes_back & is_internal, explain_return),
    ):
        report.add(anomaly, np.flatnonzero(found), partial(explain, anomaly))


def _position(since: int) -> str:
    return "an assignment to the beginning" if since == NONE else str(since)


def _visible_places(columns: HistoryColumns) -> Ints:
    """Return the places of committed records, in order, without repetition."""
    sends, reads = columns.sends, columns.reads
    sent = columns.is_committed[sends.operation] & (sends.offset != NONE)
    polled = reads.is_committed & ~columns.is_value_aborted[reads.value]
    return np.unique(
        np.concatenate(
            [
                columns.place(sends.partition[sent], sends.offset[sent]),
                columns.place(reads.partition[polled], reads.offset[polled]),
            ]
        )
    )
