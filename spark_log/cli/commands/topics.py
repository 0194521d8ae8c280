"""``spark-log topics``: create, list, describe, alter and delete topics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from spark_log.cli.format import (
    Output,
    count_progress,
    counted,
    partition_document,
    print_json,
    print_note,
    print_partitions,
    print_text,
    print_topic,
    spinner,
    topic_document,
)
from spark_log.cli.options import (
    Root,
    RootOfNewTopic,
    Topic,
    Topics,
    parse_pairs,
    with_option_groups,
)
from spark_log.cli.terminal import is_confirmed, with_examples
from spark_log.errors import (
    InvalidConfigurationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from spark_log.metadata import MetadataImage
from spark_log.types import NewPartitions, NewTopic, PartitionDescription

app = typer.Typer(rich_markup_mode=None)


@app.command("create")
@with_examples(
    "spark-log topics create orders --partitions 4",
    "spark-log topics create latest --config cleanup.policy=compact",
    "spark-log topics create pairs --replica-assignment 0:1,1:2",
)
@with_option_groups
def create_topic(
    topic: Topic,
    root: RootOfNewTopic,
    output: Output,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            help="Number of partitions. [default: num.partitions in the properties file, or 1]",
        ),
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            help="Number of brokers with a replica of each partition. [default: the cluster's "
            "default.replication.factor]",
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID:ID,…",
            help="Brokers of each partition, the preferred leader first, instead of the two "
            "numbers: 0:1,1:2 is two partitions with two replicas each.",
        ),
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option("--config", metavar="KEY=VALUE", help="A setting of the topic. Repeatable."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave a topic that exists unchanged.")
    ] = False,
) -> None:
    """Create a topic, and the root if it does not exist yet."""
    name = topic.name
    configs = parse_pairs("--config", config or [])
    if replica_assignment is None:
        total = root.settings.num_partitions if partitions is None else partitions
        new_topic = NewTopic(name, total, replication_factor, configs)
    elif partitions is None and replication_factor is None:
        assignment = _parse_assignment(replica_assignment)
        new_topic = NewTopic(
            name, len(assignment), None, configs, replica_assignment=dict(enumerate(assignment))
        )
    else:
        raise InvalidConfigurationError(
            "--replica-assignment sets the numbers of partitions and of replicas: leave out "
            "--partitions and --replication-factor"
        )
    document: dict[str, object] = {"topic": name, "root": root.url}
    try:
        topic_id = root.admin().create_topics([new_topic])[name]
    except TopicAlreadyExistsError:
        if not if_not_exists:
            raise
        existing = root.cluster().topic(name)
        document |= {"created": False, "topic_id": existing.topic_id}
        document |= {"partition_count": existing.num_partitions}
        output.answer(f"Topic {name} exists: left unchanged.", document)
        return
    document |= {"created": True, "topic_id": topic_id, "partition_count": new_topic.num_partitions}
    count = counted(new_topic.num_partitions, "partition")
    output.answer(f"Created topic {name} with {count} in {root.url}.", document)


@app.command("list")
@with_examples("spark-log topics list")
@with_option_groups
def list_topics(root: Root, output: Output) -> None:
    """List the names of all topics."""
    names = root.admin().list_topics()
    if not names:
        print_note(f"There are no topics in {root.url}.")
    if names or output.is_json:
        output.answer("\n".join(names), {"topics": names})


@app.command("describe")
@with_examples(
    "spark-log topics describe flights",
    "spark-log topics describe --under-replicated-partitions",
)
@with_option_groups
def describe_topics(
    topics: Topics,
    root: Root,
    output: Output,
    under_replicated: Annotated[
        bool,
        typer.Option(
            "--under-replicated-partitions", help="Only partitions with replicas out of sync."
        ),
    ] = False,
    under_min_isr: Annotated[
        bool,
        typer.Option(
            "--under-min-isr-partitions",
            help="Only partitions with fewer replicas in sync than min.insync.replicas.",
        ),
    ] = False,
    at_min_isr: Annotated[
        bool,
        typer.Option(
            "--at-min-isr-partitions",
            help="Only partitions with as many replicas in sync as min.insync.replicas.",
        ),
    ] = False,
    unavailable: Annotated[
        bool,
        typer.Option("--unavailable-partitions", help="Only partitions without a leader."),
    ] = False,
) -> None:
    """Describe topics: id, settings, partitions.

    Without names all topics are described. Offsets and sizes that cannot be read are shown as -.
    """
    shows = _filter(under_replicated, under_min_isr, at_min_isr, unavailable)
    described = root.admin().describe_topics(topics.names_or_none, with_offsets=shows is None)
    if shows is not None:
        chosen = [
            (topic, partition)
            for topic in described
            for partition in topic.partitions
            if shows(partition)
        ]
        if output.is_json:
            print_json({"partitions": [partition_document(*each) for each in chosen]})
        else:
            print_partitions(chosen)
        return
    if output.is_json:
        print_json({"topics": [topic_document(topic) for topic in described]})
        return
    if not described:
        print_note(f"There are no topics in {root.url}.")
    for number, topic in enumerate(described):
        if number:
            print_text("")
        print_topic(topic)


@app.command("alter")
@with_examples(
    "spark-log topics alter flights --partitions 6",
    "spark-log topics alter flights --partitions 3 --replica-assignment 0,0,1",
    "spark-log topics alter flights --stripes 2",
)
@with_option_groups
def alter_topics(
    topics: Topics,
    root: Root,
    output: Output,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", help="New number of partitions, more than the topics have."),
    ] = None,
    stripes: Annotated[
        int | None,
        typer.Option(
            "--stripes",
            help="New number of stripes, which order the appends of many partitions by one put; 0 "
            "gives each partition a log of its own.",
        ),
    ] = None,
    replica_assignment: Annotated[
        str | None,
        typer.Option(
            "--replica-assignment",
            metavar="ID:ID,…",
            help="Brokers of each partition, the preferred leader first. List those of existing "
            "partitions, too; they are not changed. [default: chosen as for a new topic]",
        ),
    ] = None,
    validate_only: Annotated[
        bool, typer.Option("--validate-only", help="Check everything and change nothing.")
    ] = False,
) -> None:
    """Give topics more partitions, or stripes. For settings use spark-log configs alter.

    Existing records stay in their partitions. With more partitions, new records of a key can go to
    another one than the existing ones. With another number of stripes appends wait until the change
    is complete; run the command again if it was interrupted.
    """
    if (partitions is None) == (stripes is None):
        raise InvalidConfigurationError(
            "what is to be altered? Give --partitions or --stripes, one of them"
        )
    if stripes is not None:
        _alter_stripes(root, output, dict.fromkeys(topics.names, stripes), validate_only)
        return
    assert partitions is not None
    totals = root.admin().create_partitions(
        {
            name: NewPartitions(partitions, _assignment_of_new(root, name, replica_assignment))
            for name in topics.names
        },
        validate_only=validate_only,
    )
    would = "would have" if validate_only else "has"
    text = "\n".join(
        f"Topic {name} {would} {counted(total, 'partition')}." for name, total in totals.items()
    )
    documents = [{"topic": name, "partition_count": total} for name, total in totals.items()]
    output.answer(text, {"topics": documents, "validate_only": validate_only})


@app.command("delete")
@with_examples("spark-log topics delete weather --yes")
@with_option_groups
def delete_topics(
    topics: Topics,
    root: Root,
    output: Output,
    if_exists: Annotated[
        bool, typer.Option("--if-exists", help="Ignore topics that do not exist.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Delete topics and all their records.

    Asks first, on a terminal. Without a terminal, --yes is required.
    """
    names = topics.names
    image = root.cluster().image()
    doomed = _existing(image, names, if_exists)
    question = f"Delete {', '.join(doomed)} and all records in it?"
    if doomed and not yes and not is_confirmed(question):
        print_note("Nothing was deleted.")
        raise typer.Exit(1)
    with spinner(f"Deleting {', '.join(doomed)}"):
        deleted = _delete(root, doomed, if_exists)
    text = f"Deleted {', '.join(deleted)}." if deleted else "No topic to delete."
    output.answer(text, {"deleted": deleted})


