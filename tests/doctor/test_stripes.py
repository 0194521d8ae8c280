"""Findings about stripes: not taken home, a missing object, a damaged home marker."""

from pathlib import Path

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.doctor import Limits
from tests.doctor.support import DAY_MS, append


@pytest.fixture
def striped(patient):
    """A cluster with the topic ``orders`` of two partitions in one stripe, of four objects."""
    Admin(patient.root).create_topics([NewTopic("orders", 2, topic_configs={"stripes": 1})])
    cluster = Cluster(patient.root, clock=patient.clock)
    for partition in (0, 1):
        append(cluster, b"a", b"b", topic="orders", partition=partition)
    return cluster


def stripe_of(cluster):
    return cluster.stripe(cluster.topic("orders"), 0)


def file_of(cluster, number, *, is_home=False):
    return Path(cluster.root) / stripe_of(cluster).directory.file_path(number, is_home=is_home)


class TestNotHome:
    def test_old_objects_are_found_until_they_are_at_home(self, patient, striped, clock):
        assert patient.findings() == []
        clock.advance_ms(DAY_MS + 3_600_000)
        (found,) = patient.findings("stripes")
        assert found.problem.code == "stripe-not-home"
        assert found.subject.text == "stripe 0 of topic orders"
        assert found.message.startswith("4 objects (")
        assert found.message.endswith("are not at home, the oldest since 1 d 1 h")
        assert found.command == "spark-log clean orders"
        stripe_of(striped).take_home()
        assert patient.findings("stripes") == []

    def test_very_many_objects_are_found_at_once(self, patient, striped):
        limits = Limits(objects_not_home=3)
        assert patient.codes("stripes", limits=limits) == ["stripe-not-home"]
        stripe_of(striped).take_home()
        assert patient.findings("stripes", limits=limits) == []

    def test_entries_in_a_stripe_are_no_segments_that_wait_for_a_merge(self, patient, striped):
        limits = Limits(small_segments=1, overdue_ms=DAY_MS)
        assert patient.findings("cleaning", limits=limits) == []


class TestDamaged:
    def test_a_missing_object(self, patient, striped):
        file_of(striped, 2).unlink()
        found = [each for each in patient.findings() if each.problem.code == "stripe-damaged"]
        (finding,) = found
        assert finding.message == "object 2 is missing, and the stripe reaches object 3"

    def test_a_damaged_home_marker(self, patient, striped):
        stripe_of(striped).take_home()
        path = file_of(striped, 4, is_home=True)
        path.write_bytes(path.read_bytes()[:-10])
        (finding,) = patient.findings("stripes")
        assert finding.problem.code == "stripe-damaged"
        assert "its newest home marker cannot be read" in finding.message

    def test_objects_below_the_marker_may_be_gone(self, patient, striped):
        stripe_of(striped).take_home()
        file_of(striped, 1).unlink()
        assert patient.findings() == []
