"""A worker whose three topics are compacted by spark-log's cleaner while it runs."""

from __future__ import annotations

import sys

from benchmarks.kafka_connect import DistributedWorker
from tests.gateway.suites.kafka_connect.place import (
    EXACTLY_ONCE,
    Place,
    Topics,
    assert_once_in_order,
    file_source,
    growing_file,
    names_of_workers,
    numbered,
)
from tests.gateway.suites.suite import Gateways, run_program, running_gateways

_TOPICS = ("cleaned-configs", "cleaned-offsets", "cleaned-status")


def worker_restarts_from_compacted_topics(place: Place) -> None:
    settings = {
        **names_of_workers("cleaned"),
        **EXACTLY_ONCE,
        **{
            f"{each}.storage.min.cleanable.dirty.ratio": 0
            for each in ("config", "offset", "status")
        },
    }
    with running_gateways(place.folder / "cleaned-root") as gateways:
        topics = Topics(gateways.bootstrap_servers)
        file = place.path("in")
        with place.new_worker("cleaned", settings, gateways) as worker:
            with growing_file(file) as count:
                config = file_source(file, "cleaned", exactly_once_support="required")
                for turn in range(3):
                    worker.put("cleaned", config | {"batch.size": 500 + turn})
                    worker.put(f"gone-{turn}", file_source(file, f"gone-{turn}"))
                    topics.lines("cleaned", count() + 50)
                    for action, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
                        worker.ask("PUT", f"/connectors/cleaned/{action}")
                        worker.wait_for_states("cleaned", state, state)
                    worker.ask("DELETE", f"/connectors/gone-{turn}")
                    _clean(gateways)
                    if turn:
                        _restart(worker, is_killed=turn == 1)
                    worker.wait_for_states("cleaned", "RUNNING", "RUNNING")
                    assert worker.ask("GET", "/connectors") == ["cleaned"]
                    found = worker.ask("GET", "/connectors/cleaned")["config"]
                    assert found["batch.size"] == str(500 + turn)
            topics.lines("cleaned", count())
            _clean(gateways)
        assert_once_in_order(topics.lines("cleaned"), numbered(count()))
        for topic in _TOPICS:
            found = topics.records(topic)
            ends = {each.partition: each.offset for each in found}
            assert len(found) < sum(ends.values()) / 2, f"{topic} is not compacted"


def _restart(worker: DistributedWorker, *, is_killed: bool) -> None:
    if is_killed:
        worker.kill()
    else:
        worker.close(30)
    worker.start()
    worker.wait_until_ready()


def _clean(gateways: Gateways) -> None:
    run_program([sys.executable, "-m", "spark_log", "clean", "--root", gateways.root, *_TOPICS])


TESTS = (worker_restarts_from_compacted_topics,)