def _alter_stripes(
    root: Root, output: Output, topic_stripes: dict[str, int], validate_only: bool
) -> None:
    """Give topics another number of stripes, and print it."""
    described = root.admin().describe_topics(list(topic_stripes), with_offsets=False)
    total = sum(len(each.partitions) for each in described)
    ended = 0
    with count_progress("Changing stripes", total) as show:

        def progress(partitions: int) -> None:
            nonlocal ended
            ended += partitions
            show(ended)

        done = root.admin().alter_stripes(
            topic_stripes, validate_only=validate_only, on_progress=progress
        )
    would = "would have" if validate_only else "has"
    text = "\n".join(
        f"Topic {name} {would} {counted(count, 'stripe') if count else 'no stripes'}."
        for name, count in done.items()
    )
    documents = [{"topic": name, "stripes": count} for name, count in done.items()]
    output.answer(text, {"topics": documents, "validate_only": validate_only})


def _parse_assignment(text: str) -> list[list[int]]:
    """Return the brokers of each partition: ``0:1,1:2`` as in kafka-topics."""
    try:
        return [[int(broker) for broker in part.split(":")] for part in text.split(",")]
    except ValueError:
        raise InvalidConfigurationError(
            f"--replica-assignment is {text!r}; expected the ids of brokers, for each partition "
            f"with colons between them, and commas between partitions: 0:1,1:2"
        ) from None


def _assignment_of_new(root: Root, topic: str, text: str | None) -> list[list[int]] | None:
    """Return the brokers of the partitions that a topic does not have yet."""
    if text is None:
        return None
    return _parse_assignment(text)[root.cluster().topic(topic).num_partitions :]


def _existing(image: MetadataImage, names: list[str], if_exists: bool) -> list[str]:
    """Return the names of existing topics; raise for a missing one, unless ``if_exists``."""
    found = list(dict.fromkeys(names))
    if if_exists:
        return [name for name in found if image.find(name)]
    return [image.topic(name).name for name in found]


def _delete(root: Root, names: list[str], if_exists: bool) -> list[str]:
    admin = root.admin()
    while names:
        try:
            admin.delete_topics(names)
            break
        except UnknownTopicOrPartitionError:
            if not if_exists:
                raise
            # Another process has deleted one of them since the metadata was read.
            names = _existing(root.cluster().image(), names, if_exists)
    return names


def _filter(
    under_replicated: bool, under_min_isr: bool, at_min_isr: bool, unavailable: bool
) -> Callable[[PartitionDescription], bool] | None:
    """Return the test that chooses partitions; None to describe topics with all of them."""
    filters: list[Callable[[PartitionDescription], bool]] = [
        test
        for is_given, test in (
            (under_replicated, lambda partition: partition.is_under_replicated),
            (under_min_isr, lambda partition: partition.is_under_min_isr),
            (at_min_isr, lambda partition: partition.is_at_min_isr),
            (unavailable, lambda partition: partition.is_unavailable),
        )
        if is_given
    ]
    if len(filters) > 1:
        raise InvalidConfigurationError(
            "give one of --under-replicated-partitions, --under-min-isr-partitions, "
            "--at-min-isr-partitions and --unavailable-partitions"
        )
    return filters[0] if filters else None
