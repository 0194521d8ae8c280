"""Checks of the topics that are Delta tables: that they grow, and that only spark-log writes them.

The check reads the newest version of each table, its newest commits, and a listing of each of its
partitions. ``spark-log table verify`` compares the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Final

from spark_log.cluster import TopicTables
from spark_log.doctor.check import Check
from spark_log.doctor.examination import Examination
from spark_log.doctor.finding import (
    Finding,
    Problem,
    Severity,
    Subject,
    duration_text,
    shell_command,
    size_text,
)
from spark_log.errors import NotFoundError, StorageError
from spark_log.log import LogView
from spark_log.metadata import ROOT_BROKER_ID, TopicImage
from spark_log.table import (
    REBUILD_OPERATION,
    CleanupPolicy,
    PartitionTable,
    TableVersion,
    left_data_files,
)
from spark_log.types import TopicPartition
from spark_log.util import parse_json

TABLE_DAMAGED = Problem(
    "table-damaged",
    Severity.ERROR,
    "The Delta log of a topic's table cannot be read, or another program has changed it: nothing "
    "is committed to the table, and no Parquet file is deleted. The log itself is not affected.",
)
TABLE_FILE_MISSING = Problem(
    "table-file-missing",
    Severity.ERROR,
    "The newest version of a topic's table has a Parquet file that does not exist. The file was "
    "part of the log, too.",
)
TABLE_BEHIND = Problem(
    "table-behind",
    Severity.WARNING,
    "Records should have been in a topic's table long ago: no cleaner runs, or it cannot convert "
    "or commit them.",
)
TABLE_NOT_ENDED = Problem(
    "table-not-ended",
    Severity.WARNING,
    "A topic is no table any more by its settings, and its table still has files: programs that "
    "read the table get old records.",
)
TABLE_FOREIGN_FILES = Problem(
    "table-foreign-files",
    Severity.INFO,
    "Data files that no version has lie in a topic's directory: another program tried to write to "
    "the table, and was refused.",
)

_ENGINE: Final = "spark-log"
_COMMITS: Final = 20
"""Maximum number of a table's newest versions whose writers are looked up."""


class TablesCheck(Check):
    """Reads the newest version of each topic's table, and lists its partitions."""

    name: ClassVar[str] = "tables"
    title: ClassVar[str] = "topics that are Delta tables"
    problems: ClassVar[tuple[Problem, ...]] = (
        TABLE_DAMAGED,
        TABLE_FILE_MISSING,
        TABLE_BEHIND,
        TABLE_NOT_ENDED,
        TABLE_FOREIGN_FILES,
    )

    def findings(self, examination: Examination) -> Iterator[Finding]:
        """Return findings about tables; asks nothing of the storage if no topic ever had one."""
        if not examination.image.may_have_tables:
            return
        tables = TopicTables(examination.cluster)

        def check(topic: TopicImage) -> list[Finding]:
            return list(_TopicExamination(examination, tables, topic).findings())

        for _, found in examination.map(check, examination.topics):
            yield from found


