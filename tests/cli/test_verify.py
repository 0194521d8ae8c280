"""``spark-log verify``: what is wrong, with file and position, and setting right what can be."""

import os
import re

import pytest

from spark_log import TopicPartition
from spark_log.cluster import Cluster
from spark_log.log.files.file_names import SegmentName, StartMarker
from spark_log.log.rewrite.merger import merge
from spark_log.log.snapshot.snapshot import Snapshot
from spark_log.metadata import METADATA_MARKER
from spark_log.metadata.metadata_log import METADATA_DIRECTORY
from spark_log.transaction import TransactionStateLog, decisions
from spark_log.util.clock import SYSTEM_CLOCK
from tests.cli.support import (
    append,
    append_batches,
    begin_transaction,
    flip,
    partition_log,
    segment_files,
)
from tests.record.samples import numbered

LONG_AGO = (1_600_000_000, 1_600_000_000)


@pytest.fixture(autouse=True)
def times(monkeypatch):
    """Files are as old as ``os.utime`` says; what a disk says besides cannot be set."""
    modified_us = "spark_log.storage.local.appeared_us"
    monkeypatch.setattr(modified_us, lambda status: status.st_mtime_ns // 1000)


@pytest.fixture(autouse=True)
def records(root):
    """``weather``: three segments of two batches each, with indexes, and a snapshot."""
    for first in (0, 4, 8):
        batches = [numbered(first, 2), numbered(first + 2, 2)]
        append_batches(root, "weather", *batches)
    partition_log(root, "weather").replica.snapshots.write()
    append(root, "flights", b"one", b"two", partition=1)


@pytest.fixture
def weather(root):
    """The files of ``weather``: ``weather(".log")`` are paths in offset order."""
    return lambda suffix: segment_files(root, "weather", suffix=suffix)


def values(root):
    return [
        value.as_py()
        for batch in partition_log(root, "weather").scan(0)
        for value in batch.records.column("value")
    ]


def stale(path):
    """Make a snapshot that says another size of the first segment, and looks sound."""
    topic_id = path.parent.parent.name.rpartition(".")[2]
    here = {"topic_id": topic_id, "partition": 0}
    said = Snapshot.from_buffer(path.read_bytes(), **here)
    first, *others = said.segments
    other = type(first)(
        *(first.name, first.end_offset, first.record_count, first.size_bytes + 1),
        *(first.min_timestamp_us, first.max_timestamp_us),
    )
    wrong = Snapshot(said.offset, (other, *others), said.producers)
    path.write_bytes(wrong.to_buffer(**here))


def path_in(root, path):
    return str(path.relative_to(root))


class TestSound:
    def test_says_how_much_was_looked_at(self, shell, root):
        outcome = shell("verify", "weather")
        assert (outcome.status, outcome.err) == (0, "")
        size_bytes = sum(path.stat().st_size for path in segment_files(root, "weather", suffix=""))
        assert outcome.out == (
            f"Verified 1 partition: 3 segments, 12 records, {size_bytes:,} bytes. All sound.\n"
        )

    def test_a_whole_root_is_verified_with_its_metadata(self, shell):
        outcome = shell("verify")
        assert (outcome.status, outcome.err) == (0, "")
        # Three of the two topics, and the metadata log, with one segment for their creation.
        assert outcome.out.startswith("Verified 4 partitions: 5 segments, ")
        assert outcome.out.endswith("All sound.\n")

    def test_in_json_is_one_document(self, shell, root):
        outcome = shell("verify", "weather", "--json")
        assert (outcome.status, outcome.err) == (0, "")
        document = outcome.document
        assert document.pop("size_bytes") > 1_000
        assert document == {
            "root": str(root),
            "findings": [],
            "is_sound": True,
            "errors": 0,
            "warnings": 0,
            "notes": 0,
            "repaired": 0,
            "partitions": 1,
            "segments": 3,
            "objects": 0,
            "records": 12,
        }

    def test_one_partition_is_enough(self, shell, root):
        (path,) = segment_files(root, "flights", 1)
        flip(path, path.read_bytes().index(b"onetwo"))
        assert shell("verify", "flights", "--partition", "0").status == 0
        document = shell("verify", "flights", "--partition", "1", "--json").document
        assert (document["partitions"], document["errors"]) == (1, 1)
        twice = ("--partition", "1", "--partition", "1")
        document = shell("verify", "flights", "flights", *twice, "--json").document
        assert (document["partitions"], document["errors"]) == (1, 1)
        assert shell("verify", "--partition", "0", "--json").document["partitions"] == 2

    def test_repair_changes_nothing(self, shell, root):
        before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
        outcome = shell("verify", "--repair")
        assert (outcome.status, outcome.lines[-1][-10:]) == (0, "All sound.")
        assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


class TestDamage:
    def test_a_flipped_bit_is_told_with_file_and_position(self, shell, root, weather):
        path = weather(".log")[1]
        reader = partition_log(root, "weather").files.open(SegmentName.parse(path.name))
        position = reader.position(1)
        flip(path, path.read_bytes().index(b"record:6"))
        outcome = shell("verify", "weather")
        assert (outcome.status, outcome.err) == (1, "")
        finding, summary = outcome.lines
        assert finding.startswith(f"error: {path_in(root, path)}: position {position}: ")
        assert "CRC" in finding or "checksum" in finding
        assert summary.endswith(" 1 error.")

    def test_a_missing_segment_is_told_with_the_offsets_between(self, shell, root, weather):
        before, path, _ = weather(".log")
        path.unlink()
        outcome = shell("verify", "weather")
        assert outcome.status == 1
        assert outcome.lines[0] == (
            f"error: {path_in(root, before)}: ends at offset 4, but the log continues at 8: "
            f"the segments between are missing. Restore them from a copy"
        )
        repaired = shell("verify", "weather", "--repair", "--json")
        assert (repaired.status, repaired.document["errors"]) == (1, 1)

    def test_a_file_that_is_no_segment_is_one_finding(self, shell, root, weather):
        path = weather(".log")[0]
        path.write_bytes(b"nothing")
        (finding,) = shell("verify", "weather", "--json").document["findings"]
        assert (finding["path"], finding["kind"]) == (path_in(root, path), "damaged-segment")
        assert (finding["severity"], finding["repaired"]) == ("error", False)

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_a_damaged_index_is_made_anew(self, shell, root, weather, suffix):
        path = weather(suffix)[1]
        written = path.read_bytes()
        flip(path, 0)
        outcome = shell("verify", "weather")
        assert (outcome.status, shell("verify", "weather", "--strict").status) == (0, 1)
        assert outcome.lines[0].startswith("warning: ")
        assert path_in(root, path) in outcome.out
        assert re.fullmatch(r"spark-log verify --repair can repair \d files?.\n", outcome.err)
        self.check_repair(shell, f"repaired: {path_in(root, path)}: ", ": rebuilt")
        assert path.read_bytes() == written

    def test_a_stale_snapshot_is_made_anew(self, shell, root, weather):
        (path,) = weather(".snapshot")
        stale(path)
        (finding,) = shell("verify", "weather", "--json").document["findings"]
        assert (finding["path"], finding["kind"]) == (path_in(root, path), "wrong-snapshot")
        assert "00000000000000000000.log" in finding["message"]
        self.check_repair(shell, f"repaired: {path_in(root, path)}: ", ": rebuilt")
        assert weather(".snapshot") == [path]

    def test_an_orphan_is_removed(self, shell, root, weather):
        orphan = weather(".log")[0].with_name("00000000000000000002.index")
        orphan.write_bytes(b"")
        kept = shell("verify", "weather", "--repair")
        assert (kept.status, kept.err) == (0, ""), "who makes it may be at work"
        assert kept.lines[0].startswith("warning: ")
        os.utime(orphan, LONG_AGO)
        assert shell("verify", "weather").lines[0] == (
            f"warning: {path_in(root, orphan)}: its segment does not exist"
        )
        self.check_repair(shell, f"repaired: {path_in(root, orphan)}: ", ": removed")
        assert not orphan.exists()

    def test_a_void_file_is_removed_when_its_name_may_be_freed(self, shell, root, weather):
        log = partition_log(root, "weather")
        merge(log.files, log.observe(), 0, 1)
        expected = values(root)
        (rewritten,) = (path for path in weather(".log") if "-" in path.name)
        void = rewritten.with_name("00000000000000000002.log")  # delivered late: nobody reads it
        void.write_bytes(weather(".log")[0].read_bytes())
        outcome = shell("verify", "weather", "--repair", "--notes")
        assert (outcome.status, void.exists()) == (0, True)
        assert f"note: {path_in(root, void)}: is rewritten" in outcome.out
        os.utime(rewritten, LONG_AGO)
        self.check_repair(shell, f"repaired: {path_in(root, void)}: ", ": removed")
        assert not void.exists()
        assert values(root) == expected

    def test_what_a_dead_writer_left_is_removed(self, shell, root, weather):
        left = weather(".log")[0].with_name(".abandoned.tmp")
        left.write_bytes(b"x")
        assert shell("verify", "weather").status == 0, "its writer may be at work"
        os.utime(left, LONG_AGO)
        self.check_repair(shell, f"repaired: {path_in(root, left)}: ", ": removed")
        assert not left.exists()

    def test_an_overtaken_start_marker_is_removed(self, shell, root, weather):
        folder = weather(".log")[0].parent
        markers = [folder / StartMarker(start, 4).name for start in (5, 6)]
        for marker in markers:
            marker.write_bytes(b"")
            os.utime(marker, LONG_AGO)
        self.check_repair(shell, f"repaired: {path_in(root, markers[0])}: ", ": removed")
        assert [marker.exists() for marker in markers] == [False, True]

    def test_a_strange_file_is_left_alone(self, shell, root, weather):
        strange = weather(".log")[0].with_name("notes.txt")
        strange.write_text("mine")
        outcome = shell("verify", "weather", "--repair")
        assert outcome.status == 0
        assert f"warning: {path_in(root, strange)}: does not belong to the log" in outcome.out
        assert strange.read_text() == "mine"

    def check_repair(self, shell, *parts):
        """Repair, look for a line with these parts, and find nothing any more."""
        outcome = shell("verify", "weather", "--repair", "--strict")
        assert (outcome.status, outcome.err) == (0, "")
        begin, end = parts
        assert [line for line in outcome.lines if line.startswith(begin) and line.endswith(end)]
        assert re.search(r" \d repaired\.$", outcome.lines[-1])
        assert shell("verify", "weather").lines[-1].endswith("All sound.")


class TestNotes:
    def test_are_told_only_when_asked_for_and_are_no_problem(self, shell, root):
        log = partition_log(root, "weather")
        merge(log.files, log.observe(), 0, 2)
        assert len(shell("verify", "weather").lines) == 1
        outcome = shell("verify", "weather", "--notes")
        assert outcome.status == 0
        assert [line.partition(": ")[0] for line in outcome.lines[:-1]] == ["note"] * 3
        document = shell("verify", "weather", "--json").document
        assert (document["findings"], document["notes"], document["is_sound"]) == ([], 3, True)


class TestSeverities:
    @pytest.fixture
    def spent(self, root, weather):
        """Files that wait for a cleaner, as on any root between two cleanings."""
        log = partition_log(root, "weather")
        merge(log.files, log.observe(), 0, 2)
        spent = [path for path in weather(".log") if "-" not in path.name]
        for path in weather(".log"):
            os.utime(path, LONG_AGO)
        return spent

    def test_files_that_wait_for_a_cleaner_are_warnings_and_no_failure(self, shell, spent):
        outcome = shell("verify", "weather")
        assert outcome.status == 0
        assert [line.partition(": ")[0] for line in outcome.lines[:-1]] == ["warning"] * len(spent)
        assert outcome.lines[-1].endswith(f" {len(spent)} warnings.")

    def test_warnings_are_failures_where_that_is_asked_for(self, shell, spent):
        assert shell("verify", "weather", "--strict").status == 1
        assert shell("verify", "weather", "--strict", "--repair").status == 0
        assert shell("verify", "weather", "--strict").status == 0

    def test_json_tells_them_apart(self, shell, spent, weather):
        for options, status in (((), 0), (("--strict",), 1)):
            outcome = shell("verify", "weather", "--json", *options)
            document = outcome.document
            assert outcome.status == status
            assert {finding["severity"] for finding in document["findings"]} == {"warning"}
            assert (document["errors"], document["warnings"]) == (0, len(spent))
            assert document["is_sound"] is (status == 0)
        (live,) = set(weather(".log")) - set(spent)
        live.write_bytes(b"nothing")
        os.utime(live, LONG_AGO)
        outcome = shell("verify", "weather", "--json")
        severities = {finding["severity"] for finding in outcome.document["findings"]}
        assert (outcome.status, severities) == (1, {"error", "warning"})
        assert outcome.document["is_sound"] is False


class TestMistakes:
    def test_an_unknown_topic_is_one_line_that_names_those_like_it(self, shell):
        outcome = shell("verify", "wether")
        assert (outcome.status, outcome.out) == (2, "")
        assert "did you mean weather?" in outcome.error

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["weather", "--partition", "1"], "topic 'weather' has no partition 1"),
            (["--partition", "9"], "no topic has a partition"),
            (["--partition", "-1"], "partitions are numbered from 0"),
            (["--partition", "x"], "Invalid value for '--partition'"),
            (["--root", "nowhere"], "there is no spark-log root at"),
            (["--repairs"], "--repairs"),
        ],
        ids=lambda value: "-".join(value) if isinstance(value, list) else "",
    )
    def test_are_refused_in_one_line(self, shell, argv, message):
        outcome = shell("verify", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error

    def test_damaged_metadata_is_one_line_where_a_topic_is_asked_for(self, shell, root):
        self.damage_metadata(root)
        outcome = shell("verify", "weather")
        assert (outcome.status, outcome.out) == (1, "")
        assert "__cluster_metadata-0/00000000000000000000.log" in outcome.error

    def test_damaged_metadata_is_a_finding_of_the_whole_root(self, shell, root):
        self.damage_metadata(root)
        outcome = shell("verify")
        assert (outcome.status, outcome.err) == (1, "")
        assert "the topics cannot be listed" in outcome.lines[0]
        assert outcome.lines[1].startswith(
            "error: __cluster_metadata-0/00000000000000000000.log: position "
        )

    def damage_metadata(self, root):
        path = root / METADATA_DIRECTORY / "00000000000000000000.log"
        flip(path, path.read_bytes().index(b"weather"))
        (root / METADATA_MARKER.path).unlink()  # by the checkpoint the topics are still known


def test_markers_are_compared_with_decisions(shell, root):
    _, producer = begin_transaction(root, "orders", TopicPartition("flights", 0))
    log = TransactionStateLog(Cluster(root).store, "orders", SYSTEM_CLOCK)
    log.commit(lambda state: decisions.commit(state, producer, [producer]))
    log.commit(lambda state: decisions.complete(state, 1))
    outcome = shell("verify")
    assert outcome.status == 1
    assert "is complete in its state log, and has no marker here" in outcome.lines[0]
    assert shell("verify", "flights").status == 0, "only of a whole root"
