"""`Admin` on features of the cluster."""

import pytest

from spark_log import Admin, FeatureDescription, NewTopic
from spark_log.errors import InvalidUpdateVersionError


@pytest.fixture(autouse=True)
def a_root(admin):
    admin.create_topics([NewTopic("a")])


def level(root):
    by_groups, by_users, by_stripes, feature = Admin(root).describe_features()
    assert (by_groups.name, by_groups.finalized_level) == ("group.version", 0)
    assert (by_users.name, by_users.finalized_level) == ("scram.version", 0)
    assert (by_stripes.name, by_stripes.finalized_level) == ("stripe.version", 0)
    assert isinstance(feature, FeatureDescription)
    assert (feature.name, feature.max_level, feature.release) == ("table.version", 1, "0.4.0")
    return feature.finalized_level


@pytest.mark.partition_logs_only("stripes finalize a feature")
def test_a_new_cluster_uses_no_feature_and_one_can_be_finalized_once(admin, root):
    assert level(root) == 0
    admin.update_features({"table.version": 1}, validate_only=True)
    assert level(root) == 0
    admin.update_features({"table.version": 1})
    admin.update_features({"table.version": 1})
    assert level(root) == 1


@pytest.mark.partition_logs_only("stripes finalize a feature")
@pytest.mark.parametrize(
    ("updates", "message"),
    [
        ({"table.versoin": 1}, r"no feature 'table\.versoin'; did you mean table\.version\?"),
        ({"table.version": 2}, "level 2; this release knows 1 to 1"),
        ({"table.version": 0}, "level 0; this release knows 1 to 1"),
        ({"table.version": True}, "level True"),
    ],
)
def test_what_is_not_known_is_refused(admin, root, updates, message):
    with pytest.raises(InvalidUpdateVersionError, match=message):
        admin.update_features(updates)
    assert level(root) == 0