class _TopicExamination:
    """The table of one topic."""

    def __init__(self, examination: Examination, tables: TopicTables, topic: TopicImage) -> None:
        self._examination = examination
        self._tables = tables
        self._topic = topic
        self._store = examination.cluster.store
        self._subject = Subject.of_topic(topic.name)
        self._log_directory = f"{topic.directory}/_delta_log"

    def findings(self) -> Iterator[Finding]:
        try:
            version = self._read()
        except StorageError as error:
            if error.retriable:
                raise
            yield self._damaged(str(error), self._log_directory)
            return
        is_wanted = self._topic.config().table_format != "none"
        if version.number >= 0:
            yield from self._foreign(version)
            yield from self._left()
        if version.is_on and version.data_files and not is_wanted:
            yield TABLE_NOT_ENDED.finding(
                self._subject,
                f"table.format is none, and version {version.number} of its table has "
                f"{len(version.data_files):,} files",
                remedy="Clean the topic, which ends the table",
                command=shell_command("clean", self._topic.name),
                evidence=self._log_directory,
            )
        for number in sorted(version.partitions):
            yield from self._partition(number, version, is_wanted=is_wanted)

    def _read(self) -> TableVersion:
        version = self._tables.read(self._examination.image, self._topic)
        assert version is not None
        return version

    def _damaged(self, message: str, evidence: str) -> Finding:
        return TABLE_DAMAGED.finding(
            self._subject,
            message,
            remedy="Find out which program wrote there, and stop it. Then make the Delta log anew "
            "from the files of the log",
            command=shell_command("table", "rebuild", self._topic.name),
            evidence=evidence,
        )

    # --- other programs --------------------------------------------------------------------------

    def _foreign(self, version: TableVersion) -> Iterator[Finding]:
        paths = version.foreign_paths
        if paths:
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            yield self._damaged(
                f"another program has added {paths[0]}{more} to its table", self._log_directory
            )
            return
        for number in sorted(version.partitions):
            try:
                version.check_is_whole(self._topic, number)
            except StorageError as error:
                yield self._damaged(str(error), self._log_directory)
                return
        for number, engine in self._foreign_commits(version.number):
            yield self._damaged(
                f"version {number} of its table was committed by {engine}",
                f"{self._log_directory}/{number:020}.json",
            )

    def _foreign_commits(self, newest: int) -> Iterator[tuple[int, str]]:
        """Yield the newest versions, back to a rebuild, that another program has committed."""
        for number in range(newest, max(-1, newest - _COMMITS), -1):
            try:
                body = self._store.open_buffer(f"{self._log_directory}/{number:020}.json")
            except NotFoundError:  # deleted after its retention
                return
            try:
                actions = [parse_json(line) for line in body.to_pybytes().splitlines()]
                known = [each["commitInfo"] for each in actions if "commitInfo" in each]
                infos = [(info.get("engineInfo"), info.get("operation")) for info in known]
            except (AttributeError, TypeError, ValueError):  # older than what readers begin with
                return
            for engine, _ in infos:
                if engine != _ENGINE:
                    yield number, f"{engine or 'a program that does not say its name'}"
            if (_ENGINE, REBUILD_OPERATION) in infos:
                return

    def _left(self) -> Iterator[Finding]:
        committer = self._tables.committer(self._examination.image, self._topic)
        files = list(left_data_files(committer.table))
        if files:
            size = size_text(sum(file.size_bytes for file in files))
            yield TABLE_FOREIGN_FILES.finding(
                self._subject,
                f"its directory has data files of another program ({len(files):,}, {size}), "
                f"such as {files[0].path}",
                remedy="Find out which program tries to write to the table. A cleaner deletes the "
                "files after a day",
                evidence=f"a listing of {self._topic.directory}",
            )

    # --- partitions ------------------------------------------------------------------------------

    def _partition(
        self, number: int, version: TableVersion, *, is_wanted: bool
    ) -> Iterator[Finding]:
        tp = TopicPartition(self._topic.name, number)
        log = self._examination.cluster.replica_log(self._topic, number, ROOT_BROKER_ID)
        table = version.partitions[number]
        listed = {file.name for file in self._store.list(log.files.path)}
        missing = [name for name in table.files if name.file_name not in listed]
        if missing and self._read().number == version.number:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            yield TABLE_FILE_MISSING.finding(
                Subject.of_partition(tp),
                f"version {version.number} of the table has {missing[0].file_name}{more}, and the "
                f"file does not exist",
                remedy="Find out who deleted it, and restore it from a replica or a backup",
                command=shell_command("verify", self._topic.name, "--partition", number),
                evidence=f"a listing of {log.files.path}",
            )
        elif is_wanted:
            yield from self._behind(tp, table, log.observe())

    def _behind(
        self, tp: TopicPartition, table: PartitionTable, view: LogView
    ) -> Iterator[Finding]:
        """Yield a finding if segments behind the table's end are old.

        Of a compacted topic only Parquet segments count: the others wait for a compaction, which
        has a check of its own.
        """
        config, limits = self._topic.config(), self._examination.limits
        now_us = self._examination.now_us
        before_us = now_us - (limits.overdue_ms + config.table_commit_interval_ms) * 1000
        is_compacted = CleanupPolicy.COMPACT in (table.setting.policy, *config.cleanup_policy)
        waiting = [
            segment
            for segment in view.live.segments
            if segment.end_offset is not None
            and segment.end_offset > table.end
            and segment.file.modified_us <= before_us
            and (segment.name.is_compacted or not is_compacted)
        ]
        if not waiting:
            return
        age = duration_text(now_us - min(segment.file.modified_us for segment in waiting))
        cleaned_us = max(
            (each.file.modified_us for each in view.live.segments if each.name.last_offset),
            default=0,
        )
        is_cleaned = cleaned_us > before_us
        though = (
            f", though a cleaner rewrote a segment {duration_text(now_us - cleaned_us)} ago"
            if is_cleaned
            else ""
        )
        yield TABLE_BEHIND.finding(
            Subject.of_partition(tp),
            f"its table ends at {table.end:,} and its log at {view.log_end_offset:,}, and "
            f"{len(waiting):,} segments have waited for up to {age}{though}",
            remedy="Clean the topic and read its errors; an open transaction holds the table back, "
            "too (the check transactions)"
            if is_cleaned
            else "Let a cleaner run every hour",
            command=shell_command("clean", self._topic.name),
            evidence=f"the table, and a listing of {len(view.live.segments):,} segments",
        )
