"""Members of the cluster root's quorum."""

import shutil

import pytest

from spark_log import Admin, NewTopic
from spark_log.cluster import Cluster
from spark_log.doctor import CheckStatus, Doctor
from spark_log.storage import QuorumStore, remove_voter
from tests.doctor.support import codes


@pytest.fixture
def members(tmp_path):
    return [str(tmp_path / f"disk{number}") for number in range(3)]


@pytest.fixture
def root(members):
    root = ",".join(members)
    Admin(root).create_topics([NewTopic("t")])
    return root


def look(root, *checks):
    return list(Doctor(lambda: Cluster(root), checks=checks or None).findings())


def test_three_members_that_answer_are_healthy(root):
    assert look(root) == []


def test_a_member_that_lost_its_files(root, members):
    shutil.rmtree(members[2])
    (found,) = look(root, "quorum")
    assert found.problem.code == "quorum-member-lost"
    assert members[2] in found.message
    assert "spark-log quorum remove" in found.remedy
    assert found.command == "spark-log quorum describe"
    assert "2 of 3 count, of which 0 may be lost" in found.evidence


def test_without_a_majority_the_root_cannot_be_read(root, members):
    for member in members[1:]:
        shutil.rmtree(member)
    (found,) = look(root)
    assert found.problem.code == "root-unreadable"


def test_an_even_number_is_told(root, members):
    store = Cluster(root).store
    assert isinstance(store, QuorumStore)
    remove_voter(store, members[2])
    assert codes(look(root, "quorum")) == ["quorum-even"]


def test_a_single_root_has_no_quorum_to_look_at(tmp_path):
    root = str(tmp_path / "root")
    Admin(root).create_topics([NewTopic("t")])
    doctor = Doctor(lambda: Cluster(root), checks=["quorum"])
    assert list(doctor.findings()) == []
    assert doctor.results["quorum"].status is CheckStatus.SKIPPED
