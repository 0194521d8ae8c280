"""A cluster for one `KafkaTestUtils`: gateways on a new root, or a real broker of Kafka.

    python -m tests.gateway.suites.spark_kafka.cluster GATEWAYS [SETTING=VALUE]...

Prints the addresses when they listen. Applies retention for each line ``clean`` of its input, and
answers ``cleaned``. Ends with its input, so that nothing is left when the tests are killed. With
no gateways it is Kafka.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

from tests.gateway.suites.suite import run_program, running_gateways, running_kafka

_OF_GATEWAYS = ("auto.create.topics.enable", "group.initial.rebalance.delay.ms")
"""The settings of a broker that gateways have, too."""
_OF_KAFKA = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "1000"}
_CHECK_INTERVAL = "log.retention.check.interval.ms"
_PAUSE_S = 0.5
"""The pause between two runs of ``clean``, for tests that ask the broker to do it all the time."""


def main(arguments: list[str]) -> None:
    """Run the cluster until the input ends."""
    count = int(arguments[0])
    settings = dict(each.split("=", 1) for each in arguments[1:])
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()), "root")
        if count:
            known = {name: settings[name] for name in _OF_GATEWAYS if name in settings}
            running = stack.enter_context(running_gateways(root, count, known))
        else:
            settings.pop("log.segment.bytes", None)  # 70 bytes, but Kafka 4 wants a MiB
            running = stack.enter_context(running_kafka(root, settings=_OF_KAFKA | settings))
        _say(running.bootstrap_servers)
        if count and _CHECK_INTERVAL in settings:
            ended = threading.Event()
            thread = threading.Thread(target=_clean_until, args=(ended, root))
            thread.start()
            stack.callback(thread.join)
            stack.callback(ended.set)
        for line in sys.stdin:
            if line == "clean\n":
                if count:  # Kafka does it by itself
                    _clean(root)
                _say("cleaned")


def _say(answer: str) -> None:
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()


def _clean_until(ended: threading.Event, root: Path) -> None:
    while not ended.wait(_PAUSE_S):
        _clean(root)


def _clean(root: Path) -> None:
    run_program([sys.executable, "-m", "spark_log", "clean", "--all-topics", "--root", root])


if __name__ == "__main__":
    main(sys.argv[1:])
