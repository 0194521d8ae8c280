"""Pass new records of topics through a function into another topic, exactly once.

The job is a member of the group, as ``consume.py``: several jobs of one group share the partitions.
The function takes a DataFrame of committed records with the columns key, value, topic, partition,
offset, timestamp, timestampType, and returns a DataFrame with the column value and any of key,
partition, headers and timestamp. The results of a batch and its offsets are committed in one
transaction: if jobs are killed at any point, each record is in the output exactly once, as readers
with ``isolation.level=read_committed`` see it.
"""

from __future__ import annotations

import uuid
from typing import Annotated

import typer

from spark_log.cli import JobMemberOptions, Output, Root, run, with_option_groups
from spark_log.datasource import parse_read_options
from spark_log.errors import InvalidOptionError
from spark_log.jobs.group import (
    JobTransactions,
    TransactionalMember,
    TransformProcessor,
    run_group_job,
)
from spark_log.jobs.program import (
    JobReport,
    Transform,
    TransformOption,
    connection_options,
    job_session,
    spark_progress,
)
from spark_log.transaction import batch_timeout_ms


@with_option_groups
def main(
    topics: Annotated[list[str], typer.Argument(help="Topics to read.")],
    root: Root,
    output: Output,
    membership: JobMemberOptions,
    transform: TransformOption,
    to: Annotated[str, typer.Option(metavar="TOPIC", help="Topic to append to.")],
    headers: Annotated[bool, typer.Option(help="Add the column headers.")] = False,
    transactional_id: Annotated[
        str | None,
        typer.Option(
            help="The job's own transactional id. A job that starts with the id of another one "
            "takes over from it. [default: GROUP-NAME if --consumer-props group.instance.id=NAME "
            "is given, else a new one]"
        ),
    ] = None,
    transaction_timeout: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=2**31 - 1,
            metavar="MILLISECONDS",
            help="Time in which a batch has to end (transaction.timeout.ms). [default: 900000, or "
            "the cluster's transaction.max.timeout.ms if that is less]",
        ),
    ] = None,
) -> None:
    """Pass new records of topics through a function into another topic, exactly once.

    The results and the group's offsets are committed in transactions. Several jobs of one group
    share the partitions.
    """
    report = JobReport("transformed")
    function = Transform.load(transform)
    if to in topics:
        raise InvalidOptionError(
            f"--to {to} is also read, so the job would read what it writes; write to another topic",
            key="to",
        )
    group, config = membership.group, membership.config
    cluster = root.cluster()
    cluster.topic(to)
    connection = connection_options(root)
    read = {
        "subscribe": ",".join(topics),
        "group.id": group,
        "isolation.level": "read_committed",
    }
    options = parse_read_options({**connection, **read})
    for name in topics:
        cluster.topic(name)
    own_id = transactional_id or f"{group}-{config.group_instance_id or uuid.uuid4()}"
    timeout_ms = batch_timeout_ms(cluster.image().cluster_config(), transaction_timeout)
    transactions = JobTransactions(cluster, own_id, timeout_ms)
    member = TransactionalMember(
        transactions,
        cluster,
        options,
        config,
        follow=membership.follow,
        max_records=membership.batch_records,
    )
    processor = TransformProcessor(
        function,
        to,
        transactions,
        lambda: job_session("transform"),
        connection,
        group,
        membership.members,
        spark_progress,
        headers=headers,
    )
    report.add(group=group, topics=", ".join(topics), to=to, transactional_id=own_id)
    run_group_job(
        member,
        processor,
        cluster.clock,
        report,
        as_json=output.is_json,
        max_poll_interval_ms=config.max_poll_interval_ms,
        interval_s=membership.interval_s,
    )


if __name__ == "__main__":
    run(main)
