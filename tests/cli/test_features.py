"""``spark-log features``: describe features and finalize levels."""

import pytest

pytestmark = pytest.mark.usefixtures("root")


def test_levels_are_described_and_upgraded(shell):
    described = shell("features", "describe")
    lines = [line.split()[:4] for line in described.out.splitlines()[1:5]]
    names = "group.version", "scram.version", "stripe.version", "table.version"
    assert lines == [[name, "0", "1", "0.4.0"] for name in names]
    checked = shell("features", "upgrade", "table.version=1", "--validate-only")
    assert checked.out == "table.version: level 1 can be finalized\n"
    done = shell("features", "upgrade", "table.version=1")
    assert done.out == "table.version: level 1 is finalized\n"
    features = shell("features", "describe", "--json").document["features"]
    assert [each["finalized_level"] for each in features] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("argument", "status", "message"),
    [
        ("table.version", 2, "'table.version' is not a feature and its level"),
        ("table.version=x", 2, "'table.version=x' is not a feature and its level"),
        ("table.version=7", 2, "this release knows 1 to 1"),
    ],
)
def test_a_mistake_is_one_line(shell, argument, status, message):
    answer = shell("features", "upgrade", argument)
    assert answer.status == status
    assert message in answer.err
    assert answer.err.count("\n") == 1
