"""Makes the Delta log of a topic's table anew, from listings of the topic's logs (protocol B14).

On storage: a version behind all others, which says what the first version of a table says: the
setting, and where each partition begins; its checkpoint, so that nobody reads the damaged versions
before it; and then ``_last_checkpoint``. The version has no files: the next ones add them, as after
a change of the setting (protocol B8). A crash before the checkpoint leaves a log that is still
damaged; a second rebuild succeeds.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Final

from spark_log.delta import (
    TableState,
    parse_version,
    point_to_checkpoint,
    write_checkpoint,
)
from spark_log.errors import (
    AlreadyExistsError,
    InvalidConfigurationError,
    NotFoundError,
)
from spark_log.metadata import check_table_requirements
from spark_log.table.committer import TableCommitter, list_partition
from spark_log.table.listing import log_files
from spark_log.table.partition_table import (
    CleanupPolicy,
    PartitionTable,
    changes,
)
from spark_log.table.schema import TABLE_PROTOCOL, table_metadata, typed_columns
from spark_log.table.skipping_columns import skipping_columns
from spark_log.table.topic_table import (
    TableVersion,
    TopicTable,
    partition_directories,
    table_setting,
)
from spark_log.util import parse_json

_PARTITIONS_TOGETHER: Final = 16

_log = logging.getLogger(__name__)

REBUILD_OPERATION: Final = "REBUILD"
"""The operation, in Delta's history, of the version from which on a Delta log was made anew."""


def rebuild_table(
    table: TopicTable,
    metadata_offset: int,
    on_progress: Callable[[int], None] = lambda partitions: None,
) -> TableVersion:
    """Make the Delta log of a table anew. Others may read and commit meanwhile.

    Args:
        table: the table, with the topic as this process knows it.
        metadata_offset: the offset of the metadata log up to which it knows the topic.
        on_progress: called with the number of partitions whose files are in the table.

    Returns:
        The newest version.

    Raises:
        InvalidConfigurationError: the topic's ``table.format`` is ``none``, or a partition has no
            replica in the cluster's root.
        CorruptRecordError: a segment is damaged.
        StorageError: the storage does not answer; rebuild again.
    """
    topic = table.topic
    setting = table_setting(topic.config(), metadata_offset)
    if setting.policy == CleanupPolicy.NONE:
        raise InvalidConfigurationError(
            f"topic {topic.name!r} has table.format=none, so it has no table to rebuild: set "
            f"table.format=delta first"
        )
    check_table_requirements(topic)
    log, time_ms = table.log, table.clock.time_us() // 1000  # wall clock: Delta's history
    directories = partition_directories(topic)
    actions: list[Mapping[str, object]] = [
        {
            "commitInfo": {
                "timestamp": time_ms,
                "operation": REBUILD_OPERATION,
                "engineInfo": "spark-log",
            }
        },
        TABLE_PROTOCOL.to_action(),
        table_metadata(
            topic.name, setting, time_ms, {}, skipping_columns(typed_columns(setting), ())
        ),
    ]
    for partition, directory in directories.items():
        files = list_partition(
            table.store,
            f"{table.directory}/{directory}",
            table.clock,
            topic.config().file_delete_delay_ms,
        )
        start = log_files(files, None).log_start_offset
        actions += changes(
            PartitionTable(),
            PartitionTable(setting, start, start),
            topic_id=topic.topic_id,
            partition=partition,
            directory=directory,
            data_files={},
            time_ms=time_ms,
        )
    with table.lock:
        state = _put(table, actions, time_ms)
        write_checkpoint(table.store, log.log_directory, state, TABLE_PROTOCOL)
        point_to_checkpoint(table.store, log.log_directory, state)
    _log.info("%s: made its Delta log anew, from version %d on", table.directory, state.version)
    fresh = TopicTable(table.store, topic, table.clock)
    committer = TableCommitter(fresh, metadata_offset)
    numbers = sorted(directories)
    for first in range(0, len(numbers), _PARTITIONS_TOGETHER):
        committer.commit(numbers[first : first + _PARTITIONS_TOGETHER])
        on_progress(min(first + _PARTITIONS_TOGETHER, len(numbers)))
    return committer.table.refresh()


def _put(table: TopicTable, actions: list[Mapping[str, object]], time_ms: int) -> TableState:
    """Put the version behind all others; return its state."""
    log = table.log
    while True:
        number = log.list_log().newest + 1
        removed = [
            {"remove": {"path": path, "deletionTimestamp": time_ms, "dataChange": True}}
            for path in sorted(_known_paths(table))
        ]
        lines = [*actions, *removed]
        body = "".join(f"{json.dumps(line, separators=(',', ':'))}\n" for line in lines).encode()
        with suppress(AlreadyExistsError):
            table.store.put_if_absent(f"{log.log_directory}/{number:020}.json", body)
            state = TableState()
            state.apply(parse_version(table.directory, number, body, TABLE_PROTOCOL))
            return state


def _known_paths(table: TopicTable) -> set[str]:
    """Return the paths of all files that any readable version has, for those who follow the log."""
    paths = set()
    for number in sorted(table.log.list_log().versions):
        for action in _actions(table, number):
            if "add" in action:
                paths.add(action["add"]["path"])
            elif "remove" in action:
                paths.discard(action["remove"]["path"])
    return paths


def _actions(table: TopicTable, number: int) -> Iterator[dict[str, Any]]:
    """Yield the actions of a version; none of a damaged one."""
    path = f"{table.log.log_directory}/{number:020}.json"
    try:
        body = table.store.open_buffer(path).to_pybytes()
        found = [parse_json(line) for line in body.splitlines()]
        yield from (each for each in found if {"path"} <= _keys(each))
    except (NotFoundError, ValueError):  # it was deleted, or is damaged: that is why to rebuild
        return


def _keys(action: Any) -> set[str]:
    content = next(iter(action.values()), None) if isinstance(action, dict) else None
    return set(content) if isinstance(content, dict) else set()
