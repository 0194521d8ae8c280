"""The table of a topic, made by cleaners and read by delta-rs."""

import json
import os
from contextlib import suppress

import pytest
from deltalake import DeltaTable, write_deltalake

from spark_log import ConfigResource, NewTopic, TopicPartition, scan
from spark_log.cluster import Cluster, ClusterCleaner, TopicTables, orphaned_directories
from spark_log.errors import InvalidConfigurationError, SparkLogError, StorageError
from spark_log.log.clean.compactor import compact
from spark_log.storage.local import LocalStore
from spark_log.table import CleanupPolicy, TableCommitter, rebuild_table
from tests.store_calls import counted_calls

DAY_MS = 86_400_000


class TestTopicThatIsNotCompacted:
    def test_the_table_has_what_the_log_has(self, opened):
        root = opened(partitions=3)
        for partition in range(3):
            root.fill(9 + partition, partition)
        root.clean()
        assert root.newest.ends() == {0: 18, 1: 20, 2: 22}
        for partition in range(3):
            assert root.table_rows(partition) == root.log_rows(partition)
            assert root.findings(partition) == []
        root.fill(3, 1, start=50)
        assert root.newest.ends()[1] == 20, "what is appended waits for a cleaner"
        root.clean()
        assert root.table_rows(1) == root.log_rows(1)

    def test_a_second_cleaning_makes_no_version(self, root):
        root.fill(9)
        root.clean()
        number = root.newest.number
        root.clean()
        assert root.newest.number == number

    def test_merges_replace_files_and_change_no_row(self, root):
        for round_number in range(20):
            root.fill(1, start=round_number)
            root.clean()
        assert root.table_rows() == root.log_rows()
        assert len(root.partition().files) < 10
        for number in range(1, root.newest.number + 1):
            at = root.table.at(number)
            assert root.table_rows(version=number) == root.log_rows()[: at.partitions[0].end]

    def test_a_checkpoint_is_written_and_read(self, root):
        for round_number in range(22):
            root.fill(1, start=round_number)
            root.clean()
        log = root.directory / "_delta_log"
        assert json.loads((log / "_last_checkpoint").read_text())["version"] == 20
        for path in log.glob("*.json"):
            if int(path.stem) < 20:
                path.unlink()
        assert root.newest.number == 22
        assert root.table_rows() == root.log_rows()
        assert root.findings() == []

    def test_old_versions_are_deleted(self, opened):
        root = opened(retention_ms="-1")
        for round_number in range(31):
            root.fill(1, start=round_number)
            root.clean()
            root.clock.advance_ms(2 * DAY_MS)
        names = sorted(path.name for path in root.directory.glob("_delta_log/*.json"))
        assert names[0] == f"{10:020}.json"
        assert root.table_rows() == root.log_rows()

    def test_replaced_files_stay_for_their_time(self, opened):
        root = opened(table_deleted_file_retention_ms="600000", file_delete_delay_ms="60000")
        for round_number in range(8):
            root.fill(1, start=round_number)
            root.clean()
        before = root.newest.number - 1
        rows = root.table_rows(version=before)
        root.clock.advance_ms(590_000)
        root.clean()
        assert root.table_rows(version=before) == rows
        root.clock.advance_ms(30_000)
        (cleaned,) = root.clean()
        assert cleaned.report.deleted_files >= 7
        assert len(list(root.directory.glob("t-0/*.parquet"))) == 1
        assert root.table_rows() == root.log_rows()

    def test_the_names_of_a_committer_that_stands_still_are_kept(self, opened):
        """It has read the version, and will add a file that was merged meanwhile (protocol B9)."""
        root = opened(table_deleted_file_retention_ms="0", file_delete_delay_ms="60000")
        root.fill(1)
        list(_without_tables(root).clean())
        table = root.table
        committer = TableCommitter(table, root.cluster.image().offset)
        committer.commit()
        for round_number in range(1, 8):
            root.fill(1, start=round_number)
            list(_without_tables(root).clean())
        version = table.refresh()
        after = committer.decide(version, version.setting, None)
        assert len(after[0].files) > 0
        root.clock.advance_ms(3_600_000)
        cleaner = ClusterCleaner(root.cluster, ["t"], table_at_once=True)
        next(iter(cleaner.clean()))  # the partition is cleaned; nothing is committed
        committer.append(version, after, "WRITE")
        assert root.table_rows() == root.log_rows()[: after[0].end]


