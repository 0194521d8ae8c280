"""Group job whose member task loses its executor; for `test_members_on_cluster`.

python members_job.py MASTER ROOT DIRECTORY
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cluster_job  # type: ignore[import-not-found] # beside this script
from cluster_job import executor_pid, first_time, session
from pyspark import cloudpickle

from spark_log.cluster import Cluster
from spark_log.config import ConsumerConfig
from spark_log.datasource.options.read_options import parse_read_options
from spark_log.jobs.group.batch_processors import DeltaProcessor
from spark_log.jobs.group.group_job import GroupJob
from spark_log.jobs.group.job_member import JobMember
from spark_log.jobs.sink import delta_sink
from spark_log.util.stop_signals import StopSignals


class DyingSink:
    """Delta sink that commits often, and whose executor dies once, after a commit of a task."""

    def __init__(self, sink, directory):
        self._sink, self._directory = sink, directory
        self.version, self.url = sink.version, sink.url

    def append(self, splits, read):
        def dying(split):
            for batch in read(split):
                yield batch
                is_behind = split.partition == 1 and split.start_offset > 0
                if is_behind and first_time(f"{self._directory}/died"):
                    os.kill(executor_pid(), signal.SIGKILL)

        with patch.object(delta_sink, "COMMIT_OFFSETS", 300):
            yield from self._sink.append(splits, dying)


def main():
    master, root, directory = sys.argv[1:]
    cloudpickle.register_pickle_by_value(cluster_job)
    cluster = Cluster(root)
    options = parse_read_options({"path": root, "subscribe": "t", "group.id": "g"})
    config = ConsumerConfig.parse({"auto.offset.reset": "earliest"})
    sink = delta_sink.DeltaSink(f"{directory}/table", {}, "g")
    sink.prepare()
    spark = session(master)
    dying_sink: Any = DyingSink(sink, directory)
    processor = DeltaProcessor(dying_sink, lambda: spark, {"path": root}, "g", 2)
    tally = GroupJob(
        JobMember(cluster, options, config),
        processor,
        cluster.clock,
        stop=StopSignals(),
        max_poll_interval_ms=config.max_poll_interval_ms,
    ).run()
    Path(directory, "tally.json").write_text(json.dumps([tally.records, tally.skipped]))
    spark.stop()


if __name__ == "__main__":
    main()
