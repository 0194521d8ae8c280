"""How answers look: tables, JSON documents, bytes."""

import json
import os
import pty
import re
import subprocess
import sys
import termios

import pytest

from spark_log.cli.format.output import print_json, print_json_lines, print_json_stream, print_table
from tests.cli.support import environment

ROWS = [["flights", 0, 1234567], ["weather", 12, 0]]


class TestPlainTable:
    def test_aligns_numbers_right_and_words_left(self, capsys):
        print_table(["Topic", "Partition", "Bytes"], ROWS)
        assert capsys.readouterr().out == (
            "TOPIC    PARTITION    BYTES\n"
            "flights          0  1234567\n"
            "weather         12        0\n"
        )

    def test_aligns_numbers_that_are_not_known_with_the_others(self, capsys):
        print_table(["Topic", "Lag", "Rate"], [["flights", 12345, None], ["weather", None, 2.25]])
        assert capsys.readouterr().out == (
            "TOPIC      LAG  RATE\nflights  12345     -\nweather      -   2.2\n"
        )

    def test_without_rows_is_its_headings(self, capsys):
        print_table(["Topic", "Partition"], [])
        assert capsys.readouterr().out == "TOPIC  PARTITION\n"


class TestTerminal:
    """What a person sees, in a process on a terminal of a given width."""

    @pytest.fixture
    def screen(self):
        def show(width, columns=("Topic", "Partition", "Bytes"), rows=ROWS):
            primary, secondary = pty.openpty()
            termios.tcsetwinsize(secondary, (24, width))
            code = (
                "from spark_log.cli.format.output import print_table\n"
                f"print_table({columns}, {rows})"
            )
            process = subprocess.Popen(
                [sys.executable, "-c", code], stdout=secondary, env=environment(TERM="xterm")
            )
            os.close(secondary)
            shown = b""
            while data := _read(primary):
                shown += data
            os.close(primary)
            assert process.wait(timeout=60) == 0
            return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).split()

        return show

    def test_is_given_a_ruled_table_with_readable_numbers(self, screen):
        words = screen(80)
        assert words[:3] == ["Topic", "Partition", "Bytes"]
        assert words[3].startswith("──")
        assert words[4:] == ["flights", "0", "1,234,567", "weather", "12", "0"]

    def test_too_narrow_for_it_gets_a_block_for_each_row(self, screen):
        assert screen(20) == [
            *("Topic", "flights", "Partition", "0", "Bytes", "1,234,567"),
            *("Topic", "weather", "Partition", "12", "Bytes", "0"),
        ]

    def test_of_80_columns_takes_wide_headings_on_several_lines(self, screen):
        columns = [
            "Group",
            "Partition",
            "Current-offset",
            "Log-end-offset",
            "Lag-seconds",
            "Assignment-strategy",
            "Host",
        ]
        rows = [["g", 0, 12, 1_234_567, "0.5", "range", "127.0.0.1"]]
        words = screen(80, columns, rows)
        assert {"Group", "Current-", "Log-end-", "offset", "strategy"} <= set(words)
        assert words[-7:] == ["g", "0", "12", "1,234,567", "0.5", "range", "127.0.0.1"]


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux: the other side was closed
        return b""


class TestJson:
    def test_is_utf_8_whatever_the_text_layer_writes(self, capsysbinary):
        print_json({"name": "Zürich"})
        assert capsysbinary.readouterr().out == '{\n  "name": "Zürich"\n}\n'.encode()

    def test_of_a_path_that_is_not_utf_8_can_be_read_back(self, capsysbinary):
        path = os.fsdecode(b"/data/\xff")
        print_json({"path": path})
        assert json.loads(capsysbinary.readouterr().out) == {"path": path}

    def test_lines_are_one_document_each(self, capsys):
        print_json_lines([{"a": "1\n2"}, {"a": None}])
        assert capsys.readouterr().out == '{"a": "1\\n2"}\n{"a": null}\n'

    @pytest.mark.parametrize("items", [[], [{"n": 1}], [{"n": 1}, {"n": 2}]], ids=len)
    @pytest.mark.parametrize("tail", [{}, {"is_valid": True, "problems": []}], ids=len)
    def test_stream_is_one_document(self, capsys, items, tail):
        print_json_stream({"file": "x", "size": 3}, "items", iter(items), lambda: tail)
        expected = {"file": "x", "size": 3, "items": items, **tail}
        assert json.loads(capsys.readouterr().out) == expected

    def test_stream_asks_for_its_end_after_its_last_item(self, capsys):
        seen = []

        def items():
            for n in (1, 2):
                seen.append(n)
                yield n

        print_json_stream({"a": 0}, "items", items(), lambda: {"seen": list(seen)})
        assert json.loads(capsys.readouterr().out)["seen"] == [1, 2]
