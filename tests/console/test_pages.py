"""What the pages show, by their JSON: topics, records, groups, transactions, brokers, settings.

The overview has a file of its own: `test_overview.py`.
"""

import pytest

from spark_log import Admin, ConfigResource, NewTopic, OffsetAndMetadata, TopicPartition
from spark_log.cluster import Cluster, ClusterCleaner
from spark_log.config import GatewayConfig
from spark_log.console.console import Rates
from spark_log.coordinator import gateway_heartbeats
from spark_log.gateway.registry import RegistryMember
from tests.cli.support import append, segment_files
from tests.console.conftest import DAY_MS, EVIL, GROUP, HOUR_MS, TOPIC, get


class TestTopics:
    def test_have_records_size_and_the_cleaners_state(self, client):
        (found,) = get(client, "/topics", q="FLIGHT")["topics"]
        assert (found["name"], found["partitions"], found["records"]) == ("flights", 2, 60)
        assert found["size_bytes"] > 1000
        assert found["cleaner"]["policy"] == "delete"
        assert found["cleaner"]["segments"] == found["cleaner"]["unmerged_segments"] == 6
        assert found["cleaner"]["dirty_ratio"] is None

    def test_come_in_pages(self, client):
        names = [
            get(client, "/topics", start=start, limit=1)["topics"][0]["name"] for start in range(3)
        ]
        assert names == ["empty", "flights", TOPIC]
        assert get(client, "/topics", start=3)["topics"] == []
        assert get(client, "/topics", limit=1)["total"] == 3

    def test_one_has_its_partitions_and_settings(self, client):
        found = get(client, "/topic", topic="flights")
        assert [each["log_end_offset"] for each in found["partitions"]] == [30, 30]
        assert {each["leader"] for each in found["partitions"]} == {0}
        assert found["configs"]["index.interval.bytes"] == "1"

    def test_without_a_table_none_is_shown(self, client):
        assert get(client, "/topic", topic="flights")["table"] is None
        assert {each["table_format"] for each in get(client, "/topics")["topics"]} == {"none"}
        assert "Table" not in client.get("/topic", params={"topic": "flights"}).text

    def test_one_that_is_a_table_has_its_state(self, own_root, clients):
        config = {"table.format": "delta", "retention.ms": "-1"}
        admin = Admin(own_root)
        admin.alter_configs([ConfigResource("topic", "flights", config)])
        client = clients(own_root)
        found = get(client, "/topic", topic="flights")["table"]
        assert (found["format"], found["version"], found["lag"]) == ("delta", -1, 10)
        cleaned = ClusterCleaner(Cluster(own_root), ["flights"], table_at_once=True).clean()
        assert [each.error for each in cleaned] == [None]
        append(own_root, "flights", b"later")

        found = get(client, "/topic", topic="flights")["table"]
        assert found["location"].startswith(str(own_root))
        assert (found["version"], found["files"], found["lag"]) == (1, 1, 1)
        assert found["size_bytes"] > 1000
        assert (found["ends"], found["error"]) == ({"0": 10}, None)
        page = client.get("/topic", params={"topic": "flights"}).text
        assert all(each in page for each in ("<h2>Table</h2>", found["location"], "Table end"))
        assert "delta table" in client.get("/topics").text

        admin.alter_configs([ConfigResource("topic", "flights", {"table.format": "none"})])
        assert ">ended<" in client.get("/topic", params={"topic": "flights"}).text

    def test_a_damaged_table_does_not_hide_the_topic(self, own_root, clients):
        config = ConfigResource("topic", "flights", {"table.format": "delta"})
        Admin(own_root).alter_configs([config])
        cluster = Cluster(own_root)
        directory = cluster.image().topic("flights").directory
        cluster.store.put_if_absent(f"{directory}/_delta_log/{0:020}.json", b"<b>no version")
        found = get(clients(own_root), "/topic", topic="flights")
        assert (found["records"], found["table"]["version"]) == (10, -1)
        assert "cannot be parsed" in found["table"]["error"]
        page = clients(own_root).get("/topic", params={"topic": "flights"}).text
        assert ">unreadable<" in page

    def test_a_damaged_partition_does_not_hide_the_others(self, own_root, clients):
        append(own_root, "flights", b"another segment")
        segment_files(own_root, "flights")[0].unlink()
        (found,) = get(clients(own_root), "/topics")["topics"]
        assert found["unreadable"] == 1
        one = get(clients(own_root), "/topic", topic="flights")
        assert [each["log_end_offset"] for each in one["partitions"]] == [-1]
        (group,) = get(clients(own_root), "/groups")["groups"]
        assert group["lag"] is None
        assert group["lag_ms"] is None

    def test_a_rate_is_measured_between_two_looks(self, clock):
        rates = Rates(clock)
        assert rates.per_second("topic", 100) is None
        clock.advance_ms(2000)
        assert rates.per_second("topic", 300) == 100
        assert rates.per_second("other", 300) is None
        clock.advance_ms(120_000)
        assert rates.per_second("topic", 300) == pytest.approx(0)


