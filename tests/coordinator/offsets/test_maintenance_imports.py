"""The maintenance of the offsets table imports neither pandas nor deltalake, which take long.

It runs beside a client's own work.
"""

import subprocess
import sys

from spark_log import Admin, NewTopic

PROGRAM = """
import sys
from spark_log import OffsetAndMetadata, TopicPartition
from spark_log.util.clock import SystemClock
from spark_log.coordinator import OffsetsTable
from spark_log.coordinator.offsets import compaction
from spark_log.cluster import Cluster

class LateClock(SystemClock):  # so that rows have wrong timestamps, within max.clock.skew.ms
    def time_us(self):
        return super().time_us() - 120_000_000

compaction._RANGE_ROWS = 2  # several ranges of groups
table = OffsetsTable(Cluster(sys.argv[1], clock=LateClock()))
for number in range(8):
    positions = {TopicPartition("t", at): OffsetAndMetadata(number) for at in range(2)}
    table.commit(f"g{number % 4}", positions)
table.maintain()
table.maintain()
assert len(table.groups_with_offsets()) == 4
print(sorted(sys.modules.keys() & {"asyncio", "deltalake", "pandas", "pyspark", "typer"}))
"""


def test_imports_no_large_library(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", 2)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, root], capture_output=True, text=True, check=False
    )
    assert done.stdout == "[]\n", done.stderr
