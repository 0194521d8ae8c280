"""``spark-log configs``: settings of topics described and altered."""

import json

import pytest

from spark_log import (
    Admin,
    Consumer,
    GroupMaxSizeReachedError,
    InvalidSessionTimeoutError,
    NewTopic,
)
from spark_log.cluster import Cluster
from tests.docs.blocks import block


@pytest.fixture
def admin(root):
    return Admin(root)


def overrides(admin, name="flights"):
    return admin.describe_topics([name])[0].configs


class TestDescribe:
    def test_shows_what_topics_have_of_their_own_and_where_from(self, shell, root):
        outcome = shell("configs", "describe", "weather")
        assert (outcome.status, outcome.err) == (0, "")
        assert [line.split() for line in outcome.lines] == [
            ["TOPIC", "KEY", "VALUE", "SOURCE", "DEFAULT", "TYPE"],
            ["weather", "flush.on.append", "false", "DYNAMIC_TOPIC_CONFIG", "true", "BOOLEAN"],
            ["weather", "index.interval.bytes", "1", "DYNAMIC_TOPIC_CONFIG", "4096", "INT"],
        ]

    def test_of_all_topics_where_none_is_named(self, shell, root):
        configs = shell("configs", "describe", "--json").document["configs"]
        assert [entry["topic"] for entry in configs] == ["flights"] * 2 + ["weather"] * 2

    def test_with_all_shows_defaults_too(self, shell, root):
        configs = shell("configs", "describe", "weather", "--all", "--json").document["configs"]
        by_name = {entry["name"]: entry for entry in configs}
        meaning = by_name["segment.bytes"].pop("documentation")
        assert meaning.startswith("Maximum size of a segment file in bytes")
        assert by_name["segment.bytes"] == {
            "topic": "weather",
            "name": "segment.bytes",
            "value": "1073741824",
            "source": "DEFAULT_CONFIG",
            "default": "1073741824",
            "is_default": True,
            "is_sensitive": False,
            "is_read_only": False,
            "type": "INT",
        }
        assert by_name["flush.on.append"]["source"] == "DYNAMIC_TOPIC_CONFIG"

    def test_says_where_all_is_as_by_default(self, shell, root, admin):
        shell("topics", "create", "plain")
        outcome = shell("configs", "describe", "plain")
        assert (outcome.status, outcome.out) == (0, "")
        assert outcome.err == "All settings have their default values; --all shows them.\n"
        assert shell("configs", "describe", "plain", "--json").document == {"configs": []}

    def test_takes_the_names_of_kafka_configs(self, shell, root):
        argv = ["configs", "describe", "--entity-type", "topics", "--entity-name", "weather"]
        assert shell(*argv).out == shell("configs", "describe", "weather").out

    def test_of_what_is_not_there_is_a_mistake(self, shell, root):
        assert "did you mean weather?" in shell("configs", "describe", "wether").error
        outcome = shell("configs", "describe", "--entity-type", "users")
        assert (outcome.status, outcome.out) == (2, "")
        assert "'users' is not" in outcome.error


CLUSTER = ["--entity-type", "brokers", "--entity-default"]


