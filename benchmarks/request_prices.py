"""Prices of requests: list prices as inputs, and the dollars of counted requests."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.request_operations.operation import Operation

PRICES = {
    "S3 Standard": {"write": 0.005, "read": 0.0004},
    "Google Cloud Storage Standard": {"write": 0.005, "read": 0.0004},
    "Azure Blob Hot": {"write": 0.0055, "read": 0.00044},
}
"""Dollars for 1,000 requests: puts and listings, and reads. Prices differ between regions."""

BATCH_RECORDS = (1, 100, 10_000)
"""Numbers of records in a batch, for the dollars of a million records."""

MILLION = 1_000_000
MONTH_S = 30 * 86_400

Prices = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Counted:
    """The counted requests of one operation.

    Attributes:
        operation: the operation that was run.
        requests: the number of requests per run, or per second of a continuous operation.
        rounds: the number of these requests that waited for each other.
        writes: the number of these requests that were puts and listings.
        p50_ms: the median duration.
        p99_ms: the 99th percentile of the duration.
        kinds: the number of requests of each kind.
    """

    operation: Operation
    requests: float
    rounds: float
    writes: float
    p50_ms: float
    p99_ms: float
    kinds: Mapping[str, float]

    @property
    def is_kept(self) -> bool:
        """Whether the operation kept its budget."""
        operation = self.operation
        return self.requests <= operation.most and self.rounds <= operation.most_rounds

    def numbers(self) -> dict[str, object]:
        """Return the counts for JSON."""
        return {
            "requests": self.requests,
            "rounds": self.rounds,
            "writes": self.writes,
            "p50_ms": self.p50_ms,
            "kinds": dict(self.kinds),
        }

    def dollars(self, price: Mapping[str, float], times: float = 1) -> float:
        """Return the cost of running the operation ``times`` times; deletions are free."""
        reads = self.requests - self.writes - self.kinds.get("DELETE", 0)
        return times * (self.writes * price["write"] + reads * price["read"]) / 1000


@dataclass(frozen=True, slots=True)
class Use:
    """A use of a log that repeats an operation.

    Attributes:
        what: the description of the use, for a reader of the page.
        operation: the name of the repeated operation.
        times: the number of repetitions.
    """

    what: str
    operation: str
    times: float


def of_a_million_records(batch_records: Sequence[int]) -> Iterator[Use]:
    """Yield the uses of a log for a million records.

    Args:
        batch_records: the numbers of records in a batch.
    """
    for each in batch_records:
        batches = f"in batches of {each:,}" if each > 1 else "one by one"
        times = MILLION / each
        yield Use(f"sent {batches}", "one acknowledged append", times)
        yield Use(f"sent {batches} to 3 replicas", "one append to 3 replicas", times)
        yield Use(f"sent {batches}, a transaction each", "a transaction of one record", times)
        yield Use(f"read {batches}", "59 small segments", times / 59)


def of_a_partition() -> Iterator[Use]:
    """Yield the uses of a partition in a month."""
    for seconds, name in ((1, "second"), (10, "10 seconds"), (60, "minute"), (600, "10 minutes")):
        times = MONTH_S / seconds
        yield Use(f"appended to each {name}", "one acknowledged append", times)
    yield Use("with 3 replicas, appended to each second", "one append to 3 replicas", MONTH_S)
    yield Use("cleaned each hour, with nothing to do", "cleaning 10 idle partitions", 72)
    idle = "an idle consumer of 4 partitions, a second"
    yield Use("watched by an idle consumer", idle, MONTH_S / 4)


def of_a_running_client(found: Sequence[Counted]) -> Iterator[Use]:
    """Yield the uses by clients that run for a month: the continuous operations."""
    for each in found:
        if each.operation.lasts_s:
            name = each.operation.name
            yield Use(name.removesuffix(", a second"), name, MONTH_S)


def read_prices(path: Path | None) -> Prices:
    """Return the prices in a JSON file: store → ``write`` and ``read``; `PRICES` without one."""
    return PRICES if path is None else json.loads(path.read_text())
