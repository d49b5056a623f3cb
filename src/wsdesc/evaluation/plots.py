"""The curves of the experiments: as data in a report, and as PNG where there is matplotlib to draw them.

A machine with a GPU often has no matplotlib. What it measured is drawn elsewhere, from report.json.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from wsdesc.core.atomic import atomic_write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[Sequence[float], Sequence[float]]  # x ascending, y
Kind = Literal["recall", "keypoints", "errors", "cost"]

# Colours that stay apart for colour-blind eyes; dashes tell them apart in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#444444")
_DASHES = ("-", "--", "-.", ":")
_INCHES, _DPI = (6.4, 3.6), 150
_INK = "#333333"


@dataclass(frozen=True)
class Plot:
    """A picture to be drawn: named curves, and what they are of."""

    file: str  # its name, beside the report
    kind: Kind
    title: str
    curves: Mapping[str, Curve]
    x_label: str = ""  # of errors and cost; the others have their own
    y_label: str = ""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """As it was before it became JSON; a ValueError for a name that leads elsewhere."""
        if Path(values["file"]).name != values["file"] or not values["file"].endswith(".png"):
            raise ValueError(f"{values['file']} is not the name of a picture")
        curves = {name: (x, y) for name, (x, y) in values.pop("curves").items()}
        return cls(**values, curves=curves)

    def draw(self, path: Path) -> None:
        """Write the PNG."""
        figure, axes = _DRAWN[self.kind](self)
        if self.curves:
            axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        with atomic_write(path) as temporary:
            figure.savefig(temporary, dpi=_DPI, format="png")


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def _recall(plot: Plot) -> tuple[Figure, Axes]:
    """Feature-match recall, 0 … 1, over the inlier-ratio threshold τ2; published thresholds are marked."""
    figure, axes = _axes(plot.title, "inlier-ratio threshold τ2", "feature-match recall (%)")
    for tau2 in (0.05, 0.2):
        axes.axvline(tau2, color="#BBBBBB", linewidth=0.8, zorder=0)
    for k, (name, (x, y)) in enumerate(plot.curves.items()):
        axes.plot(x, [100 * value for value in y], label=name, **_style(k))
    axes.set(xlim=(0, 0.3), ylim=(0, 102))
    return figure, axes


def _keypoints(plot: Plot) -> tuple[Figure, Axes]:
    """Registration recall, 0 … 1, over the number of keypoints."""
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
    """Share of pairs up to each error, a step curve; pairs that were not found are never reached."""
    figure, axes = _axes(plot.title, plot.x_label, "pairs (%)")
    curves = plot.curves.values()
    largest = max((x[-1] for x, _ in curves if len(x)), default=1.0) or 1.0  # all may be exact
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
    """A time over a size, both logarithmic and whole decades: a horizontal line is a size that costs nothing,
    and noise does not look like a slope."""
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


_DRAWN = {"recall": _recall, "keypoints": _keypoints, "errors": _errors, "cost": _cost}


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
    """Seven colours and four dashes, in step: 28 curves before two look alike."""
    return {"color": _COLOURS[k % len(_COLOURS)], "linestyle": _DASHES[k % len(_DASHES)], "linewidth": 1.6}
