"""Roots that an old release wrote are read, appended to and cleaned, by either of the two."""

import pytest

from tests.releases.conftest import COMMITS, NEWEST_IS_QUICK
from tests.releases.old_client import COMPACTED, TOPIC

IN_LONG = {"0.2"}
"""Releases of the long tests alone; the quick ones run this one beside the present release
(`test_together.py`), and the oldest and the newest here, of which one has the test that takes
longest."""


@pytest.fixture(
    params=[
        pytest.param(name, marks=pytest.mark.long) if name in IN_LONG else name for name in COMMITS
    ]
)
def old(releases, request):
    return releases[request.param]


@pytest.fixture
def present(releases):
    return releases["present"]


@pytest.fixture
def root(old, tmp_path):
    root = tmp_path / "log"
    old.client("create", root)
    return root


def test_the_present_release_reads_the_same_records(old, present, root):
    for topic in (TOPIC, COMPACTED):
        assert present.client("read", root, topic=topic) == old.client("read", root, topic=topic)
    assert len(present.client("read", root, topic=TOPIC)) == 200


def test_a_group_goes_on_where_the_old_release_committed(present, root):
    facts = present.client("consume", root, group="copy", stop_after=80)
    values = {value for fact in facts for _, _, value in fact["read"]}
    assert len(values) == 80  # 120 of the 200 were committed before, and none of these is read


@pytest.mark.parametrize("old", NEWEST_IS_QUICK, indirect=True)
def test_the_old_release_reads_what_the_present_one_cleaned_and_appended(old, present, root):
    for release in (present, old, present):
        sent = release.client("produce", root, name=release.name, count=10)
        assert [fact["offset"] for fact in sent if fact["partition"] == 0] == [
            fact["offset"] for fact in sent if fact["partition"] == 1
        ]
        assert release.command("clean", TOPIC, COMPACTED, "--root", root).returncode == 0
    flights = present.client("read", root, topic=TOPIC)
    assert flights == old.client("read", root, topic=TOPIC)
    assert [fact["offset"] for fact in flights] == 2 * list(range(115))
    airports = present.client("read", root, topic=COMPACTED)
    assert airports == old.client("read", root, topic=COMPACTED)
    assert {fact["value"] for fact in airports} >= {str(n) for n in range(193, 200)}
    assert len(airports) < 200
    verified = present.command("verify", "--root", root)
    assert verified.returncode == 0, verified.stdout
