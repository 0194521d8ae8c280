"""A cluster root is created once, by the first process; other directories are refused."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_log.cluster import Cluster
from spark_log.cluster.meta_properties import META_PROPERTIES
from spark_log.errors import (
    InvalidRootError,
    RootNotFoundError,
    UnsupportedStoreError,
)
from spark_log.storage.local import LocalStore
from spark_log.storage.reserve import RESERVE_NAME


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


class TestCreate:
    def test_a_root_has_a_cluster_id_that_stays(self, root):
        created = Cluster(root, create=True)
        assert len(created.cluster_id) == 22
        assert Cluster(root).cluster_id == created.cluster_id
        assert Cluster(root, create=True).cluster_id == created.cluster_id
        assert Cluster(root).root == str(root)

    def test_two_roots_have_two_ids(self, tmp_path):
        ids = {Cluster(tmp_path / name, create=True).cluster_id for name in ("a", "b")}
        assert len(ids) == 2

    def test_nothing_but_its_properties_and_a_reserve_lies_in_a_new_root(self, root):
        cluster = Cluster(root, create=True)
        assert sorted(os.listdir(root)) == [RESERVE_NAME, META_PROPERTIES]
        lines = (root / META_PROPERTIES).read_text().splitlines()
        assert "version=1" in lines
        assert f"cluster.id={cluster.cluster_id}" in lines

    def test_many_that_create_it_at_once_agree_on_one_id(self, root):
        barrier = threading.Barrier(8)

        def create(_):
            barrier.wait(timeout=60)
            return Cluster(root, create=True).cluster_id

        with ThreadPoolExecutor(8) as pool:
            ids = set(pool.map(create, range(8)))
        assert ids == {Cluster(root).cluster_id}
        assert sorted(os.listdir(root)) == [RESERVE_NAME, META_PROPERTIES]

    def test_in_memory_as_well(self, memory_store):
        created = Cluster(memory_store.url, create=True)
        assert Cluster(memory_store.url).cluster_id == created.cluster_id

    def test_the_properties_are_durable_before_anyone_uses_the_root(self, root, monkeypatch):
        synced = []
        real = LocalStore.put_if_absent

        def put_if_absent(self, path, source, *, sync=True):
            synced.append((path, sync))
            real(self, path, source, sync=sync)

        monkeypatch.setattr(LocalStore, "put_if_absent", put_if_absent)
        Cluster(root, create=True)
        assert (META_PROPERTIES, True) in synced


class TestOpen:
    def test_a_path_without_a_root_is_not_found_and_left_alone(self, root):
        with pytest.raises(RootNotFoundError) as caught:
            Cluster(root)
        assert caught.value.path == str(root)
        assert "check the path, or create a topic there" in caught.value.message
        assert not root.exists()

    def test_a_directory_without_properties_is_not_found_either(self, root):
        root.mkdir()
        (root / "file").write_text("something else")
        with pytest.raises(RootNotFoundError):
            Cluster(root)

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize("below", ["", "below"])
    def test_a_file_is_no_root(self, root, create, below):
        root.write_text("a file")
        with pytest.raises(InvalidRootError) as caught:
            Cluster(root / below, create=create)
        assert caught.value.path == str(root / below)
        assert root.read_text() == "a file"

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize(
        "text",
        [
            "version=2\ncluster.id=abc\n",
            "version=\ncluster.id=abc\n",
            "cluster.id=abc\n",
            "version=1\n",
            "version=1\ncluster.id=\n",
            "",
            "\0\0\0\0",
            "#version=1\n#cluster.id=abc\n",
        ],
    )
    def test_properties_of_another_version_or_of_none_are_refused(self, root, create, text):
        root.mkdir()
        (root / META_PROPERTIES).write_text(text)
        with pytest.raises(InvalidRootError):
            Cluster(root, create=create)
        assert (root / META_PROPERTIES).read_text() == text

    def test_properties_that_are_no_text_are_refused(self, root):
        root.mkdir()
        (root / META_PROPERTIES).write_bytes(b"\xff\xfe version=1")
        with pytest.raises(InvalidRootError):
            Cluster(root)

    def test_a_later_version_is_named(self, root):
        root.mkdir()
        (root / META_PROPERTIES).write_text("version=2\ncluster.id=abc\n")
        with pytest.raises(InvalidRootError, match=r"has version '2'.*reads version '1'"):
            Cluster(root)

    def test_storage_without_put_if_absent_is_refused(self):
        with pytest.raises(UnsupportedStoreError):
            Cluster("http://example.org/root", create=True)