class DyingCleaner(ClusterCleaner):
    """A cleaner that dies before it commits."""

    def commit_tables(self):
        return iter(())


def _without_tables(root):
    return DyingCleaner(root.cluster, ["t"], table_at_once=True)


COMPACT = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}


class TestDeletion:
    def test_the_start_moves_before_delete_records_returns(self, root):
        for round_number in range(4):
            root.fill(2, start=10 * round_number)
            root.clean()
        root.delete_records(5)
        partition = root.partition()
        assert partition.start == 5
        assert partition.end == 16
        assert root.findings() == []
        root.delete_records(16)
        assert root.partition().files == ()
        assert root.table_rows() == []

    def test_retention_moves_it(self, opened):
        root = opened(retention_ms="3600000")
        root.fill(4)
        root.clean()
        assert len(root.table_rows()) == 8
        root.clock.advance_ms(7_200_000)
        root.fill(1, start=90)
        cleaner = _without_tables(root)
        assert [each.error for each in cleaner.clean()] == [None]
        assert root.partition().start == 8
        assert root.table_rows() == []

    def test_delete_records_that_cannot_move_it_fails(self, root, monkeypatch):
        root.fill(2)
        root.clean()
        number = root.newest.number
        with monkeypatch.context() as patch:
            _fail_puts(patch, "_delta_log")
            with pytest.raises(StorageError):
                root.delete_records(2)
        assert root.newest.number == number
        root.clean()
        assert root.partition().start == 2


class TestCompactedTopic:
    def test_the_table_has_one_row_of_each_key(self, opened):
        root = opened(**COMPACT)
        root.fill(20)
        root.append((b"k1", None))
        root.fill(1, start=70)
        root.clean()
        partition = root.partition()
        assert partition.compaction > 1_000_000
        rows = root.table_rows()
        assert len({key for _, key, _ in rows}) == len(rows)
        assert rows == [each for each in root.log_rows() if each[0] < partition.end]
        assert root.findings() == []

    def test_the_next_compaction_replaces_it(self, opened):
        root = opened(**COMPACT)
        ends = []
        for round_number in range(4):
            root.fill(10, start=round_number * 11)
            root.clean()
            ends.append(root.partition().end)
            root.clock.advance_ms(600_000)
            assert root.findings() == []
        assert ends == sorted(set(ends))

    def test_one_that_died_half_way_is_not_added(self, opened, monkeypatch):
        root = opened(**COMPACT, segment_bytes=str(1 << 20))
        for at in range(6):
            root.append(*((b"%d" % key, bytes(400_000) + b"%d" % at) for key in (at, at + 1)))
        log = root.cluster.replica_log(root.topic, 0, 0)
        puts = []
        put = LocalStore.put_if_absent

        def dies(store, path, source, **options):
            if path.endswith(".parquet"):
                puts.append(path)
                if len(puts) == 2:
                    raise StorageError("it dies", path=path)
            put(store, path, source, **options)

        tables = TopicTables(root.cluster)
        image = root.cluster.image()
        with monkeypatch.context() as patch:
            patch.setattr(LocalStore, "put_if_absent", dies)
            with suppress(StorageError):
                compact(
                    log,
                    now_us=root.clock.time_us(),
                    table=tables.of_log(image, root.topic, 0, 0, None),
                )
        assert len(puts) == 2
        tables.commit(root.topic.topic_id)
        tables.commit(root.topic.topic_id)
        assert root.partition().files == ()
        root.clock.advance_ms(600_000)
        root.clean()
        assert root.partition().files != ()
        assert root.findings() == []

    def test_a_tombstone_behind_the_tables_end_stays(self, opened):
        """The table has the record that it deletes (protocol B13)."""
        root = opened(**COMPACT, delete_retention_ms="60000")
        root.append((b"a", b"1"), (b"b", b"1"))
        root.append((b"c", b"1"))
        root.clean()
        assert [key for _, key, _ in root.table_rows()] == [b"a", b"b"]
        end = root.partition().end
        root.append((b"a", None), (b"d", b"1"))
        root.append((b"e", b"1"))
        for _ in range(4):  # nobody commits
            root.clock.advance_ms(600_000)
            list(_without_tables(root).clean())
            root.append((b"f", b"1"))
        assert root.partition().end == end
        assert (b"a", None) in [(key, value) for _, key, value in root.log_rows()]
        root.clean()
        for _ in range(4):
            root.append((b"g", b"1"))
            root.clock.advance_ms(600_000)
            root.clean()
        assert b"a" not in [key for _, key, _ in root.log_rows()]
        assert b"a" not in [key for _, key, _ in root.table_rows()]
        assert root.findings() == []


