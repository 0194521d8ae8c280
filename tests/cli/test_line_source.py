"""Lines of a descriptor, in blocks, as they come."""

import os

import pytest

from spark_log.cli.format import line_source
from spark_log.cli.format.line_source import line_blocks
from spark_log.errors import InvalidRecordError
from spark_log.util.clock import ManualClock


@pytest.fixture
def pipe():
    """A pipe: what to read, and what to write."""
    reading, writing = os.pipe()
    with open(reading, "rb", closefd=False), open(writing, "wb", buffering=0) as sink:
        yield reading, sink
    os.close(reading)


def test_a_file_comes_in_blocks_of_whole_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(line_source, "BLOCK_BYTES", 16)
    text = b"".join(b"line %d\n" % number for number in range(100)) + b"the end"
    (tmp_path / "file").write_bytes(text)
    with open(tmp_path / "file", "rb") as file:
        blocks = list(line_blocks(file.fileno(), ManualClock()))
    assert b"".join(blocks) == text
    assert len(blocks) > 40
    assert all(block.endswith(b"\n") for block in blocks[:-1])


def test_an_empty_file_has_no_blocks(tmp_path):
    (tmp_path / "file").touch()
    with open(tmp_path / "file", "rb") as file:
        assert list(line_blocks(file.fileno(), ManualClock())) == []


def test_what_is_there_is_handed_out_when_no_more_comes(pipe):
    reading, sink = pipe
    # Called where nothing can be read: whoever types waits for the prompt too.
    typed = iter([b"one\ntw", b"o\nthree\n", b"four"])

    def type_on():
        data = next(typed, None)
        sink.close() if data is None else sink.write(data)

    blocks = line_blocks(reading, ManualClock(), before_wait=type_on)
    assert list(blocks) == [b"", b"one\n", b"", b"two\nthree\n", b"", b"", b"four"]


def test_lines_that_never_pause_are_handed_out_in_time(tmp_path, monkeypatch):
    """A stream of short lines that is never idle, and too slow to fill a block."""

    class Clock(ManualClock):
        def monotonic_ms(self):
            self.advance_ms(40)
            return super().monotonic_ms()

    (tmp_path / "file").write_bytes(b"line\n" * 100)
    with open(tmp_path / "file", "rb") as file:
        monkeypatch.setattr(os, "read", lambda fd, count: file.read(5))
        blocks = list(line_blocks(file.fileno(), Clock()))
    assert b"".join(blocks) == b"line\n" * 100
    assert 20 < len(blocks) < 100


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(line_source, "MAX_LINE_BYTES", 100)
    monkeypatch.setattr(line_source, "BLOCK_BYTES", 64)
    (tmp_path / "file").write_bytes(b"short\n" + b"x" * 1000)
    with open(tmp_path / "file", "rb") as file:
        blocks = line_blocks(file.fileno(), ManualClock())
        assert next(blocks) == b"short\n"
        with pytest.raises(InvalidRecordError, match="longer than 100 bytes"):
            list(blocks)
