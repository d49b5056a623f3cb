"""Find overlapping scans without poses: the function behind `wsdesc pairs`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wsdesc.core.errors import InputError
from wsdesc.core.file_parts import training_paths
from wsdesc.core.progress import ProgressHook, no_progress
from wsdesc.datasets.scans import find_sequences
from wsdesc.learning.data import load_training_data
from wsdesc.learning.options import PairMode, TrainOptions
from wsdesc.learning.training import Scans, change


@dataclass(frozen=True)
class ScanPair:
    """Two scans that overlap."""

    source: Path
    target: Path
    overlap: float | None  # estimated, 0 … 1; None: not checked
    inliers: int | None  # inliers of the overlap check; None: not checked


def pairs(
    scans: Scans,
    *,
    mode: PairMode = "both",
    window: int | None = None,
    min_overlap: float | None = None,
    start: str | Path | None = None,
    unit: float | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    progress: ProgressHook | None = None,
) -> list[ScanPair]:
    """Find the overlapping pairs that a training would use. No pose is read.

    Args:
        scans: Folders or files of scans, in the order of their names.
        mode: "order" takes all neighbours in a sequence, "both" keeps those that pass an overlap check,
            "overlap" checks all pairs of a sequence.
        window: Largest distance of two neighbours in a sequence, in scans; 4 by default.
        min_overlap: Smallest estimated overlap of a checked pair, 0.3 by default.
        start: Weights for the overlap check: a name, a file or a run's folder; None: point feature
            histograms.
        unit: Length of one metre in the scans' unit; None: measured.
        seed: Seed of keypoints and RANSAC.
        out: JSON file for the pairs, in the format of a run's `pairs.json`.
        progress: Hook for reading, describing and checking.

    Raises:
        InputError: Fewer than two scans are readable, no two of them overlap, or they are separate shapes.
        FileFormatError: A file cannot be read or written.
    """
    paths = training_paths(scans)
    if not paths:
        raise InputError("scans: at least one folder of scans is required")
    data = {"pairs": mode, "window": window, "min_overlap": min_overlap, "unit": unit}
    start = None if start is None else str(start)
    options = change(TrainOptions(), {"data": data, "start": start, "seed": seed})
    graph = load_training_data(paths, options, progress=progress or no_progress).graph
    if graph is None:
        raise InputError("scans: separate shapes have no overlapping pairs")
    if out is not None:
        graph.save(out)
    sequences = find_sequences(paths)
    return [
        ScanPair(
            sequences[pair.sequence].scans[pair.i].path,
            sequences[pair.sequence].scans[pair.j].path,
            pair.overlap,
            pair.inliers,
        )
        for pair in graph.pairs
    ]
