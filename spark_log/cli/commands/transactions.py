"""``spark-log transactions``: transactions and their producers, as kafka-transactions."""

from __future__ import annotations

from typing import Annotated

import typer

from spark_log.cli.format import Output, print_json, print_note, print_table
from spark_log.cli.options import (
    PartitionsOption,
    Root,
    Topic,
    Topics,
    complete_transactional_ids,
    with_option_groups,
)
from spark_log.cli.terminal import with_examples
from spark_log.errors import InvalidConfigurationError, InvalidTxnStateError
from spark_log.types import (
    AbortTransactionSpec,
    ActiveProducer,
    HangingTransaction,
    TopicPartition,
    TransactionDescription,
)
from spark_log.util import SYSTEM_CLOCK

app = typer.Typer(rich_markup_mode=None)

_Partition = Annotated[int, typer.Option("--partition", metavar="N", help="Number of a partition.")]


@app.command("list")
@with_examples("spark-log transactions list", "spark-log transactions list --state Ongoing")
@with_option_groups
def list_transactions(
    root: Root,
    output: Output,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only ids in this state: Empty, Ongoing, PrepareCommit, PrepareAbort, "
            "CompleteCommit or CompleteAbort. Repeatable.",
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="ID", help="Only ids of this producer. Repeatable."),
    ] = None,
    duration_filter: Annotated[
        int | None,
        typer.Option(
            "--duration-filter",
            metavar="MS",
            help="Only transactions that began more milliseconds ago. Ended ones are listed, too, "
            "unless --state leaves them out.",
        ),
    ] = None,
    transactional_id_pattern: Annotated[
        str | None,
        typer.Option(
            "--transactional-id-pattern",
            metavar="REGEX",
            help="Only transactional ids that this regular expression matches.",
        ),
    ] = None,
) -> None:
    """List transactional ids with their state.

    The state of an id is that of its newest transaction.
    """
    listed = root.admin().list_transactions(
        state_filters=state,
        producer_id_filters=producer_id,
        duration_filter_ms=duration_filter,
        transactional_id_pattern=transactional_id_pattern,
    )
    if output.is_json:
        names = ("transactional_id", "producer_id", "state")
        rows = [{name: getattr(each, name) for name in names} for each in listed]
        print_json({"transactions": rows})
        return
    print_table(
        ["TransactionalId", "ProducerId", "TransactionState"],
        [[each.transactional_id, each.producer_id, each.state] for each in listed],
    )


