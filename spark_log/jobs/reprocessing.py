"""Reprocessing of a range of the log, in steps that are each applied exactly once.

Runs on the driver without a Spark session. A run has a name. Its settings, offsets and progress are
stored with its results, in the same commit. If it is killed at any point and started again, it
continues after the last step that is stored.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol, Self

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from spark_log.cluster import Cluster
from spark_log.coordinator import OffsetsTable, StandaloneCommits
from spark_log.datasource import (
    OffsetReader,
    ReadOptions,
    count_offsets,
    format_offsets,
    limit_rate,
    parse_offsets,
)
from spark_log.errors import InvalidOptionError
from spark_log.jobs.sink import open_table
from spark_log.metadata import METADATA_DIRECTORY
from spark_log.storage import StorageOptions, open_store, storage_time_us
from spark_log.types import OffsetAndMetadata, TopicPartition
from spark_log.util import parse_json

_log = logging.getLogger(__name__)

_KEY: Final = "spark_log.reprocess"
_RECENT_COMMITS: Final = 20

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run.

    Attributes:
        name: the name of the run.
        settings: the settings other than offsets; a run can only be continued with the same
            settings.
        starts: the first offset of each partition.
        reached: the next offset to read in each partition.
        ends: the offset after the last one of each partition.
        step: the number of the last completed step; -1 before the first.
        token: the random token of the process that wrote the step.
        written_us: the time at which that process began to write the step, in microseconds since
            the epoch, by the clock of the root's storage; 0 for a target that does not need it.
    """

    name: str
    settings: Mapping[str, str | None]
    starts: Offsets
    reached: Offsets
    ends: Offsets
    step: int = -1
    token: str = ""
    written_us: int = 0

    @property
    def is_done(self) -> bool:
        """Whether all offsets are processed."""
        return not count_offsets(self.reached, self.ends)

    def next_ends(self, max_offsets: int | None) -> Offsets:
        """Return the end of the next step, of about ``max_offsets`` offsets; None for all."""
        return (
            self.ends if max_offsets is None else limit_rate(max_offsets, self.reached, self.ends)
        )

    def to_json(self) -> str:
        """Return the progress as JSON, in the format in which it is stored."""
        offsets = {key: format_offsets(getattr(self, key)) for key in ("starts", "reached", "ends")}
        return json.dumps({_KEY: asdict(replace(self, starts={}, reached={}, ends={})) | offsets})

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Parse the result of `to_json`; None for any other text."""
        try:
            document = parse_json(text or "null")
        except ValueError:
            return None
        if not isinstance(document, dict) or _KEY not in document:
            return None
        kept = dict(document[_KEY])
        for key in ("starts", "reached", "ends"):
            kept[key] = parse_offsets(kept[key], key)
        return cls(**kept)


class Target(Protocol):
    """Destination of results, which also stores the run's progress."""

    def progress(self, name: str) -> Progress | None:
        """Return the progress of a run; None if the run has not started.

        Raises:
            InvalidOptionError: the run cannot be continued.
            StorageError: the progress cannot be read.
        """

    def begin(self, progress: Progress) -> None:
        """Store the progress of a new run."""

    def write(self, results: DataFrame, progress: Progress) -> int:
        """Write a step's results together with the progress, unless the step is already stored.

        Returns:
            Number of rows written.
        """


