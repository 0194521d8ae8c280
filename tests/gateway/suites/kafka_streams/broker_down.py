"""``streams_broker_down_resilience_test``: the only gateway is down for longer than timeouts.

Each test has a root of its own with one gateway, `LoneGateway`, and instances of Kafka's program
that copies one topic to another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from benchmarks.java_program import JavaProgram
from tests.gateway.processes import SHORT, GatewayProcess, free_port
from tests.gateway.suites.kafka_streams.place import Place, wait_for
from tests.gateway.suites.suite import Gateways
from tests.waiting import wait_until

CLIENT_SETTINGS = (
    "consumer.max.poll.interval.ms=50000,producer.retries=2,producer.request.timeout.ms=15000,"
    "producer.max.block.ms=30000"
)
"""Those of ``BaseStreamsTest.get_configs``."""

_SOURCE, _SINK = "streamsResilienceSource", "streamsResilienceSink"
_RUNNING = "REBALANCING -> RUNNING|from REBALANCING to RUNNING"
_UNREACHABLE = "Node may not be available"
_CONNECTED = "Discovered group coordinator"
_COPIED = "processed [0-9]+ messages"
_CLOSED = "Complete shutdown of streams resilience test app now"
_STICKY = (
    "internal.task.assignor.class="
    "org.apache.kafka.streams.processor.internals.assignment.LegacyStickyTaskAssignor"
)
_PATIENCE_S = 480


class LoneGateway:
    """The only gateway of a root.

    Attributes:
        place: the place of what uses it.
    """

    def __init__(self, place: Place) -> None:
        folder = place.folder / "lone"
        folder.mkdir()
        self._root = folder / "root"
        self._address = f"127.0.0.1:{free_port()}"
        self._process = GatewayProcess(str(self._root), SHORT, self._address)
        self._sent = 0
        self.place = Place(Gateways(self._root, (self._address,)), place.class_path, folder)
        self.place.create_topics({_SOURCE: 3, _SINK: 1})

    def kill(self) -> None:
        """End its process at once."""
        self._process.kill()

    def start(self, instances: Sequence[JavaProgram]) -> None:
        """Start it again, and wait until these instances have found it."""
        marks = [each.log_bytes for each in instances]
        self._process = GatewayProcess(str(self._root), SHORT, self._address)
        for each, mark in zip(instances, marks, strict=True):
            wait_for(each, _CONNECTED, mark, timeout_s=_PATIENCE_S)

    def instances(self, count: int, more_settings: str = "") -> list[JavaProgram]:
        """Return instances of the program, which have not been started."""
        settings = f"{CLIENT_SETTINGS},application.id=resilience{more_settings}"
        main = "org.apache.kafka.streams.tests.StreamsBrokerDownResilienceTest"
        names = [f"instance-{number}" for number in range(count)]
        return [
            self.place.program(name, main, self.place.properties(name), settings) for name in names
        ]

    def copy(self, instances: Sequence[JavaProgram]) -> None:
        """Produce records until each instance has copied some, and wait until all are copied.

        The first instance that joins has all partitions for a while.
        """
        left = {each: each.log_bytes for each in instances}
        until_s = time.monotonic() + _PATIENCE_S
        while left:
            assert time.monotonic() < until_s, f"{len(left)} instances copy nothing"
            keys = range(self._sent, self._sent + 300)
            self.place.produce(_SOURCE, [(str(key), f"value {key}", None) for key in keys])
            self._sent = keys.stop
            wait_until(
                lambda: {int(key) for key, _ in self.place.read(_SINK)} == set(range(self._sent)),
                "records have not been copied",
                timeout_s=_PATIENCE_S,
                interval_s=1,
            )
            copied = [each for each, mark in left.items() if each.found(_COPIED, mark)]
            for each in copied:
                del left[each]

    def close(self) -> None:
        """End what has been started."""
        self.place.close()
        self.kill()


@contextmanager
def _lone_gateway(place: Place) -> Iterator[LoneGateway]:
    found = LoneGateway(place)
    try:
        yield found
    finally:
        found.close()


def resilient(place: Place) -> None:
    """``test_streams_resilient_to_broker_down``: an instance continues after it."""
    with _lone_gateway(place) as gateway:
        (instance,) = instances = gateway.instances(1)
        instance.start()
        gateway.copy(instances)
        mark = instance.log_bytes
        gateway.kill()
        # It tries once a second: longer than its producer's retries.
        wait_for(instance, _UNREACHABLE, mark, count=60, timeout_s=_PATIENCE_S)
        gateway.start(instances)
        gateway.copy(instances)
        _close(instances)


def down_initially(place: Place) -> None:
    """``test_streams_runs_with_broker_down_initially``: instances start before the gateway."""
    with _lone_gateway(place) as gateway:
        gateway.kill()
        instances = gateway.instances(3)
        for each in instances:
            each.start()
        for each in instances:
            wait_for(each, _UNREACHABLE, count=10)
        gateway.start(instances)
        gateway.copy(instances)
        _close(instances)


def scale_in(place: Place) -> None:
    """``test_streams_should_scale_in_while_brokers_down``: two of three instances close."""
    with _lone_gateway(place) as gateway:
        *closing, staying = instances = _three_that_copy(gateway)
        gateway.kill()
        _close(closing)
        gateway.start([staying])
        gateway.copy([staying])
        _close(instances[2:])


def failover(place: Place) -> None:
    """``test_streams_should_failover_while_brokers_down``: all instances are killed and started."""
    with _lone_gateway(place) as gateway:
        instances = _three_that_copy(gateway)
        gateway.kill()
        for each in instances:
            each.kill()
            each.start()
        gateway.start(instances)
        gateway.copy(instances)
        _close(instances)


def _three_that_copy(gateway: LoneGateway) -> list[JavaProgram]:
    instances = gateway.instances(3, f",{_STICKY}")
    for each in instances:
        each.start()
        wait_for(each, _RUNNING, timeout_s=_PATIENCE_S)
    gateway.copy(instances)
    return instances


def _close(instances: Sequence[JavaProgram]) -> None:
    for each in instances:
        mark = each.log_bytes
        assert each.close(120), f"{each.log_path.stem} has not closed"
        assert each.found(_CLOSED, mark), each.log_path.read_text()[-1500:]
