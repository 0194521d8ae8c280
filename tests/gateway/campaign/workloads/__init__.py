"""Clients of a campaign that may be left out: each with its topics, faults, end and checks.

- `streams`: a word count of Kafka Streams, exactly once.
- `debezium`: a table of PostgreSQL, whose changes Debezium sends, exactly once.
- `go_transactions`: transactions of franz-go over several topics.
- `replicas`: a topic with three replicas, whose brokers are fenced and come back.
"""

from tests.gateway.campaign.workloads.debezium import DebeziumSource
from tests.gateway.campaign.workloads.go_transactions import GoTransactions
from tests.gateway.campaign.workloads.replicas import Replicas
from tests.gateway.campaign.workloads.streams import WordCount
from tests.gateway.campaign.workloads.workload import Blow as Blow
from tests.gateway.campaign.workloads.workload import Workload

WORKLOADS: dict[str, type[Workload]] = {
    "streams": WordCount,
    "debezium": DebeziumSource,
    "go": GoTransactions,
    "replicas": Replicas,
}
"""The workloads by the names of their options."""
