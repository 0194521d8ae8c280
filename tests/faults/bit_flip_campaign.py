"""Flips one bit of a file of each kind in a root, and checks that no wrong result is returned.

A process of its own (``python -m tests.faults.bit_flip_campaign DIRECTORY FLIPS SEED``), because a
flip may kill it. It makes a root with all kinds of files. For each kind, and FLIPS times with one
bit flipped, it reads all records, offsets by time, topics and their configs, groups and their
committed offsets. Each result must be the one without damage, or an error. Prints, as JSON and for
each kind of file, the number of results and errors, and every wrong result. Before each flip it
writes the flip into ``DIRECTORY/progress``.
"""

import json
import os
import random
import re
import shutil
import sys
from collections import Counter, defaultdict
from pathlib import Path

from spark_log import (
    Admin,
    Consumer,
    NewTopic,
    Producer,
)
from spark_log.cluster import Cluster
from spark_log.coordinator.offsets import table as offsets_table
from spark_log.delta.delta_log import DeltaLog
from spark_log.errors import SparkLogError
from spark_log.log.clean.cleaner import PartitionCleaner
from spark_log.log.log_start import move_log_start
from spark_log.storage import OFFSETS_TABLE
from tests.record.samples import START_US, record_batch, row

GROUPS = ("first-group", "second-group")

_KINDS = [
    (r".*\.(index|timeindex|snapshot|generation|start)", None),
    (r"meta\.properties", "meta.properties"),
    (r"__cluster_metadata-0/.*\.log", "metadata log"),
    (r"__consumer_offsets/_delta_log/.*\.json", "offsets table: version"),
    (r"__consumer_offsets/_delta_log/.*\.parquet", "offsets table: checkpoint"),
    (r"__consumer_offsets/.*\.parquet", "offsets table: rows"),
    (r"__consumer_groups/.*\.log", "group log"),
    (r".*-\d{20}\.\d+\.log", "rewritten segment"),
    (r".*/\d{20}\.log", "plain segment"),
]


def kind_of(path):
    for pattern, kind in _KINDS:
        found = re.fullmatch(pattern, path)
        if found:
            return kind or found[1]
    return "other"


# --- the root ------------------------------------------------------------------------------------


def make(root):
    """Make a root with every kind of file."""
    with Admin(root) as admin:
        settings = {"index.interval.bytes": "64"}
        compact = {**settings, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
        admin.create_topics(
            [
                NewTopic("plain", topic_configs=settings),
                NewTopic("compact", topic_configs=compact),
            ]
        )
    with Producer(root) as producer:
        for topic in ("plain", "compact"):
            for number in range(60):
                producer.send(topic, b"value %d" % number * 30, key=b"%d" % (number % 7))
                if number % 4 == 3:
                    producer.flush()
    cluster = Cluster(root)
    image = cluster.image()
    for topic in ("plain", "compact"):
        log = cluster.partition_log(image.topic(topic), 0)
        PartitionCleaner(log.replica).clean()
        rows = [row(b"%d" % at * 20, b"%d" % at, None, START_US + at * 1_000) for at in range(100)]
        log.append([record_batch(rows[at : at + 5]) for at in range(0, 100, 5)])  # has indexes
        log.replica.snapshots.write()
        if topic == "plain":
            move_log_start(log.replica, 3)
    for group in GROUPS:
        with Consumer(
            "plain",
            root=root,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            for _ in range(6):
                assert consumer.poll(20_000, max_records=5)
                consumer.commit()
        if group == GROUPS[0]:
            offsets_table.OffsetsTable(cluster).maintain()  # compacts and writes a checkpoint
    forget_spent(cluster, Path(root))


def forget_spent(cluster, root):
    """Remove files that nothing reads any longer: a flip in them would prove nothing."""
    for topic in ("plain", "compact"):
        log = cluster.partition_log(cluster.image().topic(topic), 0)
        live = log.observe().live
        names = {segment.file.name for segment in live.segments}
        for path in (root / log.directory).iterdir():
            is_spent = path.suffix == ".log" and path.name not in names
            if is_spent or (path.suffix == ".snapshot" and int(path.stem) < live.snapshots[-1]):
                path.unlink()
    delta = DeltaLog(cluster.store, OFFSETS_TABLE, cluster.clock)
    delta.refresh()
    checkpoint = delta.last_checkpoint()
    for path in (root / "__consumer_offsets").glob("part-*.parquet"):
        if path.name not in delta.state.files:
            path.unlink()
    for path in (root / "__consumer_offsets" / "_delta_log").glob("*.json"):
        if int(path.stem) <= checkpoint:
            path.unlink()


# --- reads ---------------------------------------------------------------------------------------


def ask(root):
    """Return all results of reading a root by name: a value, or the class of an error."""
    offsets_table._shared_tables.forget()  # noqa: SLF001 - like a new process
    return {name: _answer(question, root) for name, question in QUESTIONS.items()}


def _answer(question, root):
    try:
        return question(root)
    except SparkLogError:
        return SparkLogError


def _records(topic):
    def read(root):
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.image().topic(topic), 0)
        return [
            (offset, str(row))
            for batch in log.scan(log.observe().log_start_offset)
            for offset, row in zip(batch.offsets().tolist(), batch.records.to_pylist(), strict=True)
        ]

    return read


def _lookups(topic):
    def look(root):
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.image().topic(topic), 0)
        view = log.observe()
        summaries, _ = log.segments(view)
        ends = [(each.name, each.end_offset, each.record_count) for each in summaries]
        first = next(iter(log.scan(log.observe().log_start_offset))).records.column("timestamp")[0]
        times = [first.value - 1, first.value, *range(START_US - 1, START_US + 90_000, 7_000)]
        found = [log.offset_for_time(each) for each in times]
        return view.log_start_offset, view.log_end_offset, ends, found

    return look