class TestSetting:
    def test_a_table_is_turned_on_and_off(self, opened):
        root = opened(table_format="none")
        for round_number in range(5):
            root.fill(3, start=30 * round_number)
            root.set(table_format="delta")
            root.clean()
            assert root.newest.is_on
            assert root.table_rows() == root.log_rows()
            assert root.findings() == []
            root.clock.advance_ms(100_000)
            root.set(table_format="none")
            root.clean()
            version = root.newest
            assert not version.is_on
            assert version.data_files == {}
            assert root.table_rows() == []
            root.clock.advance_ms(100_000)
        log = root.log()
        assert len(root.log_rows()) == log.observe().log_end_offset == 30

    def test_another_policy_is_followed(self, opened):
        root = opened(min_cleanable_dirty_ratio="0.01")
        root.fill(20)
        root.clean()
        assert len(root.table_rows()) == 40
        root.set(cleanup_policy="compact")
        root.fill(1, start=90)
        for _ in range(3):
            root.clock.advance_ms(600_000)
            root.fill(1, start=91)
            root.clean()
        assert root.newest.setting.policy == CleanupPolicy.COMPACT
        assert root.partition().compaction
        assert root.findings() == []
        root.set(cleanup_policy="delete")
        root.fill(3, start=95)
        root.clean()
        assert root.newest.setting.policy == CleanupPolicy.DELETE
        assert root.partition().end == root.log().observe().log_end_offset

    def test_a_topic_that_was_compacted_has_no_gap(self, opened):
        """Its compacted segments are Arrow files, which no merge takes (protocol B15)."""
        root = opened(table_format="none", **COMPACT)
        root.fill(20)
        root.clean()
        root.fill(2, start=40)
        assert any(root.directory.glob("t-0/*.100000?.log"))
        root.clock.advance_ms(600_000)
        root.set(cleanup_policy="delete")
        root.set(table_format="delta")
        root.clean()
        assert root.partition().end == root.log().observe().log_end_offset
        assert root.table_rows() == root.log_rows()
        assert len(root.table_rows()) < 44, "it was compacted"
        assert root.findings() == []
        root.set(cleanup_policy="compact")
        for _ in range(3):
            root.clock.advance_ms(600_000)
            root.fill(2, start=60)
            root.clean()
        assert root.partition().compaction
        assert root.findings() == []

    def test_a_process_with_an_older_setting_changes_nothing(self, root):
        old = root.cluster.image()
        topic = old.topic("t")
        root.fill(2)
        root.clean()
        root.set(table_format="none")
        root.clean()
        number = root.newest.number
        stale = TopicTables(root.cluster).committer(old, topic)
        stale.commit()
        assert root.newest.number == number

    def test_a_topic_that_never_was_a_table_costs_no_request(self, opened, clock):
        root = opened(table_format="none")
        root.fill(9)
        with counted_calls() as calls:
            list(ClusterCleaner(root.cluster, ["t"]).clean())
            root.delete_records(2)
        assert not [where for where in calls if "_delta_log" in where[1]]
        # Another topic of the cluster is a table.
        root.admin.create_topics([NewTopic("u", topic_configs={"table.format": "delta"})])
        root.fill(9, start=20)
        with counted_calls() as calls:
            list(ClusterCleaner(Cluster(root.url, clock=clock), ["t"]).clean())
        assert not [where for where in calls if "_delta_log" in where[1]]


