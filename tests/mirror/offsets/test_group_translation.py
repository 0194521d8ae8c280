"""A consumer group moves over in the middle, and goes on at the right record, both ways."""

import json
import subprocess

import pytest

from spark_log import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from spark_log.mirror import (
    GroupTranslation,
    KafkaToLog,
    LogAddress,
    LogToKafka,
    Side,
    patterns,
    read_offset_syncs,
)
from tests.cli.support import COMMAND
from tests.mirror.support import mirror, read_log, run_until_end
from tests.mirror.test_mirroring import send_to_log
from tests.waiting import wait_until

pytestmark = pytest.mark.long


@pytest.fixture
def root(tmp_path, kafka, names):
    """A root into which a topic was mirrored in several transactions."""
    root = tmp_path / "root"
    kafka.create_topic(names.topic)
    for first in (0, 100):
        with kafka.transaction(names.topic) as producer:  # whose markers take offsets
            for number in range(first, first + 100):
                producer.produce(names.topic, str(number).encode(), partition=number % 2)
        run_until_end(KafkaToLog, kafka, root, names)
    return root


def translate(kafka, root, names, source, **more):
    log = LogAddress(root)
    settings = mirror(KafkaToLog, kafka, root, names)._settings  # noqa: SLF001
    offset_syncs = read_offset_syncs(kafka.cluster, log, settings.offset_sync_topic)
    translation = GroupTranslation(kafka.cluster, log, patterns([names.group], "group"))
    return translation.translate(offset_syncs, source, **more)


def next_values(root, names):
    """The first value that the group reads in each partition."""
    with Consumer(names.topic, root=root, group_id=names.group) as consumer:
        found: dict[int, object] = {}

        def poll():
            for tp, records in consumer.poll(500).items():
                found.setdefault(tp.partition, records[0].value)
            return len(found) == 2

        wait_until(poll, timeout_s=30)
        return found


def test_a_group_goes_on_at_the_next_record_in_the_log(kafka, root, names):
    records = kafka.read(names.topic)
    at = {number: records[number][63] for number in (0, 1)}
    kafka.commit(names.group, {(names.topic, each): at[each][0] for each in at})
    (done,) = translate(kafka, root, names, Side.KAFKA)
    assert not done.waiting
    assert next_values(root, names) == {each: at[each][2] for each in at}


def test_a_group_goes_on_at_the_next_record_in_kafka(kafka, root, names):
    send_to_log(root, names.topic, 40)
    run_until_end(LogToKafka, kafka, root, names)
    there, here = kafka.read(names.topic), read_log(root, names.topic)
    for row in (10, 63, 105, 119):
        offsets = {
            TopicPartition(names.topic, each): OffsetAndMetadata(here[each][row][0])
            for each in (0, 1)
        }
        Admin(root).alter_group_offsets(names.group, offsets)
        translate(kafka, root, names, Side.LOG)
        committed = kafka.cluster.group_offsets(names.group)
        for tp, found in committed.items():
            ahead = [each for each in there[tp.partition] if each[0] >= found.offset]
            assert ahead[0][1:] == here[tp.partition][row][1:]


def test_a_group_that_has_read_everything_reads_only_what_comes_next(kafka, root, names):
    ends = {(names.topic, each): kafka.read(names.topic)[each][-1][0] + 2 for each in (0, 1)}
    kafka.commit(names.group, ends)  # behind the marker of the source's transaction
    (done,) = translate(kafka, root, names, Side.KAFKA)
    assert (len(done.offsets), done.waiting) == (2, ())
    send_to_log(root, names.topic, 2, first=1000)
    assert next_values(root, names) == {0: b"value-1000", 1: b"value-1001"}


def test_offsets_that_are_not_mirrored_yet_wait(kafka, root, names):
    kafka.send(names.topic, 10)
    kafka.commit(names.group, {(names.topic, 0): 106, (names.topic, 1): 5})
    (done,) = translate(kafka, root, names, Side.KAFKA)
    assert done.waiting == (TopicPartition(names.topic, 0),)
    assert [tp.partition for tp in done.offsets] == [1]


