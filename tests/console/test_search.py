"""Search by key, header, time and SQL; its stream, its limits, and its exports."""

import io
import json

import pyarrow.parquet as pq
import pytest

from spark_log.console.budget import Budget, RequestCancelledError
from spark_log.console.search import Expression, Search, SearchProgress
from spark_log.console.search.expression import check_expression
from spark_log.errors import InvalidConfigurationError
from spark_log.util.clock import SYSTEM_CLOCK
from tests.cli.support import partition_log
from tests.console.conftest import DAY_MS, EVIL, TOPIC, flight, get
from tests.console.test_pages import numbers

MEMORY = 1 << 28


def hits(client, **query):
    found = get(client, "/search", topic="flights", **query)
    assert found["is_complete"]
    return sorted(numbers(found["hits"]))


class TestConditions:
    def test_without_one_every_record_matches(self, client):
        assert hits(client) == list(range(60))

    def test_key_header_partition_and_time(self, client):
        assert hits(client, key="key-7") == [7]
        assert hits(client, key="key-") == []
        assert hits(client, header="trace=41") == [41]
        assert hits(client, header="trace", partition=1, from_time=DAY_MS + 55_000) == [55, 57, 59]
        assert hits(client, header="other") == []
        assert hits(client, from_time=DAY_MS + 3000, to_time=DAY_MS + 6000) == [3, 4, 5]

    @pytest.mark.parametrize(
        ("where", "expected"),
        [
            ("key = 'key-5'", [5]),
            ("json->>'$.carrier' = 'UA' AND (json->>'$.number')::int < 6", [1, 3, 5]),
            ("value LIKE '%\"number\": 12}'", [12]),
            ("headers[1].value = '33'", [33]),
            ("len(list_filter(headers, lambda h: h.key = 'trace' AND h.value = '8')) > 0", [8]),
            ("offset = 29 AND partition = 1", [59]),
            ("timestamp >= '2013-06-01 00:00:58'", [58, 59]),
            ("records.key IN ('key-1', 'key-2') -- two", [1, 2]),
            ("key = 'offset' OR key = 'key-3'", [3]),
        ],
    )
    def test_expressions(self, client, where, expected):
        assert hits(client, where=where) == expected

    def test_conditions_hold_together(self, client):
        assert hits(client, where="json->>'$.carrier' = 'UA'", to_time=DAY_MS + 4000) == [1, 3]

    def test_values_that_are_no_json_or_no_text_do_not_stop_a_search(self, client):
        found = get(client, "/search", topic=TOPIC, where="json->>'$.a' IS NULL")
        assert len(found["hits"]) == 4
        found = get(client, "/search", topic=TOPIC, where="value LIKE '\\xff%'")
        assert [each["offset"] for each in found["hits"]] == [1]
        found = get(client, "/search", topic=TOPIC, key=EVIL)
        assert [each["offset"] for each in found["hits"]] == [0, 1, 2]

    def test_the_limit_ends_a_search(self, client):
        found = get(client, "/search", topic="flights", limit=3)
        assert len(found["hits"]) == 3
        assert found["is_complete"]

    def test_an_expression_that_fails_for_a_record_is_told(self, client):
        answer = client.get("/api/search", params={"topic": "flights", "where": "key::int = 1"})
        assert answer.status_code == 400
        assert "Could not convert string" in answer.json()["error"]


class TestHardening:
    @pytest.mark.parametrize(
        "where",
        [
            "true) UNION SELECT 1 FROM records WHERE (true",
            "true) LIMIT (1",
            "true) GROUP BY (key",
            "EXISTS (SELECT 1)",
            "key IN (SELECT content FROM read_text('/etc/passwd'))",
            "key = (SELECT max(key) FROM '/etc/passwd')",
            "1 = 1; COPY (SELECT 1) TO '/tmp/x'",
            "1 = 1); INSTALL httpfs; SELECT (1",
            "current_setting('threads') = '1'",
            "getvariable('x') = 1",
            "repeat(value, 1000000) = ''",
            "value || value = ''",
            "count(*) > 0",
            "row_number() OVER () = 1",
            "COLUMNS('.*') = ''",
            "main.lower(key) = ''",
            "$1",
            "?",
            "/* not closed",
            "",
            "'text'",
            "nothing = 1",
            "key = 'a' COLLATE NOCASE",
            "lower(" * 70 + "key" + ")" * 70 + " = ''",
            "key = '" + "a" * 5000 + "'",
        ],
    )
    def test_what_is_not_one_harmless_expression_is_refused(self, where):
        with pytest.raises(InvalidConfigurationError, match="the expression cannot be used"):
            Expression(where, memory_bytes=MEMORY).close()

    @pytest.mark.parametrize(
        "statement",
        [
            "SELECT * FROM read_text('/etc/hostname')",
            "SELECT * FROM '/etc/hostname'",
            "SELECT * FROM secret",
            "COPY (SELECT 1) TO 'out.csv'",
            "ATTACH 'other.db'",
            "INSTALL httpfs",
            "LOAD httpfs",
            "SET threads = 4",
            "SET enable_external_access = true",
            "RESET lock_configuration",
        ],
    )
    def test_the_engine_itself_reaches_nothing(self, statement, tmp_path, monkeypatch):
        import duckdb
        import pyarrow as pa

        monkeypatch.chdir(tmp_path)
        secret = pa.table({"a": [1]})
        assert secret.num_rows == 1
        expression = Expression("true", memory_bytes=MEMORY)
        with pytest.raises(duckdb.Error):
            expression._connection.execute(statement).fetchall()  # noqa: SLF001
        assert list(tmp_path.iterdir()) == []
        expression.close()

    def test_columns_are_those_that_are_named(self):
        assert check_expression("json->>'$.key' = 'value' AND offset > 3") == {"json", "offset"}


