"""The values of one metric at one moment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_log.metrics.definitions import MetricDefinition
from spark_log.metrics.histogram import Histogram

Labels = Sequence[str]
"""The values of a metric's labels, in the order of its definition."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its value for each combination of labels.

    Attributes:
        definition: the definition of the metric.
        samples: pairs of label values and value, which is a `Histogram` for a histogram.
    """

    definition: MetricDefinition
    samples: Iterable[tuple[Labels, float | Histogram]]