@app.command("describe")
@with_examples("spark-log transactions describe orders")
@with_option_groups
def describe_transactions(
    root: Root,
    output: Output,
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TRANSACTIONAL_ID...",
            help="Transactional ids.",
            autocompletion=complete_transactional_ids,
        ),
    ] = None,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(
            "--transactional-id",
            metavar="ID",
            help="A transactional id, as an option. Repeatable.",
            autocompletion=complete_transactional_ids,
        ),
    ] = None,
) -> None:
    """Describe transactional ids.

    The partitions are those of a transaction that is not complete.
    """
    wanted = [*(ids or ()), *(transactional_id or ())]
    if not wanted:
        raise InvalidConfigurationError(
            "which transactional ids? Give TRANSACTIONAL_ID or --transactional-id"
        )
    described = root.admin().describe_transactions(wanted)
    if output.is_json:
        documents = [_description(*pair) for pair in described.items()]
        print_json({"transactions": documents})
        return
    columns = [
        *("TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    ]
    # wall clock: shown to users; nothing is decided by it
    now_ms = SYSTEM_CLOCK.time_us() // 1000
    print_table(columns, [_row(*pair, now_ms) for pair in described.items()])


@app.command("describe-producers")
@with_examples("spark-log transactions describe-producers weather --partition 0")
@with_option_groups
def describe_producers(topic: Topic, root: Root, output: Output, partition: _Partition) -> None:
    """Describe the producers of a partition.

    Shows the producers whose state the partition has, with their open transactions in it.
    """
    tp = TopicPartition(topic.name, partition)
    producers = root.admin().describe_producers([tp])[tp].active_producers
    if output.is_json:
        documents = [_producer(each) for each in producers]
        print_json({"topic": tp.topic, "partition": tp.partition, "producers": documents})
        return
    columns = [
        *("ProducerId", "ProducerEpoch", "LastSequence", "LastTimestamp"),
        *("CurrentTransactionStartOffset", "TransactionalId"),
    ]
    print_table(
        columns,
        [
            ["-" if each is None else each for each in _producer(producer).values()]
            for producer in producers
        ],
    )


@app.command("abort")
@with_examples("spark-log transactions abort weather --partition 0 --start-offset 1")
@with_option_groups
def abort_transaction(
    topic: Topic,
    root: Root,
    output: Output,
    partition: _Partition,
    start_offset: Annotated[
        int | None,
        typer.Option(
            "--start-offset",
            metavar="N",
            help="First offset of the transaction in the partition.",
        ),
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", metavar="ID", help="Id of its producer.")
    ] = None,
    producer_epoch: Annotated[
        int | None, typer.Option("--producer-epoch", metavar="N", help="Epoch of its records.")
    ] = None,
) -> None:
    """Abort a transaction that is open in a partition.

    Name the transaction by its first offset, or by its producer. An undecided transaction is
    aborted in all of its partitions. A committed one cannot be aborted.
    """
    tp, admin = TopicPartition(topic.name, partition), root.admin()
    by_producer = producer_id is not None and producer_epoch is not None
    if by_producer == (start_offset is not None):
        raise InvalidConfigurationError(
            "which transaction? Give --start-offset, or --producer-id with --producer-epoch"
        )
    if start_offset is not None:
        producers = admin.describe_producers([tp])[tp].active_producers
        found = [x for x in producers if x.current_transaction_start_offset == start_offset]
        if start_offset < 0 or not found:
            raise InvalidTxnStateError(
                f"no transaction that is open in {tp} begins at offset {start_offset}"
            )
        producer_id, producer_epoch = found[0].producer_id, found[0].producer_epoch
    assert producer_id is not None
    assert producer_epoch is not None
    admin.abort_transaction(AbortTransactionSpec(tp, producer_id, producer_epoch))
    output.answer(
        f"Aborted the transaction of producer {producer_id}, epoch {producer_epoch}.",
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "producer_id": producer_id,
            "producer_epoch": producer_epoch,
        },
    )


@app.command("find-hanging")
@with_examples("spark-log transactions find-hanging", "spark-log transactions find-hanging weather")
@with_option_groups
def find_hanging(
    topics: Topics,
    root: Root,
    output: Output,
    partition: PartitionsOption = None,
) -> None:
    """Find transactions that no producer will end.

    Such a transaction is open in a partition, although the state log of its producer says that the
    producer's transactions are complete. A reader with read_committed that waits for it aborts it;
    so does spark-log transactions abort. Without names the partitions of all topics are searched.
    """
    image = root.cluster().image()
    wanted = [
        TopicPartition(name, number)
        for name in topics.given or [each.name for each in image.topics()]
        for number in sorted(partition or image.topic(name).partitions)
    ]
    found = root.admin().find_hanging_transactions(wanted)
    if output.is_json:
        print_json({"transactions": [_hanging(each) for each in found]})
        return
    if not found:
        print_note("No transaction hangs.")
        return
    columns = [
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "StartOffset", "LastTimestamp"),
        "TransactionalId",
    ]
    rows = [["-" if each is None else each for each in _hanging(one).values()] for one in found]
    print_table(columns, rows)


def _description(transactional_id: str, described: TransactionDescription) -> dict[str, object]:
    start_ms = described.transaction_start_time_ms
    return {
        "transactional_id": transactional_id,
        "producer_id": described.producer_id,
        "producer_epoch": described.producer_epoch,
        "state": described.state,
        "transaction_timeout_ms": described.transaction_timeout_ms,
        "transaction_start_time_ms": None if start_ms < 0 else start_ms,
        "topic_partitions": [
            {"topic": each.topic, "partition": each.partition}
            for each in sorted(described.topic_partitions)
        ],
        "participants": list(described.participants),
        "groups": list(described.groups),
        "batch_id": None if described.batch_id < 0 else described.batch_id,
    }


def _row(transactional_id: str, described: TransactionDescription, now_ms: int) -> list[object]:
    start_ms = described.transaction_start_time_ms
    has_ended = described.state.startswith("Complete")
    return [
        transactional_id,
        described.producer_id,
        described.producer_epoch,
        described.state,
        described.transaction_timeout_ms,
        "-" if start_ms < 0 else start_ms,
        "-" if start_ms < 0 or has_ended else now_ms - start_ms,
        ",".join(f"{each.topic}-{each.partition}" for each in sorted(described.topic_partitions)),
    ]


def _producer(producer: ActiveProducer) -> dict[str, object]:
    start = producer.current_transaction_start_offset
    return {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_sequence": producer.last_sequence,
        "last_timestamp": producer.last_timestamp,
        "current_transaction_start_offset": None if start < 0 else start,
        "transactional_id": producer.transactional_id,
    }


def _hanging(hanging: HangingTransaction) -> dict[str, object]:
    return {
        "topic": hanging.topic_partition.topic,
        "partition": hanging.topic_partition.partition,
        "producer_id": hanging.producer_id,
        "producer_epoch": hanging.producer_epoch,
        "start_offset": hanging.start_offset,
        "last_timestamp": hanging.last_timestamp,
        "transactional_id": hanging.transactional_id,
    }