def numbers(records):
    return [int(each["key"]["text"].removeprefix("key-")) for each in records]


class TestRecords:
    def test_are_the_newest_first_without_a_place(self, client):
        found = get(client, "/records", topic="flights", limit=4)
        assert numbers(found["records"]) == [59, 58, 57, 56]

    def test_of_one_partition_by_offset_and_backward(self, client):
        found = get(client, "/records", topic="flights", partition=1, offset=8, limit=5)
        assert [each["offset"] for each in found["records"]] == [8, 9, 10, 11, 12]
        assert (found["before"], found["after"]) == (8, 13)
        before = get(client, "/records", topic="flights", partition=1, before=8, limit=5)
        assert [each["offset"] for each in before["records"]] == [3, 4, 5, 6, 7]

    def test_of_all_partitions_by_event_time(self, client):
        found = get(client, "/records", topic="flights", time=DAY_MS + 10_000, limit=3)
        assert numbers(found["records"]) == [10, 11, 12]
        again = get(client, "/records", topic="flights", time="2013-06-01T00:00:10Z", limit=3)
        assert again == found
        assert get(client, "/records", topic="flights", time="2030-01-01")["records"] == []

    def test_a_link_by_time_leads_to_the_record(self, client):
        page = client.get("/records", params={"topic": "flights", "limit": 1}).text
        link = page.partition('href="/records?topic=flights&amp;time=')[2].partition('"')[0]
        records = client.get(f"/api/records?topic=flights&time={link}").json()["records"]
        assert numbers(records) == [59]

    def test_values_are_json_text_hexadecimal_or_null(self, client):
        found = get(client, "/records", topic=TOPIC, partition=0, offset=0)["records"]
        assert [each["value"]["form"] for each in found] == ["text", "hex", "null", "text"]
        assert found[0]["value"]["text"] == EVIL
        assert found[1]["value"]["text"].startswith("ff 00 3c")
        assert found[0]["headers"][0]["name"] == EVIL
        flight = get(client, "/record", topic="flights", partition=0, offset=3)["record"]
        assert flight["value"]["form"] == "json"
        assert (flight["offset"], flight["timestamp_us"]) == (3, (DAY_MS + 6000) * 1000)
        shown = get(client, "/record", topic="flights", partition=0, offset=3, form="hex")
        assert shown["record"]["key"]["text"] == b"key-6".hex(" ")

    def test_values_are_decoded_by_the_avro_schema_of_their_topic(self, root, clients):
        client = clients(root, avro={"flights": lambda data: {"decoded": len(data)}})
        value = get(client, "/record", topic="flights", partition=0, offset=0)["record"]["value"]
        assert (value["form"], value["text"]) == ("avro", '{"decoded": 30}')

    def test_long_values_are_cut(self, root, clients):
        client = clients(root, max_value_bytes=10)
        value = get(client, "/record", topic="flights", partition=0, offset=0)["record"]["value"]
        assert (value["text"], value["size_bytes"], value["is_cut"]) == ('{"carrier"', 30, True)

    def test_uncommitted_ones_can_be_left_out(self, client):
        every = get(client, "/records", topic=TOPIC)["records"]
        committed = get(client, "/records", topic=TOPIC, isolation="read_committed")["records"]
        assert (len(every), len(committed)) == (4, 3)


