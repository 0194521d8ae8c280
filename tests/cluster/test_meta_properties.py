"""``meta.properties`` say whose root it is, of a cluster's root and of a broker's."""

import pytest

from spark_log.cluster import META_PROPERTIES, Cluster
from spark_log.cluster.meta_properties import (
    MetaProperties,
    create_meta_properties,
    read_meta_properties,
)
from spark_log.errors import InvalidRootError, NotFoundError

BROKER = MetaProperties("c" * 22, 2, "i" * 22)


class TestCreate:
    @pytest.mark.parametrize("properties", [MetaProperties("c" * 22), BROKER])
    def test_what_was_created_is_read_back(self, local_store, properties):
        assert create_meta_properties(local_store, properties) == properties
        assert read_meta_properties(local_store) == properties

    def test_the_file_names_the_version_the_cluster_and_the_broker(self, local_store):
        create_meta_properties(local_store, BROKER)
        lines = local_store.open_buffer(META_PROPERTIES).to_pybytes().decode().splitlines()
        assert lines == [
            "# spark-log broker root",
            "version=1",
            f"cluster.id={'c' * 22}",
            "broker.id=2",
            f"incarnation.id={'i' * 22}",
        ]

    def test_properties_that_exist_stay(self, local_store):
        create_meta_properties(local_store, BROKER)
        other = MetaProperties("c" * 22, 3, "j" * 22)
        assert create_meta_properties(local_store, other) == BROKER
        assert read_meta_properties(local_store) == BROKER


class TestRead:
    def test_a_root_without_the_file_has_none(self, local_store):
        with pytest.raises(NotFoundError):
            read_meta_properties(local_store)

    @pytest.mark.parametrize("lines", ["broker.id=2\n", "broker.id=x\nincarnation.id=i\n"])
    def test_a_damaged_broker_id_is_refused(self, local_store, lines):
        local_store.put(META_PROPERTIES, b"version=1\ncluster.id=c\n" + lines.encode())
        with pytest.raises(InvalidRootError, match="damaged"):
            read_meta_properties(local_store)


@pytest.mark.parametrize("create", [True, False])
def test_a_brokers_root_is_not_opened_as_a_cluster(local_store, create):
    create_meta_properties(local_store, BROKER)
    with pytest.raises(InvalidRootError, match=r"is the root of broker 2 .*give the root that has"):
        Cluster(local_store.url, create=create)
