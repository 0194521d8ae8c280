"""``spark-log exporter`` and ``spark-log canary``: what a root tells to Prometheus.

- `root_metrics`: a sample of a root in Prometheus' text format, with kafka_exporter's names.
- `root_exporter`: scrapes, each shared by all who ask meanwhile.
- `canary`: records that go through the log and back.
"""

from spark_log.exports import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__)
