"""`MirrorMetrics`: a mirror's progress and lag, for Prometheus."""

from __future__ import annotations

from spark_log.metrics import Family, definitions
from spark_log.mirror.mirror import Mirror


class MirrorMetrics:
    """The last read metrics of a `Mirror`, for any thread."""

    def __init__(self, mirror: Mirror) -> None:
        """Return metrics without values; nothing is read yet.

        Args:
            mirror: the mirror; only `update` calls it.
        """
        self._mirror = mirror
        self._families: tuple[Family, ...] = ()

    def update(self) -> dict[str, float]:
        """Read the metrics, and return `Mirror.metrics`; call it in the mirror's thread."""
        mirror = self._mirror
        source = mirror.source
        lag = mirror.lag()
        metrics = mirror.metrics(lag)
        counts = (
            (definitions.MIRROR_RECORDS, "record-count"),
            (definitions.MIRROR_BYTES, "byte-count"),
            (definitions.MIRROR_TRANSACTIONS, "transaction-count"),
        )
        name = source.name.lower()
        by_partition = [
            ((name, each.topic(source), str(each.partition)), float(offsets))
            for each, offsets in lag.items()
        ]
        self._families = (
            *(Family(each, [((name,), metrics[key])]) for each, key in counts),
            Family(definitions.MIRROR_LAG, by_partition),
        )
        return metrics

    def families(self) -> tuple[Family, ...]:
        """Return the metrics that were read last."""
        return self._families
