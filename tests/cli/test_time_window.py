"""A span of event time, as the user names it."""

import numpy as np
import pytest
import typer

from spark_log.cli.time_window import TimeWindow, parse_time_us

NOON_US = 1_370_088_000_000_000  # date -u -d 2013-06-01T12:00:00 +%s


class TestParse:
    @pytest.mark.parametrize(
        ("text", "time_us"),
        [
            ("0", 0),
            ("-1", -1000),
            ("1370088000000", NOON_US),
            ("2013-06-01T12:00:00", NOON_US),
            ("2013-06-01 12:00", NOON_US),
            ("2013-06-01T12:00:00Z", NOON_US),
            ("2013-06-01T14:00:00+02:00", NOON_US),
            ("2013-06-01T12:00:00.000001", NOON_US + 1),
            ("2013-06-01", NOON_US - 12 * 3_600_000_000),
            ("1969-12-31T23:59:59.999999Z", -1),
        ],
    )
    def test_reads_milliseconds_and_iso_8601_in_utc(self, text, time_us, monkeypatch):
        monkeypatch.setenv("TZ", "America/New_York")
        assert parse_time_us("--from-time", text) == time_us

    @pytest.mark.parametrize("text", ["yesterday", "", "12:00", "1.5", "2013-13-01", "٣"])
    def test_refuses_what_is_no_time(self, text):
        with pytest.raises(typer.BadParameter, match="is not a time"):
            parse_time_us("--from-time", text)

    def test_refuses_what_could_be_a_date_or_milliseconds(self):
        with pytest.raises(typer.BadParameter, match="write the date as 2013-06-01"):
            parse_time_us("--from-time", "20130601")

    def test_refuses_what_the_log_cannot_hold(self):
        with pytest.raises(typer.BadParameter, match="too far away"):
            parse_time_us("--from-time", "9" * 20)

    @pytest.mark.parametrize(("start", "end"), [("2", "1"), ("1", "1")])
    def test_refuses_a_window_with_nothing_in_it(self, start, end):
        with pytest.raises(typer.BadParameter, match=f"{start} is not before --to-time {end}"):
            TimeWindow.parse(start, end)


class TestContains:
    TIMES_US = np.array([-(2**63), 999, 1000, 1999, 2000, 2**63 - 1])

    @pytest.mark.parametrize(
        ("window", "inside"),
        [
            (TimeWindow(), [1, 1, 1, 1, 1, 1]),
            (TimeWindow(1000, None), [0, 0, 1, 1, 1, 1]),
            (TimeWindow(None, 2000), [1, 1, 1, 1, 0, 0]),
            (TimeWindow(1000, 2000), [0, 0, 1, 1, 0, 0]),
        ],
    )
    def test_its_start_and_not_its_end(self, window, inside):
        assert window.contains(self.TIMES_US).tolist() == [bool(flag) for flag in inside]

    def test_everything_only_when_it_is_open(self):
        assert TimeWindow().is_open
        assert not TimeWindow(0, None).is_open
        assert not TimeWindow(None, 0).is_open
