"""``spark-log exporter`` and ``spark-log canary``: the metrics of a root for Prometheus.

- `root_metrics`: a sample of a root in Prometheus' text format, with kafka_exporter's names.
- `root_exporter`: scrapes; concurrent requests share one scrape.
- `canary`: records that are written to the log and read back.
"""

from spark_log.util.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