class TestOthers:
    def test_what_other_programs_change_is_refused(self, root):
        for round_number in range(10):
            root.fill(1, start=round_number)
            root.clean()
        before, rows = root.log_files(), root.table_rows()
        version = root.newest.number
        table = root.delta_rs()
        extra = table.to_pyarrow_table()
        for change in (
            lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
            lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True),
            table.optimize.compact,
            table.optimize.z_order,
            lambda: table.delete("partition = 0"),
            lambda: table.update(updates={"value": "key"}),
            lambda: write_deltalake(table, extra, mode="append"),
            lambda: write_deltalake(table, extra, mode="overwrite"),
            lambda: table.restore(1),
        ):
            with suppress(Exception):
                change()
            assert root.log_files() == before
        assert root.newest.number == version
        assert root.table_rows() == rows
        root.clean()
        assert root.findings() == []

    @pytest.mark.parametrize("is_full", [False, True])
    def test_vacuum_of_a_program_that_ignores_writer_features_deletes_nothing(self, root, is_full):
        """It believes that the log's files are left over; the table's retention keeps them."""
        root.fill(3)
        root.clean()
        root.fill(3, start=40)
        path = root.directory / f"_delta_log/{0:020}.json"
        actions = [json.loads(line) for line in path.read_text().splitlines()]
        (protocol,) = (each["protocol"] for each in actions if "protocol" in each)
        protocol.clear()
        protocol.update(minReaderVersion=1, minWriterVersion=2)
        path.write_text("\n".join(map(json.dumps, actions)))
        for file in root.directory.glob("t-0/*"):
            os.utime(file, (1e9, 1e9))  # of the year 2001
        before = root.log_files()
        root.delta_rs().vacuum(dry_run=False, full=is_full)
        assert root.log_files() == before
        assert any(name.endswith(".log") for name in before)

    @pytest.mark.parametrize("removed", [0, 1, 2])
    def test_a_file_that_one_removed_is_no_gap_for_readers(self, root, removed):
        for round_number in range(3):
            root.fill(5, start=10 * round_number)
            root.clean()
        rows, version = root.log_rows(), root.newest
        path = version.path_of(0, version.partitions[0].files[removed])
        remove = {"path": path, "deletionTimestamp": 1, "dataChange": True}
        newer = root.directory / f"_delta_log/{version.number + 1:020}.json"
        newer.write_text(json.dumps({"remove": remove}) + "\n")
        message = f"has no file with offset {10 * removed} of partition 0.*table rebuild t"
        with pytest.raises(StorageError, match=message):
            scan(root.url, "t").read_all()
        root.fill(1, start=90)
        before = root.log_files()
        assert any("another program has removed a file" in str(each) for each in root.errors())
        assert before.items() <= root.log_files().items(), "nothing was freed"
        assert root.log_rows()[: len(rows)] == rows
        rebuild_table(root.table, root.cluster.image().offset)
        assert root.findings() == []
        assert scan(root.url, "t").read_all().num_rows == len(rows) + 2

    def test_data_files_that_they_left_are_deleted(self, root):
        root.fill(1)
        root.clean()
        left = [
            root.directory / "part-00000-left.snappy.parquet",
            root.directory / "partition=0" / "part-00000-left.snappy.parquet",
        ]
        for path in left:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(b"PAR1")
        list(root.cluster.store.list(root.topic.directory))  # which dates them
        list(root.cluster.store.list(f"{root.topic.directory}/partition=0"))
        root.clock.advance_ms(DAY_MS - 60_000)
        root.clean()
        assert all(path.exists() for path in left), "another program may still commit them"
        root.clock.advance_ms(120_000)
        number = root.newest.number
        root.clean(partitions=[0])
        assert not any(path.exists() for path in left)
        assert root.newest.number == number, "also of a table at rest"
        assert root.findings() == []

    def test_a_table_of_another_program_is_refused(self, root):
        import pyarrow as pa

        root.fill(1)
        write_deltalake(str(root.directory), pa.table({"x": [1]}))
        before = sorted(root.directory.glob("_delta_log/*"))
        error = root.errors()[-1]
        assert "another program has created a table there" in str(error)
        assert "spark-log table rebuild" in str(error)
        assert sorted(root.directory.glob("_delta_log/*")) == before

    def test_a_file_that_they_added_is_refused(self, root):
        root.fill(1)
        root.clean()
        add = {"path": "part-1.parquet", "size": 1, "partitionValues": {"partition": "0"}}
        action = {"add": add | {"modificationTime": 1, "dataChange": True}}
        path = root.directory / "_delta_log" / f"{root.newest.number + 1:020}.json"
        path.write_text(json.dumps(action) + "\n")
        root.fill(8, start=10)
        error = root.errors()[-1]
        assert "another program has added part-1.parquet" in str(error)

    def test_a_partition_that_is_not_in_the_root_is_refused(self, root, tmp_path):
        from spark_log.metadata import PartitionRecord

        root.fill(1)
        image = root.cluster.image()
        topic = image.topic("t")
        topic.partitions[1] = PartitionRecord(
            topic_id=topic.topic_id, partition_id=1, replicas=(5,), isr=(5,), leader=5
        )
        with pytest.raises(InvalidConfigurationError, match="partition 1 has no replica in the"):
            TopicTables(root.cluster).committer(image, topic).commit()
        assert not (root.directory / "_delta_log").exists()