class TestGroups:
    def test_have_their_lag(self, client):
        found = get(client, "/groups", q="report")["groups"]
        assert [(each["group_id"], each["lag"], each["partitions"]) for each in found] == [
            ("reports", 40, 2)
        ]
        one = get(client, "/group", group="reports")
        assert found[0]["lag_ms"] >= max(each["lag_ms"] for each in one["partitions"]) - 60_000

    def test_lag_counts_what_can_be_read(self, own_root, clients):
        Admin(own_root).delete_records({TopicPartition("flights", 0): 9})
        (found,) = get(clients(own_root), "/groups", q="report")["groups"]
        assert (found["lag"], found["deleted"]) == (1, 5)
        one = get(clients(own_root), "/group", group="reports")
        assert (one["lag"], one["deleted"]) == (1, 5)
        assert [(each["lag"], each["deleted"]) for each in one["partitions"]] == [(1, 5)]
        Admin(own_root).delete_records({TopicPartition("flights", 0): 10})
        (found,) = get(clients(own_root), "/groups", q="report")["groups"]
        assert (found["lag"], found["deleted"], found["lag_ms"]) == (0, 6, 0)
        page = clients(own_root).get("/group", params={"group": "reports"}).text
        assert "records deleted unread" in page

    def test_offsets_in_a_topic_that_came_back_smaller_are_shown_no_more(self, own_root, clients):
        admin = Admin(own_root)
        admin.create_topics([NewTopic("trips", 3)])
        position = {TopicPartition("trips", 2): OffsetAndMetadata(7)}
        admin.alter_group_offsets("reports", position)
        console = clients(own_root)
        (found,) = get(console, "/groups", q="report")["groups"]
        assert (found["topics"], found["partitions"], found["lag"]) == (["flights", "trips"], 2, 6)
        admin.delete_topics(["trips"])
        admin.create_topics([NewTopic("trips", 1)])
        (found,) = get(console, "/groups", q="report")["groups"]
        assert (found["topics"], found["partitions"], found["lag"]) == (["flights"], 1, 6)
        one = get(console, "/group", group="reports")
        assert [each["topic"] for each in one["partitions"]] == ["flights"]

    def test_that_have_read_all_have_no_lag_in_time(self, own_root, clients):
        end = {TopicPartition("flights", 0): OffsetAndMetadata(10)}
        Admin(own_root).alter_group_offsets("reports", end)
        (found,) = get(clients(own_root), "/groups", q="report")["groups"]
        assert (found["lag"], found["lag_ms"]) == (0, 0)

    def test_one_has_partitions_members_and_lag_in_time(self, client):
        found = get(client, "/group", group="reports")
        assert found["lag"] == 40
        assert [each["current_offset"] for each in found["partitions"]] == [10, 10]
        assert all(each["lag_ms"] > 0 for each in found["partitions"])
        hostile = get(client, "/group", group=GROUP)
        assert hostile["members"][0]["client_id"] == f"client{EVIL}"
        assert hostile["members"][0]["assignment"] == [f"{TOPIC}-0"]

    def test_have_a_history(self, own_root, clients):
        for offset in (6, 2, 9):
            position = {TopicPartition("flights", 0): OffsetAndMetadata(offset)}
            Admin(own_root).alter_group_offsets("reports", position)
        found = get(clients(own_root), "/group/history", group="reports")
        assert found["series"] == [{"name": "flights-0", "offsets": [4, 6, 2, 9]}]
        assert found["times_us"] == sorted(found["times_us"])

    def test_without_commits_the_history_is_empty(self, client):
        assert get(client, "/group/history", group="nobody")["series"] == []


def test_transactions_are_listed_and_hanging_ones_looked_for(client):
    found = get(client, "/transactions", topic=TOPIC)
    (transaction,) = found["transactions"]
    assert (transaction["transactional_id"], transaction["state"]) == (f"txn{EVIL}", "Ongoing")
    assert transaction["partitions"] == [f"{TOPIC}-0"]
    assert found["hanging"] == []


