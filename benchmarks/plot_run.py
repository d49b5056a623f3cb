"""Draw how trainings went: the learned support over the steps, and the loss beside it.

python -m benchmarks.plot_run RUN… [-o docs/support.png]      folders of runs, or their log.jsonl
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

PUBLISHED = 1.004  # metres: where the paper's support ended, indoors
SMOOTH = 9  # rows of the log to the mean of which a line is drawn

Curve = tuple[list[int], list[float]]  # steps and values


def curve(rows: list[dict[str, float | None]], name: str) -> Curve:
    """The rows that have a value of that name."""
    known = [row for row in rows if row.get(name) is not None]
    return [int(row["step"] or 0) for row in known], [float(row[name] or 0) for row in known]


def smooth(values: list[float]) -> np.ndarray:
    """The mean over a window, shorter at the ends."""
    padded = np.convolve(values, np.ones(SMOOTH), "same")
    return padded / np.convolve(np.ones(len(values)), np.ones(SMOOTH), "same")


def read(run: Path) -> list[dict[str, float | None]]:
    path = run / "log.jsonl" if run.is_dir() else run
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        sys.exit(f"error: {path}: not the log of a run ({error})")


def draw(runs: list[Path], out: Path) -> None:
    """Two panels, a colour a run."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for number, run in enumerate(runs):
        rows, colour = read(run), f"C{number}"
        name = run.name if run.is_dir() else run.parent.name
        left.plot(*curve(rows, "support"), color=colour, lw=1.8, label=name)
        steps, loss = curve([row for row in rows if "orthogonality" in row], "loss")  # others do not compare
        many = len(loss) > SMOOTH
        if many:
            right.plot(steps, loss, color=colour, lw=0.6, alpha=0.3)
        if loss:
            right.plot(steps, smooth(loss) if many else loss, color=colour, lw=1.8, label=f"{name}, training")
        held_out = curve(rows, "held_out_loss")
        if held_out[0]:
            right.plot(*held_out, "o--", color=colour, ms=3, lw=1, label=f"{name}, held out")
    left.axhline(PUBLISHED, color="0.4", ls=":", lw=1.2, label=f"published: {PUBLISHED} m")
    for axes, title, unit in ((left, "learned support", "m"), (right, "loss", "")):
        axes.set(title=title, xlabel="step", ylabel=unit)
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    print(f"written: {out}")


def main() -> None:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/support.png"))
    arguments = parser.parse_args()
    draw(arguments.runs, arguments.out)


if __name__ == "__main__":
    main()
