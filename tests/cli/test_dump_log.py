"""``spark-log dump-log``: what a file holds, and whether it is sound."""

import re
import shutil
import struct
from pathlib import Path

import pytest

from spark_log import Admin, ConfigResource
from spark_log.log import SegmentWriter
from spark_log.record import EndTransactionMarker, leader_change_records
from spark_log.record.batch_header import BatchHeader
from spark_log.record.producer_append import ProducerAppend
from spark_log.storage import open_store
from tests.cli.support import append_batches, flip, partition_log, segment_files
from tests.log.support import Part, segment_bytes
from tests.record.samples import START_US, numbered, record_batch, row

ROWS = [
    row(b"one", b"a", [("x", b"1"), ("y", None)]),
    row(None, None, timestamp=START_US + 5_000_000),
    row(b"three \xff", b"c"),
]


@pytest.fixture
def segment(root):
    """The second segment of a partition, of two batches: three records and two."""
    append_batches(root, "weather", numbered(0, 4))
    append_batches(root, "weather", record_batch(ROWS), numbered(3, 2))
    return segment_files(root, "weather")[1]


def fields(line):
    """``name: value name: value …`` as a dict."""
    return dict(re.findall(r"(\w+): (\S+)", line))


class TestSegment:
    def test_text_has_kafkas_line_for_each_batch(self, shell, segment):
        outcome = shell("dump-log", segment)
        assert (outcome.status, outcome.err) == (0, "")
        dumping, owner, starting, first, second = outcome.lines
        assert dumping == f"Dumping {segment}"
        topic_id = segment.parent.parent.name.removeprefix("weather.")
        assert owner == f"Topic id: {topic_id} partition: 0"
        assert starting == "Log starting offset: 4"
        expected = {
            "baseOffset": "4",
            "lastOffset": "6",
            "count": "3",
            "baseSequence": "-1",
            "lastSequence": "-1",
            "producerId": "-1",
            "producerEpoch": "-1",
            "partitionLeaderEpoch": "0",
            "isTransactional": "false",
            "isControl": "false",
            "CreateTime": str(START_US // 1000 + 5000),
            "magic": "2",
            "compresscodec": "none",
            "isvalid": "true",
        }
        shown = fields(first)
        assert {name: shown[name] for name in expected} == expected
        assert int(shown["position"]) + int(shown["size"]) == int(fields(second)["position"])
        assert (fields(second)["baseOffset"], fields(second)["lastOffset"]) == ("7", "8")

    def test_text_shows_records_when_asked(self, shell, segment):
        lines = shell("dump-log", segment, "--print-data-log").lines
        records = [line for line in lines if line.startswith("| ")]
        assert len(records) == 5
        time_ms = START_US // 1000
        assert records[:3] == [
            f"| offset: 4 CreateTime: {time_ms} keySize: 1 valueSize: 3 sequence: -1 "
            "headers: [x:1,y:null] key: a payload: one",
            f"| offset: 5 CreateTime: {time_ms + 5000} keySize: -1 valueSize: -1 sequence: -1 "
            "headers: []",
            f"| offset: 6 CreateTime: {time_ms} keySize: 1 valueSize: 7 sequence: -1 "
            "headers: [] key: c payload: three \ufffd",
        ]

    def test_json_is_one_document_with_the_same(self, shell, segment):
        document = shell("dump-log", segment, "--json").document
        batches = document.pop("batches")
        assert document == {
            "file": str(segment),
            "topic_id": segment.parent.parent.name.removeprefix("weather."),
            "partition": 0,
            "base_offset": 4,
            "size_bytes": segment.stat().st_size,
            "is_valid": True,
            "problems": [],
        }
        assert [(batch["base_offset"], batch["last_offset"]) for batch in batches] == [
            (4, 6),
            (7, 8),
        ]
        assert (batches[0]["count"], batches[0]["is_valid"]) == (3, True)
        assert batches[0]["max_timestamp_ms"] == START_US // 1000 + 5000
        assert "records" not in batches[0]

    def test_json_has_records_when_asked(self, shell, segment):
        document = shell("dump-log", segment, "--json", "--print-data-log").document
        records = document["batches"][0]["records"]
        assert [record["offset"] for record in records] == [4, 5, 6]
        assert [record["value"] for record in records] == ["one", None, {"base64": "dGhyZWUg/w=="}]
        assert records[0]["headers"] == [{"key": "x", "value": "1"}, {"key": "y", "value": None}]

    @pytest.mark.parametrize("codec", ["none", "lz4", "zstd"])
    def test_names_the_compression(self, shell, root, codec):
        append_batches(root, "weather", numbered(0, 50), compression=codec)
        (file,) = segment_files(root, "weather")
        outcome = shell("dump-log", file)
        assert fields(outcome.lines[-1])["compresscodec"] == codec
        assert outcome.status == 0

    def test_shows_producers_sequences_and_attributes(self, shell, tmp_path):
        writer = SegmentWriter(
            open_store(tmp_path),
            "any-3",
            topic_id="id",
            partition=3,
            producer=ProducerAppend(7, 2, 10),
        )
        attributes = BatchHeader.TRANSACTIONAL_BIT | BatchHeader.TIMESTAMP_TYPE_BIT
        for base_sequence in (10, 15):
            writer.write(numbered(base_sequence, 5), attributes=attributes)
        name = "00000000000000000042.log"
        open_store(tmp_path).put_if_absent(f"any-3/{name}", writer.finish().staged)
        outcome = shell("dump-log", tmp_path / "any-3" / name, "--print-data-log")
        assert outcome.status == 0
        assert outcome.lines[1] == "Topic id: id partition: 3"
        batch = fields(outcome.lines[3])
        assert (batch["producerId"], batch["producerEpoch"]) == ("7", "2")
        assert (batch["baseSequence"], batch["lastSequence"]) == ("10", "14")
        assert batch["isTransactional"] == "true"
        assert batch["LogAppendTime"] == str(START_US // 1000 + 14)
        assert [fields(line)["sequence"] for line in outcome.lines[4:9]] == [
            str(sequence) for sequence in range(10, 15)
        ]

    def test_shows_how_a_transaction_ended(self, shell, tmp_path):
        writer = SegmentWriter(open_store(tmp_path), "any-3", topic_id="id", partition=3)
        writer.write_markers(
            [EndTransactionMarker(7, 1, True), EndTransactionMarker(8, 4, False)], START_US
        )
        name = "00000000000000000042.log"
        open_store(tmp_path).put_if_absent(f"any-3/{name}", writer.finish().staged)
        path = tmp_path / "any-3" / name
        batches = [fields(line) for line in shell("dump-log", path).lines[3:]]
        assert [each["endTxnMarker"] for each in batches] == ["COMMIT", "ABORT"]
        assert [each["isvalid"] for each in batches] == ["true", "true"]
        assert [(each["producerId"], each["producerEpoch"]) for each in batches] == [
            ("7", "1"),
            ("8", "4"),
        ]
        documents = shell("dump-log", path, "--json").document["batches"]
        assert [each["end_txn_marker"] for each in documents] == ["COMMIT", "ABORT"]

    def test_shows_which_leader_epoch_a_barrier_begins(self, shell, tmp_path):
        writer = SegmentWriter(
            open_store(tmp_path), "any-3", topic_id="id", partition=3, leader_epoch=5
        )
        writer.write_barrier(leader_change_records(5, [2, 0], [1], START_US), START_US)
        name = "00000000000000000042.log"
        open_store(tmp_path).put_if_absent(f"any-3/{name}", writer.finish().staged)
        path = tmp_path / "any-3" / name
        line = shell("dump-log", path).lines[3]
        assert line.endswith(
            "LeaderChange: leader epoch 5 begins, leader 2, isr [2, 0], joining [1]"
        )
        (document,) = shell("dump-log", path, "--json").document["batches"]
        expected = {"leader_epoch": 5, "isr": [2, 0], "joining": [1]}
        assert document["leader_change"] == expected

    def test_knows_the_partition_of_a_replica_in_a_later_directory(self, shell, segment):
        later = Path(shutil.copytree(segment.parent, f"{segment.parent}.2"))
        outcome = shell("dump-log", later / segment.name)
        assert outcome.status == 0
        assert outcome.lines[1].endswith("partition: 0")

    def test_may_be_named_from_where_it_lies(self, shell, segment, monkeypatch):
        monkeypatch.chdir(segment.parent)
        outcome = shell("dump-log", segment.name)
        assert outcome.status == 0
        assert outcome.lines[0] == f"Dumping {segment.name}"


class TestParquet:
    @pytest.fixture
    def parquet(self, root, shell):
        """A segment that `spark-log clean` has written as Parquet at once."""
        topic = [ConfigResource("TOPIC", "weather", {"table.format": "delta", "retention.ms": -1})]
        Admin(root).alter_configs(topic)
        producer = ProducerAppend(7, 0, 0, is_transactional=True)
        append_batches(root, "weather", record_batch(ROWS), producer=producer)
        log = partition_log(root, "weather")
        log.append_markers([EndTransactionMarker(7, 1, is_committed=True)])
        append_batches(root, "weather", numbered(3, 2))
        assert shell("clean", "weather").status == 0
        (segment,) = segment_files(root, "weather", suffix=".parquet")
        return segment

    def test_shows_the_batches_and_records_of_the_segments_it_was_made_of(self, shell, parquet):
        document = shell("dump-log", parquet, "--json", "--print-data-log").document
        batches = document["batches"]
        assert document["is_valid"]
        assert [(each["base_offset"], each["count"]) for each in batches] == [
            (0, 3),
            (3, 1),
            (4, 2),
        ]
        assert [each["is_control"] for each in batches] == [False, True, False]
        assert batches[1]["end_txn_marker"] == "COMMIT"
        assert {each["compression"] for each in batches} == {"zstd"}
        values = [each["value"] for each in batches[2]["records"]]
        assert values == ["record:3", "record:4"]

    def test_reports_damage(self, shell, parquet):
        data = bytearray(parquet.read_bytes())
        data[100] ^= 1
        parquet.write_bytes(bytes(data))
        outcome = shell("dump-log", parquet)
        assert outcome.status == 1
        assert parquet.name in outcome.err

    def test_takes_the_owner_from_the_file_in_another_directory(self, shell, parquet, tmp_path):
        (tmp_path / "other").mkdir()
        moved = tmp_path / "other" / parquet.name
        shutil.copy(parquet, moved)
        document = shell("dump-log", moved, "--json").document
        topic_id = parquet.parent.parent.name.removeprefix("weather.")
        assert (document["topic_id"], document["is_valid"]) == (topic_id, True)


class TestDamage:
    def test_of_a_value_is_found_by_its_checksum_and_the_rest_is_still_shown(self, shell, segment):
        flip(segment, segment.read_bytes().index(b"three"))
        outcome = shell("dump-log", segment, "--print-data-log")
        assert outcome.status == 1
        _, _, _, first, second, *records = outcome.lines
        assert "isvalid: false (checksum is 0x" in first
        assert fields(second)["isvalid"] == "true"
        assert [fields(line)["offset"] for line in records] == ["7", "8"]
        position = fields(first)["position"]
        assert outcome.error.startswith(
            f"{segment}, position {position}: the record batch checksum is 0x"
        )

    def test_in_json_is_in_the_document_too(self, shell, segment):
        flip(segment, segment.read_bytes().index(b"three"))
        outcome = shell("dump-log", segment, "--json", "--print-data-log")
        assert outcome.status == 1
        document = outcome.document
        first, second = document["batches"]
        assert (first["is_valid"], second["is_valid"]) == (False, True)
        assert first["problem"].startswith("checksum is 0x")
        assert ("records" in first, "records" in second) == (False, True)
        assert document["is_valid"] is False
        assert document["problems"] == [
            {"position": first["position"], "problem": first["problem"]}
        ]

    def test_of_several_batches_is_counted(self, shell, segment):
        flip(segment, segment.read_bytes().index(b"three"))
        flip(segment, segment.read_bytes().index(b"record:3"))
        outcome = shell("dump-log", segment)
        assert outcome.status == 1
        assert outcome.error.endswith("(and 1 more)")

    def test_of_a_header_does_not_hide_the_other_batch(self, shell, segment):
        flip(segment, segment.read_bytes().index(b"spark_log.batch"))
        outcome = shell("dump-log", segment, "--json")
        first, second = outcome.document["batches"]
        assert (first["is_valid"], second["is_valid"]) == (False, True)
        assert first["problem"] == "no batch header"
        assert "base_offset" not in first

    def test_of_a_footer_that_hides_a_batch_is_a_failure(self, shell, segment):
        first, _ = shell("dump-log", segment, "--json").document["batches"]
        data = bytearray(segment.read_bytes())
        # In the footer, the list of blocks is their number and then the position of each.
        at = data.rindex(struct.pack("<Iq", 2, first["position"]))
        data[at : at + 4] = struct.pack("<I", 1)
        segment.write_bytes(data)
        outcome = shell("dump-log", segment)
        assert (outcome.status, outcome.out) == (1, "")
        assert segment.name in outcome.error

    def test_of_a_batch_that_is_missing_between_others_is_found(self, shell, tmp_path):
        """Two segments' worth of batches in one file: sound each, but not one after the other."""
        before, behind = [row(b"0")] * 3, [row(b"3")] * 2
        data = segment_bytes([[Part(before)], [Part(behind, base_delta=4)]])
        open_store(tmp_path).put("any-0/00000000000000000000.log", data)
        outcome = shell("dump-log", tmp_path / "any-0" / "00000000000000000000.log", "--json")
        assert outcome.status == 1
        first, second = outcome.document["batches"]
        assert (first["is_valid"], second["is_valid"]) == (True, False)
        assert "4 offsets into the segment, the one before it ends at 3" in second["problem"]

    def test_of_the_end_is_a_failure_that_names_the_file(self, shell, segment):
        flip(segment, segment.stat().st_size - 1)
        outcome = shell("dump-log", segment)
        assert (outcome.status, outcome.out) == (1, "")
        assert segment.name in outcome.error
        assert "not a readable Arrow file" in outcome.error

    def test_of_an_emptied_file_is_a_failure(self, shell, segment):
        segment.unlink()
        segment.touch()
        outcome = shell("dump-log", segment)
        assert (outcome.status, outcome.out) == (1, "")
        assert "too short for an Arrow file" in outcome.error

    def test_that_puts_a_segment_into_a_strange_directory_is_found(self, shell, root, segment):
        append_batches(root, "flights", numbered(0, 1))
        (own,) = segment_files(root, "flights")
        strange = own.with_name("00000000000000000001.log")
        strange.write_bytes(segment.read_bytes())
        outcome = shell("dump-log", strange)
        assert (outcome.status, outcome.out) == (1, "")
        assert "belongs to topic id and partition" in outcome.error

    def test_of_any_one_bit_is_told_in_one_line_or_changes_nothing(self, shell, segment):
        """Every hundredth byte or so of the file, one bit each; the process itself survives."""
        original = segment.read_bytes()
        sound = shell("dump-log", segment, "--json", "--print-data-log").out
        for position in range(0, len(original), 89):
            flip(segment, position, bit=position % 8)
            outcome = shell("dump-log", segment, "--json", "--print-data-log")
            segment.write_bytes(original)
            if outcome.status == 0:
                assert outcome.out == sound, position
            else:
                assert (outcome.status, len(outcome.error) > 0) == (1, True), position


class TestIndex:
    def test_text_has_a_line_for_each_entry(self, shell, segment):
        second = shell("dump-log", segment, "--json").document["batches"][1]
        outcome = shell("dump-log", segment.with_suffix(".index"))
        assert (outcome.status, outcome.err) == (0, "")
        assert outcome.lines == [
            f"Dumping {segment.with_suffix('.index')}",
            f"offset: 7 position: {second['position']} is_valid: true",
        ]

    def test_json_says_the_same(self, shell, segment):
        second = shell("dump-log", segment, "--json").document["batches"][1]
        index = segment.with_suffix(".index")
        assert shell("dump-log", index, "--json").document == {
            "file": str(index),
            "base_offset": 4,
            "entries": [{"offset": 7, "position": second["position"], "is_valid": True}],
        }

    def test_of_time_names_the_latest_time_and_its_offset(self, shell, segment):
        time_index = segment.with_suffix(".timeindex")
        assert shell("dump-log", time_index, "--json").document["entries"] == [
            {"timestamp": START_US // 1000 + 5000, "offset": 4, "is_valid": True}
        ]

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_that_does_not_fit_its_segment_is_a_failure(self, shell, segment, suffix):
        index = segment.with_suffix(suffix)
        flip(index, 0)
        outcome = shell("dump-log", index)
        assert outcome.status == 1
        assert outcome.lines[1].endswith("is_valid: false")
        assert outcome.error.startswith(f"{index}: the entry for offset ")
        assert outcome.error.endswith("Delete the file: an index is rebuilt from its segment")

    def test_of_an_odd_size_is_a_failure(self, shell, segment):
        index = segment.with_suffix(".index")
        index.write_bytes(index.read_bytes()[:-1])
        outcome = shell("dump-log", index)
        assert (outcome.status, outcome.out) == (1, "")
        assert f"{index}: 11 bytes are not entries of 8 bytes" in outcome.error

    @pytest.mark.parametrize("suffix", [".index", ".timeindex"])
    def test_whose_checksum_alone_is_wrong_is_shown_all_the_same(self, shell, segment, suffix):
        index = segment.with_suffix(suffix)
        flip(index, -1)
        outcome = shell("dump-log", index)
        assert outcome.status == 1
        assert outcome.lines[1].endswith("is_valid: true")
        assert "its checksum is 0x" in outcome.error

    def test_without_its_segment_is_shown_unchecked(self, shell, segment):
        segment.unlink()
        outcome = shell("dump-log", segment.with_suffix(".index"))
        assert outcome.status == 0
        assert outcome.lines[1].startswith("offset: 7 position: ")
        assert "is_valid" not in outcome.lines[1]
        assert outcome.err == f"{segment.name} does not exist: the entries could not be checked.\n"


class TestMistakes:
    @pytest.mark.parametrize("name", ["notes.txt", "0.log", "00000000000000000000.snapshot"])
    def test_a_file_of_another_name_is_one(self, shell, folder, name):
        (folder / name).write_text("?")
        outcome = shell("dump-log", name)
        assert (outcome.status, outcome.out) == (2, "")
        assert f"'{name}' is not the name of a segment" in outcome.error

    def test_a_directory_is_one(self, shell, folder):
        outcome = shell("dump-log", folder)
        assert outcome.status == 2
        assert "is a directory" in outcome.error
