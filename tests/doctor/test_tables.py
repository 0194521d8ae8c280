"""Tables of topics: what keeps them from growing, and what other programs do to them."""

import json

import pytest
from deltalake import DeltaTable, write_deltalake

from spark_log.doctor import Severity
from spark_log.table import rebuild_table
from tests.doctor.support import DAY_MS, codes
from tests.store_calls import counted_calls
from tests.table.support import TableRoot


@pytest.fixture
def root(patient):
    """The topic ``t`` of the patient, which is a table."""
    root = TableRoot(patient.root, patient.clock)
    root.set(table_format="delta", merge_tail_segments=0)
    return root


def tables(patient, **options):
    return patient.findings("tables", **options)


def test_without_tables_nothing_is_read(patient):
    patient.findings("tables")
    with counted_calls() as calls:
        assert patient.findings("tables") == []
    assert not [call for call in calls if "_delta_log" in str(call)]


def test_a_table_that_is_up_to_date_is_healthy(patient, root):
    root.fill(10)
    root.clean()
    patient.clock.advance_ms(3 * DAY_MS)
    assert [each.message for each in tables(patient)] == []


class TestBehind:
    def test_without_a_cleaner(self, patient, root):
        root.fill(3)
        root.clean()
        root.fill(2, start=3)
        assert [each.message for each in tables(patient)] == []
        patient.clock.advance_ms(2 * DAY_MS)
        (found,) = tables(patient)
        assert (found.problem.code, found.subject.partition) == ("table-behind", 0)
        assert found.message == (
            "its table ends at 6 and its log at 10, and 1 segments have waited for up to 2 d"
        )
        assert (found.remedy, found.command) == (
            "Let a cleaner run every hour",
            "spark-log clean t",
        )
        root.clean()
        assert [each.message for each in tables(patient)] == []

    def test_though_a_cleaner_runs(self, patient, root):
        """An older setting keeps a cleaner from converting; it merges, and does not fail."""
        root.fill(3)
        root.clean()
        root.fill(3, start=3)
        patient.clock.advance_ms(2 * DAY_MS)
        root.set(table_format="none")
        root.fill(16, start=6)
        root.clean()
        root.set(table_format="delta")
        (found,) = tables(patient)
        assert found.problem.code == "table-behind"
        assert "a cleaner rewrote a segment" in found.message
        assert "read its errors" in found.remedy

    def test_before_the_first_version(self, patient, root):
        root.fill(3)
        patient.clock.advance_ms(2 * DAY_MS)
        (found,) = tables(patient)
        assert found.message.startswith("its table ends at 0 and its log at 6")

    def test_what_waits_for_a_compaction_is_not_late(self, patient, root):
        root.set(cleanup_policy="compact", min_cleanable_dirty_ratio=0.9)
        root.fill(10)
        root.clean()
        root.fill(2, start=10)
        patient.clock.advance_ms(2 * DAY_MS)
        assert [each.message for each in tables(patient)] == []


class TestOtherPrograms:
    def test_that_commit(self, patient, root):
        root.fill(3)
        root.clean()
        number = root.newest.number + 1
        version = {"commitInfo": {"timestamp": 0, "operation": "WRITE", "engineInfo": "Trino/480"}}
        path = root.directory / f"_delta_log/{number:020}.json"
        path.write_text(json.dumps(version) + "\n")
        (found,) = tables(patient)
        assert (found.problem.code, found.severity) == ("table-damaged", Severity.ERROR)
        assert found.message == f"version {number} of its table was committed by Trino/480"
        assert found.command == "spark-log table rebuild t"

    def test_that_commit_files(self, patient, root):
        root.fill(3)
        root.clean()
        number = root.newest.number + 1
        added = {
            "path": "theirs.parquet",
            "partitionValues": {"partition": "0"},
            "size": 1,
            "modificationTime": 0,
            "dataChange": True,
        }
        path = root.directory / f"_delta_log/{number:020}.json"
        path.write_text(json.dumps({"add": added}) + "\n")
        (found,) = tables(patient)
        assert found.message == "another program has added theirs.parquet to its table"

    def test_that_break_the_delta_log(self, patient, root):
        root.fill(3)
        root.clean()
        path = root.directory / f"_delta_log/{root.newest.number:020}.json"
        path.write_bytes(path.read_bytes()[:-20])
        (found,) = tables(patient)
        assert found.problem.code == "table-damaged"
        assert "cannot be parsed" in found.message

    def test_that_remove_files(self, patient, root):
        for _ in range(2):
            root.fill(3)
            root.clean()
        version = root.newest
        removed = {"path": version.path_of(0, version.partitions[0].files[0]), "dataChange": True}
        path = root.directory / f"_delta_log/{version.number + 1:020}.json"
        path.write_text(json.dumps({"remove": removed}) + "\n")
        (found,) = tables(patient)
        assert found.problem.code == "table-damaged"
        assert "has no file with offset 0 of partition 0" in found.message

    @pytest.mark.parametrize("engine", ["Trino/480", None])
    def test_before_the_delta_log_was_made_anew(self, patient, root, engine):
        root.fill(3)
        root.clean()
        info = {"timestamp": 0, "operation": "WRITE", "engineInfo": engine}
        body = json.dumps({"commitInfo": info}) if engine else "{garbage"
        path = root.directory / f"_delta_log/{root.newest.number + 1:020}.json"
        path.write_text(body + "\n")
        (found,) = tables(patient)
        assert found.problem.code == "table-damaged"
        rebuild_table(root.table, root.cluster.image().offset)
        assert tables(patient) == []

    def test_that_were_refused(self, patient, root):
        root.fill(3)
        root.clean()
        table = DeltaTable(str(root.directory))
        with pytest.raises(Exception, match="sparkLog"):
            write_deltalake(table, table.to_pyarrow_table(), mode="append")
        (root.directory / "partition=0").mkdir(exist_ok=True)
        (root.directory / "partition=0/part-0.parquet").write_bytes(b"1234")
        found = tables(patient)
        assert codes(found) == ["table-foreign-files"]
        assert found[0].severity == Severity.INFO
        assert "part-0.parquet" in found[0].message
        assert patient.findings("directories") == [], "no partition of another root"


def test_a_table_whose_setting_is_off(patient, root):
    root.fill(3)
    root.clean()
    root.set(table_format="none")
    (found,) = tables(patient)
    assert found.problem.code == "table-not-ended"
    assert "has 1 files" in found.message
    root.clean()
    assert [each.message for each in tables(patient)] == []


def test_a_file_that_is_missing(patient, root):
    root.fill(3)
    root.clean()
    (path,) = root.directory.glob("t-0/*.parquet")
    path.unlink()
    (found,) = tables(patient)
    assert (found.problem.code, found.subject.partition) == ("table-file-missing", 0)
    assert path.name in found.message
    assert found.command == "spark-log verify t --partition 0"


def test_only_the_topics_that_are_asked_for(patient, root):
    root.fill(3)
    root.clean()
    root.set(table_format="none")
    assert codes(tables(patient, topics=["t"])) == ["table-not-ended"]
