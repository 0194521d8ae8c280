"""``spark-log brokers``: storage roots are registered, listed, fenced and unregistered."""

import pytest

from spark_log import Admin
from spark_log.cluster import Cluster


@pytest.fixture
def brokers(root, tmp_path):
    """Broker 1 in rack ``east`` beside the root."""
    Admin(root).register_broker(1, tmp_path / "one", rack="east")


def test_a_root_is_registered(shell, root, tmp_path):
    outcome = shell("brokers", "register", 1, tmp_path / "one", "--rack", "east")
    assert outcome.out == f"Registered broker 1 at {tmp_path / 'one'}.\n"
    broker = Cluster(root).image().broker(1)
    assert (broker.root, broker.rack) == (str(tmp_path / "one"), "east")


def test_a_registration_is_a_document(shell, root, tmp_path):
    document = shell("brokers", "register", 1, tmp_path / "one", "--json").document
    assert document == {
        "broker": 1,
        "root": str(tmp_path / "one"),
        "rack": None,
        "state": "active",
        "fenced": False,
        "epoch": 0,
        "incarnation_id": Cluster(root).image().broker(1).incarnation_id,
        "replicas": 0,
        "in_sync": 0,
        "leaders": 0,
    }


def test_brokers_are_listed(shell, root, brokers, tmp_path):
    lines = shell("brokers", "list").out.splitlines()
    assert [line.split() for line in lines] == [
        ["BROKER", "STATE", "RACK", "ROOT"],
        ["0", "active", str(root)],
        ["1", "active", "east", str(tmp_path / "one")],
    ]
    listed = shell("brokers", "list", "--output", "json").document["brokers"]
    assert [broker["broker"] for broker in listed] == [0, 1]


def test_brokers_are_described(shell, root, brokers, tmp_path):
    cluster = Cluster(root)
    assert shell("brokers", "describe").out == (
        f"ClusterId: {cluster.cluster_id}\n"
        f"\n"
        f"Broker: 0  State: active\n"
        f"Root: {root}\n"
        f"Replicas: 3  InSync: 3  Leaders: 3\n"
        f"\n"
        f"Broker: 1  State: active  Rack: east\n"
        f"Root: {tmp_path / 'one'}\n"
        f"Replicas: 0  InSync: 0  Leaders: 0\n"
        f"Epoch: 0  IncarnationId: {cluster.image().broker(1).incarnation_id}\n"
    )
    document = shell("brokers", "describe", 1, "--json").document
    assert document["cluster_id"] == cluster.cluster_id
    assert [broker["broker"] for broker in document["brokers"]] == [1]


def test_a_broker_is_fenced_and_unfenced(shell, root, brokers):
    assert shell("brokers", "fence", 1).out == "Broker 1 is fenced.\n"
    assert Cluster(root).image().broker(1).fenced
    assert shell("brokers", "unfence", 1).out == "Broker 1 is not fenced.\n"
    assert not Cluster(root).image().broker(1).fenced


def test_the_root_gets_a_rack_and_loses_it(shell, root, brokers):
    assert shell("brokers", "alter", 0, "--rack", "west").out == "Broker 0 is in rack west.\n"
    assert shell("brokers", "describe", 0, "--json").document["brokers"][0]["rack"] == "west"
    assert shell("brokers", "alter", 0, "--rack", "").out == "Broker 0 is in no rack.\n"
    assert Cluster(root).image().broker(0).rack is None


def test_a_broker_is_unregistered(shell, root, brokers):
    assert shell("brokers", "unregister", 1).out == "Unregistered broker 1.\n"
    assert [broker.broker_id for broker in Cluster(root).image().brokers()] == [0]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("fence", 7), "broker 7 is not registered; registered are [0, 1]"),
        (("describe", 7), "broker 7 is not registered; registered are [0, 1]"),
        (("register", 1, "two"), "broker 1 is registered with the root "),
        (("register", 0, "two"), "broker id 0; give 1 to "),
        (("register", 2, ""), "root is missing; give the path or URL"),
        (("alter", 7, "--rack", "a"), "broker 7 is not registered; registered are [0, 1]"),
        (("unregister", 0), "broker 0 is the root of the metadata log"),
    ],
)
def test_a_mistake_is_one_line(shell, brokers, argv, expected):
    outcome = shell("brokers", *argv)
    assert outcome.status == 2
    assert outcome.err.startswith(f"spark-log: error: {expected}")
    assert outcome.err.count("\n") == 1


def test_options_of_its_file_system_are_in_the_properties_file(shell, root, folder):
    (folder / "spark-log.properties").write_text("brokers.1.storage.no_such_option=abracadabra\n")
    outcome = shell("brokers", "register", 1, "s3://bucket/log")
    assert outcome.status == 2
    assert "no_such_option" in outcome.err
    assert "abracadabra" not in outcome.err


@pytest.mark.parametrize("command", ["list", "describe"])
def test_a_rack_cannot_forge_lines_or_control_the_terminal(shell, root, tmp_path, command):
    Admin(root).register_broker(1, tmp_path / "one", rack="a\nBroker: 7\x1b[2J")
    outcome = shell("brokers", command)
    assert "\x1b" not in outcome.out
    assert not any(line.startswith("Broker: 7") for line in outcome.lines)
