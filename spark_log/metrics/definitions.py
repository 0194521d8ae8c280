"""The one table of metrics. docs/metrics.md is generated from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

MetricType = Literal["counter", "gauge", "histogram"]


@dataclass(frozen=True, slots=True)
class MetricDefinition:
    """The definition of a metric, without values.

    Attributes:
        name: the name in Prometheus.
        type: the type. ``counter`` values only grow, until the process ends.
        unit: the unit of the value; empty for a plain number.
        labels: the names of the labels, in order.
        help: the description of the value.
        kafka: the group and name of the same value in `Producer.metrics` or `Consumer.metrics`;
            empty if they do not have it.
    """

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    help: str
    kafka: tuple[str, str] | tuple[()] = ()


def _gauge(name: str, labels: str, text: str, unit: str = "") -> MetricDefinition:
    return MetricDefinition(name, "gauge", unit, tuple(labels.split()), text)


def _client(
    kind: MetricType, name: str, text: str, group: str, kafka: str, unit: str = ""
) -> MetricDefinition:
    found = (group, kafka) if kafka else ()
    return MetricDefinition(f"spark_log_{name}", kind, unit, ("client_id",), text, found)


def _producer(
    kind: MetricType, name: str, text: str, kafka: str = "", unit: str = ""
) -> MetricDefinition:
    return _client(kind, f"producer_{name}", text, "producer-metrics", kafka, unit)


def _fetch(
    kind: MetricType, name: str, text: str, kafka: str = "", unit: str = ""
) -> MetricDefinition:
    return _client(kind, f"consumer_{name}", text, "consumer-fetch-manager-metrics", kafka, unit)


def _coordinator(
    kind: MetricType, name: str, text: str, kafka: str = "", unit: str = ""
) -> MetricDefinition:
    return _client(kind, f"consumer_{name}", text, "consumer-coordinator-metrics", kafka, unit)


_PARTITION: Final = "topic partition"
_STRIPE: Final = "topic stripe"
_GROUP_PARTITION: Final = "consumergroup topic partition"
_LAG_SECONDS: Final = "cluster_name group topic partition member_host consumer_id client_id"

# --- spark-log exporter, with the names of kafka_exporter ----------------------------------------

BROKERS = _gauge("kafka_brokers", "", "Number of brokers that are not fenced.")
BROKER_INFO = _gauge("kafka_broker_info", "id address", "1 for each broker; address is its root.")
TOPIC_PARTITIONS = _gauge("kafka_topic_partitions", "topic", "Number of partitions of the topic.")
CURRENT_OFFSET = _gauge(
    "kafka_topic_partition_current_offset", _PARTITION, "Log end offset of the partition."
)
OLDEST_OFFSET = _gauge(
    "kafka_topic_partition_oldest_offset", _PARTITION, "Log start offset of the partition."
)
LEADER = _gauge(
    "kafka_topic_partition_leader", _PARTITION, "Id of the partition's leader; -1 without one."
)
REPLICAS = _gauge(
    "kafka_topic_partition_replicas", _PARTITION, "Number of the partition's replicas."
)
IN_SYNC_REPLICA = _gauge(
    "kafka_topic_partition_in_sync_replica",
    _PARTITION,
    "Number of in-sync replicas of the partition.",
)
LEADER_IS_PREFERRED = _gauge(
    "kafka_topic_partition_leader_is_preferred",
    _PARTITION,
    "1 if the partition's leader is its first replica, else 0.",
)
UNDER_REPLICATED = _gauge(
    "kafka_topic_partition_under_replicated_partition",
    _PARTITION,
    "1 if the partition has fewer in-sync replicas than replicas, else 0.",
)
GROUP_CURRENT_OFFSET = _gauge(
    "kafka_consumergroup_current_offset", _GROUP_PARTITION, "Committed offset of the group."
)
GROUP_CURRENT_OFFSET_SUM = _gauge(
    "kafka_consumergroup_current_offset_sum",
    "consumergroup topic",
    "Sum of the group's committed offsets in the topic.",
)
GROUP_LAG = _gauge(
    "kafka_consumergroup_lag",
    _GROUP_PARTITION,
    "Offsets that the group has not read yet and can read: from its committed one, or from the log "
    "start offset if that is higher, to the log end offset; never negative.",
)
GROUP_LAG_SUM = _gauge(
    "kafka_consumergroup_lag_sum", "consumergroup topic", "Sum of the group's lag in the topic."
)
GROUP_MEMBERS = _gauge(
    "kafka_consumergroup_members", "consumergroup", "Number of the group's members."
)

# --- spark-log exporter, with the name of kafka-lag-exporter -------------------------------------

GROUP_LAG_SECONDS = _gauge(
    "kafka_consumergroup_group_lag_seconds",
    _LAG_SECONDS,
    "Age of the first record that the group has not read and can read, by its timestamp; 0 without "
    "such a record.",
    "seconds",
)

# --- spark-log exporter, its own -----------------------------------------------------------------

GROUP_DELETED = _gauge(
    "spark_log_consumergroup_deleted_offsets",
    _GROUP_PARTITION,
    "Offsets from the group's committed one to the log start offset: records that were deleted "
    "before the group read them. 0 when the group has committed a later offset.",
)
PARTITION_SIZE = _gauge(
    "spark_log_topic_partition_size_bytes",
    _PARTITION,
    "Size of the partition's segments on one replica.",
    "bytes",
)
TABLE_VERSION = _gauge(
    "spark_log_topic_table_version",
    "topic",
    "Newest version of the topic's table; -1 before the first. Of topics with table.format=delta.",
)
TABLE_FILES = _gauge(
    "spark_log_topic_table_files", "topic", "Number of files in the newest version of the table."
)
TABLE_SIZE = _gauge(
    "spark_log_topic_table_size_bytes",
    "topic",
    "Size of the files in the newest version of the table.",
    "bytes",
)
TABLE_LAG = _gauge(
    "spark_log_topic_partition_table_lag",
    _PARTITION,
    "Offsets of the log that are not in the table yet: from its end to the log end offset.",
)
TABLE_LAG_SECONDS = _gauge(
    "spark_log_topic_partition_table_lag_seconds",
    _PARTITION,
    "Age of the first record that is not in the table yet, by its timestamp; 0 without such a "
    "record.",
    "seconds",
)
STRIPE_OBJECTS = _gauge(
    "spark_log_topic_stripe_objects",
    _STRIPE,
    "Number of the stripe's objects that are not at home: each process that opens the stripe reads "
    "all of them. Of topics with stripes.",
)
STRIPE_BYTES = _gauge(
    "spark_log_topic_stripe_objects_bytes",
    _STRIPE,
    "Size of the stripe's objects that are not at home.",
    "bytes",
)
STRIPE_SECONDS = _gauge(
    "spark_log_topic_stripe_objects_age_seconds",
    _STRIPE,
    "Time from the oldest object that is not at home to the stripe's newest file, by the storage's "
    "time; 0 without such an object.",
    "seconds",
)
UP = _gauge("spark_log_exporter_up", "", "1 if the root could be read for this scrape, else 0.")
UNREADABLE_PARTITIONS = _gauge(
    "spark_log_exporter_unreadable_partitions",
    "",
    "Number of partitions that could not be read for this scrape, and are left out.",
)
SCRAPE_DURATION = MetricDefinition(
    "spark_log_exporter_scrape_duration_seconds",
    "histogram",
    "seconds",
    (),
    "Time to read the root for a scrape. Scrapes that arrive meanwhile get the same answer.",
)

# --- storage, of every client and of the exporter ------------------------------------------------

REQUEST_DURATION = MetricDefinition(
    "spark_log_storage_request_duration_seconds",
    "histogram",
    "seconds",
    ("client_id", "operation"),
    "Time of calls to the storage of the root, by operation. On an object store a call is a "
    "request, or several if it is retried.",
)
REQUEST_ERRORS = MetricDefinition(
    "spark_log_storage_request_errors_total",
    "counter",
    "",
    ("client_id", "operation", "error"),
    "Calls to the storage of the root that raised an error. A put_if_absent with "
    "AlreadyExistsError is a lost race: another writer was first. NotFoundError is usual: a reader "
    "looks for the next segment.",
)
SUPPRESSED_ERRORS = MetricDefinition(
    "spark_log_suppressed_errors_total",
    "counter",
    "",
    ("client_id", "action"),
    "Failed actions after which the client continued, by action, such as the writing of an index "
    "or a snapshot, or a merge.",
    ("suppressed-errors", "<action>-errors-total"),
)

# --- Producer ------------------------------------------------------------------------------------

APPEND_DURATION = _producer(
    "histogram",
    "append_duration_seconds",
    "Time of acknowledged appends, lost races included.",
    unit="seconds",
)
QUEUE_DURATION = _producer(
    "histogram",
    "queue_duration_seconds",
    "Time that the oldest record of an append waited before the append began.",
    unit="seconds",
)
THROTTLE_DURATION = _producer(
    "histogram",
    "throttle_duration_seconds",
    "Pauses after appends because of the quota of the client id; 0 without a quota.",
    unit="seconds",
)
APPEND_ERRORS = MetricDefinition(
    "spark_log_producer_append_errors_total",
    "counter",
    "",
    ("client_id", "error"),
    "Attempts of appends that failed, by error. ProducerFencedError and InvalidProducerEpochError: "
    "a newer producer has fenced this one. UnknownOutcomeError: the answer was lost.",
)

# --- Consumer ------------------------------------------------------------------------------------

COMMIT_DURATION = _coordinator(
    "histogram", "commit_duration_seconds", "Time of commits that took effect.", unit="seconds"
)
JOIN_DURATION = _coordinator(
    "histogram", "join_duration_seconds", "Time of joins that took effect.", unit="seconds"
)
REBALANCE_DURATION = _coordinator(
    "histogram", "rebalance_duration_seconds", "Time of rebalances that ended.", unit="seconds"
)
CALLBACK_DURATION = MetricDefinition(
    "spark_log_consumer_rebalance_callback_duration_seconds",
    "histogram",
    "seconds",
    ("client_id", "callback"),
    "Time of the rebalance listener's callbacks: revoked, assigned, lost.",
)
FETCH_THROTTLE_DURATION = _fetch(
    "histogram",
    "fetch_throttle_duration_seconds",
    "Pauses between fetches because of the quota of the client id.",
    unit="seconds",
)

# --- spark-log canary ----------------------------------------------------------------------------

CANARY_PRODUCE = MetricDefinition(
    "spark_log_canary_produce_duration_seconds",
    "histogram",
    "seconds",
    (),
    "Time from sending a canary's record until it is acknowledged.",
)
CANARY_ROUNDTRIP = MetricDefinition(
    "spark_log_canary_roundtrip_duration_seconds",
    "histogram",
    "seconds",
    (),
    "Time from sending a canary's record until a consumer has it.",
)
CANARY_COMMIT = MetricDefinition(
    "spark_log_canary_commit_duration_seconds",
    "histogram",
    "seconds",
    (),
    "Time to commit the offset after a canary's record.",
)
CANARY_FAILURES = MetricDefinition(
    "spark_log_canary_failures_total",
    "counter",
    "",
    ("step",),
    "Canary's records that failed, by step: open, produce, roundtrip, commit.",
)

# --- spark-log mirror ----------------------------------------------------------------------------

MIRROR_RECORDS = MetricDefinition(
    "spark_log_mirror_records_total",
    "counter",
    "",
    ("source",),
    "Records that the bridge has committed; source is the side that it reads: kafka or log.",
)
MIRROR_BYTES = MetricDefinition(
    "spark_log_mirror_bytes_total",
    "counter",
    "bytes",
    ("source",),
    "Size of the records that the bridge has committed, in memory.",
)
MIRROR_TRANSACTIONS = MetricDefinition(
    "spark_log_mirror_transactions_total",
    "counter",
    "",
    ("source",),
    "Transactions that the bridge has committed.",
)
MIRROR_LAG = _gauge(
    "spark_log_mirror_lag",
    "source topic partition",
    "Offsets of the source's partition that are not mirrored yet.",
)

EXPORTER: Final = (
    BROKERS,
    BROKER_INFO,
    TOPIC_PARTITIONS,
    CURRENT_OFFSET,
    OLDEST_OFFSET,
    LEADER,
    REPLICAS,
    IN_SYNC_REPLICA,
    LEADER_IS_PREFERRED,
    UNDER_REPLICATED,
    PARTITION_SIZE,
    GROUP_MEMBERS,
    GROUP_CURRENT_OFFSET,
    GROUP_CURRENT_OFFSET_SUM,
    GROUP_LAG,
    GROUP_LAG_SUM,
    GROUP_LAG_SECONDS,
    GROUP_DELETED,
    TABLE_VERSION,
    TABLE_FILES,
    TABLE_SIZE,
    TABLE_LAG,
    TABLE_LAG_SECONDS,
    STRIPE_OBJECTS,
    STRIPE_BYTES,
    STRIPE_SECONDS,
    UP,
    UNREADABLE_PARTITIONS,
    SCRAPE_DURATION,
)
"""Metrics of ``spark-log exporter``."""

GATEWAY_REQUEST_DURATION = MetricDefinition(
    "kafka_network_requestmetrics_total_time_seconds",
    "histogram",
    "seconds",
    ("request",),
    "Time from the arrival of a request to its answer; long polls included. Kafka's TotalTimeMs.",
)
GATEWAY_REQUESTS = MetricDefinition(
    "kafka_network_requestmetrics_requests_total",
    "counter",
    "",
    ("request", "version"),
    "Requests that were answered. Kafka's RequestsPerSec.",
)
GATEWAY_REQUEST_ERRORS = MetricDefinition(
    "kafka_network_requestmetrics_errors_total",
    "counter",
    "",
    ("request", "error"),
    "Answers with an error for the whole request, and requests that failed. Kafka's ErrorsPerSec.",
)
GATEWAY_CONNECTIONS = _gauge(
    "kafka_server_socket_server_metrics_connection_count", "", "Open connections."
)
GATEWAY_RECEIVED = MetricDefinition(
    "kafka_server_socket_server_metrics_incoming_byte_total",
    "counter",
    "bytes",
    (),
    "Size of all that clients have sent.",
)
GATEWAY_SENT = MetricDefinition(
    "kafka_server_socket_server_metrics_outgoing_byte_total",
    "counter",
    "bytes",
    (),
    "Size of all answers to clients.",
)
GATEWAY_MEMORY = _gauge(
    "spark_log_gateway_request_memory_bytes",
    "",
    "Size of the requests that are received or answered, and of their answers.",
    "bytes",
)
GATEWAY_CLOSED = MetricDefinition(
    "spark_log_gateway_connections_closed_total",
    "counter",
    "",
    (),
    "Connections that the gateway closed: idle, slow, or with a request that it could not read.",
)
FETCH_SESSIONS = _gauge(
    "kafka_server_fetchsessioncache_num_incremental_fetch_sessions",
    "",
    "Fetch sessions of clients. Kafka's NumIncrementalFetchSessions.",
)
FETCH_SESSION_PARTITIONS = _gauge(
    "kafka_server_fetchsessioncache_num_incremental_fetch_partitions_cached",
    "",
    "Partitions in all fetch sessions. Kafka's NumIncrementalFetchPartitionsCached.",
)
FETCH_SESSION_EVICTIONS = MetricDefinition(
    "kafka_server_fetchsessioncache_incremental_fetch_session_evictions_total",
    "counter",
    "",
    (),
    "Fetch sessions that were closed to make room. Kafka's IncrementalFetchSessionEvictionsPerSec.",
)
GATEWAYS = _gauge(
    "spark_log_gateway_gateways", "", "Gateways of the root that clients can connect to."
)
SERVE_WANTED = _gauge(
    "spark_log_serve_gateways_wanted",
    "",
    "Gateways that the job is to have; with --max-gateways it follows from their loads.",
)
SERVE_GATEWAYS = _gauge(
    "spark_log_serve_gateways",
    "",
    "Gateways of the job that serve. Fewer than wanted: one waits for an executor, or starts.",
)
SERVE_LOAD = _gauge(
    "spark_log_serve_gateway_load",
    "gateway",
    "Cores that the gateway used in the last five seconds; gateway is its number in the job.",
)
SERVE_CONNECTIONS = _gauge(
    "spark_log_serve_gateway_connections", "gateway", "Open connections of the gateway."
)
SERVE_BYTES = MetricDefinition(
    "spark_log_serve_gateway_bytes_total",
    "counter",
    "bytes",
    ("gateway",),
    "Size of what the gateway has received from clients and sent to them, since it started.",
)

STORAGE: Final = (REQUEST_DURATION, REQUEST_ERRORS, SUPPRESSED_ERRORS)
"""Metrics of every client, and of the exporter."""

PRODUCER: Final = (
    _producer("counter", "records_total", "Records that were acknowledged.", "record-send-total"),
    _producer(
        "counter",
        "bytes_total",
        "Bytes of acknowledged appends, as they are stored.",
        "outgoing-byte-total",
        "bytes",
    ),
    _producer("counter", "batches_total", "Batches that were acknowledged.", "batch-total"),
    _producer("counter", "appends_total", "Appends that were acknowledged.", "request-total"),
    _producer("counter", "retries_total", "Appends that were retried.", "record-retry-total"),
    _producer("counter", "record_errors_total", "Records that failed.", "record-error-total"),
    APPEND_ERRORS,
    APPEND_DURATION,
    QUEUE_DURATION,
    THROTTLE_DURATION,
    _producer("gauge", "buffer_bytes", "Size of the buffer.", "buffer-total-bytes", "bytes"),
    _producer(
        "gauge",
        "buffer_available_bytes",
        "Free part of the buffer.",
        "buffer-available-bytes",
        "bytes",
    ),
    _producer(
        "gauge",
        "records_in_flight",
        "Records that are neither acknowledged nor failed.",
        "records-in-flight",
    ),
)
"""Metrics of a `Producer`."""

CONSUMER: Final = (
    _client("counter", "consumer_polls_total", "Polls.", "consumer-metrics", "poll-total"),
    _fetch("counter", "records_total", "Records that polls returned.", "records-consumed-total"),
    _fetch(
        "counter",
        "bytes_total",
        "Bytes of the records that polls returned.",
        "bytes-consumed-total",
        "bytes",
    ),
    _fetch("counter", "fetches_total", "Reads of the log.", "fetch-total"),
    FETCH_THROTTLE_DURATION,
    _fetch(
        "gauge",
        "records_lag_max",
        "Largest number of records from a position to the log end offset that was read last.",
        "records-lag-max",
    ),
    _coordinator(
        "gauge", "assigned_partitions", "Number of assigned partitions.", "assigned-partitions"
    ),
    COMMIT_DURATION,
    JOIN_DURATION,
    REBALANCE_DURATION,
    _coordinator(
        "counter",
        "failed_rebalances_total",
        "Attempts of a rebalance that failed and are repeated.",
        "failed-rebalance-total",
    ),
    CALLBACK_DURATION,
)
"""Metrics of a `Consumer`."""

CANARY: Final = (CANARY_PRODUCE, CANARY_ROUNDTRIP, CANARY_COMMIT, CANARY_FAILURES)
"""Metrics of ``spark-log canary``."""

MIRROR: Final = (MIRROR_RECORDS, MIRROR_BYTES, MIRROR_TRANSACTIONS, MIRROR_LAG)
"""Metrics of ``spark-log mirror from-kafka`` and ``to-kafka``."""

GATEWAY: Final = (
    GATEWAY_REQUESTS,
    GATEWAY_REQUEST_ERRORS,
    GATEWAY_REQUEST_DURATION,
    GATEWAY_CONNECTIONS,
    GATEWAY_RECEIVED,
    GATEWAY_SENT,
    GATEWAY_CLOSED,
    GATEWAY_MEMORY,
    GATEWAYS,
    FETCH_SESSIONS,
    FETCH_SESSION_PARTITIONS,
    FETCH_SESSION_EVICTIONS,
)
"""Metrics of ``spark-log gateway``."""

SERVE: Final = (
    SERVE_WANTED,
    SERVE_GATEWAYS,
    SERVE_LOAD,
    SERVE_CONNECTIONS,
    SERVE_BYTES,
)
"""Metrics of ``jobs/serve.py``."""
