"""Operations of `Admin` on the root, topics, offsets and groups."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

from benchmarks.request_operations.operation import Call, Operation, Root, read
from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    OffsetSpec,
    TopicPartition,
)

CHANGES = 104
"""Number of metadata changes in the root that is opened."""

STRIPED = 1_000
"""Number of partitions of a stripe."""

PARTITIONS = 4
"""Number of partitions of the topic that is described."""

GROUPS = 3
"""Number of groups that are listed."""

_FIRST_MS = 1


@contextmanager
def open_root(root: Root) -> Iterator[Call]:
    """A root after many changes of metadata is opened, and its topics are listed."""
    root.create_topic()
    admin = root.admin()
    for number in range(CHANGES):
        admin.alter_configs([_retention(number)])
    yield lambda: Admin(root.url, storage_options=root.options).list_topics()


@contextmanager
def create_topic(root: Root) -> Iterator[Call]:
    """A topic of one partition is created."""
    root.create_topic()
    admin = root.counted_admin()
    numbers = count()
    yield lambda: admin.create_topics([NewTopic(f"made-{next(numbers)}", 1)])


@contextmanager
def delete_topic(root: Root) -> Iterator[Call]:
    """A topic of one partition with one segment is deleted, with its files."""
    root.create_topic()
    root.send(1)
    admin = root.counted_admin()
    yield lambda: admin.delete_topics(["t"])


@contextmanager
def create_partitions(root: Root) -> Iterator[Call]:
    """A topic gets one more partition."""
    root.create_topic()
    admin = root.counted_admin()
    numbers = count(2)
    yield lambda: admin.create_partitions({"t": next(numbers)})


@contextmanager
def alter_configs(root: Root) -> Iterator[Call]:
    """A setting of a topic is changed."""
    root.create_topic()
    admin = root.counted_admin()
    numbers = count()
    yield lambda: admin.alter_configs([_retention(next(numbers))])


@contextmanager
def describe_configs(root: Root) -> Iterator[Call]:
    """The settings of a topic are described."""
    root.create_topic()
    admin = root.counted_admin()
    yield lambda: admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])


@contextmanager
def _filled(root: Root) -> Iterator[tuple[Admin, list[TopicPartition]]]:
    """Yield a client, and four partitions with a record each."""
    tps = root.create_topic(PARTITIONS)
    root.send(PARTITIONS, partitions=PARTITIONS)
    yield root.counted_admin(), tps


@contextmanager
def describe(root: Root) -> Iterator[Call]:
    """Four partitions are described with their offsets."""
    with _filled(root) as (admin, _):
        yield admin.describe_topics


def list_offsets(spec: int) -> Callable[[Root], AbstractContextManager[Call]]:
    """Offsets of four partitions are requested."""

    @contextmanager
    def prepare(root: Root) -> Iterator[Call]:
        with _filled(root) as (admin, tps):
            yield lambda: admin.list_offsets(dict.fromkeys(tps, spec))

    return prepare


@contextmanager
def list_striped_offsets(root: Root) -> Iterator[Call]:
    """The end offsets of the partitions of a stripe are requested."""
    tps = root.create_topic(STRIPED, stripes=1)
    root.send(3, partitions=STRIPED)
    admin = root.counted_admin()
    specs = dict.fromkeys(tps, OffsetSpec.LATEST)
    admin.list_offsets(specs)
    yield lambda: admin.list_offsets(specs)


@contextmanager
def delete_records(root: Root) -> Iterator[Call]:
    """The oldest record of each of four partitions is deleted."""
    tps = root.create_topic(PARTITIONS)
    root.send(6 * PARTITIONS, partitions=PARTITIONS)
    admin = root.counted_admin()
    offsets = count(1)
    yield lambda: admin.delete_records(dict.fromkeys(tps, next(offsets)))


# --- groups --------------------------------------------------------------------------------------


@contextmanager
def _with_groups(root: Root) -> Iterator[Admin]:
    """Yield a client of a root with some groups, each with a member and a committed offset."""
    root.create_topic()
    root.send(1)
    direct = Root(root.url, root.direct, root.direct)
    members = [direct.consumer("t", group_id=f"g-{number}") for number in range(GROUPS)]
    try:
        for member in members:
            read(member, 1)
            member.commit()
        yield root.counted_admin()
    finally:
        for member in members:
            member.close()


@contextmanager
def list_groups(root: Root) -> Iterator[Call]:
    """Three groups are listed."""
    with _with_groups(root) as admin:
        admin.list_groups()
        yield admin.list_groups


@contextmanager
def describe_groups(root: Root) -> Iterator[Call]:
    """Three groups are described."""
    with _with_groups(root) as admin:
        group_ids = [each.group_id for each in admin.list_groups()]
        yield lambda: admin.describe_groups(group_ids)


@contextmanager
def group_offsets(root: Root) -> Iterator[Call]:
    """The committed offsets of a group are listed."""
    with _with_groups(root) as admin:
        admin.list_groups()
        yield lambda: admin.list_group_offsets("g-0")


def _retention(number: int) -> ConfigResource:
    configs = {"retention.ms": str(86_400_000 + number)}
    return ConfigResource(ConfigResourceType.TOPIC, "t", configs)


_CHANGE = "The client checks the end of the metadata log, puts the record, and puts the checkpoint."

OPERATIONS = (
    Operation(
        f"opening a root after {CHANGES} changes",
        open_root,
        3,
        2,
        "The client reads the quorum's members and the checkpoint at the same time, and then the"
        " end of the metadata log.",
    ),
    Operation("creating a topic", create_topic, 3.5, 3, _CHANGE, repeats=5),
    Operation("create_partitions", create_partitions, 3.5, 3, _CHANGE, repeats=5),
    Operation("alter_configs", alter_configs, 3.5, 3, _CHANGE, repeats=5),
    Operation(
        "deleting a topic of one partition",
        delete_topic,
        13,
        13,
        f"{_CHANGE} It puts the topic's deletion marker. It lists the topic's files, its "
        "witnesses and its stray replicas, deletes the files, and lists again until nothing is "
        "left.",
    ),
    Operation(
        "describe_configs", describe_configs, 1, 1, "The client checks the metadata log.", repeats=5
    ),
    Operation(
        f"describing {PARTITIONS} partitions",
        describe,
        2 * PARTITIONS + 1,
        4,
        "The client checks the metadata, lists each partition, and reads its last segment.",
        repeats=5,
    ),
    Operation(
        f"end offsets of {PARTITIONS} partitions",
        list_offsets(OffsetSpec.LATEST),
        2 * PARTITIONS + 1,
        4,
        "The client checks the metadata, lists each partition, and reads its last segment.",
        repeats=5,
    ),
    Operation(
        f"end offsets of {STRIPED} partitions of a stripe",
        list_striped_offsets,
        2.5,
        2.5,
        "The client checks the metadata, and asks for the next object of the stripe. At first "
        "it also lists the stripe, and reads the objects that are not at home.",
        repeats=5,
    ),
    Operation(
        f"offsets by time of {PARTITIONS} partitions",
        list_offsets(_FIRST_MS),
        2 * PARTITIONS + 1,
        6,
        "The client checks the metadata and lists each partition. It reads the partition's last "
        "segment and, if that is another one, the segment of the time.",
        repeats=5,
    ),
    Operation(
        f"delete_records of {PARTITIONS} partitions",
        delete_records,
        8 * PARTITIONS + 1,
        9,
        "The client checks the metadata. For each partition it reads a listing and the last "
        "segment, and the newest snapshot or else all segments. It puts a snapshot and the "
        "marker of the log's start, reads a listing that shows the marker, and checks the "
        "metadata.",
        repeats=5,
    ),
    Operation(
        f"list_groups, {GROUPS} groups",
        list_groups,
        11,
        4,
        "The client lists the groups. For each group it lists the log and reads the newest "
        "record. At the same time it reads what was committed to the offsets table since it read"
        " the table last.",
    ),
    Operation(
        f"describe_groups, {GROUPS} groups",
        describe_groups,
        2 * GROUPS,
        3,
        "For each group the client lists the log and reads the newest record.",
    ),
    Operation(
        "list_group_offsets",
        group_offsets,
        3,
        3,
        "The client reads the newest state of the offsets table.",
    ),
)
