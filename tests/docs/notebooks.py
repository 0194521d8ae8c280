"""Runs notebooks cell by cell, and returns their names and their plotted lines."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def run_notebook(code: list[str]) -> dict[str, object]:
    """Run the cells of a notebook and draw its figure; return the names that the cells have set."""
    matplotlib.use("Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in code:
        exec(cell, names)
    figure = names["figure"]
    assert isinstance(figure, Figure)
    figure.canvas.draw()
    return names


def plotted_lag(code: list[str]) -> dict[str, list[int]]:
    """Run the cells of ``notebooks/group_lag.ipynb``; return the values of its lines by label.

    Each line must be visible: a line of one point needs a marker.
    """
    axes = run_notebook(code)["axes"]
    assert isinstance(axes, Axes)
    low, high = axes.get_ylim()
    drawn = {}
    for line in axes.get_lines():
        values = [int(value) for value in np.asarray(line.get_ydata())]
        assert len(values) > 1 or line.get_marker() != "None"
        assert all(low <= value <= high for value in values)
        drawn[str(line.get_label())] = values
    return drawn
