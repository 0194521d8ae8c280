"""The text of docs/metrics.md, built from the table of definitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from spark_log.metrics import definitions
from spark_log.metrics.definitions import MetricDefinition

_HEAD = """\
<!-- Generated from spark_log/metrics/definitions.py by `make docs`. -->

# Metrics

Metrics are in Prometheus' format. They need `pip install 'spark-log[metrics]'`.

"""

_EXPORTER = """\
## A root: `spark-log exporter`

`spark-log exporter --root URL` serves these at `http://127.0.0.1:9308/metrics`. The names that
begin with `kafka_` are those of [kafka_exporter](https://github.com/danielqsj/kafka_exporter), and
of [kafka-lag-exporter](https://github.com/seglo/kafka-lag-exporter) for the lag in seconds, so
dashboards and alerts for them work. Committed offsets are read before the ends of the logs. A lag
counts records that can be read, and is never negative. Records that were deleted before the group
read them are not in the lag, but in `spark_log_consumergroup_deleted_offsets`. Set an alert on this
metric: the group has missed these records. A partition that cannot be read is left out. A group has
a lag in each partition in which it has committed an offset, until its offset or the topic is
deleted.

A scrape costs one request for the metadata, one for new commits, and a listing of the groups. Each
partition, and each group that ever had a member, costs one more request, which asks for the next
segment of its log. A partition with new records also costs a listing and a read. A partition
without new records is listed once in five to ten minutes; until then its oldest offset and its size
may be old, and records that were deleted since still count as lag. Lag in seconds costs a read for
each new committed offset that is behind; a scrape makes at most 250 of these reads, for the largest
lags first, and has no lag in seconds for the others. A topic with `table.format=delta` costs one
request for the newest version of its [table](table.md), and its lag in seconds costs a read for
each new end of a partition in the table. Partitions in a [stripe](stripes.md) share a request for
its next object, and a listing, and cost one read for each new object; with new records, too, a
partition costs no request of its own, but for a listing in five to ten minutes, and when its
records were taken home. The first scrape lists every partition. Nothing is read between scrapes,
and scrapes at the same time share one answer.

[conf/grafana/spark-log.json](../conf/grafana/spark-log.json) is a dashboard for Grafana.

"""

_STORAGE = """\
## Storage of a client or of the exporter

The exporter has the `client_id` `exporter`. Brokers other than the cluster's root are not
measured.

"""

_PRODUCER = """\
## `Producer`

`Producer(root, metrics_port=9400)` serves its metrics at `http://127.0.0.1:9400/metrics`; clients
of one process may have the same port. `Producer(root, metrics_registry=registry)` adds them to a
registry of prometheus_client until `close`. The last column has the name in `Producer.metrics()`,
which stays as in Kafka.

"""

_CONSUMER = """\
## `Consumer`

`metrics_port` and `metrics_registry` are those of `Producer`. `Consumer.metrics()` has the average
and the maximum of the durations in a histogram.

"""

_CANARY = """\
## `spark-log canary`

"""

_MIRROR = """\
## `spark-log mirror`

`spark-log mirror from-kafka --metrics-port 9401` and `spark-log mirror to-kafka --metrics-port
9401` serve these metrics. The values are read after each transaction, and at each refresh.

"""

_GATEWAY = """\
## `spark-log gateway`

`spark-log gateway --metrics-port 9404` serves these at `http://127.0.0.1:9404/metrics`. Names that
begin with `kafka_` are those of Kafka's brokers, as far as Prometheus' rules allow. Errors of
single topics and partitions are in the answers, and not in these counts.

"""

_SERVE = """\
## `jobs/serve.py`

`jobs/serve.py --metrics-port 9405` serves these at `http://127.0.0.1:9405/metrics` of Spark's
driver. Each gateway tells the driver its load each second.

"""


def metrics_page() -> str:
    """Return the page as Markdown."""
    parts = [
        (_EXPORTER, definitions.EXPORTER),
        (_STORAGE, definitions.STORAGE),
        (_PRODUCER, definitions.PRODUCER),
        (_CONSUMER, definitions.CONSUMER),
        (_CANARY, definitions.CANARY),
        (_MIRROR, definitions.MIRROR),
        (_GATEWAY, definitions.GATEWAY),
        (_SERVE, definitions.SERVE),
    ]
    return _HEAD + "\n".join(head + "".join(_table(table)) for head, table in parts)


def _table(table: Iterable[MetricDefinition]) -> Iterator[str]:
    yield "| Metric | Type | Unit | Labels | Value | In `metrics()` |\n|---|---|---|---|---|---|\n"
    for each in table:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        kafka = f"`{each.kafka[1]}`" if each.kafka else ""
        cells = [f"`{each.name}`", each.type, each.unit, labels, each.help, kafka]
        yield f"| {' | '.join(cells)} |\n"
