"""Draw the progress of trainings: the learned support and the loss over the steps.

    python -m benchmarks.plot_run RUN… [-o docs/images/support.png]

RUN is the folder of a training, or its log.jsonl. Writes a PNG with two panels and prints its name.
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

from benchmarks.common import make_parser, run_command
from wsdesc.core.errors import FileFormatError

PUBLISHED = 1.004  # metres, the support that the paper learned indoors
SMOOTH = 9  # rows of the log in a moving average

Curve = tuple[list[int], list[float]]  # steps and values


def curve(rows: list[dict[str, float | None]], name: str) -> Curve:
    """Select the steps and values of one quantity."""
    present = [row for row in rows if row.get(name) is not None]
    return [int(row["step"] or 0) for row in present], [float(row[name] or 0) for row in present]


def smooth(values: list[float]) -> np.ndarray:
    """Compute a moving average with shorter windows at the ends."""
    padded = np.convolve(values, np.ones(SMOOTH), "same")
    return padded / np.convolve(np.ones(len(values)), np.ones(SMOOTH), "same")


def read(run: Path) -> list[dict[str, float | None]]:
    """Read the log of a run."""
    path = run / "log.jsonl" if run.is_dir() else run
    try:
        return [json.loads(line) for line in path.read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{path}: not the log of a training ({error})") from error


def draw(runs: list[Path], out: Path) -> None:
    """Draw two panels, with one colour per run."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for number, run in enumerate(runs):
        rows, colour = read(run), f"C{number}"
        name = run.name if run.is_dir() else run.parent.name
        left.plot(*curve(rows, "support"), color=colour, lw=1.8, label=name)
        steps, loss = curve(
            [row for row in rows if "orthogonality" in row], "loss"
        )  # losses of other kinds are not comparable
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


def main(arguments: argparse.Namespace) -> None:
    draw(arguments.runs, arguments.out)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("plot_run", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="folders of trainings, or their log.jsonl")
    parser.add_argument("-o", "--out", type=Path, default=Path("docs/images/support.png"), help="PNG file")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
