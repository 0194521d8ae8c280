"""A producer imports no large package, also when it writes snapshots."""

import subprocess
import sys

from spark_log import Admin, NewTopic

WITH_SNAPSHOTS = """
import sys
from spark_log import Producer
with Producer(sys.argv[1], transactional_id="t", linger_ms=0) as producer:
    producer.init_transactions()
    for _ in range(70):  # the state log writes a snapshot, too
        with producer.transaction():
            producer.send("t", b"value", key=b"k")
print(sorted(sys.modules.keys() & {"pandas", "deltalake", "pyspark", "typer"}))
"""


def test_transactions_import_nothing_that_is_large(tmp_path):
    root = str(tmp_path / "root")
    settings = {"flush.on.append": "false", "snapshot.interval.segments": "2"}
    Admin(root).create_topics([NewTopic("t", topic_configs=settings)])
    ran = subprocess.run(
        [sys.executable, "-c", WITH_SNAPSHOTS, root],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr
