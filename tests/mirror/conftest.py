"""A real Kafka broker, for all tests of the bridge."""

import os
import uuid
from types import SimpleNamespace

import pytest

from benchmarks.kafka_broker import BrokerError, KafkaBroker, ToolMissingError


@pytest.fixture(scope="session")
def bootstrap_servers(tmp_path_factory):
    """The address of a broker: that of KAFKA_BOOTSTRAP_SERVERS, or of one that is started."""
    given = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if given:
        yield given
        return
    try:
        # Kafka deletes expired records at once, so that every test run meets that.
        often = {"log.retention.check.interval.ms": "500", "log.initial.task.delay.ms": "500"}
        home = tmp_path_factory.mktemp("kafka")
        with KafkaBroker(home, settings=often, start_timeout_s=300) as broker:
            yield broker.bootstrap_servers
    except (ToolMissingError, BrokerError) as error:
        pytest.skip(str(error))


@pytest.fixture
def kafka(bootstrap_servers):
    """A client of the broker, with a topic name that no other test has."""
    pytest.importorskip("confluent_kafka")
    from tests.mirror.support import KafkaClient

    return KafkaClient(bootstrap_servers)


@pytest.fixture
def names():
    """Names that no other test has."""
    unique = uuid.uuid4().hex[:8]
    return SimpleNamespace(topic=f"flights-{unique}", alias=f"kafka-{unique}", group=f"g-{unique}")
