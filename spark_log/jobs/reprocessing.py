"""Reprocessing of what a log holds: step by step, each step exactly once, from where it stopped.

Driver side; needs no Spark session. A run has a name. What it was begun with, up to where it has
come and where it ends stands where its results are, written together with them: killed at any point
and started again, it goes on behind the last step that is there.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Protocol, Self

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.group.standalone_commits import StandaloneCommits
from spark_log.datasource.options.options import ReadOptions
from spark_log.datasource.read.offset_reader import OffsetReader
from spark_log.datasource.read.offsets import format_offsets, parse_offsets
from spark_log.datasource.stream.read_limits import count_offsets, limit_rate
from spark_log.errors import InvalidOptionError
from spark_log.jobs.delta_rows import open_table
from spark_log.metadata import Cluster, metadata_log
from spark_log.storage import StorageOptions, open_store, storage_time_us
from spark_log.types import OffsetAndMetadata, TopicPartition

_KEY: Final = "spark_log.reprocess"
_NEWEST_COMMITS: Final = 20

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a run stands.

    Attributes:
        name: of the run.
        settings: what it was begun with, apart from offsets: it goes on with the same only.
        starts: its first offset, of each partition.
        reached: the next one to read.
        ends: the one after its last.
        step: number of the last step that is done, -1 before the first.
        token: drawn by who wrote that step.
        written_us: when that one began to write it, microseconds since the epoch, by the clock of
            the root's storage; 0 where nothing depends on it.
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
        """Whether all is read."""
        return not count_offsets(self.reached, self.ends)

    def next_ends(self, most: int | None) -> Offsets:
        """Return where the next step ends, which has about so many offsets at most."""
        return self.ends if most is None else limit_rate(most, self.reached, self.ends)

    def to_json(self) -> str:
        """Return it as it is kept."""
        offsets = {key: format_offsets(getattr(self, key)) for key in ("starts", "reached", "ends")}
        return json.dumps({_KEY: asdict(replace(self, starts={}, reached={}, ends={})) | offsets})

    @classmethod
    def from_json(cls, text: str | None) -> Self | None:
        """Return what was kept, None for what is something else."""
        try:
            document = json.loads(text or "null")
        except ValueError:
            return None
        if not isinstance(document, dict) or _KEY not in document:
            return None
        kept = dict(document[_KEY])
        for key in ("starts", "reached", "ends"):
            kept[key] = parse_offsets(kept[key], key)
        return cls(**kept)


class Target(Protocol):
    """Where results go, and the run's progress with them."""

    def progress(self, name: str) -> Progress | None:
        """Return where a run stands, None for one that has not begun.

        Raises:
            InvalidOptionError: it cannot be told any more.
            StorageError: it cannot be read.
        """

    def begin(self, progress: Progress) -> None:
        """Keep what a run begins with."""

    def write(self, results: DataFrame, progress: Progress) -> int:
        """Write a step's results and the progress behind it, if that step is not there yet.

        Returns:
            How many rows were written.
        """


class Reprocessing:
    """One run: plans steps, and lets a target keep what is done."""

    def __init__(
        self,
        target: Target,
        name: str,
        settings: Mapping[str, str | None],
        options: ReadOptions,
    ) -> None:
        """Begin a run, or go on with it.

        Args:
            target: where results go.
            name: of the run.
            settings: what must be the same when it goes on.
            options: of the read: what a run that begins is about.

        Raises:
            InvalidOptionError: a run of this name was begun with other settings.
            UnknownTopicOrPartitionError, OffsetOutOfRangeError: a range is not there.
        """
        self._target = target
        found = target.progress(name)
        self.is_resumed = found is not None
        if found is None:
            reader = OffsetReader(options)
            starts = reader.starting_offsets(is_batch=True)
            ends = reader.ending_offsets()
            ends = {named: max(start, ends[named]) for named, start in starts.items()}
            found = Progress(name, settings, starts, starts, ends)
            target.begin(found)
        else:
            _check_settings(found, settings)
        self.progress = found

    def run_step(
        self, results_of: Callable[[Offsets, Offsets], DataFrame], most: int | None
    ) -> int:
        """Do the next step.

        Args:
            results_of: makes results of the records from the first offsets to before the second.
            most: about how many offsets it takes; None: all that are left.

        Returns:
            How many rows were written.

        Raises:
            InvalidOptionError: another run of this name did it at the same time.
        """
        before = self.progress
        reached = before.next_ends(most)
        after = replace(before, reached=reached, step=before.step + 1, token=uuid.uuid4().hex)
        written = self._target.write(results_of(before.reached, reached), after)
        self.progress = after
        return written


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """A Delta table: each step is one commit of it, with the progress in its ``userMetadata``.

    Delta leaves out a commit whose application id has its version already, and refuses one of two
    that come at once (``txnAppId``, ``txnVersion``).

    Attributes:
        path: of the table, as Spark takes it.
        storage_options: for looking at it; never shown.
    """

    path: str
    storage_options: StorageOptions = field(repr=False)

    def progress(self, name: str) -> Progress | None:
        """See `Target.progress`: from the commit of the run's last step."""
        table = open_table(open_store(self.path, self.storage_options))
        step = None if table is None else table.transaction_version(_app_id(name))
        if table is None or step is None:
            return None
        for limit in (_NEWEST_COMMITS, None):  # a run's last step is hardly far behind
            for commit in table.history(limit):
                found = Progress.from_json(_user_metadata(commit))
                if found is not None and (found.name, found.step) == (name, step):
                    return found
        raise InvalidOptionError(
            f"step {step} of the run {name!r} is in the Delta table {self.path}, but the commit "
            f"that tells how far it came is not in its history any more; begin another run by "
            f"--name",
            key="name",
        )

    def begin(self, progress: Progress) -> None:
        """See `Target.begin`: the first step's commit will tell."""

    def write(self, results: DataFrame, progress: Progress) -> int:
        """See `Target.write`."""
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
        # Not before: Delta leaves out the write of a step that the table has, and counts nothing.
        return int(counted.get["rows"])


