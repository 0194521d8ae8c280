"""Checks of polled records: records that nobody sent, aborted or open transactions, torn ones."""

from __future__ import annotations

import numpy as np

from spark_log.testing.history.anomaly import Anomaly
from spark_log.testing.history.columns import NONE, Bools, HistoryColumns, Ints
from spark_log.testing.history.findings import Finding
from spark_log.testing.history.report import Report


def check_garbage_reads(columns: HistoryColumns, report: Report) -> None:
    """Report polled values that no client sent, in partitions with sends in the history."""
    reads = columns.reads
    has_sends = np.zeros(len(columns.partitions), dtype=np.bool_)
    has_sends[columns.sends.partition] = True
    is_garbage = has_sends[reads.partition] & (columns.sent_times[reads.value] == 0)
    _report_reads(columns, report, Anomaly.GARBAGE_READ, is_garbage, "that nobody sent")


def check_aborted_reads(columns: HistoryColumns, report: Report) -> None:
    """Report polled values of which every send was aborted.

    A read_uncommitted client may poll a record of a transaction that is aborted later, but not a
    record that was refused outside of a transaction.
    """
    sends, reads = columns.sends, columns.reads
    in_transaction = np.zeros(len(columns.values), dtype=np.bool_)
    in_transaction[sends.value[columns.is_transaction[sends.operation]]] = True
    is_promised = reads.is_committed | ~in_transaction[reads.value]
    is_aborted = is_promised & columns.is_value_aborted[reads.value]
    _report_reads(columns, report, Anomaly.ABORTED_READ, is_aborted, "whose sender was aborted")


def check_intermediate_reads(columns: HistoryColumns, report: Report) -> None:
    """Report polled records of transactions that were not being committed yet.

    That is the case if the poll completed before the client began to commit, as far as the times
    are noted, and if a transaction polled its own records.
    """
    sends, reads = columns.sends, columns.reads
    rows = np.flatnonzero(reads.is_committed & (columns.writer[reads.value] != NONE))
    senders = sends.operation[columns.writer[reads.value[rows]]]
    is_open = columns.is_transaction[senders] & ~columns.is_aborted[senders]
    rows, senders = rows[is_open], senders[is_open]
    completed = columns.times("completed")[reads.operation[rows]]
    end_invoked = columns.times("end_invoked")[senders]
    is_early = (completed != NONE) & (completed < end_invoked)
    found = np.zeros(len(reads.value), dtype=np.bool_)
    found[rows[is_early | (senders == reads.operation[rows])]] = True
    what = "of a transaction that was not being committed yet"
    _report_reads(columns, report, Anomaly.INTERMEDIATE_READ, found, what)


def _report_reads(
    columns: HistoryColumns, report: Report, anomaly: Anomaly, found: Bools, what: str
) -> None:
    """Report the first read of each value in the found rows."""
    reads = columns.reads
    rows = np.flatnonzero(found)
    rows = rows[np.unique(reads.value[rows], return_index=True)[1]]

    def explain(row: int) -> Finding:
        value, operation = reads.value[row], reads.operation[row]
        writer = columns.writer[value]
        sender = NONE if writer == NONE else columns.sends.operation[writer]
        return report.finding(
            anomaly,
            reads.partition[row],
            reads.offset[row],
            [sender, operation],
            f"{columns.processes[columns.process[operation]]} polled {columns.text(value)} at "
            f"{reads.offset[row]}, {what}",
        )

    report.add(anomaly, np.sort(rows), explain)