@pytest.fixture
def emptied(tmp_path, kafka, names):
    """A root with the mirror of a topic of which retention has deleted all records before.

    Partition 0 has had 5 records, and partition 1 none. The target's topic had 3 records of others.
    """
    root = tmp_path / "root"
    kafka.create_topic(names.topic)
    for number in range(5):
        kafka.send(names.topic, 1, first=number * 2)
    kafka.delete_records(names.topic, 5)
    Admin(root).create_topics([NewTopic(names.topic, 2)])
    with Producer(root) as producer:
        for _ in range(3):
            producer.send(names.topic, b"of others", partition=0).result()
    run_until_end(KafkaToLog, kafka, root, names)
    return root


def test_a_group_in_an_emptied_partition_reads_only_what_comes_next(kafka, emptied, names):
    kafka.commit(names.group, {(names.topic, 0): 5, (names.topic, 1): 0})
    (done,) = translate(kafka, emptied, names, Side.KAFKA)
    assert (done.offsets, done.waiting) == (
        {
            TopicPartition(names.topic, 0): OffsetAndMetadata(3),
            TopicPartition(names.topic, 1): OffsetAndMetadata(0),
        },
        (),
    )
    kafka.send(names.topic, 2, first=1000)
    run_until_end(KafkaToLog, kafka, emptied, names)
    assert next_values(emptied, names) == {0: b"value-1000", 1: b"value-1001"}


def test_a_group_in_a_partition_of_the_log_that_was_emptied_goes_on_in_kafka(
    kafka, tmp_path, names
):
    root = tmp_path / "root"
    Admin(root).create_topics([NewTopic(names.topic, 2)])
    send_to_log(root, names.topic, 10)
    place = TopicPartition(names.topic, 0)
    Admin(root).delete_records({place: 5})
    run_until_end(LogToKafka, kafka, root, names)
    Admin(root).alter_group_offsets(names.group, {place: OffsetAndMetadata(5)})
    (done,) = translate(kafka, root, names, Side.LOG)
    assert (done.offsets, done.waiting) == ({place: OffsetAndMetadata(0)}, ())
    assert kafka.cluster.group_offsets(names.group)[place].offset == 0


def test_nothing_moves_back_and_members_are_left_alone(kafka, root, names):
    kafka.commit(names.group, {(names.topic, 0): 5, (names.topic, 1): 5})
    further = {TopicPartition(names.topic, 0): OffsetAndMetadata(9)}
    Admin(root).alter_group_offsets(names.group, further)
    (planned,) = translate(kafka, root, names, Side.KAFKA, dry_run=True)
    assert [tp.partition for tp in planned.offsets] == [1]
    with Consumer(names.topic, root=root, group_id=names.group) as consumer:
        consumer.poll(2000)
        (refused,) = translate(kafka, root, names, Side.KAFKA)
    assert (refused.is_active, refused.offsets) == (True, {})


def test_the_command_line_moves_a_group(kafka, root, names):
    kafka.commit(names.group, {(names.topic, 0): 5})
    argv = [
        *(*COMMAND, "mirror", "groups", "--to", "log", "--group", names.group, "--json"),
        *("--root", str(root), "--bootstrap-server", kafka.servers, "--kafka-alias", names.alias),
    ]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    (group,) = json.loads(done.stdout)["groups"]
    assert group["offsets"] == [{"topic": names.topic, "partition": 0, "offset": 5}]
    assert list(Admin(root).list_group_offsets(names.group).values()) == [OffsetAndMetadata(5)]


def test_a_mirror_translates_groups_as_it_goes(kafka, root, names):
    kafka.send(names.topic, 10)
    kafka.commit(names.group, {(names.topic, 0): 104})
    argv = [
        *(*COMMAND, "mirror", "from-kafka", "--until-end", "--json", "--root", str(root)),
        *("--bootstrap-server", kafka.servers, "--kafka-alias", names.alias),
        *("--topics", names.topic, "--sync-groups", names.group),
    ]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    answer = json.loads(done.stdout)
    assert (answer["record_count"], answer["records_lag"]) == (10, 0)
    (group,) = answer["groups"]
    assert group["waiting"] == []
    here, there = read_log(root, names.topic)[0], kafka.read(names.topic)[0]
    (offset,) = (each["offset"] for each in group["offsets"])
    following = next(each for each in here if each[0] >= offset)
    assert following[1:] == next(each for each in there if each[0] >= 104)[1:]
