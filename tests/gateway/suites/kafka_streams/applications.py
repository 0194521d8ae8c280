"""The results of our application, while instances and gateways are killed."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from benchmarks.streams_application import StreamsApplication
from tests.gateway.suites.kafka_streams.place import Line, Place, wait_for_results
from tests.gateway.suites.kafka_streams.results import (
    check_stream_join,
    check_table_join,
    check_windows,
    check_word_count,
    session_windows,
    tumbling_windows,
)
from tests.waiting import wait_until

PARTITIONS = 4
_SECONDS = 30
_LINES = 3000
_SETTINGS = {
    "num.standby.replicas": 1,
    "commit.interval.ms": 200,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 1000,
    "transaction.timeout.ms": 10_000,
    "metadata.max.age.ms": 5000,
    # The cleaner finds something to compact in half a minute.
    "topic.segment.ms": 2000,
    "topic.min.cleanable.dirty.ratio": 0.01,
    "topic.delete.retention.ms": 1000,
    "topic.file.delete.delay.ms": 2000,  # compactions have at least this distance
}


def word_count(place: Place, guarantee: str, *, strikes: bool = False) -> None:
    """Words are counted by two instances; one is killed, and one loses its state stores.

    Args:
        place: the place.
        guarantee: the processing guarantee.
        strikes: whether a gateway is killed meanwhile, again and again.
    """
    chance = random.Random(f"{guarantee} {strikes}")
    lines = [" ".join(f"w{chance.randrange(60)}" for _ in range(4)) for _ in range(_LINES)]
    place.create_topics({"lines": PARTITIONS, "counts": PARTITIONS})
    struck: AbstractContextManager[None] = place.struck_gateway() if strikes else nullcontext()
    with struck:
        one, two = (_instance(place, f"{each}", "word-count", guarantee) for each in "12")
        records: list[Line] = [(str(number), line, None) for number, line in enumerate(lines)]
        one.start()
        two.start()
        _until_running(one, two)
        with place.feeding("lines", records, _SECONDS) as feeder:
            feeder.wait_for(0.3)
            one.kill()
            one.start()
            feeder.wait_for(0.6)
            two.kill()
            shutil.rmtree(place.state_of("2"))
            two.start()
        exactly_once = guarantee != "at_least_once"
        _check([one, two], partial(_wrong_counts, place, lines, exactly_once=exactly_once))
    changelog = "word-count-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog"
    if place.is_kafka:
        return
    assert place.configs_of(changelog)["cleanup.policy"] == "compact"
    # Its last records are in segments that are still open.
    updates, kept = place.end_of(changelog), len(place.read_messages(changelog))
    assert kept < updates / 2, f"{kept} of {updates} records of the changelog are left"
    assert not any(place.cleanings().keys() - {0}), place.cleanings()


def state_is_restored(place: Place, guarantee: str) -> None:
    """An instance without its state stores restores them from changelogs that were compacted."""
    chance = random.Random("restored")
    lines = [" ".join(f"w{chance.randrange(40)}" for _ in range(4)) for _ in range(_LINES)]
    place.create_topics({"lines": PARTITIONS, "counts": PARTITIONS})
    done: list[str] = []
    for turn in range(3):
        application = _instance(place, "1", "word-count", guarantee, num_standby_replicas=0)
        application.start()
        _until_running(application)
        part = lines[turn * _LINES // 3 : (turn + 1) * _LINES // 3]
        with place.feeding("lines", [(line, line, None) for line in part], _SECONDS / 3):
            done += part
        _check([application], partial(_wrong_counts, place, done))
        shutil.rmtree(place.state_of("1"))


def reset(place: Place, guarantee: str) -> None:
    """``kafka-streams-application-reset``: internal topics go, and all is counted once more."""
    lines = [f"w{number % 40}" for number in range(400)]
    place.create_topics({"lines": PARTITIONS, "counts": PARTITIONS})
    place.produce("lines", [(line, line, None) for line in lines])
    for turn in range(2):
        application = _instance(place, "1", "word-count", guarantee)
        application.start()
        _until_running(application)
        before = [str(count) for count in range(1, 11)] * turn

        def wrong(before: list[str] = before) -> list[str]:
            found: dict[str, list[str]] = {}
            for word, count in place.read("counts"):
                found.setdefault(word, []).append(count)
            expected = [*before, *(str(count) for count in range(1, 11))]
            return [f"{word}: {of}" for word, of in found.items() if of != expected] or (
                [] if len(found) == 40 else [f"{len(found)} of 40 words"]
            )

        _check([application], wrong)
        shutil.rmtree(place.state_of("1"))
        tool = place.program(
            f"reset-{turn}",
            "org.apache.kafka.tools.StreamsResetter",
            *("--bootstrap-server", place.bootstrap_servers, "--application-id", "word-count"),
            *("--input-topics", "lines", "--force"),
        )
        tool.start()
        assert tool.wait(120), "the tool has not ended"
        assert tool.status == 0, tool.log_path.read_text()[-1500:]
        internal = [each for each in place.topics() if each.startswith("word-count-")]
        assert not internal, internal


def table_join(place: Place, guarantee: str) -> None:
    """Two tables that change at the same time are joined; one of two instances is killed."""
    chance = random.Random("tables")
    tables: dict[str, list[Line]] = {"left": [], "right": []}
    for name, changes in tables.items():
        for number in range(_LINES // 2):
            key = f"k{chance.randrange(40)}"
            changes.append((key, f"{name}.{number}", None))
    place.create_topics(dict.fromkeys((*tables, "joined"), PARTITIONS))
    one, two = (_instance(place, each, "table-join", guarantee) for each in "12")
    one.start()
    two.start()
    _until_running(one, two)
    with (
        place.feeding("left", tables["left"], _SECONDS / 2) as feeder,
        place.feeding("right", tables["right"], _SECONDS / 2),
    ):
        feeder.wait_for(0.5)
        one.kill()
        one.start()
    left, right = ([(str(key), value) for key, value, _ in each] for each in tables.values())
    _check([one, two], lambda: check_table_join(left, right, place.read("joined")))


def stream_join(place: Place, guarantee: str) -> None:
    """Records of a stream get another key, and are joined to a table; an instance is killed."""
    chance = random.Random("stream")
    now_ms = int(time.time() * 1000)
    table = [(f"k{key}", f"v{key}.{change}") for change in range(2) for key in range(40)]
    stream = [
        (str(number), f"k{chance.randrange(40)} item{number}") for number in range(_LINES // 2)
    ]
    place.create_topics(dict.fromkeys(("items", "table", "enriched"), PARTITIONS))
    place.produce("table", [(key, value, now_ms - 60_000) for key, value in table])
    one, two = (
        _instance(
            place, each, "stream-join", guarantee, inputs=("items", "table"), output="enriched"
        )
        for each in "12"
    )
    one.start()
    two.start()
    _until_running(one, two)
    records: list[Line] = [(key, value, None) for key, value in stream]
    with place.feeding("items", records, _SECONDS / 2) as feeder:
        feeder.wait_for(0.5)
        two.kill()
        two.start()
    _check([one, two], lambda: check_stream_join(stream, table, place.read("enriched")))
    if place.is_kafka:
        return
    repartition = next(each for each in place.topics() if each.endswith("-repartition"))
    assert place.configs_of(repartition)["retention.ms"] == "-1"


def windows(place: Place, guarantee: str, topology: str) -> None:
    """Records are counted in windows, whose results come once, when they have closed.

    Args:
        place: the place.
        guarantee: the processing guarantee.
        topology: ``tumbling`` or ``session``.
    """
    chance = random.Random(topology)
    at_ms = int(time.time() * 1000) - 3_600_000
    records: list[tuple[str, int]] = []
    for _ in range(_LINES // 2):
        at_ms += chance.randrange(0, 400)
        records.append((f"k{chance.randrange(8)}", at_ms))
    place.create_topics({"events": 1, "windows": PARTITIONS})
    topics: dict[str, Any] = {"inputs": ("events",), "output": "windows"}
    one, two = (_instance(place, each, topology, guarantee, **topics) for each in "12")
    one.start()
    two.start()
    _until_running(one, two)
    lines: list[Line] = [(key, "x", timestamp_ms) for key, timestamp_ms in records]
    with place.feeding("events", lines, _SECONDS / 2) as feeder:
        feeder.wait_for(0.5)
        for each in (one, two):  # one of them has the only partition
            each.kill()
            each.start()
    # Windows close when a record of a later time arrives, whose own window stays open.
    place.produce("events", [("last", "x", at_ms + 60_000)])
    of = tumbling_windows if topology == "tumbling" else session_windows
    _check([one, two], lambda: check_windows(of(records), place.read("windows")))


def _wrong_counts(place: Place, lines: list[str], *, exactly_once: bool = True) -> list[str]:
    return check_word_count(lines, place.read("counts"), exactly_once=exactly_once)


def _instance(
    place: Place,
    name: str,
    topology: str,
    guarantee: str,
    *,
    inputs: tuple[str, ...] | None = None,
    output: str | None = None,
    **settings: object,
) -> StreamsApplication:
    topics = {"word-count": (("lines",), "counts"), "table-join": (("left", "right"), "joined")}
    default_inputs, default_output = topics.get(topology, ((), ""))
    given = _SETTINGS | {key.replace("_", "."): value for key, value in settings.items()}
    return place.application(
        name, topology, inputs or default_inputs, output or default_output, guarantee, **given
    )


def _until_running(*instances: StreamsApplication) -> None:
    for each in instances:
        wait_until(
            lambda each=each: each.is_running,  # type: ignore[misc]
            f"instance {each.log_path.stem} is in {each.states()[-1:]}",
            interval_s=0.2,
        )


def _check(instances: list[StreamsApplication], wrong: Callable[[], list[str]]) -> None:
    """Check the results when they are complete, and again when the instances have closed."""
    wait_for_results(wrong)
    for each in instances:
        closed = each.close()
        assert closed, f"instance {each.log_path.stem} has not closed"
        assert each.has_closed, each.log_path.read_text()[-1000:]
    found = wrong()
    assert not found, "\n".join(found)
