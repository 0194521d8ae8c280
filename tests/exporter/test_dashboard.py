"""conf/grafana: each query of the dashboard has an answer in a real Prometheus."""

import json
import math
import os
import socket
import subprocess
import threading
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from spark_log import Admin, ConfigResource, Consumer, Producer
from spark_log.cluster import Cluster
from spark_log.exporter import Canary, RootExporter
from spark_log.metrics import MetricsServer, collector_of, definitions, new_registry, scrape_text
from tests.waiting import wait_until

HOME = Path(__file__).parents[2]
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
PROMETHEUS = CACHE / "spark-log/prometheus/usr/bin/prometheus"
DASHBOARD = json.loads((HOME / "conf/grafana/spark-log.json").read_text(encoding="utf-8"))
QUERIES = [
    (panel["title"], target["expr"])
    for panel in DASHBOARD["panels"]
    for target in panel.get("targets", ())
]
NAMES = {
    each.name + suffix
    for table in (
        definitions.EXPORTER,
        definitions.STORAGE,
        definitions.PRODUCER,
        definitions.CONSUMER,
        definitions.CANARY,
    )
    for each in table
    for suffix in (("_bucket", "_sum", "_count") if each.type == "histogram" else ("",))
}


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_a_query_asks_for_metrics_of_the_table(title, query):
    words = query.replace("(", " ").replace("{", " ").replace("[", " ").replace(")", " ").split()
    names = [word for word in words if word.startswith(("kafka_", "spark_log_"))]
    assert names
    assert set(names) <= NAMES


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture
def served(root, tmp_path):
    """Serve a root, a producer, a consumer in a group and a canary that work; yield their ports."""
    end = threading.Event()
    Admin(root).alter_configs([ConfigResource("topic", "t", {"table.format": "delta"})])
    with ExitStack() as stack:
        exporter = RootExporter(lambda: Cluster(root), None)
        port = free_port()
        server = MetricsServer("127.0.0.1", 0, lambda: exporter.scrape().text)
        stack.callback(server.close)
        canary = Canary(root, {}, lambda: Cluster(root))
        registry = new_registry()
        collector_of(registry).add(canary.families)
        of_canary = MetricsServer("127.0.0.1", 0, lambda: scrape_text(registry))
        stack.callback(of_canary.close)
        producer = stack.enter_context(Producer(root, client_id="p", metrics_port=port))

        def send():
            while not end.wait(0.05):
                producer.send("t", b"value", partition=0)
            producer.flush()

        def consume():
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
            options |= {"client_id": "c", "group_id": "g", "metrics_port": port}
            with Consumer("t", root=root, **options) as consumer:
                while not end.is_set():
                    consumer.poll(100)
                    consumer.commit()

        def sing():
            while not end.wait(0.2):
                canary.send()
            canary.close()

        threads = [threading.Thread(target=each) for each in (send, consume, sing)]
        for each in threads:
            each.start()
        try:
            yield port, server.port, of_canary.port
        finally:
            end.set()
            for each in threads:
                each.join()


@pytest.fixture
def prometheus(served, tmp_path):
    """Run a Prometheus that scrapes all of them; yield its URL."""
    if not PROMETHEUS.exists():
        pytest.skip(f"{PROMETHEUS} is missing: make prometheus fetches it on Debian")
    port = free_port()
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {
                "job_name": "spark-log",
                "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in served]}],
            }
        ],
    }
    (tmp_path / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
    command = [
        str(PROMETHEUS),
        f"--config.file={tmp_path}/prometheus.yml",
        f"--storage.tsdb.path={tmp_path}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (
        (tmp_path / "prometheus.log").open("wb") as log,
        subprocess.Popen(command, stdout=log, stderr=log) as process,
    ):
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def ask(url, query):
    """Return the samples of a query; none while Prometheus is not ready."""
    query = query.replace("$__rate_interval", "15s").replace("$topic", ".*").replace("$group", ".*")
    try:
        with urllib.request.urlopen(
            f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=30
        ) as answer:
            found = json.load(answer)["data"]["result"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            return []
        raise AssertionError(f"{query}: {error.read().decode()}") from None
    except urllib.error.URLError:
        return []
    values = [float(each["value"][1]) for each in found]
    return [each for each in values if math.isfinite(each)]


@pytest.mark.long
def test_each_query_has_an_answer(prometheus):
    for _, query in QUERIES:
        wait_until(partial(ask, prometheus, query), query, interval_s=0.5)
    assert ask(prometheus, "up") == [1, 1, 1]
