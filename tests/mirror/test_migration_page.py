"""docs/migrating-from-kafka.md: its commands, in their order, with a real Kafka broker."""

import subprocess
import sys

import pytest

from spark_log import Admin
from tests.cli.support import PROJECT
from tests.docs.blocks import blocks
from tests.jobs.conftest import BIN, ENVIRONMENT
from tests.mirror.support import read_log, without_offsets

pytestmark = [pytest.mark.long, pytest.mark.spark]


def test_a_team_moves_there_and_back(kafka, tmp_path, names):
    kafka.create_topic(names.topic)
    kafka.send(names.topic, 20)
    kafka.commit(names.group, {(names.topic, 0): 4, (names.topic, 1): 4})
    root, copy = tmp_path / "log", tmp_path / "copy"
    page = "".join(each.code for each in blocks("docs/migrating-from-kafka.md", "sh"))
    assert page.count("spark-log mirror") >= 8
    here = {
        "localhost:9092": kafka.servers,
        "/data/log": str(root),
        "/data/copy": str(copy),
        "flights": names.topic,
        "billing": names.group,
    }
    for text, replacement in here.items():
        page = page.replace(text, replacement)
    function = f"""spark-log() {{ "{sys.executable}" -m spark_log.cli "$@"; }}
    spark-submit() {{ "{BIN}/spark-submit" --master 'local[2]' "{PROJECT}/$@"; }}"""
    done = subprocess.run(
        ["bash", "-euxc", f"{function}\n{page}"],
        env={**ENVIRONMENT, "PYTHONPATH": str(PROJECT)},
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    in_log = read_log(root, names.topic)
    assert without_offsets(kafka.read(names.topic)) == without_offsets(in_log)
    assert sum(map(len, in_log.values())) == 21
    assert read_log(copy, names.topic) == in_log
    moved = kafka.cluster.group_offsets(names.group)
    assert sum(each.offset for each in moved.values()) == 9  # the page reads one record
    assert moved.keys() == Admin(root).list_group_offsets(names.group).keys()
