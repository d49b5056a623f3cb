"""Plots of benchmark results as PNG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from wsdesc.core.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[Sequence[float], Sequence[float]]  # x ascending, y
Kind = Literal["recall", "keypoints", "errors", "cost", "tradeoff"]

# Colours that colour-blind readers can distinguish; dashes distinguish them in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v")
_INCHES, _DPI = (6.4, 3.6), 150
_INK = "#333333"


@dataclass(frozen=True)
class Plot:
    """A plot of named curves."""

    file: str  # name of the PNG
    kind: Kind
    title: str
    curves: Mapping[str, Curve]
    x_label: str = ""  # used by errors, cost and tradeoff
    y_label: str = ""

    def draw(self, path: Path) -> None:
        """Write the PNG file."""
        figure, axes = _DRAW[self.kind](self)
        if self.curves:
            axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=_DPI, format="png")


def _recall(plot: Plot) -> tuple[Figure, Axes]:
    """Plot feature-match recall over the inlier-ratio threshold τ2; published thresholds are marked."""
    figure, axes = _axes(plot.title, "inlier-ratio threshold τ2", "feature-match recall (%)")
    for tau2 in (0.05, 0.2):
        axes.axvline(tau2, color="#BBBBBB", linewidth=0.8, zorder=0)
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        axes.plot(x, [100 * value for value in y], label=name, **_style(k))
    axes.set(xlim=(0, 0.3), ylim=(0, 102))
    return figure, axes


def _keypoints(plot: Plot) -> tuple[Figure, Axes]:
    """Plot registration recall over the number of keypoints."""
    figure, axes = _axes(plot.title, "keypoints", "registration recall (%)")
    counts = sorted({count for x, _ in plot.curves.values() for count in x})
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        axes.plot(x, [100 * value for value in y], marker="o", markersize=4, label=name, **_style(k))
    axes.set_xscale("log")
    axes.set_xticks(counts, [f"{count:g}" for count in counts])
    axes.minorticks_off()
    axes.set_ylim(0, 102)
    return figure, axes


def _errors(plot: Plot) -> tuple[Figure, Axes]:
    """Plot the share of pairs up to each error; pairs without a pose are never reached."""
    figure, axes = _axes(plot.title, plot.x_label, "pairs (%)")
    curves = plot.curves.values()
    largest = max((x[-1] for x, _ in curves if len(x)), default=1.0) or 1.0  # all errors may be 0
    smallest = min((value for x, _ in curves for value in x if value > 0), default=0.01)
    low = max(smallest, largest * 1e-5)
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        end = [2 * largest] if len(x) else []
        share = [100 * value for value in y]
        axes.step([low / 2, *x, *end], [0, *share, *share[-1:]], where="post", label=name, **_style(k))
    axes.set_xscale("log")
    axes.set(xlim=(low / 2, 2 * largest), ylim=(0, 102))
    return figure, axes


def _cost(plot: Plot) -> tuple[Figure, Axes]:
    """Plot a time over a size, both logarithmic; whole decades keep noise from looking like a slope."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure, axes = _axes(plot.title, plot.x_label, plot.y_label)
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        axes.plot(x, y, marker="o", markersize=4, label=name, **_style(k))
    axes.set_xscale("log")
    axes.set_yscale("log")
    times = [value for _, y in plot.curves.values() for value in y if value > 0] or [1.0]
    axes.set_ylim(10 ** math.floor(math.log10(min(times))), 10 ** math.ceil(math.log10(max(times)) + 1e-9))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    return figure, axes


def _tradeoff(plot: Plot) -> tuple[Figure, Axes]:
    """Plot one point for each method: registered pairs over time, which is logarithmic.

    Markers of methods that ran on a GPU are filled.
    """
    figure, axes = _axes(plot.title, plot.x_label, "registered pairs (%)")
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        colour = _COLOURS[k % len(_COLOURS)]
        style = {"color": colour, "marker": _MARKERS[k % len(_MARKERS)], "markersize": 7}
        style["markerfacecolor"] = "white" if "cores" in name else colour
        axes.plot(x, [100 * v for v in y], linestyle="none", label=name, clip_on=False, zorder=3, **style)
    lowest = min((100 * value for _, y in plot.curves.values() for value in y), default=0.0)
    axes.set_xscale("log")
    axes.set_ylim(max(0, 20 * math.floor(lowest / 20 - 0.1)), 102)
    return figure, axes


_DRAW = {"recall": _recall, "keypoints": _keypoints, "errors": _errors, "cost": _cost, "tradeoff": _tradeoff}


def _axes(title: str, x_label: str, y_label: str) -> tuple[Figure, Axes]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_INCHES, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=10, color=_INK, loc="left")
    axes.set_xlabel(x_label, fontsize=9, color=_INK)
    axes.set_ylabel(y_label, fontsize=9, color=_INK)
    axes.tick_params(labelsize=8, colors=_INK)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _style(k: int) -> dict[str, Any]:
    """Combine seven colours and four dashes: 28 distinct curves."""
    return {"color": _COLOURS[k % len(_COLOURS)], "linestyle": _DASHES[k % len(_DASHES)], "linewidth": 1.6}
