"""The sequences of Kafka's system tests of Streams (``tests/kafkatest/tests/streams``).

The programs that run in them are Kafka's, from the jar of its tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from benchmarks.java_program import JavaProgram
from tests.gateway.suites.kafka_streams.broker_down import CLIENT_SETTINGS
from tests.gateway.suites.kafka_streams.place import Line, Place, wait_for
from tests.waiting import wait_until

_TESTS = "org.apache.kafka.streams.tests"
_SMOKE_TOPICS = (
    *("echo", "data", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw"),
    *("sws-suppressed", "dif", "cnt", "avg", "wcnt", "tagg", "fk"),
)
_EOS_TOPICS = ("data", "echo", "min", "sum", "repartition", "max", "cnt")
_RUNNING = "REBALANCING -> RUNNING"
_PROCESSED = "processed [0-9]+ records from topic"
_PATIENCE_S = 480
_FEED_S = 900  # longer than a test that ends its producer, on a busy machine


def smoke(place: Place, guarantee: str, *, crash: bool, strikes: bool = False) -> None:
    """``streams_smoke_test``: three instances, one after the other, and exact results.

    Args:
        place: the place.
        guarantee: the processing guarantee.
        crash: whether instances are killed, or told to close.
        strikes: whether a gateway is killed meanwhile, again and again.
    """
    place.create_topics(dict.fromkeys(_SMOKE_TOPICS, 5))
    struck: AbstractContextManager[None] = place.struck_gateway(15) if strikes else nullcontext()
    with struck:
        driver = _smoke_program(place, "driver", guarantee, "run")
        one, two, three = (_smoke_program(place, each, guarantee, "process") for each in "123")
        one.start()
        wait_for(one, _RUNNING)
        driver.start()
        for each, following in ((one, two), (two, three)):
            wait_for(each, "processed [0-9]+ records")
            assert driver.is_alive, "the driver has ended before the instances were stopped"
            if crash:
                each.kill()
            else:
                _close(each, "SMOKE-TEST-CLIENT-CLOSED")
            following.start()
            wait_for(following, _RUNNING)
        wait_for(three, "processed [0-9]+ records")
        assert driver.wait(600), "the driver has not ended"
    _close(three, "SMOKE-TEST-CLIENT-CLOSED")
    is_inexact = crash and guarantee == "at_least_once"
    expected = "^(SUCCESS|.*PROCESSED-MORE-THAN-GENERATED)" if is_inexact else "^SUCCESS"
    assert driver.found(expected), driver.log_path.read_text()[-2000:]


def eos(place: Place, *, is_complex: bool, abort: bool, strikes: bool = False) -> None:
    """``streams_eos_test``: instances come and go, and each record is processed exactly once.

    Args:
        place: the place.
        is_complex: whether records pass a second topic on their way.
        abort: whether instances are killed, or told to close.
        strikes: whether a gateway is killed meanwhile, again and again.
    """
    place.create_topics(dict.fromkeys(_EOS_TOPICS, 5))
    suffix = "-complex" if is_complex else ""
    settings = {"processing_guarantee": "exactly_once_v2", "replication_factor": 1}
    struck: AbstractContextManager[None] = place.struck_gateway(15) if strikes else nullcontext()
    with struck:
        driver_properties = place.properties("driver", **settings)
        driver = place.program("driver", f"{_TESTS}.StreamsEosTest", driver_properties, "run")
        one, two, three = (
            place.program(
                each, f"{_TESTS}.EosTest", place.properties(each, **settings), f"process{suffix}"
            )
            for each in "123"
        )
        driver.start()
        _add(one)
        _add(two, beside=[one])
        _add(three, beside=[one, two])
        turns = [(three, (one, two)), (three, (one, two)), (two, (one, three))]
        if not abort:
            turns = [(one, (two, three)), (two, (one, three))]
        for number, (ending, others) in enumerate(turns):
            if abort:
                marks = [each.log_bytes for each in others]
                ending.kill()
                _until_started(others, marks)
            else:
                _stop(ending, beside=others)
            if number < len(turns) - 1:
                _add(ending, beside=others)
        _stop(three, beside=[one])
        _stop(one)
        driver.close(300)
        verifier = place.program(
            "verifier",
            f"{_TESTS}.StreamsEosTest",
            place.properties("verifier", **settings),
            f"verify{suffix}",
        )
        verifier.start()
        assert verifier.wait(_PATIENCE_S), "the verifier has not ended"
    assert verifier.found("^ALL-RECORDS-DELIVERED"), verifier.log_path.read_text()[-2000:]


def relational(place: Place, *, crash: bool) -> None:
    """``streams_relational_smoke_test``: tables joined by foreign keys, while instances go.

    Args:
        place: the place.
        crash: whether instances are killed, or told to close.
    """
    main = f"{_TESTS}.RelationalSmokeTest"
    place.create_topics(
        {
            **{"in-article": 3, "in-comment": 5},
            **{"out-augmented-article": 3, "out-augmented-comment": 5},
        }
    )
    servers = place.bootstrap_servers
    driver = place.program("driver", main, "driver", servers, "ignored", "ignored")
    one, two, three = (
        place.program(
            each,
            main,
            *("application", servers, f"processor{each}", "exactly_once_v2", "classic"),
            place.state_of(each),
        )
        for each in "123"
    )
    for each in (one, two):
        each.start()
    for each in (one, two):
        wait_for(each, "Streams has started")
    driver.start()
    # It sends 11,000 records one by one before.
    wait_for(driver, "Consumed first Augmented", timeout_s=1500)
    one.kill() if crash else one.close()
    three.start()
    wait_for(three, "Streams has started")
    two.kill() if crash else two.close()
    wait_for(driver, "Smoke test complete", timeout_s=700)
    assert driver.found("Smoke test complete: passed"), driver.log_path.read_text()[-2000:]


def shutdown_deadlock(place: Place) -> None:
    """``streams_shutdown_deadlock_test``: an application that fails ends within a minute."""
    place.create_topics({"source": 1})
    program = _smoke_program(place, "deadlock", "at_least_once", "close-deadlock-test")
    program.start()
    assert program.wait(120), "it has not ended"


def broker_compatibility(place: Place, guarantee: str) -> None:
    """``streams_broker_compatibility_test``: a count, and what it needs of a broker.

    Args:
        place: the place.
        guarantee: the processing guarantee.
    """
    place.create_topics({"brokerCompatibilitySourceTopic": 1, "brokerCompatibilitySinkTopic": 1})
    settings = place.properties("compatibility", replication_factor=1)
    main = f"{_TESTS}.BrokerCompatibilityTest"
    program = place.program("compatibility", main, settings, guarantee)
    program.start()
    assert program.wait(120), "it has not ended"
    assert program.status == 0
    assert program.found("close Kafka Streams"), program.log_path.read_text()[-2000:]
    assert place.read("brokerCompatibilitySinkTopic") == [("key", "1")]


def standby(place: Place) -> None:
    """``streams_standby_replica_test``: the numbers of active and standby tasks of each instance.

    Three instances come and go; all records are counted in two stores.
    """
    source, sinks, messages = "standbyTaskSource1", ("standbyTaskSink1", "standbyTaskSink2"), 60_000
    place.create_topics({source: 6, **dict.fromkeys(sinks, 1)})
    assignor = "org.apache.kafka.streams.processor.internals.assignment.LegacyStickyTaskAssignor"
    configs = (
        f"{CLIENT_SETTINGS},sourceTopic={source},sinkTopic1={sinks[0]},sinkTopic2={sinks[1]},"
        f"internal.task.assignor.class={assignor}"
    )
    main = f"{_TESTS}.StreamsStandByReplicaTest"
    one, two, three = (
        place.program(each, main, place.properties(each, application_id="standby"), configs)
        for each in "123"
    )
    lines: list[Line] = [(str(number % 6), str(number), None) for number in range(messages)]
    with place.feeding(source, lines, 60):
        for running, starting, ending in (
            ((), one, None),
            ((one,), two, None),
            ((one, two), three, None),
            ((two, three), None, one),
            ((three,), None, two),
            ((three,), one, None),
            ((one, three), two, None),
            ((one, two), None, three),
            ((two,), None, one),
            ((two,), three, None),
            ((two, three), one, None),
        ):
            marks = {each: each.log_bytes for each in running}
            if starting is not None:
                marks[starting] = starting.log_bytes
                starting.start()
            if ending is not None:
                assert ending.close(), "an instance has not closed"
            tasks = {
                1: "ACTIVE_TASKS:6 STANDBY_TASKS:0",
                2: "ACTIVE_TASKS:3 STANDBY_TASKS:3",
                3: "ACTIVE_TASKS:2 STANDBY_TASKS:[1-3]",
            }[len(marks)]
            for each, mark in marks.items():
                wait_for(each, tasks, mark)
    for sink in sinks:
        wait_until(
            lambda sink=sink: place.end_of(sink) >= messages,  # type: ignore[misc]
            f"{sink} has {place.end_of(sink)} of {messages} records",
            interval_s=1,
        )
    for each in (one, two, three):
        each.close()


def static_membership(place: Place) -> None:
    """``streams_static_membership_test``: instances that come back soon cause no rebalance."""
    place.create_topics({"inputTopic": 18})
    threads, bounces = 3, 3
    instances = [
        place.program(
            each,
            f"{_TESTS}.StaticMemberTestClient",
            place.properties(
                each,
                application_id="static",
                num_stream_threads=threads,
                group_instance_id=f"consumer-{each}",
                session_timeout_ms=60_000,
                input_topic="inputTopic",
            ),
        )
        for each in "ABC"
    ]
    lines: list[Line] = [(None, str(number), None) for number in range(200 * _FEED_S)]
    with place.feeding("inputTopic", lines, _FEED_S) as feeder:
        for each in instances:
            each.start()
            wait_for(each, _RUNNING)
        for each in instances:
            wait_for(each, "PROCESSED")
        for _ in range(bounces):
            for each in instances:
                _close(each, "Static membership test closed")
                mark = each.log_bytes
                each.start()
                wait_for(each, _RUNNING, mark)
        generations = set()
        for each in instances:
            joined = each.found("Successfully joined group with generation .*generationId=[0-9]+")
            assert len(joined) >= bounces * threads, joined
            generations |= {re.findall("[0-9]+", line)[-1] for line in joined[-bounces * threads :]}
        assert len(generations) == 1, f"the group has rebalanced: generations {generations}"
        marks = [each.log_bytes for each in instances]
        for each, mark in zip(instances, marks, strict=True):
            wait_for(each, "PROCESSED", mark)
        feeder.is_ending.set()
    for each in instances:
        _close(each, "Static membership test closed")


def named_repartition(place: Place) -> None:
    """``streams_named_repartition_topic_test``: a topology changes, and its topics stay."""
    place.create_topics({"inputTopic": 6, "aggregationTopic": 6})
    lines: list[Line] = [(None, str(number), None) for number in range(200 * _FEED_S)]

    def instances(*, updated: bool) -> list[JavaProgram]:
        return [
            place.program(
                f"{each}-updated" if updated else each,
                f"{_TESTS}.StreamsNamedRepartitionTest",
                place.properties(
                    each,
                    application_id="named",
                    input_topic="inputTopic",
                    aggregation_topic="aggregationTopic",
                    add_operations=str(updated).lower(),
                ),
            )
            for each in "123"
        ]

    with place.feeding("inputTopic", lines, _FEED_S) as feeder:
        for turn, line in ((False, _RUNNING), (True, "UPDATED Topology")):
            those = instances(updated=turn)
            for each in those:
                each.start()
                wait_for(each, line)
            for each in those:
                wait_for(each, "AGGREGATED key=[0-9]+ value=[0-9]+")
            for each in those:
                _close(each, "NAMED_REPARTITION_TEST Streams Stopped")
        feeder.is_ending.set()


def _smoke_program(place: Place, name: str, guarantee: str, command: str) -> JavaProgram:
    properties = place.properties(
        name,
        processing_guarantee=guarantee,
        num_stream_threads=3,
        replication_factor=1,
        num_standby_replicas=2,
        buffered_records_per_partition=100,
        commit_interval_ms=1000,
        auto_offset_reset="earliest",
        acks="all",
    )
    return place.program(name, f"{_TESTS}.StreamsSmokeTest", properties, command)


def _add(program: JavaProgram, beside: Sequence[JavaProgram] = ()) -> None:
    """Start an instance, and wait until all work again."""
    those = [program, *beside]
    marks = [each.log_bytes for each in those]
    program.start()
    _until_started(those, marks)


def _stop(program: JavaProgram, beside: Sequence[JavaProgram] = ()) -> None:
    marks = [each.log_bytes for each in beside]
    mark = program.log_bytes
    assert program.close(180), f"{program.log_path.stem} has not closed"
    assert program.found("StateChange: PENDING_SHUTDOWN -> NOT_RUNNING", mark)
    _until_started(beside, marks)


def _until_started(programs: Sequence[JavaProgram], marks: Sequence[int]) -> None:
    for each, mark in zip(programs, marks, strict=True):
        wait_for(each, _RUNNING, mark, timeout_s=_PATIENCE_S)
        wait_for(each, _PROCESSED, mark, timeout_s=_PATIENCE_S)


def _close(program: JavaProgram, last_line: str) -> None:
    mark = program.log_bytes
    assert program.close(120), f"{program.log_path.stem} has not closed"
    assert program.found(last_line, mark), program.log_path.read_text()[-1500:]
