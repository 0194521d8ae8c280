"""`Admin` on quotas of client ids."""

import pytest

from spark_log import (
    Admin,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
)
from spark_log.errors import InvalidConfigurationError


class TestClientQuotas:
    @pytest.fixture(autouse=True)
    def a_root(self, admin):
        admin.create_topics([NewTopic("a")])

    def test_are_set_changed_and_removed_and_what_is_not_named_stays(self, admin, root):
        admin.alter_client_quotas(
            {
                None: {"producer_byte_rate": 1_000},
                "loader": {"producer_byte_rate": 5, "consumer_byte_rate": 6},
            }
        )
        admin.alter_client_quotas({"loader": {"producer_byte_rate": 7}})
        assert Admin(root).describe_client_quotas() == {
            None: {"producer_byte_rate": 1_000},
            "loader": {"consumer_byte_rate": 6, "producer_byte_rate": 7},
        }
        assert list(admin.describe_client_quotas()) == [None, "loader"]
        assert list(admin.describe_client_quotas([None, "another"])) == [None]
        admin.alter_client_quotas({"loader": {"producer_byte_rate": None}})
        assert admin.describe_client_quotas(["loader"]) == {"loader": {"consumer_byte_rate": 6}}
        admin.alter_client_quotas({"loader": {"consumer_byte_rate": None}})
        assert admin.describe_client_quotas(["loader"]) == {}

    @pytest.mark.parametrize(
        ("quotas", "message"),
        [
            ({"": {"producer_byte_rate": 1}}, "the client id is empty"),
            ({"b\ud800": {"producer_byte_rate": 1}}, r"the name of a client is 'b\\ud800'"),
            ({"b": {"producer_byte_rate": 0}}, "'producer_byte_rate' is '0', expected int ≥ 1"),
            ({"b": {"producer_byte_rate": -1}}, "is '-1', expected int"),
            ({"b": {"producer_byte_rate": 2**63}}, "expected int"),
            ({"b": {"producer_byte_rate": 1.5}}, "expected int"),
            ({"b": {"producer_byte_rat": 1}}, "did you mean 'producer_byte_rate'"),
            ({"b": {"producer.byte.rate": 1}}, "did you mean 'producer_byte_rate'"),
            ({"b": {"retention.ms": 1}}, "unknown client quota config 'retention.ms'"),
        ],
    )
    def test_mistakes_are_refused_and_nothing_is_changed(self, admin, quotas, message):
        with pytest.raises(InvalidConfigurationError, match=message):
            admin.alter_client_quotas({"a": {"producer_byte_rate": 1}, **quotas})
        assert admin.describe_client_quotas() == {}

    def test_validate_only_changes_nothing(self, admin):
        admin.alter_client_quotas({"a": {"producer_byte_rate": 1}}, validate_only=True)
        assert admin.describe_client_quotas() == {}

    def test_are_described_with_where_they_come_from(self, admin):
        admin.alter_client_quotas({None: {"producer_byte_rate": 8}, "a": {"producer_byte_rate": 9}})
        client = ConfigResourceType.CLIENT
        resources = [ConfigResource(client, name) for name in ("", "a", "b")]
        described = admin.describe_configs(resources)["client"]
        chains = {
            name: [(each.value, each.source) for each in entries["producer_byte_rate"].synonyms]
            for name, entries in described.items()
        }
        of_all = [
            ("8", "DYNAMIC_DEFAULT_CLIENT_QUOTA"),
            (str(2**63 - 1), "DEFAULT_CONFIG"),
        ]
        assert chains == {"": of_all, "a": [("9", "DYNAMIC_CLIENT_QUOTA"), *of_all], "b": of_all}
        entry = described["a"]["consumer_byte_rate"]
        assert (entry.source, entry.is_default) == ("DEFAULT_CONFIG", True)
