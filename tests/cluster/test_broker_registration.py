"""A broker's root and the metadata log get one identity, whatever happens between the two."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from spark_log.cluster import META_PROPERTIES, Cluster, register_broker
from spark_log.cluster.meta_properties import read_meta_properties
from spark_log.errors import (
    DuplicateBrokerRegistrationError,
    InvalidConfigurationError,
    InvalidRootError,
    StorageError,
    UnsupportedStoreError,
)
from spark_log.metadata.brokers import fence_broker_records, unregister_broker_records
from spark_log.storage import open_store


@pytest.fixture
def cluster(tmp_path):
    return Cluster(tmp_path / "root", create=True)


def broker_ids(cluster):
    return [broker.broker_id for broker in Cluster(cluster.root).image().brokers()]


def crash_before_the_record(cluster, broker_id, root, monkeypatch):
    """Register a broker up to its root's ``meta.properties``."""
    with monkeypatch.context() as patched:
        patched.setattr(cluster.metadata, "commit", lambda decide: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            register_broker(cluster, broker_id, root)


class TestRegistered:
    def test_the_root_and_the_record_have_the_same_ids(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b", rack="east")
        broker = Cluster(cluster.root).image().broker(1)
        found = read_meta_properties(open_store(tmp_path / "b"))
        assert (broker.root, broker.rack, broker.fenced) == (str(tmp_path / "b"), "east", False)
        assert found.cluster_id == cluster.cluster_id
        assert (found.broker_id, found.incarnation_id) == (1, broker.incarnation_id)

    def test_the_root_is_marked_before_the_record_exists(self, cluster, tmp_path, monkeypatch):
        crash_before_the_record(cluster, 1, tmp_path / "b", monkeypatch)
        assert read_meta_properties(open_store(tmp_path / "b")).broker_id == 1
        assert broker_ids(cluster) == [0]

    def test_registering_again_after_a_crash_continues(self, cluster, tmp_path, monkeypatch):
        crash_before_the_record(cluster, 1, tmp_path / "b", monkeypatch)
        incarnation_id = read_meta_properties(open_store(tmp_path / "b")).incarnation_id
        register_broker(Cluster(cluster.root), 1, tmp_path / "b")
        assert Cluster(cluster.root).image().broker(1).incarnation_id == incarnation_id

    def test_an_existing_directory_is_used_with_what_a_file_system_keeps_in_it(
        self, cluster, tmp_path
    ):
        (tmp_path / "b" / "lost+found").mkdir(parents=True)
        register_broker(cluster, 1, tmp_path / "b")
        assert broker_ids(cluster) == [0, 1]

    def test_an_empty_root_of_a_broker_that_was_unregistered_is_used_again(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        cluster.metadata.commit(lambda image: unregister_broker_records(image, 1))
        register_broker(cluster, 1, tmp_path / "b")
        assert broker_ids(cluster) == [0, 1]

    def test_of_two_brokers_that_want_one_root_one_gets_it(self, cluster, tmp_path):
        def register(broker_id):
            try:
                register_broker(Cluster(cluster.root), broker_id, tmp_path / "b")
            except (DuplicateBrokerRegistrationError, InvalidRootError):
                return None
            return broker_id

        with ThreadPoolExecutor(4) as pool:
            registered = {*pool.map(register, range(1, 5))} - {None}
        assert broker_ids(cluster) == [0, *registered]
        assert {read_meta_properties(open_store(tmp_path / "b")).broker_id} == registered


class TestRegisteredAgain:
    """The disk of a broker was lost."""

    @pytest.fixture
    def fenced(self, cluster, tmp_path):
        """Return the fenced broker 1."""
        register_broker(cluster, 1, tmp_path / "b")
        cluster.metadata.commit(lambda image: fence_broker_records(image, 1, fenced=True))
        return cluster.image().broker(1)

    @pytest.mark.parametrize("name", ["b", "c"])
    def test_a_fenced_broker_has_a_new_incarnation_in_an_empty_root(
        self, cluster, fenced, tmp_path, name
    ):
        cluster.broker_store(1)
        shutil.rmtree(tmp_path / "b")
        register_broker(cluster, 1, tmp_path / name)
        broker = Cluster(cluster.root).image().broker(1)
        assert broker.incarnation_id != fenced.incarnation_id
        assert broker.broker_epoch > fenced.broker_epoch
        assert not broker.fenced
        assert cluster.broker_store(1).url == str(tmp_path / name)

    def test_a_root_that_has_its_data_is_not_registered_as_an_empty_one(
        self, cluster, fenced, tmp_path
    ):
        partition = tmp_path / "b" / f"flights.{'x' * 22}" / "flights-0"
        partition.mkdir(parents=True)
        (partition / f"{0:020}.log").touch()
        with pytest.raises(InvalidRootError, match="data of an earlier registration"):
            register_broker(cluster, 1, tmp_path / "b")
        assert Cluster(cluster.root).image().broker(1) == fenced

    def test_a_crash_before_the_record_leaves_the_old_registration(
        self, cluster, fenced, tmp_path, monkeypatch
    ):
        shutil.rmtree(tmp_path / "b")
        crash_before_the_record(cluster, 1, tmp_path / "b", monkeypatch)
        with pytest.raises(InvalidRootError, match="another registration of broker 1"):
            Cluster(cluster.root).broker_store(1)
        register_broker(Cluster(cluster.root), 1, tmp_path / "b")
        assert Cluster(cluster.root).broker_store(1).url == str(tmp_path / "b")


class TestRefused:
    def test_the_root_of_another_cluster(self, cluster, tmp_path):
        other = Cluster(tmp_path / "other", create=True)
        with pytest.raises(InvalidRootError) as caught:
            register_broker(cluster, 1, other.root)
        assert caught.value.message == (
            f"{other.root} is the root of the cluster {other.cluster_id}; give another root for "
            f"broker 1, or, if nothing in it is needed, remove its files"
        )

    def test_the_root_of_a_broker_of_another_cluster(self, cluster, tmp_path):
        other = Cluster(tmp_path / "other", create=True)
        register_broker(other, 1, tmp_path / "b")
        with pytest.raises(InvalidRootError, match=f"of the cluster {other.cluster_id}; give ano"):
            register_broker(cluster, 1, tmp_path / "b")

    def test_the_root_of_another_broker(self, cluster, tmp_path, monkeypatch):
        crash_before_the_record(cluster, 1, tmp_path / "b", monkeypatch)
        with pytest.raises(InvalidRootError, match=r"is the root of broker 1 .* for broker 2"):
            register_broker(cluster, 2, tmp_path / "b")

    def test_a_root_with_data_of_an_earlier_registration(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        cluster.metadata.commit(lambda image: unregister_broker_records(image, 1))
        directory = f"flights.{'x' * 22}"
        (tmp_path / "b" / directory / "flights-0").mkdir(parents=True)
        (tmp_path / "b" / directory / "flights-0" / f"{0:020}.log").touch()
        with pytest.raises(InvalidRootError, match=f"data of an earlier .*{directory}"):
            register_broker(cluster, 1, tmp_path / "b")
        assert broker_ids(cluster) == [0]

    def test_data_without_properties_is_left_alone(self, cluster, tmp_path):
        (tmp_path / "b" / "__cluster_metadata-0").mkdir(parents=True)
        (tmp_path / "b" / "__cluster_metadata-0" / f"{0:020}.log").touch()
        with pytest.raises(InvalidRootError, match="data of an earlier registration"):
            register_broker(cluster, 1, tmp_path / "b")
        assert os.listdir(tmp_path / "b") == ["__cluster_metadata-0"]

    def test_directories_without_files_are_no_data(self, cluster, tmp_path):
        (tmp_path / "b" / f"flights.{'x' * 22}" / "flights-0").mkdir(parents=True)
        register_broker(cluster, 1, tmp_path / "b")
        assert broker_ids(cluster) == [0, 1]

    @pytest.mark.parametrize("root", ["b", "b/sub", "", "root/sub"])
    def test_a_root_inside_of_another_or_around_it(self, cluster, tmp_path, root):
        register_broker(cluster, 1, tmp_path / "b")
        with pytest.raises((InvalidRootError, DuplicateBrokerRegistrationError)):
            register_broker(cluster, 2, tmp_path / root)
        assert broker_ids(cluster) == [0, 1]
        assert not Path(tmp_path, root, META_PROPERTIES).exists() or root == "b"

    def test_a_neighbour_whose_name_only_begins_equally_is_accepted(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        register_broker(cluster, 2, tmp_path / "b2")
        assert broker_ids(cluster) == [0, 1, 2]

    def test_a_link_into_another_root(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        (tmp_path / "b" / "sub").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "b" / "sub")
        with pytest.raises(InvalidRootError, match="inside of"):
            register_broker(cluster, 2, tmp_path / "link")

    def test_a_link_to_another_root(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        (tmp_path / "link").symlink_to(tmp_path / "b")
        with pytest.raises(InvalidRootError):
            register_broker(cluster, 2, tmp_path / "link")

    @pytest.mark.parametrize("root", ["m2", "m3/sub", "m3-link", ""])
    def test_a_root_that_shares_files_with_a_member_of_the_quorum(self, tmp_path, root):
        """Also if the quorum was opened by another member."""
        Cluster(",".join(str(tmp_path / name) for name in ("m1", "m2", "m3")), create=True)
        (tmp_path / "m3-link").symlink_to(tmp_path / "m3")
        cluster = Cluster(tmp_path / "m1")
        with pytest.raises(InvalidRootError, match="the root of broker 0"):
            register_broker(cluster, 1, tmp_path / root)
        assert broker_ids(cluster) == [0]

    def test_nothing_is_written_if_the_id_is_registered(self, cluster, tmp_path):
        register_broker(cluster, 1, tmp_path / "b")
        with pytest.raises(DuplicateBrokerRegistrationError):
            register_broker(cluster, 1, tmp_path / "c")
        assert not (tmp_path / "c").exists()

    def test_credentials_in_the_url_are_not_shown(self, cluster):
        with pytest.raises(InvalidRootError) as caught:
            register_broker(cluster, 1, "s3://KEY:SECRET@bucket/log")
        assert "SECRET" not in str(caught.value)
        assert "KEY" not in str(caught.value)

    def test_storage_without_put_if_absent(self, cluster):
        with pytest.raises(UnsupportedStoreError):
            register_broker(cluster, 1, "http://example.org/root")

    @pytest.mark.parametrize("root", [None, 3, {}])
    def test_what_is_not_a_path(self, cluster, root):
        with pytest.raises(InvalidConfigurationError, match="root"):
            register_broker(cluster, 1, root)


def test_a_reserve_that_cannot_be_kept_is_only_counted(cluster, tmp_path, monkeypatch):
    def fail(store):
        raise StorageError("no space")

    monkeypatch.setattr(type(cluster.store), "keep_reserve", fail)
    register_broker(cluster, 1, tmp_path / "b")
    assert broker_ids(cluster) == [0, 1]
