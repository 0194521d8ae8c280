"""A cluster opens the roots of its brokers, once, and only if they are what was registered."""

import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log.cluster import (
    META_PROPERTIES,
    Cluster,
    broker_stores,
    meta_properties,
    register_broker,
)
from spark_log.errors import (
    BrokerIdNotRegisteredError,
    InvalidConfigurationError,
    InvalidRootError,
    StorageError,
    StorageTimeoutError,
    StorageUnavailableError,
)
from spark_log.metadata.brokers import unregister_broker_records
from spark_log.storage import open_store
from spark_log.util.clock import ManualClock


@pytest.fixture
def cluster(tmp_path):
    """Return a cluster with the brokers 0, 1 and 2."""
    cluster = Cluster(tmp_path / "root", create=True)
    for broker_id in (1, 2):
        register_broker(cluster, broker_id, tmp_path / f"b{broker_id}")
    return Cluster(cluster.root)


def unregister(cluster, broker_id):
    cluster.metadata.commit(lambda image: unregister_broker_records(image, broker_id))


class TestOpen:
    def test_broker_0_is_the_clusters_root(self, cluster):
        assert cluster.broker_store(0) is cluster.store

    def test_each_broker_has_its_root(self, cluster, tmp_path):
        roots = [cluster.broker_store(broker_id).url for broker_id in (1, 2)]
        assert roots == [str(tmp_path / "b1"), str(tmp_path / "b2")]

    def test_a_broker_that_is_not_registered_is_refused(self, cluster):
        with pytest.raises(BrokerIdNotRegisteredError, match="broker 7 is not registered"):
            cluster.broker_store(7)

    def test_a_broker_that_was_registered_since_is_found(self, cluster, tmp_path):
        cluster.broker_store(1)
        register_broker(Cluster(cluster.root), 3, tmp_path / "b3")
        assert cluster.broker_store(3).url == str(tmp_path / "b3")

    def test_a_broker_that_is_registered_again_elsewhere_is_opened_there(self, cluster, tmp_path):
        cluster.broker_store(1)
        unregister(cluster, 1)
        register_broker(cluster, 1, tmp_path / "new")
        assert cluster.broker_store(1).url == str(tmp_path / "new")

    def test_all_threads_get_one_store(self, cluster):
        with ThreadPoolExecutor(8) as pool:
            stores = list(pool.map(lambda _: cluster.broker_store(1), range(8)))
        assert {id(store) for store in stores} == {id(cluster.broker_store(1))}

    def test_a_store_that_was_opened_is_returned_without_a_request(self, cluster, tmp_path):
        store = cluster.broker_store(1)
        shutil.rmtree(tmp_path)
        assert cluster.broker_store(1) is store


class TestOptions:
    def test_each_broker_has_its_options_and_the_request_timeout(self, cluster, monkeypatch):
        opened = []

        def opening(root, options, *, request_timeout_ms):
            opened.append((options, request_timeout_ms))
            return open_store(root)

        monkeypatch.setattr(broker_stores, "open_store", opening)
        options = {1: {"key": "SECRET"}}
        given = Cluster(cluster.root, broker_options=options, request_timeout_ms=700)
        given.broker_store(1)
        given.broker_store(2)
        assert opened == [({"key": "SECRET"}, 700), ({}, 700)]
        assert "SECRET" not in repr(given)

    def test_a_broker_without_options_has_those_of_the_root_if_the_scheme_is_the_same(
        self, cluster, monkeypatch
    ):
        opened = []

        def opening(root, options, **_):
            opened.append(options)
            return open_store("memory://unused")

        monkeypatch.setattr(broker_stores, "open_store", opening)
        root_options = {"key": "K", "/quorum/member": {"key": "M"}}
        given = Cluster(cluster.root, root_options, broker_options={2: {"key": "own"}})
        for broker_id, root in ((1, "/mnt/disk"), (2, "/mnt/disk"), (1, "s3://bucket/log")):
            given.unchecked_broker_store(broker_id, root)
        assert opened == [{"key": "K"}, {"key": "own"}, None]

    def test_an_unknown_option_is_refused(self, cluster):
        with pytest.raises(InvalidConfigurationError, match="no_such_option"):
            register_broker(
                Cluster(cluster.root, broker_options={3: {"no_such_option": 1}}), 3, "s3://b/log"
            )


class TestRefused:
    def test_a_root_that_is_not_mounted(self, cluster, tmp_path):
        (tmp_path / "b1").rename(tmp_path / "elsewhere")
        with pytest.raises(StorageUnavailableError, match=r"broker 1 cannot be found.*mount it"):
            cluster.broker_store(1)
        (tmp_path / "elsewhere").rename(tmp_path / "b1")
        assert cluster.broker_store(1).url == str(tmp_path / "b1")

    @pytest.mark.parametrize(("wait_ms", "tries"), [(30_000, 1), (10, 100)])
    def test_a_root_that_does_not_answer_is_waited_for_once(
        self, cluster, monkeypatch, wait_ms, tries
    ):
        clock, waits = ManualClock(), []
        cluster = Cluster(cluster.root, clock=clock)

        def waiting(store):
            clock.advance_ms(wait_ms)
            waits.append(store.url)
            raise StorageTimeoutError(f"{store.url} does not answer")

        cluster.image()
        with monkeypatch.context() as patch:
            patch.setattr(meta_properties, "read_meta_properties", waiting)
            for _ in range(100):
                with pytest.raises(StorageError, match="b1 does not answer"):
                    cluster.broker_store(1)
        assert len(waits) == tries
        clock.advance_ms(wait_ms)
        assert cluster.broker_store(1).url == waits[0]

    def test_the_root_of_another_broker(self, cluster, tmp_path):
        shutil.copy(tmp_path / "b2" / META_PROPERTIES, tmp_path / "b1" / META_PROPERTIES)
        with pytest.raises(InvalidRootError, match=r"broker 1 .*, but is the root of broker 2"):
            cluster.broker_store(1)

    def test_the_root_of_another_cluster(self, cluster, tmp_path):
        other = Cluster(tmp_path / "other", create=True)
        register_broker(other, 1, tmp_path / "o1")
        shutil.copy(tmp_path / "o1" / META_PROPERTIES, tmp_path / "b1" / META_PROPERTIES)
        with pytest.raises(InvalidRootError, match=f"but is .* of the cluster {other.cluster_id}"):
            cluster.broker_store(1)

    def test_the_root_of_another_registration(self, cluster, tmp_path):
        properties = tmp_path / "b1" / META_PROPERTIES
        incarnation_id = cluster.image().broker(1).incarnation_id
        properties.write_text(properties.read_text().replace(incarnation_id, "o" * 22))
        with pytest.raises(InvalidRootError, match=r"another registration of broker 1 .*ooo"):
            cluster.broker_store(1)