def check_torn_transactions(columns: HistoryColumns, report: Report) -> None:
    """Report transactions of which a read_committed client polled one record and skipped another.

    The client skipped a record if it polled a later record of the partition right after an earlier
    one. A record that the client has not reached is no anomaly, and no record before the client's
    first offset is, unless the history says that the client began at the partition's beginning.
    """
    sends = columns.sends
    operation, process = _observed_transactions(columns)
    order = np.argsort(sends.operation, kind="stable")
    starts = np.searchsorted(sends.operation[order], operation, side="left")
    counts = np.searchsorted(sends.operation[order], operation, side="right") - starts
    # A row for each record of each observed transaction and each of its observers.
    rank = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    row = order[np.repeat(starts, counts) + rank]
    observer = np.repeat(process, counts)
    is_located = (columns.located[row] != NONE) & (columns.writer[sends.value[row]] != NONE)
    row, observer = row[is_located], observer[is_located]
    values = len(columns.values)
    polled = columns.process[columns.reads.operation] * values + columns.reads.value
    is_missing = ~np.isin(observer * values + sends.value[row], polled)
    row, observer = row[is_missing], observer[is_missing]
    is_torn = _passed_by(columns, row, observer)
    row, observer = row[is_torn], observer[is_torn]
    # One finding for each transaction.
    first = np.unique(sends.operation[row], return_index=True)[1]

    def explain(number: int) -> Finding:
        found = row[number]
        return report.finding(
            Anomaly.TORN_TRANSACTION,
            sends.partition[found],
            columns.located[found],
            [sends.operation[found]],
            f"{columns.processes[observer[number]]} polled a part of the transaction, and skipped "
            f"{columns.text(sends.value[found])} at {columns.located[found]}",
        )

    report.add(Anomaly.TORN_TRANSACTION, first, explain)


def _observed_transactions(columns: HistoryColumns) -> tuple[Ints, Ints]:
    """Return pairs of a committed transaction and a read_committed client that polled a part of it.

    Clients that polled all of the transaction, or never skipped an offset, are left out to save
    time: the caller makes a row for each record of each pair.
    """
    sends, reads = columns.sends, columns.reads
    rows = np.flatnonzero(reads.is_committed & (columns.writer[reads.value] != NONE))
    senders = sends.operation[columns.writer[reads.value[rows]]]
    rows = rows[columns.is_transaction[senders] & columns.is_committed[senders]]
    process = columns.process[reads.operation[rows]]
    values = max(len(columns.values), 1)
    polled = np.unique(process * values + reads.value[rows])
    process, senders = polled // values, sends.operation[columns.writer[polled % values]]
    processes = max(len(columns.processes), 1)
    pairs, parts = np.unique(senders * processes + process, return_counts=True)
    senders, process = pairs // processes, pairs % processes
    sent = np.bincount(sends.operation, minlength=len(columns.operations))
    leaves_out = np.zeros(processes, dtype=np.bool_)
    leaves_out[columns.process[reads.operation[_steps(columns)]]] = True
    may_be_torn = (parts < sent[senders]) & leaves_out[process]
    return senders[may_be_torn], process[may_be_torn]


def _steps(columns: HistoryColumns) -> Ints:
    """Return the reads by read_committed clients that leave an offset out."""
    reads = columns.reads
    return np.flatnonzero(
        reads.is_committed & (reads.since >= NONE) & (reads.offset > reads.since + 1)
    )


def _passed_by(columns: HistoryColumns, row: Ints, observer: Ints) -> Bools:
    """Return for each send whether its observer polled an earlier and next a later offset."""
    reads = columns.reads
    steps = _steps(columns)
    # Number partitions by observer, to look all of them up at once.
    count = len(columns.partitions)
    where = columns.process[reads.operation[steps]] * count + reads.partition[steps]
    wanted = observer * count + columns.sends.partition[row]
    where = np.unique(np.concatenate([where, wanted]), return_inverse=True)[1]
    where, wanted = where[: len(steps)], where[len(steps) :]
    starts = columns.place(where, reads.since[steps])
    ends = columns.place(where, reads.offset[steps])
    order = np.argsort(starts, kind="stable")
    starts, furthest = starts[order], np.maximum.accumulate(ends[order])
    places = columns.place(wanted, columns.located[row])
    before = np.searchsorted(starts, places, side="left") - 1
    found: Bools = np.zeros(len(row), dtype=np.bool_)
    is_after = before >= 0
    found[is_after] = furthest[before[is_after]] > places[is_after]
    return found