def test_brokers_are_listed_with_their_replicas(client, root):
    (broker,) = get(client, "/brokers")["brokers"]
    assert (broker["broker_id"], broker["state"], broker["leaders"]) == (0, "active", 4)


def test_gateways_are_listed_with_their_signs_of_life(client, root):
    first, second = get(client, "/gateways")["gateways"]
    assert (first["gateway_id"], first["host"], first["port"]) == (1001, f"host{EVIL}", 1)
    assert (first["rack"], first["version"]) == (f"rack{EVIL}", EVIL)
    assert (first["counter"], first["state"], second["state"]) == (1, "live", "joining")
    assert 0 <= first["silent_ms"] < HOUR_MS


def test_a_gateway_without_signs_of_life_is_shown_as_silent(own_root, clients):
    cluster = Cluster(own_root)
    member = RegistryMember(cluster, GatewayConfig.parse({}), host="a", port=9092)
    name = member.join().heartbeat_name
    gateway_heartbeats(cluster.store).forget([name])
    (gateway,) = get(clients(own_root), "/gateways")["gateways"]
    assert (gateway["state"], gateway["counter"], gateway["silent_ms"]) == ("silent", 0, None)
    assert (gateway["rack"], gateway["version"]) == (None, None)


def test_configs_are_those_that_somebody_set_or_all(client):
    some = get(client, "/configs", type="topic", name="flights")["configs"]
    assert {each["name"] for each in some} == {"flush.on.append", "index.interval.bytes"}
    every = get(client, "/configs", type="topic", name="flights", all="true")["configs"]
    assert "retention.ms" in {each["name"] for each in every}
    assert get(client, "/configs")["clients"] == [EVIL]


def test_the_openapi_document_has_every_path_and_the_answers_fit(client):
    document = client.get("/api/openapi.json").json()
    for path in ("/api", "/api/topics", "/api/records", "/api/search/stream", "/api/export"):
        assert "get" in document["paths"][path]
    assert "/api/group/reset" not in document["paths"]
    schemas = document["components"]["schemas"]
    topic = get(client, "/topic", topic="flights")
    assert topic.keys() == schemas["Topic"]["properties"].keys()
    record = get(client, "/record", topic="flights", partition=0, offset=0)
    assert record["record"].keys() == schemas["Record"]["properties"].keys()
    page = client.get("/openapi").text
    assert all(path in page for path in document["paths"])


class TestStripes:
    @pytest.fixture
    def client(self, own_root, clients):
        Admin(own_root).create_topics([NewTopic("orders", 2, topic_configs={"stripes": 1})])
        append(own_root, "orders", b"one")
        append(own_root, "orders", b"two")
        cluster = Cluster(own_root)
        cluster.stripe(cluster.topic("orders"), 0).take_home()
        append(own_root, "orders", b"three")
        append(own_root, "orders", b"four", partition=1)
        return clients(own_root)

    def test_a_topic_has_its_stripes(self, client):
        found = get(client, "/topic", topic="orders")
        (stripe,) = found["stripes"]
        assert (stripe["end_number"], stripe["home_number"], stripe["objects"]) == (4, 2, 2)
        assert [(each["segments"], each["in_stripe"]) for each in found["partitions"]] == [
            (2, 1),
            (1, 1),
        ]
        assert "2 (1 in the stripe)" in client.get("/topic", params={"topic": "orders"}).text

    def test_a_topic_without_stripes_shows_none(self, client):
        assert get(client, "/topic", topic="flights")["stripes"] == []
        assert "<h2>Stripes" not in client.get("/topic", params={"topic": "flights"}).text

    def test_records_are_read_and_found_wherever_they_are(self, client):
        records = get(client, "/records", topic="orders")["records"]
        assert {(each["partition"], each["offset"]) for each in records} == {
            (0, 0),
            (0, 1),
            (0, 2),
            (1, 0),
        }
        hits = get(client, "/search", topic="orders", where="value = 'three'")["hits"]
        assert [(each["partition"], each["offset"]) for each in hits] == [(0, 2)]
        for page in ("/", "/topics", "/transactions"):
            assert client.get(page).status_code == 200
