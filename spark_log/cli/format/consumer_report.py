"""The output of ``spark-log consumer-perf``: the lines of kafka-consumer-perf-test, or JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from spark_log.cli.format.java_date import JavaDateFormat
from spark_log.cli.format.output import Output, print_json, print_text
from spark_log.types import ConsumerRecord
from spark_log.util import Clock

_MIB: Final = 1_048_576
_HEADER: Final = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)
_DETAILED_HEADER: Final = (
    "time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@dataclass(slots=True)
class ConsumerTotal:
    """Number and size of the records that were read."""

    count: int = 0
    size_bytes: int = 0

    def add_records(self, records: Iterable[ConsumerRecord]) -> None:
        """Add records, with the bytes of their keys and values."""
        for record in records:
            self.count += 1
            if isinstance(record.key, bytes):
                self.size_bytes += len(record.key)
            if isinstance(record.value, bytes):
                self.size_bytes += len(record.value)

    def add_table(self, table: pa.Table) -> None:
        """Add the rows of a table with binary columns ``key`` and ``value``."""
        self.count += table.num_rows
        for name in ("key", "value"):
            self.size_bytes += pc.sum(pc.binary_length(table.column(name))).as_py() or 0


class ConsumerReport:
    """Prints the lines of Kafka's tool: one for each interval, or one at the end.

    Attributes:
        total: the number and size of all records read.
        reported_ms: the monotonic time of the last interval's end.
        join_ms: the time spent waiting for partitions; the caller adds to it.
    """

    def __init__(self, output: Output, times: JavaDateFormat, is_detailed: bool) -> None:
        self.total = ConsumerTotal()
        self.reported_ms = 0.0
        self.join_ms = 0.0
        self._output = output
        self._times = times
        self._is_detailed = is_detailed
        self._began_us = self._ended_us = 0
        self._began_ms = self._ended_ms = 0.0
        self._last = ConsumerTotal()
        self._last_join_ms = 0.0

    def print_header(self) -> None:
        """Print the line of headings, unless the answer is JSON."""
        if not self._output.is_json:
            print_text(_DETAILED_HEADER if self._is_detailed else _HEADER)

    def begin(self, clock: Clock) -> None:
        """Start the clock."""
        self._began_us, self._began_ms = clock.time_us(), clock.monotonic_ms()
        self.reported_ms = self._began_ms

    def stop(self, clock: Clock) -> None:
        """Stop the clock."""
        self._ended_us, self._ended_ms = clock.time_us(), clock.monotonic_ms()

    def interval(self, clock: Clock) -> None:
        """End an interval, and print its line with ``--show-detailed-stats``."""
        now_ms = clock.monotonic_ms()
        if self._is_detailed:
            figures = _figures(
                self.total.size_bytes - self._last.size_bytes,
                self.total.count - self._last.count,
                now_ms - self.reported_ms,
                self.join_ms - self._last_join_ms,
            )
            time = self._times.text(clock.time_us())
            total_mb = self.total.size_bytes / _MIB
            if self._output.is_json:
                document = {"time": time, "threadId": 0, **figures}
                document["data.consumed.in.MB"] = total_mb
                document["data.consumed.in.nMsg"] = self.total.count
                print_json(document)
            else:
                print_text(f"{time}, 0, {_line(figures, total_mb, self.total.count)}")
        self.reported_ms = now_ms
        self._last = ConsumerTotal(self.total.count, self.total.size_bytes)
        self._last_join_ms = self.join_ms

    def end(self, metrics: dict[str, dict[str, float]] | None) -> None:
        """Print the figures of the whole run."""
        figures = _figures(
            self.total.size_bytes,
            self.total.count,
            self._ended_ms - self._began_ms,
            self.join_ms,
        )
        start, end = self._times.text(self._began_us), self._times.text(self._ended_us)
        if self._output.is_json:
            document = {"start.time": start, "end.time": end, **figures}
            print_json(document if metrics is None else {**document, "metrics": metrics})
            return
        if not self._is_detailed:
            total_mb = self.total.size_bytes / _MIB
            print_text(f"{start}, {end}, {_line(figures, total_mb, self.total.count)}")
        for group, values in (metrics or {}).items():
            for name, value in values.items():
                print_text(f"{group}:{name}: {value}")


def _figures(size_bytes: int, count: int, took_ms: float, join_ms: float) -> dict[str, object]:
    took_s = max(took_ms, 0.001) / 1000
    fetch_s = max(took_ms - join_ms, 0.001) / 1000
    size_mb = size_bytes / _MIB
    return {
        "data.consumed.in.MB": size_mb,
        "MB.sec": size_mb / took_s,
        "data.consumed.in.nMsg": count,
        "nMsg.sec": count / took_s,
        "rebalance.time.ms": round(join_ms),
        "fetch.time.ms": round(took_ms - join_ms),
        "fetch.MB.sec": size_mb / fetch_s,
        "fetch.nMsg.sec": count / fetch_s,
    }


def _line(figures: dict[str, object], total_mb: float, total_count: int) -> str:
    return (
        f"{total_mb:.4f}, {figures['MB.sec']:.4f}, {total_count}, {figures['nMsg.sec']:.4f}, "
        f"{figures['rebalance.time.ms']}, {figures['fetch.time.ms']}, "
        f"{figures['fetch.MB.sec']:.4f}, {figures['fetch.nMsg.sec']:.4f}"
    )