class TopicTarget:
    """A topic: a step that is written again appends nothing twice; progress is a group's offsets.

    For results that are the same when they are made again, in the same tasks (ADR 8). How long a
    run has rested is told by the storage's clock, as the log forgets by that: drivers on machines
    whose clocks are days apart may take turns.
    """

    def __init__(self, cluster: Cluster, topic: str, connection: Mapping[str, str]) -> None:
        """Look at the topic.

        Args:
            cluster: the opened root.
            topic: that results go to.
            connection: options that a write needs.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        config = cluster.topic(topic).config()
        self._remembered_us = config.producer_id_expiration_ms * 1000
        self._cluster = cluster
        self._topic = topic
        self._connection = connection
        self._table = OffsetsTable(cluster)

    def progress(self, name: str) -> Progress | None:
        """See `Target.progress`."""
        committed = self._table.fetch(group_of(name))
        if not committed:
            return None
        found = Progress.from_json(committed[min(committed)].metadata)
        if found is None:
            raise InvalidOptionError(
                f"the group {group_of(name)!r} has offsets that are no run's; take another --name",
                key="name",
            )
        reached = {named: committed[named].offset for named in found.ends}
        found = replace(found, reached=reached)
        rested_us = 0 if found.is_done else self._time_us() - found.written_us
        if rested_us >= self._remembered_us and not found.is_done:
            raise InvalidOptionError(
                f"the run {name!r} has rested for {rested_us // 3_600_000_000} hours: whether the "
                f"results of step {found.step + 1} are in the topic cannot be told any more "
                f"(producer.id.expiration.ms of {self._topic}). Look there, delete the group "
                f"{group_of(name)!r}, and begin another run behind what is there",
                key="name",
            )
        return found

    def begin(self, progress: Progress) -> None:
        """See `Target.begin`."""
        self._commit(replace(progress, written_us=self._time_us()))

    def write(self, results: DataFrame, progress: Progress) -> int:
        """See `Target.write`."""
        # Before the results: the next step's are not older than this.
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
        return storage_time_us(self._cluster.store, metadata_log.DIRECTORY)

    def _commit(self, progress: Progress) -> None:
        positions = {named: OffsetAndMetadata(at) for named, at in progress.reached.items()}
        first = min(positions)
        text = replace(progress, reached={}).to_json()
        positions[first] = OffsetAndMetadata(positions[first].offset, text)
        StandaloneCommits(self._cluster, self._table, group_of(progress.name)).commit(positions)


def group_of(name: str) -> str:
    """Return the consumer group in whose name a run into a topic keeps its progress."""
    return f"reprocess-{name}"


def _app_id(name: str) -> str:
    return f"spark-log/reprocess/{name}"


def _counted(results: DataFrame) -> tuple[Observation, DataFrame]:
    """Return the same results, and what tells how many there were once they are written."""
    counted = Observation()
    return counted, results.observe(counted, F.count(F.lit(1)).alias("rows"))


def _check_settings(found: Progress, settings: Mapping[str, str | None]) -> None:
    for key, value in settings.items():
        before = found.settings.get(key)
        if before != value:
            raise InvalidOptionError(
                f"the run {found.name!r} was begun with {key} {before!r}, and this is {value!r}; "
                f"go on with the same, or begin another run by --name",
                key=key,
            )


def _user_metadata(commit: Mapping[str, Any]) -> str | None:
    value = commit.get("userMetadata")
    return value if isinstance(value, str) else None


def _other_run(name: str) -> InvalidOptionError:
    return InvalidOptionError(
        f"another run of the name {name!r} is at work in the same place: what this one did for the "
        f"last step was left out. Let that one go on",
        key="name",
    )