class Reprocessing:
    """A run: plans its steps, and writes their results to a target."""

    def __init__(
        self,
        target: Target,
        name: str,
        settings: Mapping[str, str | None],
        options: ReadOptions,
    ) -> None:
        """Start a run, or continue it.

        Args:
            target: the destination of the results.
            name: the name of the run.
            settings: the settings that must be the same when the run is continued.
            options: the options of the read, which define the range of a new run.

        Raises:
            InvalidOptionError: a run of this name was started with other settings.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: the range does not exist.
        """
        self._target = target
        found = target.progress(name)
        self.is_resumed = found is not None
        if found is None:
            reader = OffsetReader(options)
            starts = reader.starting_offsets(is_batch=True)
            ends = reader.ending_offsets()
            ends = {tp: max(start, ends[tp]) for tp, start in starts.items()}
            found = Progress(name, settings, starts, starts, ends)
            target.begin(found)
            _log.info("run %s begins: %d offsets", name, count_offsets(starts, ends))
        else:
            _check_settings(found, settings)
            _log.info("run %s continues after step %d", name, found.step + 1)
        self.progress = found

    def run_step(
        self, results_of: Callable[[Offsets, Offsets], DataFrame], max_offsets: int | None
    ) -> int:
        """Run the next step.

        Args:
            results_of: the function that returns the results for the records between two sets of
                offsets.
            max_offsets: the approximate number of offsets in the step; None for all.

        Returns:
            Number of rows written.

        Raises:
            InvalidOptionError: another process with the same run name did the step at the same
                time.
        """
        before = self.progress
        reached = before.next_ends(max_offsets)
        after = replace(before, reached=reached, step=before.step + 1, token=uuid.uuid4().hex)
        written = self._target.write(results_of(before.reached, reached), after)
        self.progress = after
        _log.debug("run %s: step %d is stored, %d rows", after.name, after.step + 1, written)
        return written


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table: each step is one commit, with the progress in its ``userMetadata``.

    Delta ignores a commit if its application id already has its version, and refuses one of two
    concurrent commits (``txnAppId``, ``txnVersion``).

    Attributes:
        path: the table's path for Spark.
        storage_options: the options for reading the table without Spark; never shown.
    """

    path: str
    storage_options: StorageOptions = field(repr=False)

    def progress(self, name: str) -> Progress | None:
        """Return the progress of a run, from the commit of its last step.

        Raises:
            InvalidOptionError: the table's history does not contain that commit any more.
            StorageError: the table cannot be read.
        """
        table = open_table(open_store(self.path, self.storage_options))
        step = None if table is None else table.transaction_version(_app_id(name))
        if table is None or step is None:
            return None
        for limit in (_RECENT_COMMITS, None):  # the last step is mostly among recent commits
            for commit in table.history(limit):
                found = Progress.from_json(_user_metadata(commit))
                if found is not None and (found.name, found.step) == (name, step):
                    return found
        raise InvalidOptionError(
            f"step {step} of the run {name!r} is in the Delta table {self.path}, but the commit "
            f"with the run's progress is not in the table's history any more; start another run "
            f"with --name",
            key="name",
        )

    def begin(self, progress: Progress) -> None:
        """Do nothing: the commit of the first step stores the progress."""

    def write(self, results: DataFrame, progress: Progress) -> int:
        """Write a step's results and the progress in one commit of the table.

        Returns:
            Number of rows written.

        Raises:
            InvalidOptionError: another process with the same run name did the step at the same
                time.
        """
        counted, results = _counted(results)
        (
            results.write.format("delta")
            .mode("append")
            .option("txnAppId", _app_id(progress.name))
            .option("txnVersion", progress.step)
            .option("userMetadata", progress.to_json())
            .save(self.path)
        )
        found = self.progress(progress.name)
        if found is None or found.token != progress.token:
            raise _other_run(progress.name)
        # After the check above: for a step that the table has, Delta writes and counts nothing.
        return int(counted.get["rows"])


class TopicTarget:
    """A topic, with the progress in the offsets of a consumer group.

    A step that is written again appends no record twice, if its results are the same and in the
    same tasks (ADR 8). The log forgets producers by the clock of the storage, so this clock also
    measures how long a run was paused: drivers whose clocks differ by days may take turns.
    """

    def __init__(self, cluster: Cluster, topic: str, connection: Mapping[str, str]) -> None:
        """Read the topic's metadata.

        Args:
            cluster: the opened root.
            topic: the topic of the results.
            connection: the options that every write needs.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        config = cluster.topic(topic).config()
        self._remembered_us = config.producer_id_expiration_ms * 1000
        self._cluster = cluster
        self._topic = topic
        self._connection = connection
        self._table = OffsetsTable(cluster)

    def progress(self, name: str) -> Progress | None:
        """Return the progress of a run, from the offsets of its group.

        Raises:
            InvalidOptionError: the group is not a run's, or the run was paused for too long.
            StorageError: the offsets cannot be read.
        """
        committed = self._table.fetch(progress_group(name))
        if not committed:
            return None
        found = Progress.from_json(committed[min(committed)].metadata)
        if found is None:
            raise InvalidOptionError(
                f"the offsets of group {progress_group(name)!r} do not belong to a run; use "
                f"another --name",
                key="name",
            )
        reached = {tp: committed[tp].offset for tp in found.ends}
        found = replace(found, reached=reached)
        rested_us = 0 if found.is_done else self._time_us() - found.written_us
        if rested_us >= self._remembered_us and not found.is_done:
            raise InvalidOptionError(
                f"the run {name!r} was paused for {rested_us // 3_600_000_000} hours, longer than "
                f"producer.id.expiration.ms of {self._topic}, so it is unknown whether the results "
                f"of step {found.step + 1} are in the topic. Check the topic, delete the group "
                f"{progress_group(name)!r}, and start another run after these results",
                key="name",
            )
        return found

    def begin(self, progress: Progress) -> None:
        """Commit the progress of a new run."""
        self._commit(replace(progress, written_us=self._time_us()))

    def write(self, results: DataFrame, progress: Progress) -> int:
        """Append a step's results, then commit the progress.

        Returns:
            Number of rows written.
        """
        # Taken before the write: results of the next step cannot be older than this time.
        progress = replace(progress, written_us=self._time_us())
        counted, results = _counted(results)
        (
            results.write.format("spark_log")
            .options(**self._connection)
            .option("topic", self._topic)
            .option("txnAppId", _app_id(progress.name))
            .option("txnVersion", progress.step)
            .mode("append")
            .save()
        )
        self._commit(progress)
        return int(counted.get["rows"])

    def _time_us(self) -> int:
        return storage_time_us(self._cluster.store, METADATA_DIRECTORY)

    def _commit(self, progress: Progress) -> None:
        positions = {tp: OffsetAndMetadata(at) for tp, at in progress.reached.items()}
        first = min(positions)
        text = replace(progress, reached={}).to_json()
        positions[first] = OffsetAndMetadata(positions[first].offset, text)
        StandaloneCommits(self._cluster, self._table, progress_group(progress.name)).commit(
            positions
        )


def progress_group(name: str) -> str:
    """Return the consumer group whose offsets are the progress of a run into a topic."""
    return f"reprocess-{name}"


def _app_id(name: str) -> str:
    return f"spark-log/reprocess/{name}"


def _counted(results: DataFrame) -> tuple[Observation, DataFrame]:
    """Return results with an observation that has their number of rows after the write."""
    counted = Observation()
    return counted, results.observe(counted, F.count(F.lit(1)).alias("rows"))


def _check_settings(found: Progress, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        before = found.settings.get(key)
        if before != value:
            raise InvalidOptionError(
                f"the run {found.name!r} was started with {key} {before!r}, and now it is "
                f"{value!r}; continue with the same value, or start another run with --name",
                key=key,
            )


def _user_metadata(commit: Mapping[str, Any]) -> str | None:
    value = commit.get("userMetadata")
    return value if isinstance(value, str) else None


def _other_run(name: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"another process runs {name!r} with the same target, and has done the last step; the "
        f"results of this process for that step were discarded. Let the other process continue",
        key="name",
    )
