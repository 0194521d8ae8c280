"""Checks a history: runs all checks on its columns."""

from __future__ import annotations

from collections.abc import Iterable, Set

from spark_log.testing.history.anomaly import ALLOWED, Anomaly
from spark_log.testing.history.columns import HistoryColumns
from spark_log.testing.history.cycle_checks import check_cycles
from spark_log.testing.history.findings import Findings
from spark_log.testing.history.garbage import paused_garbage_collection
from spark_log.testing.history.history_file import History
from spark_log.testing.history.log_checks import (
    check_duplicates,
    check_inconsistent_offsets,
    check_lost_writes,
    check_order_of_sends,
)
from spark_log.testing.history.operation import Operation
from spark_log.testing.history.poll_checks import check_order_of_polls
from spark_log.testing.history.report import Report
from spark_log.testing.history.visibility_checks import (
    check_aborted_reads,
    check_garbage_reads,
    check_intermediate_reads,
    check_torn_transactions,
)


def check_history(
    history: History | Iterable[Operation],
    *,
    allowed: Set[Anomaly] = ALLOWED,
    examples: int = 32,
) -> Findings:
    """Find the anomalies of a history.

    The check assumes that the log was neither compacted nor trimmed, and that the consumers
    together have read it from its beginning. Offsets may have gaps, which transactions leave. Time
    and memory grow with the number of operations and records (times its logarithm, for sorting).
    The same history gives the same findings.

    Args:
        history: the operations; those of each process in the order in which it invoked them.
        allowed: the anomalies that are reported and break no guarantee.
        examples: the maximum number of findings of each anomaly; the others are only counted.

    Raises:
        OverflowError: offsets are too high to be checked (2**62, divided by the number of values).
    """
    operations = history.operations if isinstance(history, History) else tuple(history)
    with paused_garbage_collection():
        columns = HistoryColumns(operations)
    report = Report(columns, examples)
    for check in (
        check_lost_writes,
        check_duplicates,
        check_inconsistent_offsets,
        check_order_of_sends,
        check_order_of_polls,
        check_garbage_reads,
        check_aborted_reads,
        check_intermediate_reads,
        check_torn_transactions,
        check_cycles,
    ):
        check(columns, report)
    return report.findings(allowed)