class TestLimitsOfGroups:
    def test_are_the_clusters_and_count_for_all_who_join(self, shell, root):
        argv = ["configs", "alter", *CLUSTER, "--add-config"]
        outcome = shell(*argv, "group.max.size=1,group.min.session.timeout.ms=9000")
        assert (outcome.status, outcome.out, outcome.err) == (0, "Altered <default>.\n", "")
        outcome = shell("configs", "describe", *CLUSTER)
        source = "DYNAMIC_DEFAULT_BROKER_CONFIG"
        assert [line.split() for line in outcome.lines] == [
            ["BROKER", "KEY", "VALUE", "SOURCE", "DEFAULT", "TYPE"],
            ["<default>", "group.max.size", "1", source, "2147483647", "INT"],
            ["<default>", "group.min.session.timeout.ms", "9000", source, "6000", "INT"],
        ]
        with (
            Consumer("weather", root=root, group_id="g", session_timeout_ms=8000) as impatient,
            Consumer("weather", root=root, group_id="g") as first,
            Consumer("weather", root=root, group_id="g") as second,
        ):
            with pytest.raises(InvalidSessionTimeoutError, match="8000, expected 9000"):
                impatient.poll()
            first.poll()
            with pytest.raises(GroupMaxSizeReachedError):
                second.poll()
            assert shell(*argv, "group.max.size=2").status == 0
            second.poll()

    def test_are_set_as_the_documentation_says(self, shell, root):
        for line in block("docs/consumer-groups.md", "group.max.size").splitlines():
            outcome = shell(*line.split()[1:])
            assert outcome.status == 0, outcome.err
        assert ["<default>", "group.max.size", "100"] in [row.split()[:3] for row in outcome.lines]

    def test_the_wait_for_the_first_members_is_set_as_the_documentation_says(self, shell, root):
        (line,) = block("docs/consumer-groups.md", "rebalance.delay.ms=500").splitlines()
        outcome = shell(*line.split()[1:])
        assert outcome.status == 0, outcome.err
        config = Cluster(root).image().cluster_config()
        assert config.group_initial_rebalance_delay_ms == 500

    def test_in_json_have_the_empty_name(self, shell, root):
        argv = ["configs", "alter", *CLUSTER, "--json", "--add-config", "group.max.size=3"]
        assert shell(*argv).document["brokers"] == [""]
        (entry,) = shell("configs", "describe", *CLUSTER, "--json").document["configs"]
        assert (entry["broker"], entry["name"], entry["value"]) == ("", "group.max.size", "3")

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            ([*CLUSTER, "--add-config", "group.max.syze=3"], "did you mean 'group.max.size'?"),
            ([*CLUSTER, "--add-config", "segment.bytes=2097152"], "unknown cluster config"),
            (
                [*CLUSTER, "--add-config", "group.max.session.timeout.ms=10"],
                "group.min.session.timeout.ms is 6000, more than",
            ),
            (
                [*CLUSTER, "--add-config", "group.consumer.min.heartbeat.interval.ms=20000"],
                "no group could have an interval of its own; set both",
            ),
            (["0", *CLUSTER, "--add-config", "group.max.size=3"], "broker '0' has no configs"),
            (["--entity-default", "--add-config", "group.max.size=3"], "or name topics"),
        ],
    )
    def test_mistakes_are_refused(self, shell, root, argv, message):
        outcome = shell("configs", "alter", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error


GROUPS = ["--entity-type", "groups"]


class TestTimeoutsOfGroups:
    def test_are_set_described_with_their_source_and_removed(self, shell, root):
        argv = ["configs", "alter", *GROUPS, "--entity-name", "billing"]
        outcome = shell(*argv, "--add-config", "consumer.session.timeout.ms=50000")
        assert (outcome.status, outcome.out, outcome.err) == (0, "Altered billing.\n", "")
        rows = [line.split()[:4] for line in shell("configs", "describe", *GROUPS).lines]
        assert rows == [
            ["GROUP", "KEY", "VALUE", "SOURCE"],
            ["billing", "consumer.session.timeout.ms", "50000", "DYNAMIC_GROUP_CONFIG"],
        ]
        shell(*argv, "--delete-config", "consumer.session.timeout.ms")
        outcome = shell("configs", "describe", *GROUPS)
        assert outcome.err == "All settings have their default values; --all shows them.\n"

    def test_need_a_group(self, shell, root):
        change = ["--add-config", "consumer.session.timeout.ms=50000"]
        outcome = shell("configs", "alter", *GROUPS, *change)
        assert outcome.status == 2
        assert "which group?" in outcome.error
        outcome = shell("configs", "alter", *GROUPS, "--entity-default", *change)
        assert outcome.status == 2
        assert "groups have no common settings" in outcome.error


CLIENTS = ["--entity-type", "clients"]


class TestQuotasOfClients:
    def test_are_set_described_with_their_source_and_removed(self, shell, root):
        argv = ["configs", "alter", *CLIENTS, "--entity-name", "loader"]
        outcome = shell(*argv, "--add-config", "producer_byte_rate=1048576")
        assert (outcome.status, outcome.out, outcome.err) == (0, "Altered loader.\n", "")
        argv = ["configs", "alter", *CLIENTS, "--entity-default", "--json"]
        document = shell(*argv, "--add-config", "consumer_byte_rate=7").document
        assert (document["clients"], document["set"]) == ([""], ["consumer_byte_rate"])
        rows = [line.split()[:4] for line in shell("configs", "describe", *CLIENTS).lines]
        of_all = ["consumer_byte_rate", "7", "DYNAMIC_DEFAULT_CLIENT_QUOTA"]
        assert rows == [
            ["CLIENT", "KEY", "VALUE", "SOURCE"],
            ["<default>", *of_all],
            ["loader", *of_all],
            ["loader", "producer_byte_rate", "1048576", "DYNAMIC_CLIENT_QUOTA"],
        ]
        argv = ["configs", "describe", *CLIENTS, "--entity-name", "another", "--json"]
        (entry,) = shell(*argv).document["configs"]
        assert (entry["client"], entry["value"]) == ("another", "7")
        keys = [entry["name"] for entry in shell(*argv, "--all").document["configs"]]
        assert keys == ["consumer_byte_rate", "producer_byte_rate"]
        argv = ["configs", "alter", *CLIENTS, "--delete-config"]
        shell(*argv, "producer_byte_rate", "--entity-name", "loader")
        shell(*argv, "consumer_byte_rate", "--entity-default")
        outcome = shell("configs", "describe", *CLIENTS)
        assert outcome.err == "All settings have their default values; --all shows them.\n"

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["--entity-name", "a", "--add-config", "producer_byte_rate=-1"], "expected int ≥ 1"),
            (["--entity-name", "a", "--add-config", "producer_byte_rate=1k"], "expected int ≥ 1"),
            (["--entity-name", "a", "--add-config", "consumer_byte_rat=1"], "did you mean 'cons"),
            (["--entity-name", "a", "--add-config", "retention.ms=1"], "unknown client quota"),
            (["--entity-name", "", "--add-config", "producer_byte_rate=1"], "client id is empty"),
            (["--add-config", "producer_byte_rate=1"], "which client?"),
            (
                ["--entity-name", "a", "--entity-default", "--add-config", "producer_byte_rate=1"],
                "give one of the two",
            ),
        ],
    )
    def test_mistakes_are_refused_in_one_line(self, shell, root, argv, message):
        outcome = shell("configs", "alter", *CLIENTS, *argv)
        assert (outcome.status, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert message in outcome.error
        assert Admin(root).describe_client_quotas() == {}

    def test_are_set_as_the_documentation_says(self, shell, root):
        lines = block("docs/quotas.md", "spark-log configs").splitlines()
        for line in lines:
            outcome = shell(*line.split()[1:])
            assert outcome.status == 0, outcome.err
        assert "1048576" in outcome.out
        expected = {
            "loader": {"producer_byte_rate": 1_048_576},
            None: {"consumer_byte_rate": 10_485_760},
        }
        assert Admin(root).describe_client_quotas() == expected
        exec(block("docs/quotas.md", "alter_client_quotas"), {"admin": Admin(root)})
        assert Admin(root).describe_client_quotas() == {"loader": expected["loader"]}


class TestAlter:
    def test_sets_and_deletes_at_once(self, shell, admin):
        outcome = shell(
            "configs",
            "alter",
            "flights",
            "--add-config",
            "compression.type=zstd,segment.bytes=2097152",
            "--add-config",
            "file.delete.delay.ms=5",
            "--delete-config",
            "index.interval.bytes",
        )
        assert (outcome.status, outcome.out, outcome.err) == (0, "Altered flights.\n", "")
        assert overrides(admin) == {
            "compression.type": "zstd",
            "file.delete.delay.ms": "5",
            "flush.on.append": "false",
            "segment.bytes": "2097152",
        }

    def test_takes_values_with_commas_and_brackets(self, shell, admin):
        fields = [{"name": "a", "type": ["null", "long"]}, {"name": "b", "type": "string"}]
        schema = json.dumps({"type": "record", "name": "r", "fields": fields})
        schemas = {
            "ddl": ("[a INT, b ARRAY<STRUCT<c: INT>>]", "a INT, b ARRAY<STRUCT<c: INT>>"),
            "avro": (schema, schema),
            "bracketed": (f"[{schema}]", schema),
        }
        for topic, (given, expected) in schemas.items():
            admin.create_topics([NewTopic(topic)])
            value = f"table.schema={given},segment.bytes=2097152"
            assert shell("configs", "alter", topic, "--add-config", value).status == 0
            configs = overrides(admin, topic)
            assert (configs["table.schema"], configs["segment.bytes"]) == (expected, "2097152")

    def test_in_json_says_what_it_did_to_which(self, shell, admin):
        argv = ["configs", "alter", "flights", "weather", "--delete-config"]
        document = shell(*argv, "flush.on.append,index.interval.bytes", "--json").document
        assert document == {
            "topics": ["flights", "weather"],
            "set": [],
            "deleted": ["flush.on.append", "index.interval.bytes"],
            "validate_only": False,
        }
        assert overrides(admin) == overrides(admin, "weather") == {}

    def test_takes_a_file_and_the_names_of_kafka_configs(self, shell, admin, folder):
        (folder / "new.properties").write_text("# faster\nindex.interval.bytes=2\n\n")
        argv = ["--entity-type", "topics", "--entity-name", "flights"]
        argv += ["--add-config-file", "new.properties"]
        assert shell("configs", "alter", *argv).status == 0
        assert overrides(admin)["index.interval.bytes"] == "2"

    def test_can_only_check(self, shell, admin):
        before = overrides(admin)
        argv = ["configs", "alter", "flights", "--validate-only", "--add-config"]
        assert (
            shell(*argv, "segment.bytes=2097152").out
            == "Could alter flights; nothing was changed.\n"
        )
        assert shell(*argv, "segment.bytes=1").status == 2
        assert overrides(admin) == before

    @pytest.mark.parametrize(
        ("argv", "message"),
        [
            (["wether", "--add-config", "segment.bytes=2097152"], "did you mean weather?"),
            (["flights", "--add-config", "segment.byte=1"], "did you mean 'segment.bytes'?"),
            (["flights", "--add-config", "segment.bytes=1"], "config 'segment.bytes' is '1'"),
            (["flights", "--add-config", "segment.bytes"], "--add-config takes KEY=VALUE"),
            (
                ["flights", "--add-config", "table.schema=a INT, b INT"],
                "got ' b INT'; write a value with commas in brackets: KEY=[A,B]",
            ),
            (["flights", "--add-config", "compression.type=[lz4,zstd]"], "is 'lz4,zstd', expected"),
            (["flights", "--delete-config", "segment.byte"], "did you mean 'segment.bytes'?"),
            (["flights"], "which settings? Give --add-config or --delete-config"),
            (["--delete-config", "segment.bytes"], "which topics?"),
            (
                ["flights", "--add-config", "segment.bytes=1", "--delete-config", "segment.bytes"],
                "segment.bytes: given to both --add-config and --delete-config",
            ),
            (["flights", "--add-config-file", "no.properties"], "'no.properties' does not exist"),
        ],
    )
    def test_refuses_mistakes_and_changes_nothing(self, shell, admin, argv, message):
        before = overrides(admin)
        outcome = shell("configs", "alter", *argv)
        assert (outcome.status, outcome.out) == (2, "")
        assert message in outcome.error
        assert overrides(admin) == before
