"""Running notebooks: their cells, one after the other, and what they drew."""

from __future__ import annotations

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure


def plotted_lag(code: list[str]) -> dict[str, list[int]]:
    """Run the cells of ``notebooks/group_lag.ipynb``; return what its lines show, by their labels.

    Only what can be seen counts: a line of one point has to have a marker.
    """
    matplotlib.use("Agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for cell in code:
        exec(cell, names)
    figure, axes = names["figure"], names["axes"]
    assert isinstance(figure, Figure)
    assert isinstance(axes, Axes)
    figure.canvas.draw()
    low, high = axes.get_ylim()
    drawn = {}
    for line in axes.get_lines():
        values = [int(value) for value in np.asarray(line.get_ydata())]
        assert len(values) > 1 or line.get_marker() != "None"
        assert all(low <= value <= high for value in values)
        drawn[str(line.get_label())] = values
    return drawn
