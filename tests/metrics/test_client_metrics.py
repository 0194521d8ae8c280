"""What clients tell to Prometheus: in a registry that is handed over, or at a port."""

import gc
import socket
import urllib.error

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from spark_log import Admin, Consumer, NewTopic, Producer
from spark_log.errors import InvalidConfigurationError, UnknownOutcomeError
from spark_log.metrics import definitions
from spark_log.storage.local import LocalStore
from tests.metrics.support import get, samples
from tests.waiting import wait_until


@pytest.fixture
def root(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", topic_configs={"flush.on.append": False})])
    return root


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def of_client(text, client_id):
    """Return the samples of one client by name and the other labels."""
    found = {}
    for (name, *pairs), value in samples(text).items():
        labels = dict(pairs)
        if labels.pop("client_id", None) == client_id:
            found[name, *sorted(labels.values())] = value
    return found


def test_a_producer_tells_what_it_sent(root, registry):
    with Producer(root, client_id="p", metrics_registry=registry) as producer:
        for _ in range(3):
            producer.send("t", b"value").result(30)
        found = of_client(generate_latest(registry), "p")
        assert found["spark_log_producer_records_total",] == 3
        assert found["spark_log_producer_bytes_total",] > 15
        appends = found["spark_log_producer_appends_total",]
        for what in ("append", "queue", "throttle"):
            name = f"spark_log_producer_{what}_duration_seconds"
            assert found[f"{name}_count",] == found[f"{name}_bucket", "+Inf"] == appends
        assert 0 < found["spark_log_producer_append_duration_seconds_sum",] < 30
        requests = "spark_log_storage_request_duration_seconds_count"
        assert found[requests, "put_if_absent"] >= appends
        assert found["spark_log_producer_append_errors_total", "ProducerFencedError"] == 0
    assert samples(generate_latest(registry)) == {}, "it is closed"


def test_every_definition_of_a_client_has_a_value(root, registry):
    with (
        Producer(root, client_id="c", metrics_registry=registry) as producer,
        Consumer("t", root=root, client_id="c", metrics_registry=registry),
    ):
        producer.send("t", b"v").result(30)
        names = {name for name, *_ in samples(generate_latest(registry))}
    for each in (*definitions.PRODUCER, *definitions.CONSUMER, definitions.REQUEST_DURATION):
        suffix = "_count" if each.type == "histogram" else ""
        assert each.name + suffix in names


def test_a_consumer_tells_what_it_read_and_committed(root, registry):
    with Producer(root) as producer:
        producer.send("t", b"value").result(30)
    with Consumer(
        "t",
        root=root,
        group_id="g",
        client_id="c",
        auto_offset_reset="earliest",
        metrics_registry=registry,
    ) as consumer:
        assert wait_until(lambda: consumer.poll(1000))
        consumer.commit()
        found = of_client(generate_latest(registry), "c")
        lifetime = consumer.metrics()["consumer-coordinator-metrics"]
    assert found["spark_log_consumer_records_total",] == 1
    assert found["spark_log_consumer_polls_total",] >= 1
    assert found["spark_log_consumer_assigned_partitions",] == 1
    assert found["spark_log_consumer_commit_duration_seconds_count",] == lifetime["commit-total"]
    assert found["spark_log_consumer_join_duration_seconds_sum",] == pytest.approx(
        lifetime["join-time-avg"] * lifetime["join-total"] / 1000
    )
    assert found["spark_log_consumer_rebalance_callback_duration_seconds_count", "assigned"] == 0


def test_lost_races_and_unknown_outcomes_are_counted(root, registry, monkeypatch):
    put = LocalStore.put_if_absent
    lost: list[str] = []

    def losing(self, path, source, **options):
        put(self, path, source, **options)
        if path.endswith(".log") and "/t-0/" in path and not lost:
            lost.append(path)
            raise UnknownOutcomeError("the answer was lost")

    monkeypatch.setattr(LocalStore, "put_if_absent", losing)
    with (
        Producer(root, client_id="a", metrics_registry=registry, retry_backoff_ms=1) as a,
        Producer(root, client_id="b", metrics_registry=registry) as b,
    ):
        for producer in (a, b, a):  # a believes that the log ends where b has appended
            producer.send("t", b"v").result(30)
        found = of_client(generate_latest(registry), "a")
    errors = "spark_log_storage_request_errors_total"
    assert lost
    assert found[errors, "UnknownOutcomeError", "put_if_absent"] == 1
    assert found[errors, "AlreadyExistsError", "put_if_absent"] >= 1


def test_failures_that_were_suppressed_are_counted(root, registry, monkeypatch):
    with Producer(root, client_id="p", metrics_registry=registry) as producer:
        producer._cluster.suppressed.add("index", "t-0", OSError("full"))  # noqa: SLF001
        found = of_client(generate_latest(registry), "p")
    assert found["spark_log_suppressed_errors_total", "index"] == 1


def test_a_registry_has_other_metrics_too(root, registry):
    Counter("mine", "Of the user.", registry=registry).inc()
    with Producer(root, metrics_registry=registry):
        pass
    assert samples(generate_latest(registry))["mine_total",] == 1


def test_a_client_that_is_forgotten_keeps_nothing_alive(root, registry):
    consumer = Consumer("t", root=root, client_id="c", metrics_registry=registry)
    assert of_client(generate_latest(registry), "c")
    del consumer
    gc.collect()
    assert of_client(generate_latest(registry), "c") == {}


def test_clients_of_one_process_share_a_port(root, port):
    with Producer(root, client_id="p", metrics_port=port):
        with Consumer("t", root=root, client_id="c", metrics_port=port):
            text = get(port)
            assert of_client(text, "p")["spark_log_producer_records_total",] == 0
            assert of_client(text, "c")["spark_log_consumer_records_total",] == 0
        assert of_client(get(port), "c") == {}
    with pytest.raises(urllib.error.URLError):
        get(port)


def test_a_port_that_is_taken_by_others_is_named(root):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        number = taken.getsockname()[1]
        with pytest.raises(InvalidConfigurationError, match=f"127.0.0.1:{number}"):
            Producer(root, metrics_port=number)


@pytest.mark.parametrize(
    "given", [{"metrics_port": 0}, {"metrics_port": "9400"}, {"metrics_registry": "mine"}]
)
@pytest.mark.parametrize("client", [Producer, lambda root, **given: Consumer(root=root, **given)])
def test_mistakes_are_told(client, given, root):
    with pytest.raises(InvalidConfigurationError, match=next(iter(given))):
        client(root, **given)


def test_without_metrics_nothing_is_measured(root):
    with Producer(root) as producer:
        assert "put_if_absent" not in vars(producer._cluster.store)  # noqa: SLF001
