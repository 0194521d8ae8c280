"""The metadata log and the table of committed offsets."""

import gc
from pathlib import Path

import pytest

from spark_log import Admin, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster
from spark_log.config import INTERNAL_LOG_CONFIG
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets import creation, maintenance
from spark_log.doctor import Limits, Severity
from spark_log.doctor.checks import metadata_log

P0 = TopicPartition("t", 0)


def alter(root, count):
    admin = Admin(root)
    for number in range(count):
        admin.alter_broker(0, rack=f"rack{number}")


class TestMetadataLog:
    def test_snapshots_that_cannot_be_written(self, patient, monkeypatch):
        monkeypatch.setattr("spark_log.log.snapshot.Snapshots.write_if_due", lambda self: 1)
        often = INTERNAL_LOG_CONFIG.model_copy(update={"snapshot_interval_segments": 1})
        monkeypatch.setattr(metadata_log, "INTERNAL_LOG_CONFIG", often)
        alter(patient.root, 65)
        assert patient.findings("metadata-log") == []
        alter(patient.root, 1)
        (found,) = patient.findings("metadata-log")
        assert found.problem.code == "metadata-without-snapshot"
        assert found.message.startswith("the metadata were changed 67 times")

    @pytest.mark.parametrize("content", [None, b"5\n", b"damaged"])
    def test_a_long_log_without_a_checkpoint(self, patient, content):
        alter(patient.root, 5)
        limits = Limits(metadata_files=4)
        assert not patient.findings("metadata-log", limits=limits)
        checkpoint = Path(patient.root, "__witnesses", "__cluster_metadata-0")
        checkpoint.unlink()
        if content is not None:
            checkpoint.write_bytes(content)
        (found,) = patient.findings("metadata-log", limits=limits)
        code = "metadata-without-checkpoint"
        assert (found.problem.code, found.severity) == (code, Severity.WARNING)

    def test_damage_that_appears_after_it_was_read(self, patient, monkeypatch):
        alter(patient.root, 3)
        image = Cluster.image

        def read_and_lose(cluster):
            found = image(cluster)
            last = max(Path(patient.root).glob("__cluster_metadata-0/*.log"))
            last.unlink(missing_ok=True)
            return found

        monkeypatch.setattr(Cluster, "image", read_and_lose)
        (found,) = patient.findings("metadata-log")
        assert found.problem.code == "metadata-damaged"


class TestOffsetsTable:
    def test_damage(self, patient, cluster):
        table = OffsetsTable(cluster)
        for offset in range(3):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        Path(table.url, "_delta_log", f"{2:020}.json").unlink()
        del table
        gc.collect()  # another process has read nothing yet
        doctor = patient.doctor()
        (found,) = doctor.findings()
        assert (found.problem.code, found.severity) == ("offsets-damaged", Severity.ERROR)
        assert found.command == "spark-log groups repair"
        assert doctor.results["groups"].reason == "the offsets table cannot be read"

    def test_no_checkpoint_for_long(self, patient, cluster, monkeypatch):
        monkeypatch.setitem(creation.TABLE_PROPERTIES, "delta.checkpointInterval", "2")
        monkeypatch.setattr(maintenance.OffsetsMaintenance, "start", lambda self: None)
        table = OffsetsTable(cluster)
        for offset in range(21):
            table.commit("g", {P0: OffsetAndMetadata(offset)})
        (found,) = patient.findings("offsets-table")
        assert found.problem.code == "offsets-checkpoint-behind"
        assert "21 versions" in found.message
        table.maintain()
        assert patient.findings("offsets-table") == []
