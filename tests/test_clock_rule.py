"""Nothing reads a wall clock but what is listed here, each with the reason why it may."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

HOME = Path(__file__).parents[1]
PROTOCOL = (HOME / "docs/protocol/clocks.md").read_text(encoding="utf-8")
RULE = "No deletion, expiry or forgetting is decided by a process's own wall clock."

_STAMPS = "stamps records, or what people read in a commit"
_SHOWS = "prints a time or an age"
_STARTS = "where a reader starts that asks for records of the last so many hours"
_IS_CLOCK = "is a clock"

ALLOWED = {
    "spark_log/cli/cluster/cluster_sampler.py": {"ClusterSampler.sample": _SHOWS},
    "spark_log/cli/commands/console_producer.py": {"send_lines": _STAMPS},
    "spark_log/cli/format/consumer_report.py": {
        "ConsumerReport.begin": _SHOWS,
        "ConsumerReport.interval": _SHOWS,
        "ConsumerReport.stop": _SHOWS,
    },
    "spark_log/admin/transactions.py": {"list_transactions": _SHOWS},
    "spark_log/cli/commands/transactions.py": {"describe_transactions": _SHOWS},
    "spark_log/cli/commands/groups_reset.py": {"_time_ms": _STARTS},
    "spark_log/util/clock.py": {"SystemClock": _IS_CLOCK, "SystemClock.time_us": _IS_CLOCK},
    "spark_log/console/views/gateways.py": {"read_gateways_page": _SHOWS},
    "spark_log/console/views/groups.py": {"_ages_ms": _SHOWS},
    "spark_log/console/views/overview.py": {"read_overview": _SHOWS},
    "spark_log/consumer/position/offset_fetcher.py": {"OffsetFetcher.reset_offsets": _STARTS},
    "spark_log/delta/delta_log.py": {"DeltaLog.stage": _STAMPS},
    "spark_log/admin/groups.py": {"GroupManager.lags": _SHOWS},
    "spark_log/admin/offsets_sampler.py": {"OffsetsSampler._offset_lag": _SHOWS},
    "spark_log/coordinator/offsets/commit_queue.py": {"CommitQueue._commit_waiting": _STAMPS},
    "spark_log/coordinator/offsets/creation.py": {"create_table": _STAMPS},
    "spark_log/coordinator/offsets/repair.py": {"OffsetsRepair._write": _STAMPS},
    "spark_log/doctor/checks/clocks.py": {"_ahead_us": "is compared with the storage's, to report"},
    "spark_log/doctor/examination.py": {"Examination.__init__": _SHOWS},
    "spark_log/jobs/sink/delta_rows.py": {"_first_version": _STAMPS},
    "spark_log/jobs/group/job_member.py": {"JobMember._start_offset": _STARTS},
    "spark_log/datasource/write/task_writer.py": {"TaskWriter.__init__": _STAMPS},
    "spark_log/datasource/stream/time_lag.py": {"TimeLag.lag_ms": _SHOWS},
    "spark_log/log/segment/validator.py": {
        "LogValidator._time_limits_us": "refuses records of a wrong time, as a Kafka broker does",
        "LogValidator.validate": _STAMPS,
    },
    "spark_log/log/append/segment_stager.py": {
        "SegmentStager.stage_barrier": _STAMPS,
        "SegmentStager.stage_markers": _STAMPS,
    },
    "spark_log/log/stripe/appender.py": {"_Append.staged": _STAMPS},
    "spark_log/metadata/metadata_log.py": {"MetadataLog._append": _STAMPS},
    "spark_log/log/state_log.py": {"StateLog._append": _STAMPS},
    "spark_log/producer/producer.py": {"Producer.__init__": _STAMPS},
    "spark_log/producer/batch/table_batcher.py": {"send_table": _STAMPS},
    "spark_log/storage/memory.py": {
        "MemoryStore._set": "is a storage: this is the storage's clock"
    },
    "spark_log/storage/storage_time.py": {
        "check_clock_skew": "is compared with the storage's time, to refuse"
    },
    "spark_log/table/committer.py": {"TableCommitter.append": _STAMPS},
    "spark_log/table/rebuild.py": {"rebuild_table": _STAMPS},
    "spark_log/transaction/coordinator.py": {
        "TransactionCoordinator._change.decide_with_time": _STAMPS
    },
}
"""File → function → why it may read a wall clock."""

_READS = re.compile(
    r"(.*\.)?(time_us|time_ns|utcnow)"
    r"|(.*\.)?(datetime|date|Timestamp)\.(now|today)"
    r"|time\.(time|localtime|gmtime|ctime|strftime)"
    r"|(.*\.)?(cleanup_metadata|vacuum)"  # delta-rs deletes by the wall clock of this process
)


def wall_clock_reads(source):
    """Yield the qualified name of each function that reads a wall clock, and the line."""

    def look(node, names):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Attribute) and _READS.fullmatch(ast.unparse(child)):
                yield ".".join(names), child.lineno
            if isinstance(child, ast.ImportFrom) and child.module == "time":
                wanted = {alias.name for alias in child.names} & {"time", "time_ns"}
                yield from ((".".join(names), child.lineno) for _ in wanted)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield from look(child, (*names, child.name))
            else:
                yield from look(child, names)

    yield from look(ast.parse(source), ())


@pytest.fixture(scope="module")
def found():
    """File → function → lines."""
    reads: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted([*HOME.glob("spark_log/**/*.py"), *HOME.glob("jobs/*.py")]):
        if "testing" not in path.parts:  # simulated clocks, and who tests storages
            for name, line in wall_clock_reads(path.read_text(encoding="utf-8")):
                reads[str(path.relative_to(HOME))][name].append(line)
    return reads


def test_the_rule_is_what_the_protocol_says():
    section = PROTOCOL.partition('<a id="c1"></a>')[2].partition("\n## ")[0]
    assert f"**{RULE}**" in section


def test_no_other_function_reads_a_wall_clock(found):
    new = [
        f"{file}:{lines[0]} ({name})"
        for file, functions in found.items()
        for name, lines in functions.items()
        if name not in ALLOWED.get(file, {})
    ]
    assert not new, (
        f"docs/protocol/clocks.md says: {RULE} These read one: {', '.join(new)}. Where something "
        f"is old by what they read, take the storage's time (storage_time.py); else list them here "
        f"with the reason"
    )


def test_nothing_is_listed_that_reads_none(found):
    gone = [
        f"{file} ({name})"
        for file, functions in ALLOWED.items()
        for name in functions
        if name not in found[file]
    ]
    assert not gone


@pytest.mark.parametrize(
    "line",
    [
        "now = self._clock.time_us()",
        "read = clock.time_us",
        "now = time.time()",
        "now = time.time_ns()",
        "from time import time_ns",
        "now = datetime.now(UTC)",
        "now = datetime.datetime.now()",
        "now = pd.Timestamp.now()",
        "table.vacuum(dry_run=False)",
    ],
)
def test_each_way_to_read_one_is_noticed(line):
    source = f"class A:\n    def f(self):\n        {line}\n"
    assert list(wall_clock_reads(source)) == [("A.f", 3)]


@pytest.mark.parametrize(
    "line", ["started = time.perf_counter()", "time_us = 3", "clock.sleep_ms(3)"]
)
def test_other_clocks_are_no_wall_clocks(line):
    assert list(wall_clock_reads(line)) == []
