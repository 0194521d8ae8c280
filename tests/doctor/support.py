"""A root with problems, and a doctor for it."""

from dataclasses import dataclass

from spark_log.cluster import Cluster
from spark_log.doctor import Doctor, Limits
from spark_log.util.clock import ManualClock
from tests.record.samples import record_batch, row

DAY_MS = 24 * 3_600_000


@dataclass
class Patient:
    """A root, and the clock of the doctor's machine."""

    root: str
    clock: ManualClock

    def doctor(self, *checks, **options):
        """A doctor with some checks, or with all."""
        options.setdefault("limits", Limits(overdue_ms=DAY_MS))
        return Doctor(
            lambda: Cluster(self.root, clock=self.clock), checks=checks or None, **options
        )

    def findings(self, *checks, **options):
        return list(self.doctor(*checks, **options).findings())

    def codes(self, *checks, **options):
        return codes(self.findings(*checks, **options))


def codes(findings):
    return [each.problem.code for each in findings]


def append(cluster, *values, topic="t", partition=0, age_ms=0):
    """Append a record for each value, as one segment each, dated some time ago."""
    log = cluster.partition_log(cluster.topic(topic), partition)
    for value in values:
        timestamp = cluster.clock.time_us() - age_ms * 1000
        log.append(record_batch([row(value, timestamp=timestamp)]))
    return log
