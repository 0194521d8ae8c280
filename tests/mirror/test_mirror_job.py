"""``jobs/mirror.py``: a real Spark mirrors between a real Kafka and a log, and says what it did."""

import subprocess

import pytest

from spark_log import Admin, OffsetAndMetadata, TopicPartition
from spark_log.jobs.task import MirroringTask, tasks_by_partition
from spark_log.mirror import (
    KafkaToLog,
    LogAddress,
    LogToKafka,
    MirrorSettings,
    Side,
)
from tests.jobs.conftest import BIN, ENVIRONMENT, HOME, report, submit
from tests.mirror.support import mirror, read_log, run_until_end, without_offsets
from tests.mirror.test_mirroring import KILLS, end_of_log, kill_when, log, root, send_to_log

__all__ = ["log", "root", "submit"]

pytestmark = [pytest.mark.long, pytest.mark.spark]


def arguments(direction, kafka, root, names, *more):
    return [
        *("mirror.py", direction, "--root", str(root), "--bootstrap-server", kafka.servers),
        *("--topics", names.topic, "--kafka-alias", names.alias, "--json", *more),
    ]


def test_it_mirrors_there_and_back_with_groups(submit, kafka, root, names):
    kafka.create_topic(names.topic, 3, compression_type="gzip")
    kafka.send(names.topic, 3000, partitions=3)
    kafka.commit(names.group, {(names.topic, 1): 100})
    there = arguments("from-kafka", kafka, root, names, "--sync-groups", names.group)

    done = report(submit(*there))

    assert (done["partitions"], done["record_count"], done["records_lag"]) == (3, 3000, 0)
    assert [each["record_count"] for each in done["by_partition"]] == [1000] * 3
    assert without_offsets(read_log(root, names.topic, 3)) == without_offsets(
        kafka.read(names.topic, 3)
    )
    assert Admin(root).describe_topics([names.topic])[0].configs["compression.type"] == "zstd"
    (group,) = done["groups"]
    assert group["offsets"] == [{"topic": names.topic, "partition": 1, "offset": 100}]
    assert list(Admin(root).list_group_offsets(names.group).values()) == [OffsetAndMetadata(100)]

    send_to_log(root, names.topic, 200, first=3000)
    done = report(submit(*arguments("to-kafka", kafka, root, names)))

    assert (done["record_count"], done["records_lag"]) == (200, 0)
    # The process that mirrors without tasks continues where the job has ended.
    assert run_until_end(KafkaToLog, kafka, root, names)["record-count"] == 0
    assert run_until_end(LogToKafka, kafka, root, names)["record-count"] == 0
    assert without_offsets(read_log(root, names.topic, 3)) == without_offsets(
        kafka.read(names.topic, 3)
    )


def test_killed_jobs_lose_and_double_nothing(submit, kafka, root, names):
    kafka.create_topic(names.topic)
    Admin(root).create_topics([])
    job, *more = arguments("from-kafka", kafka, root, names, "--commit-interval-ms", "20")
    argv = [str(BIN / "spark-submit"), "--master", "local[2]", str(HOME / "jobs" / job), *more]
    for kill in range(min(KILLS, 2)):
        kafka.send(names.topic, 20_000, first=kill * 20_000)
        before = end_of_log(root, names.topic) if kill else 0
        kill_when(
            argv,
            lambda before=before: has_grown(root, names.topic, before),
            env=ENVIRONMENT,
        )
    done = report(submit(job, *more))
    assert done["records_lag"] == 0
    expected = without_offsets(kafka.read(names.topic))
    assert without_offsets(read_log(root, names.topic)) == expected


def has_grown(root, topic, before):
    return topic in Admin(root).list_topics() and end_of_log(root, topic) > before


def test_a_task_tells_why_it_failed_and_shows_no_setting(kafka, log, names):
    settings = {"bootstrap.servers": kafka.servers}
    given = mirror(KafkaToLog, kafka, log, names)._settings  # noqa: SLF001
    kafka.create_topic(names.topic)
    work = MirroringTask(settings, LogAddress(log), given, Side.KAFKA)
    with work.driver() as driver:
        late = tasks_by_partition(driver.begin_tasks(), Side.KAFKA)
        tasks = tasks_by_partition(driver.begin_tasks(), Side.KAFKA)
    tp = TopicPartition(names.topic, 0)
    failed = MirroringTask(settings, LogAddress(log), given, Side.KAFKA, late).copy(tp)
    assert "after the job of this task" in failed["error"]
    done = MirroringTask(settings, LogAddress(log), given, Side.KAFKA, tasks).copy(tp)
    assert (done["record_count"], done.get("error")) == (0, None)
    secret = LogAddress("/data", {"storage_options": {"key": "s3cr3t"}})
    shown = repr(MirroringTask({"sasl.password": "s3cr3t"}, secret, MirrorSettings(), Side.KAFKA))
    assert "s3cr3t" not in shown


def test_a_wrong_direction_is_one_line(submit, kafka, root, names):
    done = submit(*arguments("kafka", kafka, root, names))
    assert done.returncode == 2
    assert done.stdout == ("mirror.py: error: 'kafka' is no direction: from-kafka or to-kafka\n"), (
        subprocess.list2cmdline(done.args)
    )
