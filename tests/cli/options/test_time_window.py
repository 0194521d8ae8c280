"""A window of event time, given on the command line."""

import numpy as np
import pytest
import typer

from spark_log.cli.options.time_window import TimeWindow


class TestParse:
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
