"""A full disk: operations that free space still work."""

import errno
import os
import re
from contextlib import contextmanager

import pytest

from spark_log import Admin, ConfigResource, ConfigResourceType, NewTopic, TopicPartition
from spark_log.cluster import Cluster
from spark_log.cluster.cleaner import ClusterCleaner
from spark_log.errors import StorageFullError
from spark_log.storage import local, reserve
from spark_log.storage.local_staged_file import LocalStagedFile
from tests.record.samples import numbered
from tests.storage.full_disk import SmallDisk

T0 = TopicPartition("t", 0)


class PretendedDisk:
    """A directory on a disk that is full while the reserve takes up space.

    For machines that cannot mount a disk: a write fails when its file is closed, or created whole.
    """

    def __init__(self, path, monkeypatch):
        self.path = path
        path.mkdir()
        self.monkeypatch = monkeypatch

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @contextmanager
    def full_but_for(self, free_bytes):
        # The moments when the disk is full:
        close, create = LocalStagedFile._close, LocalStagedFile._create  # noqa: SLF001

        def refuse(staged):
            if staged.sink.closed:  # and renamed: no more writes
                return
            size_bytes = staged.size_bytes
            close(staged)
            if size_bytes and self.reserve.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def refuse_whole(staged, data, *, sync):
            if data and self.reserve.exists():
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            create(staged, data, sync=sync)

        status = os.statvfs(self.path)
        with self.monkeypatch.context() as patch:
            patch.setattr(LocalStagedFile, "_close", refuse)
            patch.setattr(LocalStagedFile, "_create", refuse_whole)
            patch.setattr(os, "statvfs", lambda _: _Full(status))
            yield

    @property
    def reserve(self):
        return self.path / "root" / reserve.RESERVE_NAME


class _Full:
    def __init__(self, status):
        self.f_blocks, self.f_frsize, self.f_bavail = status.f_blocks, status.f_frsize, 0


@pytest.fixture(params=["mounted", "pretended"])
def disk(request, tmp_path, monkeypatch):
    path = tmp_path / "disk"
    with SmallDisk(path) if request.param == "mounted" else PretendedDisk(path, monkeypatch) as it:
        yield it


@pytest.fixture
def root(disk, monkeypatch):
    """A topic of a few segments, whose files are as old as ``os.utime`` says."""
    monkeypatch.setattr(local, "appeared_us", lambda status: status.st_mtime_ns // 1000)
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 2 << 20)
    root = disk.path / "root"
    settings = {"retention.ms": -1, "merge.tail.segments": 0, "index.interval.bytes": 0}
    Admin(root).create_topics([NewTopic("t", 1, topic_configs=settings)])
    for first in range(0, 80, 4):
        log_of(root).append(numbered(first, 4))
    assert reserve_of(root).exists()
    return root


def reserve_of(root):
    return root / reserve.RESERVE_NAME


def log_of(root):
    cluster = Cluster(root)
    return cluster.partition_log(cluster.topic("t"), 0)


def segments(root):
    return sorted((root / log_of(root).directory).glob("*.log"))


def grow_old(root):
    for path in (root / log_of(root).directory).iterdir():
        os.utime(path, (1_600_000_000, 1_600_000_000))


def clean(root):
    (cleaned,) = ClusterCleaner(Cluster(root)).clean()
    return cleaned


def test_an_append_is_refused_and_leaves_the_reserve_alone(disk, root):
    with disk.full_but_for(0), pytest.raises(StorageFullError):
        log_of(root).append(numbered(80, 4))
    assert reserve_of(root).exists()


def test_records_are_deleted_and_their_files_and_the_reserve_is_there_again(disk, root):
    with disk.full_but_for(0):
        assert Admin(root).delete_records({T0: -1})[T0].low_watermark == 80
        assert not reserve_of(root).exists()
        assert len(segments(root)) == 20
        grow_old(root)
        cleaned = clean(root)
        assert cleaned.error is None
        assert cleaned.report.deleted_files >= 20
        assert segments(root) == []
    assert log_of(root).observe().log_end_offset == 80
    clean(root)
    assert reserve_of(root).exists()
    log_of(root).append(numbered(80, 4))


def test_what_is_spent_is_deleted_although_nothing_can_be_merged(disk, root):
    Admin(root).delete_records({T0: 20})
    grow_old(root)
    with disk.full_but_for(0):
        reserve_of(root).unlink()
        if isinstance(disk, PretendedDisk):
            reserve_of(root).mkdir()  # full nevertheless
        else:
            (disk.path / "more ballast").write_bytes(bytes(_free_bytes(disk)))
        cleaned = clean(root)
        assert segments(root)[0].name.startswith("0" * 18 + "20")
        if isinstance(disk, PretendedDisk):
            assert isinstance(cleaned.error, StorageFullError)
            assert "no space is left to merge or compact" in cleaned.error.message
            assert re.search(r"\. \d+ files \(\d+ bytes\) were deleted", cleaned.error.message)
        else:  # the freed space is enough to merge the others
            assert cleaned.error is None
            assert cleaned.report.merged_segments == 15


def _free_bytes(disk):
    status = os.statvfs(disk.path)
    return status.f_bavail * status.f_frsize


def test_retention_moves_the_start_on_the_reserve(disk, root):
    Admin(root).alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.bytes": 0})]
    )
    with disk.full_but_for(0):
        clean(root)
        assert log_of(root).observe().log_start_offset == 80


def test_settings_are_changed_on_the_reserve(disk, root):
    change = ConfigResource(ConfigResourceType.TOPIC, "t", {"retention.ms": 1})
    with disk.full_but_for(0):
        Admin(root).alter_configs([change])
    assert Cluster(root).topic("t").config().retention_ms == 1


def test_a_topic_is_deleted_and_frees_its_space(disk, root):
    directory = root / log_of(root).directory
    with disk.full_but_for(0):
        Admin(root).delete_topics(["t"])
        assert not directory.exists()
    assert Admin(root).list_topics() == []


def test_without_a_reserve_the_error_says_what_to_do(disk, root):
    with disk.full_but_for(0):
        Cluster(root).store.release_reserve()
        if isinstance(disk, PretendedDisk):
            reserve_of(root).mkdir()
            disk.monkeypatch.setattr(local, "release_reserve", lambda _: False)
        else:
            (disk.path / "more ballast").write_bytes(bytes(_free_bytes(disk)))
        with pytest.raises(StorageFullError, match="no space is reserved") as caught:
            Admin(root).delete_records({T0: 20})
    assert "a few MiB are enough" in caught.value.message
    assert log_of(root).observe().log_start_offset == 0