def test_partitions_that_are_cleaned_at_once_share_a_table(opened, monkeypatch):
    """As on an object store, which is listed, and read in ranges."""
    root = opened(partitions=5, table_deleted_file_retention_ms="60000")
    monkeypatch.setattr(LocalStore, "is_local", False)
    monkeypatch.setattr(LocalStore, "is_mapped", False)
    for round_number in range(12):
        for partition in range(5):
            root.fill(1 + partition % 2, partition, start=10 * round_number)
        if round_number == 6:
            root.delete_records(9, 3)
        root.clock.advance_ms(200_000)
        root.clean()
    for partition in range(5):
        assert root.findings(partition) == []
        assert root.table_rows(partition)[-1] == root.log_rows(partition)[-1]
    assert root.partition(3).start == 9


class TestKills:
    @pytest.mark.parametrize("policy", ["delete", "compact"])
    def test_a_cleaner_may_die_at_any_put(self, opened, monkeypatch, policy):
        root = opened(cleanup_policy=policy, min_cleanable_dirty_ratio="0.01", partitions=2)
        put = LocalStore.put_if_absent
        for step in range(14):
            root.fill(2, 0, start=3 * step)
            root.fill(1, 1, start=3 * step)
            root.clock.advance_ms(200_000)
            left = [step % 7]

            def dies(store, path, source, left=left, **options):
                left[0] -= 1
                if left[0] < 0:
                    raise StorageError("it dies", path=path)
                put(store, path, source, **options)

            with monkeypatch.context() as patch, suppress(SparkLogError):
                patch.setattr(LocalStore, "put_if_absent", dies)
                list(ClusterCleaner(root.cluster, ["t"], table_at_once=True).clean())
            for partition in range(2):
                assert root.newest.number < 0 or root.findings(partition) == []
        root.clock.advance_ms(200_000)
        root.clean()
        for partition in range(2):
            assert root.partition(partition).end > 20
            assert root.findings(partition) == []

    def test_another_committer_is_faster(self, root, monkeypatch):
        root.fill(2)
        root.clean()
        root.fill(2, start=10)
        list(_without_tables(root).clean())
        put = LocalStore.put_if_absent
        others: list[str] = []

        def lets_another_go_first(store, path, source, **options):
            if "_delta_log" in path and not others:
                others.append(path)
                TopicTables(Cluster(root.url, clock=root.clock)).commit(root.topic.topic_id)
            put(store, path, source, **options)

        monkeypatch.setattr(LocalStore, "put_if_absent", lets_another_go_first)
        before = root.newest.number
        TopicTables(root.cluster).commit(root.topic.topic_id)
        assert others
        assert root.newest.number == before + 1
        assert root.findings() == []
        assert root.table_rows() == root.log_rows()