def _producers(topic):
    def look(root):
        cluster = Cluster(root)
        log = cluster.partition_log(cluster.image().topic(topic), 0)
        return [(id_, entry.epoch, entry.runs) for id_, entry in log.producers().entries()]

    return look


def _topics(root):
    with Admin(root) as admin:
        return str(admin.describe_topics()), sorted(admin.list_topics())


def _committed(root):
    with Admin(root) as admin:
        return [str(sorted(admin.list_group_offsets(group).items())) for group in GROUPS]


def _groups(root):
    with Admin(root) as admin:
        found = admin.describe_groups(GROUPS)
        return sorted(str(each) for each in admin.list_groups()), str(found)


QUESTIONS = {
    "topics": _topics,
    "plain: records": _records("plain"),
    "compact: records": _records("compact"),
    "plain: lookups": _lookups("plain"),
    "compact: lookups": _lookups("compact"),
    "plain: producers": _producers("plain"),
    "compact: producers": _producers("compact"),
    "committed": _committed,
    "groups": _groups,
}


# --- the campaign --------------------------------------------------------------------------------


def main(directory, flips, seed):
    right_root, root = Path(directory) / "right", Path(directory) / "damaged"
    make(str(right_root))
    chosen = random.Random(int(seed))
    files = defaultdict(list)
    for path in sorted(right_root.rglob("*")):
        if path.is_file() and path.stat().st_size:
            files[kind_of(str(path.relative_to(right_root)))].append(path.relative_to(right_root))
    shutil.copytree(right_root, root)
    right = ask(str(root))
    assert SparkLogError not in right.values(), right
    descriptor = os.open(Path(directory) / "progress", os.O_WRONLY | os.O_CREAT)
    report = {}
    for kind, paths in files.items():
        counts, found = Counter(files=len(paths)), []
        for _ in range(int(flips)):
            path = chosen.choice(paths)
            content = bytearray((right_root / path).read_bytes())
            bit = chosen.randrange(8 * len(content))
            content[bit // 8] ^= 1 << bit % 8
            where = f"bit {bit % 8} of byte {bit // 8} of {path}"
            os.pwrite(descriptor, where.ljust(200).encode(), 0)
            (root / path).write_bytes(content)
            answers = {}
            try:
                answers = ask(str(root))
            except Exception as error:  # any other result is a bug
                found.append(f"{where}: {type(error).__name__}: {error}"[:300])
            wrong = [each for each in answers if answers[each] not in (SparkLogError, right[each])]
            found += [f"{where}: {each}: {answers[each]}"[:300] for each in wrong]
            is_refused = SparkLogError in answers.values()
            outcome = "wrong" if wrong or not answers else "refused" if is_refused else "right"
            counts[outcome] += 1
            shutil.rmtree(root)  # readers rebuild indexes and snapshots
            shutil.copytree(right_root, root)
        report[kind] = {"counts": counts, "found": found}
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