class TestStream:
    def events(self, client, **query):
        with client.stream("GET", "/api/search/stream", params=query) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            text = answer.read().decode()
        found = []
        for block in text.strip().split("\n\n"):
            name, data = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
        return found

    def test_has_hits_and_ends_with_the_totals(self, client):
        *before, last = self.events(client, topic="flights", where="key = 'key-5'")
        assert [data["offset"] for name, data in before if name == "hit"] == [2]
        name, data = last
        assert name == "done"
        assert (data["records"], data["total"], data["hits"], data["is_done"]) == (60, 60, 1, True)

    def test_tells_an_error_that_comes_later(self, client):
        name, data = self.events(client, topic="flights", where="key::int = 1")[-1]
        assert name == "failed"
        assert "Could not convert" in data["error"]

    def test_is_refused_at_once_with_a_wrong_expression(self, client):
        answer = client.get("/api/search/stream?topic=flights&where=nothing=1")
        assert answer.status_code == 400
        assert "nothing" in answer.json()["error"]

    def test_first_hits_come_before_everything_is_read(self, root, monkeypatch):
        monkeypatch.setattr("spark_log.console.search.search._FIRST_ROWS", 5)
        monkeypatch.setattr("spark_log.console.search.search._MAX_ROWS", 5)
        found: list[tuple[int, int]] = []
        progress: list[SearchProgress] = []
        search = Search({0: partition_log(root, "flights")}, {0: (0, 30)}, limit=None)
        budget = Budget(SYSTEM_CLOCK, 60_000)

        def on_hits(rows):
            found.append((len(rows), progress[-1].records if progress else 0))

        done = search.run(budget, SYSTEM_CLOCK, on_hits, progress.append)
        assert found[0] == (5, 0)
        assert [each.records for each in progress] == [5, 10, 15, 20, 25, 30]
        assert (done.hits, done.is_done) == (30, True)

    def test_a_cancelled_search_stops(self, root):
        search = Search({0: partition_log(root, "flights")}, {0: (0, 30)}, limit=None)
        budget = Budget(SYSTEM_CLOCK, 60_000)
        with pytest.raises(RequestCancelledError):
            search.run(budget, SYSTEM_CLOCK, lambda _: budget.cancel(), lambda _: budget.check())


class TestExport:
    def test_as_json_lines(self, client):
        answer = client.get("/api/export", params={"topic": "flights", "partition": 1})
        assert answer.headers["content-disposition"] == 'attachment; filename="records.jsonl"'
        lines = [json.loads(line) for line in answer.text.splitlines()]
        assert [each["offset"] for each in lines] == list(range(30))
        assert lines[0]["value"].encode() == flight(1)
        assert lines[0]["headers"] == [
            {"key": "trace", "value": "1"},
            {"key": "trace", "value": "again"},
        ]

    def test_as_parquet(self, client):
        query = {"topic": "flights", "format": "parquet", "where": "partition = 0"}
        answer = client.get("/api/export", params=query)
        table = pq.read_table(io.BytesIO(answer.content))
        assert table.column("offset").to_pylist() == list(range(30))
        assert table.column("value")[3].as_py() == flight(6)
        assert table.column("topic")[0].as_py() == "flights"

    @pytest.mark.parametrize("form", ["jsonl", "parquet"])
    def test_of_hostile_records_is_exact(self, client, form):
        answer = client.get("/api/export", params={"topic": TOPIC, "format": form})
        if form == "jsonl":
            lines = [json.loads(line) for line in answer.text.splitlines()]
            assert lines[0]["value"] == EVIL
            assert set(lines[1]["value"]) == {"base64"}
            assert lines[2]["value"] is None
            assert answer.content.isascii()
        else:
            values = pq.read_table(io.BytesIO(answer.content)).column("value").to_pylist()
            assert values[:3] == [EVIL.encode(), b"\xff\x00" + EVIL.encode(), None]

    def test_of_nothing_is_a_file_without_records(self, client):
        query = {"topic": "flights", "format": "parquet", "key": "none"}
        answer = client.get("/api/export", params=query)
        assert pq.read_table(io.BytesIO(answer.content)).num_rows == 0