def _fail_puts(monkeypatch, where):
    put = LocalStore.put_if_absent

    def fails(store, path, source, **options):
        if where in path:
            raise StorageError("the storage fails", path=path)
        put(store, path, source, **options)

    monkeypatch.setattr(LocalStore, "put_if_absent", fails)


def test_delta_rs_reads_start_and_end(root):
    root.fill(2)
    root.clean()
    root.delete_records(3)
    table = DeltaTable(str(root.directory))
    prefix = f"spark_log/{root.topic.topic_id}/0"
    assert table.transaction_version(f"{prefix}/start") == 3
    assert table.transaction_version(f"{prefix}/end") == 4


class TestPlacement:
    """All partitions of a table lie in the cluster's root."""

    @pytest.fixture
    def brokers(self, opened, tmp_path):
        root = opened(table_format="none")
        (tmp_path / "second").mkdir()
        root.admin.register_broker(1, str(tmp_path / "second"))
        return root

    def topic_on(self, *brokers, **configs):
        assignment = {0: [0, 1][: len(brokers)], 1: list(brokers)}
        return NewTopic("u", replica_assignment=assignment, topic_configs=configs)

    def test_a_topic_elsewhere_cannot_be_a_table(self, brokers):
        with pytest.raises(InvalidConfigurationError, match="partition 1 has no replica in the"):
            brokers.admin.create_topics([self.topic_on(1, **{"table.format": "delta"})])
        brokers.admin.create_topics([self.topic_on(1)])
        with pytest.raises(InvalidConfigurationError, match="partition 1 has no replica in the"):
            brokers.admin.alter_configs([ConfigResource("topic", "u", {"table.format": "delta"})])
        assert not brokers.cluster.image().may_have_tables

    def test_a_table_cannot_be_moved_away(self, brokers):
        brokers.admin.create_topics([self.topic_on(0, 1, **{"table.format": "delta"})])
        moved = {TopicPartition("u", 1): [1]}
        with pytest.raises(InvalidConfigurationError, match="partition 1 has no replica in the"):
            brokers.admin.alter_partition_reassignments(moved)


class TestDeleteDelay:
    """A table needs listings that are valid for a while: ``file.delete.delay.ms`` is not 0."""

    REFUSED = "table.format=delta with file.delete.delay.ms=0: .*; set file.delete.delay.ms to"

    def test_a_topic_without_a_delay_cannot_be_a_table(self, opened):
        root = opened(table_format="none", file_delete_delay_ms="0")
        with pytest.raises(InvalidConfigurationError, match=self.REFUSED):
            root.set(table_format="delta")
        configs = {"table.format": "delta", "file.delete.delay.ms": "0"}
        new = NewTopic("u", topic_configs=configs)
        with pytest.raises(InvalidConfigurationError, match=self.REFUSED):
            root.admin.create_topics([new])
        assert not root.cluster.image().may_have_tables
        root.admin.alter_configs(
            [ConfigResource("topic", "t", {"table.format": "delta", "file.delete.delay.ms": "1"})]
        )
        assert root.cluster.image().may_have_tables

    def test_a_table_keeps_its_delay(self, root):
        with pytest.raises(InvalidConfigurationError, match=self.REFUSED):
            root.set(file_delete_delay_ms="0")
        root.fill(3)
        root.clean()
        root.set(table_format="none")
        root.set(file_delete_delay_ms="0")
        root.clean()
        assert not root.newest.is_on, "the table is ended without a delay, too"
        with pytest.raises(InvalidConfigurationError, match=self.REFUSED):
            root.set(table_format="delta")


def test_the_delta_log_is_no_orphan(root):
    root.fill(1)
    root.clean()
    assert list(orphaned_directories(root.cluster, 0)) == []
