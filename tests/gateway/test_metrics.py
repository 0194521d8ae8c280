"""Metrics of a gateway."""

from spark_log.gateway.errors import ErrorCode
from spark_log.gateway.protocol import message_class
from spark_log.metrics import collector_of, new_registry, scrape_text
from tests.gateway.data_client import fetch_fields
from tests.gateway.support import running_gateway
from tests.metrics.support import samples
from tests.waiting import wait_until

_Topic = message_class("MetadataRequest").MetadataRequestTopic


def scrape(gateway):
    registry = new_registry()
    collector_of(registry).add(gateway.server.families)
    return samples(scrape_text(registry))


def test_requests_are_counted_and_timed_by_name_and_errors_by_code(gateway, client):
    for version in (0, 3, 3):
        client.ask("ApiVersions", version, client_software_name="a", client_software_version="1")
    client.ask("ApiVersions", 3, client_software_name="", client_software_version="1")
    client.ask("Metadata", 12, topics=[_Topic(name="a b")])
    found = scrape(gateway)
    name = "kafka_network_requestmetrics"
    versions = ("request", "ApiVersions"), ("version", "3")
    assert found[f"{name}_requests_total", *versions] == 3
    error = ("error", ErrorCode.INVALID_REQUEST.name), ("request", "ApiVersions")
    assert found[f"{name}_errors_total", *error] == 1
    assert found[f"{name}_total_time_seconds_count", ("request", "Metadata")] == 1
    assert found[f"{name}_total_time_seconds_count", ("request", "ApiVersions")] == 4


def test_connections_memory_and_gateways_are_counted(gateway, client):
    client.ask("ApiVersions", 0)
    with gateway.client() as hostile:
        hostile.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        assert hostile.is_closed()
    wait_until(lambda: gateway.call(lambda: len(gateway.server.connections)) <= 1)
    found = scrape(gateway)
    assert found["kafka_server_socket_server_metrics_connection_count",] == 1
    assert found["spark_log_gateway_connections_closed_total",] == 1
    assert found["spark_log_gateway_request_memory_bytes",] == 0
    assert found["spark_log_gateway_gateways",] == 1


def test_fetch_sessions_their_partitions_and_evictions_are_counted(tmp_path):
    settings = {"max.incremental.fetch.session.cache.slots": 1}
    with running_gateway(tmp_path / "root", **settings) as gateway, gateway.client() as client:
        for _ in range(2):
            client.ask("Fetch", 11, **fetch_fields({0: 0, 1: 0}, session_epoch=0))
        name = "kafka_server_fetchsessioncache_"
        found = scrape(gateway)
        assert found[f"{name}num_incremental_fetch_sessions",] == 1
        assert found[f"{name}num_incremental_fetch_partitions_cached",] == 2
        assert found[f"{name}incremental_fetch_session_evictions_total",] == 0
