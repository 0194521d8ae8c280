"""One distributed worker: its topics, its REST API, and connectors for files."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from benchmarks.kafka_connect import PATIENCE_S, RestError
from tests.gateway.suites.kafka_connect.place import (
    Place,
    assert_once_in_order,
    file_sink,
    file_source,
    numbered,
    text_of,
)


def internal_topics_of_a_worker(place: Place) -> None:
    assert place.worker.ask("GET", "/connectors") == []
    partitions = {"shared-configs": 1, "shared-offsets": 2, "shared-status": 2}
    for topic, count in partitions.items():
        assert len(place.topics.partitions(topic)) == count
        assert place.topics.configs(topic)["cleanup.policy"] == "compact"


def file_is_copied_exactly(place: Place) -> None:
    source, sink = place.path("in"), place.path("out")
    lines = [*numbered(3000), "", "ünïcode", " spaces "]
    source.write_text(text_of(lines))
    worker = place.worker
    worker.put("copy-in", file_source(source, "copied"))
    worker.put("copy-out", file_sink(sink, "copied"))
    worker.wait_for(
        lambda: sink.exists() and sink.stat().st_size >= source.stat().st_size,
        "the file is not copied",
    )
    assert sink.read_bytes() == source.read_bytes()
    more = numbered(500, 10_000)
    with source.open("a") as file:
        file.write(text_of(more))
    assert_once_in_order(place.topics.lines("copied", 3503), [*lines, *more])
    topics = worker.ask("GET", "/connectors/copy-in/topics")
    assert topics == {"copy-in": {"topics": ["copied"]}}
    group = "connect-copy-out"
    worker.wait_for(
        lambda: place.topics.committed(group) == {("copied", 0): 3503}, "no offset is committed"
    )
    for name in ("copy-in", "copy-out"):
        worker.ask("DELETE", f"/connectors/{name}")


def topic_is_created_with_settings_of_the_connector(place: Place) -> None:
    source = place.path("in")
    lines = numbered(4000)
    source.write_text(text_of(lines))
    round_robin = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
    topic_settings = {
        "topic.creation.default.partitions": 3,
        "topic.creation.default.replication.factor": -1,
        "topic.creation.default.retention.ms": 86_400_000,
        "topic.creation.default.compression.type": "zstd",
        "producer.override.compression.type": "zstd",
        "producer.override.batch.size": 1000,
        "producer.override.partitioner.class": round_robin,
    }
    place.worker.put("made", {**file_source(source, "made"), **topic_settings})
    place.topics.lines("made", 4000)
    configs = place.topics.configs("made")
    assert configs["retention.ms"] == "86400000"
    assert configs["compression.type"] == "zstd"
    assert place.topics.partitions("made") == [0, 1, 2]
    found = place.topics.records("made")
    assert sorted(each.text for each in found) == sorted(lines)
    places = {line: number for number, line in enumerate(lines)}
    for partition in range(3):
        numbers = [places[each.text] for each in found if each.partition == partition]
        assert numbers
        assert numbers == sorted(numbers)
    place.worker.ask("DELETE", "/connectors/made")


def update_pause_resume_stop_restart_and_delete(place: Place) -> None:
    worker, source = place.worker, place.path("in")
    source.write_text(text_of(numbered(10)))
    config = file_source(source, "before")
    worker.put("life", config)
    worker.wait_for_states("life", "RUNNING", "RUNNING")
    place.topics.lines("before", 10)

    def add(begin: int) -> None:
        with source.open("a") as file:
            file.write(text_of(numbered(10, begin)))

    worker.wait_for(
        lambda: _position(place, "life") == source.stat().st_size, "no offset is committed"
    )
    worker.put("life", config | {"topic": "after"})
    worker.wait_for(
        lambda: worker.ask("GET", "/connectors/life/tasks")[0]["config"]["topic"] == "after",
        "the task keeps its config",
    )
    worker.wait_for_states("life", "RUNNING", "RUNNING")
    add(10)
    assert place.topics.lines("after", 10) == numbered(10, 10)
    worker.ask("PUT", "/connectors/life/pause")
    worker.wait_for_states("life", "PAUSED", "PAUSED")
    add(20)
    for _ in range(2):  # the state is in the topic of states, and the worker takes new configs
        worker.ask("POST", "/connectors/life/restart?includeTasks=true")
        worker.wait_for_states("life", "PAUSED", "PAUSED")
    assert place.topics.lines("after") == numbered(10, 10)
    worker.ask("PUT", "/connectors/life/resume")
    worker.wait_for_states("life", "RUNNING", "RUNNING")
    assert place.topics.lines("after", 20) == numbered(20, 10)
    worker.ask("POST", "/connectors/life/restart?includeTasks=true&onlyFailed=false")
    worker.wait_for_states("life", "RUNNING", "RUNNING")
    worker.ask("PUT", "/connectors/life/stop")
    worker.wait_for_states("life", "STOPPED")
    add(30)
    worker.ask("PUT", "/connectors/life/resume")
    worker.wait_for_states("life", "RUNNING", "RUNNING")
    assert place.topics.lines("after", 30) == numbered(30, 10)
    worker.ask("POST", "/connectors/life/tasks/0/restart")
    worker.ask("DELETE", "/connectors/life")
    worker.wait_for(
        lambda: "life" not in worker.ask("GET", "/connectors"), "the connector is not deleted"
    )
    with pytest.raises(RestError, match=r"^404: "):
        worker.request("GET", "/connectors/life")
    assert place.topics.lines("before") == numbered(10)


def offsets_of_a_source_are_read_changed_and_deleted(place: Place) -> None:
    worker, source = place.worker, place.path("in")
    source.write_text(text_of(numbered(100)))
    worker.put("positions", file_source(source, "positions"))
    place.topics.lines("positions", 100)
    worker.wait_for(
        lambda: _position(place, "positions") == source.stat().st_size, "no offset is committed"
    )
    _stop(place, "positions")
    half = len(text_of(numbered(50)))
    change = {"offsets": [{"partition": {"filename": str(source)}, "offset": {"position": half}}]}
    worker.ask("PATCH", "/connectors/positions/offsets", change)
    assert _position(place, "positions") == half
    worker.ask("PUT", "/connectors/positions/resume")
    found = place.topics.lines("positions", 150)
    assert found == numbered(100) + numbered(50, 50)
    _stop(place, "positions")
    worker.ask("DELETE", "/connectors/positions/offsets")
    assert worker.ask("GET", "/connectors/positions/offsets") == {"offsets": []}
    worker.ask("PUT", "/connectors/positions/resume")
    assert place.topics.lines("positions", 250)[150:] == numbered(100)
    worker.ask("DELETE", "/connectors/positions")


def offsets_of_a_sink_are_read_changed_and_deleted(place: Place) -> None:
    worker, sink = place.worker, place.path("out")
    topic = place.topics.create("sunk", 2)
    for partition in (0, 1):
        place.topics.send(topic, numbered(100, partition * 100), partition=partition)
    worker.put("sink", file_sink(sink, topic))
    _wait_for_size(place, sink, numbered(200))

    def offsets() -> dict[int, int]:
        found = worker.ask("GET", "/connectors/sink/offsets")["offsets"]
        return {
            each["partition"]["kafka_partition"]: each["offset"]["kafka_offset"] for each in found
        }

    worker.wait_for(lambda: offsets() == {0: 100, 1: 100}, "no offset is committed")
    _stop(place, "sink")
    change = {
        "offsets": [
            {
                "partition": {"kafka_topic": topic, "kafka_partition": 0},
                "offset": {"kafka_offset": 70},
            },
            {"partition": {"kafka_topic": topic, "kafka_partition": 1}, "offset": None},
        ]
    }
    worker.ask("PATCH", "/connectors/sink/offsets", change)
    assert offsets() == {0: 70}
    worker.ask("PUT", "/connectors/sink/resume")
    again = numbered(30, 70) + numbered(100, 100)
    _wait_for_size(place, sink, numbered(200) + again)
    worker.wait_for(lambda: offsets() == {0: 100, 1: 100}, "no offset is committed")
    _stop(place, "sink")
    worker.ask("DELETE", "/connectors/sink/offsets")
    assert offsets() == {}
    assert place.topics.committed("connect-sink") == {}
    worker.ask("PUT", "/connectors/sink/resume")
    _wait_for_size(place, sink, numbered(200) + again + numbered(200))
    worker.ask("DELETE", "/connectors/sink")


def records_that_cannot_be_read_go_to_a_dead_letter_queue(place: Place) -> None:
    worker, sink = place.worker, place.path("out")
    topic = place.topics.create("letters")
    values = [f'"line {number}"' if number % 3 else f"no JSON {number}" for number in range(90)]
    place.topics.send(topic, values, headers=[("origin", b"tests")], key="key")
    settings = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": "dead-letters",
        "errors.deadletterqueue.topic.replication.factor": 1,
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    worker.put("letters", {**file_sink(sink, topic), **settings})
    good = [f"line {number}" for number in range(90) if number % 3]
    _wait_for_size(place, sink, good)
    assert place.topics.lines("dead-letters", 30) == values[::3]
    for record, number in zip(place.topics.records("dead-letters"), range(0, 90, 3), strict=True):
        headers = dict(record.headers)
        assert record.key == b"key"
        assert headers["origin"] == b"tests"
        assert headers["__connect.errors.topic"] == b"letters"
        assert headers["__connect.errors.offset"] == str(number).encode()
    assert worker.states("letters") == ["RUNNING", "RUNNING"]
    worker.ask("DELETE", "/connectors/letters")


def failed_task_is_restarted(place: Place) -> None:
    worker, sink = place.worker, place.path("out")
    topic = place.topics.create("failing")
    place.topics.send(topic, ['"good"', "bad", '"good again"'])
    settings = {
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }
    worker.put("failing", {**file_sink(sink, topic), **settings})
    worker.wait_for_states("failing", "RUNNING", "FAILED")
    assert "JsonParseException" in worker.failures("failing")[0]
    worker.put("failing", {**file_sink(sink, topic), **settings, "errors.tolerance": "all"})
    worker.wait_for_states("failing", "RUNNING", "RUNNING")
    _wait_for_size(place, sink, ["good", "good again"])
    worker.ask("DELETE", "/connectors/failing")


def sink_with_the_consumer_protocol(place: Place) -> None:
    worker, sink = place.worker, place.path("out")
    topic = place.topics.create("consumer-protocol", 4)
    for partition in range(4):
        place.topics.send(topic, numbered(100, partition * 100), partition=partition)
    settings = {
        "consumer.override.group.protocol": "consumer",
        "consumer.override.isolation.level": "read_committed",
        "consumer.override.client.rack": "a",
        "consumer.override.max.poll.records": 50,
    }
    worker.put("protocol", {**file_sink(sink, topic, tasks_max=2), **settings})
    worker.wait_for_states("protocol", "RUNNING", "RUNNING", "RUNNING")
    worker.wait_for(
        lambda: sink.exists() and len(sink.read_text().splitlines()) >= 400, "lines are missing"
    )
    assert sorted(sink.read_text().splitlines()) == sorted(numbered(400))
    (group,) = (
        each
        for each in place.topics.admin.list_consumer_groups().result(60).valid
        if each.group_id == "connect-protocol"
    )
    assert group.type.name == "CONSUMER"
    worker.ask("DELETE", "/connectors/protocol")


def sink_follows_topics_by_a_regular_expression(place: Place) -> None:
    worker, sink = place.worker, place.path("out")
    place.topics.send(place.topics.create("regex-a"), ["a"])
    config = {**file_sink(sink, ""), "topics.regex": "regex-.*"}
    del config["topics"]
    worker.put("regex", config | {"consumer.override.metadata.max.age.ms": 500})
    _wait_for_size(place, sink, ["a"])
    place.topics.send(place.topics.create("regex-b", 2), ["b"])
    _wait_for_size(place, sink, ["a", "b"])
    worker.ask("DELETE", "/connectors/regex")


def worker_restarts_from_its_topics(place: Place) -> None:
    worker, source = place.worker, place.path("in")
    source.write_text(text_of(numbered(100)))
    worker.put("restarted", file_source(source, "restarted"))
    place.topics.lines("restarted", 100)
    worker.wait_for(
        lambda: _position(place, "restarted") == source.stat().st_size, "no offset is committed"
    )
    worker.close(30)
    with source.open("a") as file:
        file.write(text_of(numbered(100, 100)))
    worker.start()
    worker.wait_until_ready()
    assert place.topics.lines("restarted", 200) == numbered(200)
    config = worker.ask("GET", "/connectors/restarted")["config"]
    assert config["file"] == str(source), json.dumps(config)
    worker.ask("DELETE", "/connectors/restarted")


def _position(place: Place, connector: str) -> int | None:
    found = place.worker.ask("GET", f"/connectors/{connector}/offsets")["offsets"]
    return found[0]["offset"]["position"] if found else None


def _stop(place: Place, connector: str) -> None:
    place.worker.ask("PUT", f"/connectors/{connector}/stop")
    place.worker.wait_for_states(connector, "STOPPED")


def _wait_for_size(place: Place, sink: Path, lines: list[str]) -> None:
    """Wait until a sink has written as much as these lines, and compare them in any order."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        found = sink.read_text().splitlines() if sink.exists() else []
        if len(found) >= len(lines):
            break
        assert time.monotonic() < deadline_s, f"{len(found)} of {len(lines)} lines"
        time.sleep(0.1)
    assert sorted(found) == sorted(lines)


TESTS = (
    internal_topics_of_a_worker,
    file_is_copied_exactly,
    topic_is_created_with_settings_of_the_connector,
    update_pause_resume_stop_restart_and_delete,
    offsets_of_a_source_are_read_changed_and_deleted,
    offsets_of_a_sink_are_read_changed_and_deleted,
    records_that_cannot_be_read_go_to_a_dead_letter_queue,
    failed_task_is_restarted,
    sink_with_the_consumer_protocol,
    sink_follows_topics_by_a_regular_expression,
    worker_restarts_from_its_topics,
)
