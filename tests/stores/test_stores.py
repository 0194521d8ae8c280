"""The object store on emulators of Google Cloud Storage and Azure (`make test-stores`)."""

from collections.abc import Iterator
from typing import Any

import obstore
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from spark_log import Admin, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable
from spark_log.errors import InvalidRootError, StorageError, UnsupportedStoreError
from spark_log.storage import open_store
from spark_log.storage.object.clients import ObjectClients
from spark_log.storage.object.location import ObjectLocation
from spark_log.testing.create_race import create_race
from spark_log.testing.servers.faulty_proxy import FaultyProxy
from spark_log.testing.store_stateful import StoreStateMachine
from spark_log.testing.store_suite import StoreSuite
from tests.record.samples import record_batch, row
from tests.stores.servers import run_azure_server, run_gcs_server


@pytest.fixture(scope="module")
def gcs():
    with run_gcs_server() as server:
        yield server


@pytest.fixture(scope="module")
def azure():
    with run_azure_server() as server:
        yield server


@pytest.fixture(params=["gcs", "azure"])
def server(request):
    return request.getfixturevalue(request.param)


def new_store(server):
    return open_store(f"{server.new_bucket()}/a root", server.storage_options)


class TestGcs(StoreSuite):
    @pytest.fixture
    def store(self, gcs):
        return new_store(gcs)


class TestAzure(StoreSuite):
    @pytest.fixture
    def store(self, azure):
        return new_store(azure)


def test_random_operations_do_what_they_would_to_a_dict(server):
    class Machine(StoreStateMachine):
        def make_store(self):
            return new_store(server)

    run_state_machine_as_test(Machine, settings=settings(max_examples=10, stateful_step_count=20))


def test_exactly_one_of_racing_processes_gets_each_name(server):
    result = create_race(new_store(server), processes=8, rounds=100)
    assert result.is_sound, result
    assert result.unknown == 0


def test_a_root_is_created_and_a_server_that_ignores_conditions_is_refused(gcs):
    store = new_store(gcs)
    store.create_root()
    with FaultyProxy(gcs.storage_options["endpoint_url"]) as proxy:
        proxy.rule = lambda request: "ignore condition"
        lax = open_store(store.url, {**gcs.storage_options, "endpoint_url": proxy.url})
        with pytest.raises(UnsupportedStoreError, match="ignores the condition of a PUT"):
            lax.create_root()
    location = ObjectLocation.parse(store.url, gcs.storage_options)
    assert obstore.list(ObjectClients(location).reader).collect() == []


def test_a_put_does_not_lose_to_itself_when_answers_are_lost(server):
    options = server.storage_options
    key = "endpoint_url" if "endpoint_url" in options else "connection_string"
    real = options.get("endpoint_url", server.url)
    with FaultyProxy(real) as proxy:
        store = new_store(server)
        unsure = open_store(store.url, {**options, key: options[key].replace(real, proxy.url)})
        lost: Iterator[Any] = iter(["lose answer", "lose request"])
        proxy.rule = lambda request: next(lost, "pass") if request.method == "PUT" else "pass"
        unsure.put_if_absent("0.log", b"ours")
        unsure.put_if_absent("1.log", b"ours")
        assert next(lost, None) is None
    assert [file.name for file in store.list("")] == ["0.log", "1.log"]


def test_a_missing_bucket_is_named(server):
    scheme = server.new_bucket().partition("://")[0]
    store = open_store(f"{scheme}://no-such-bucket/root", server.storage_options)
    with pytest.raises((InvalidRootError, StorageError)):
        store.create_root()


def test_records_and_offsets_are_written_and_read(server):
    root = f"{server.new_bucket()}/root"
    options = server.storage_options
    Admin(root, storage_options=options).create_topics([NewTopic("t", 1)])
    cluster = Cluster(root, options)
    log = cluster.partition_log(cluster.topic("t"), 0)
    for _ in range(5):
        log.append(record_batch([row("a"), row("b")]))
    assert [batch.base_offset for batch in log.scan(0)] == [0, 2, 4, 6, 8]

    table = OffsetsTable(cluster)
    table.commit("g", {TopicPartition("t", 0): OffsetAndMetadata(7)})
    table.commit("g", {TopicPartition("t", 0): OffsetAndMetadata(8)})
    assert table.fetch("g")[TopicPartition("t", 0)].offset == 8
