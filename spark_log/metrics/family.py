"""The values of one metric at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_log.metrics.definitions import MetricDefinition
from spark_log.metrics.histogram import Histogram

Labels = Sequence[str]
"""Values of a metric's labels, in the order of its definition."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with the values that it has for each combination of its labels.

    Attributes:
        definition: of the metric.
        samples: label values and the value; of a histogram the `Histogram`.
    """

    definition: MetricDefinition
    samples: Iterable[tuple[Labels, float | Histogram]]
