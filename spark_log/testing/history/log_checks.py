"""Checks of the records in the log: lost, doubled and misplaced records, and their order."""

from __future__ import annotations

import numpy as np

from spark_log.testing.history.anomaly import Anomaly
from spark_log.testing.history.columns import NONE, HistoryColumns, Ints
from spark_log.testing.history.findings import Finding
from spark_log.testing.history.report import SHOWN_OPERATIONS, Report


def check_lost_writes(columns: HistoryColumns, report: Report) -> None:
    """Report acknowledged values never polled: lost if a later record was polled, else unseen."""
    sends, reads = columns.sends, columns.reads
    is_polled = np.zeros(len(columns.values), dtype=np.bool_)
    is_polled[reads.value] = True
    is_missing = columns.is_committed[sends.operation] & ~is_polled[sends.value]
    furthest = _furthest_reads(columns)
    reader = furthest[sends.partition]
    end = np.full(len(sends.offset), NONE, dtype=np.int64)
    end[reader != NONE] = reads.offset[reader[reader != NONE]]
    is_lost = is_missing & (sends.offset != NONE) & (sends.offset <= end)

    def explain(row: int) -> Finding:
        return report.finding(
            Anomaly.LOST_WRITE,
            sends.partition[row],
            sends.offset[row],
            [sends.operation[row], reads.operation[reader[row]]],
            f"{columns.text(sends.value[row])} was acknowledged at {sends.offset[row]} and "
            f"never polled, although offset {end[row]} was",
        )

    report.add(Anomaly.LOST_WRITE, np.flatnonzero(is_lost), explain)
    _report_unseen(columns, report, np.flatnonzero(is_missing & ~is_lost))


def _furthest_reads(columns: HistoryColumns) -> Ints:
    """Return a read of the highest offset of each partition, NONE without a read."""
    reads = columns.reads
    order = np.lexsort((reads.offset, reads.partition))
    furthest = np.full(len(columns.partitions), NONE, dtype=np.int64)
    furthest[reads.partition[order]] = order  # the last one that is assigned stays
    return furthest


def _report_unseen(columns: HistoryColumns, report: Report, unseen: Ints) -> None:
    """Report the unseen sends as one finding for each partition."""
    sends = columns.sends
    unseen = unseen[np.argsort(sends.partition[unseen], kind="stable")]
    partitions, starts, counts = np.unique(
        sends.partition[unseen], return_index=True, return_counts=True
    )

    def explain(number: int) -> Finding:
        rows = unseen[starts[number] : starts[number] + min(counts[number], SHOWN_OPERATIONS)]
        return report.finding(
            Anomaly.UNSEEN,
            partitions[number],
            sends.offset[rows[0]],
            sends.operation[rows],
            f"{counts[number]} acknowledged records were never polled, "
            f"{columns.text(sends.value[rows[0]])} the first of them",
        )

    report.add(Anomaly.UNSEEN, np.arange(len(partitions)), explain)


def check_duplicates(columns: HistoryColumns, report: Report) -> None:
    """Report values that are at more offsets than the number of times that they were sent.

    A refused send does not count. A send of an aborted transaction counts: its record is in the
    log, and its client may know the offset.
    """
    sends, seen = columns.sends, columns.seen
    is_refused = columns.is_aborted & ~columns.is_transaction
    sent_times = np.bincount(
        sends.value[~is_refused[sends.operation]], minlength=len(columns.values)
    )
    _, first = np.unique(columns.place(seen.value, seen.offset), return_index=True)
    values, starts, counts = np.unique(seen.value[first], return_index=True, return_counts=True)

    def explain(number: int) -> Finding:
        rows = first[starts[number] : starts[number] + min(counts[number], SHOWN_OPERATIONS)]
        value = values[number]
        sent = sent_times[value]
        return report.finding(
            Anomaly.DUPLICATE,
            columns.value_partition[value],
            seen.offset[rows[0]],
            seen.operation[rows],
            f"{columns.text(value)} was sent {sent} {'time' if sent == 1 else 'times'} and "
            f"is at {counts[number]} offsets: {', '.join(map(str, seen.offset[rows]))}",
        )

    is_double = counts > np.maximum(sent_times[values], 1)
    report.add(Anomaly.DUPLICATE, np.flatnonzero(is_double), explain)


def check_inconsistent_offsets(columns: HistoryColumns, report: Report) -> None:
    """Report offsets at which clients have seen different values."""
    seen = columns.seen
    place = columns.place(columns.value_partition[seen.value], seen.offset)
    order = np.lexsort((seen.value, place))
    place, value = place[order], seen.value[order]
    is_other = np.ones(len(order), dtype=np.bool_)  # place or value differ from the row before
    is_other[1:] = (place[1:] != place[:-1]) | (value[1:] != value[:-1])
    different = order[is_other]
    _, starts, counts = np.unique(place[is_other], return_index=True, return_counts=True)

    def explain(number: int) -> Finding:
        rows = different[starts[number] : starts[number] + min(counts[number], SHOWN_OPERATIONS)]
        values = ", ".join(columns.text(each) for each in seen.value[rows])
        return report.finding(
            Anomaly.INCONSISTENT_OFFSETS,
            columns.value_partition[seen.value[rows[0]]],
            seen.offset[rows[0]],
            seen.operation[rows],
            f"offset {seen.offset[rows[0]]} has {counts[number]} values: {values}",
        )

    report.add(Anomaly.INCONSISTENT_OFFSETS, np.flatnonzero(counts > 1), explain)


def check_order_of_sends(columns: HistoryColumns, report: Report) -> None:
    """Report sends whose acknowledged offset is not above that of the client's previous send."""
    sends = columns.sends
    later = np.flatnonzero(sends.previous != NONE)
    later = later[sends.offset[later] <= sends.offset[sends.previous[later]]]
    is_internal = sends.operation[later] == sends.operation[sends.previous[later]]

    for anomaly, rows in (
        (Anomaly.NONMONOTONIC_SEND, later[~is_internal]),
        (Anomaly.INTERNAL_NONMONOTONIC_SEND, later[is_internal]),
    ):

        def explain(row: int, anomaly: Anomaly = anomaly) -> Finding:
            before = sends.previous[row]
            return report.finding(
                anomaly,
                sends.partition[row],
                sends.offset[row],
                [sends.operation[before], sends.operation[row]],
                f"{columns.text(sends.value[before])} was acknowledged at "
                f"{sends.offset[before]}, and {columns.text(sends.value[row])}, sent after it, "
                f"at {sends.offset[row]}",
            )

        report.add(anomaly, rows, explain)
