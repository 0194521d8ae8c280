"""A consumer imports no large package: pandas alone takes a third of a second."""

import subprocess
import sys

import pytest

from spark_log import Admin, NewTopic
from tests.consumer.support import append, numbered
from tests.producer.test_imports import UNUSED

READS_ONE = """
import sys
from spark_log import Consumer
with Consumer("t", root=sys.argv[1], auto_offset_reset="earliest") as consumer:
    while not consumer.poll(60_000):
        pass
print(*sorted(sys.modules))
"""


WITH_A_GROUP = """
import sys
from spark_log import Consumer
consumer = Consumer("t", root=sys.argv[1], group_id="g", auto_offset_reset="earliest")
with consumer:
    found = []
    while len(found) < 40:
        found += [each for some in consumer.poll(60_000).values() for each in some]
    consumer.commit()
    consumer.poll_table()
with Consumer("t", root=sys.argv[1], group_id="g") as consumer:  # continues at the committed offset
    consumer.poll()
assert found[0].headers == [("name", b"value")] and found[1].key is None
print(sorted(sys.modules.keys() & {"pandas", "deltalake", "pyspark", "typer"}))
"""


def test_joining_polling_and_committing_import_nothing_that_is_large(tmp_path):
    root = str(tmp_path / "root")
    settings = {"flush.on.append": "false", "snapshot.interval.segments": "2"}
    Admin(root).create_topics([NewTopic("t", topic_configs=settings)])
    headers = [[("name", b"value")], *[None] * 9]
    for first in range(0, 40, 10):
        append(root, numbered(first, first + 10), keys=[b"k", *[None] * 9], headers=headers)
    ran = subprocess.run(
        [sys.executable, "-c", WITH_A_GROUP, root],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (0, "[]\n"), ran.stderr


@pytest.mark.parametrize("stripes", [0, 4])
def test_the_first_poll_needs_no_module_that_others_use(tmp_path, stripes):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t", topic_configs={"stripes": stripes})])
    append(root, [b"value"])
    ran = subprocess.run(
        [sys.executable, "-c", READS_ONE, root],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    taken_home = {"spark_log.log.snapshot.snapshot"} if stripes else set()  # a marker has one
    assert sorted(UNUSED.intersection(ran.stdout.split()) - taken_home) == []
