"""Mix the weights before and after an adaptation, so that little is forgotten on other scans.

A network between both, parameter by parameter, keeps most of what it learned and loses less of what it knew.
The share of the new weights is the largest one at which synthetic scenes, which no step trained on, lose
little.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from wsdesc.adaptation.steps import read_step, write_step
from wsdesc.adaptation.weights import WeightFiles
from wsdesc.core.folders import make_folder
from wsdesc.descriptor import pretrained

SHARES = (1.0, 0.75, 0.5, 0.25)  # of the new weights, tried in this order
MIX_LOSS = 0.005  # inlier ratio on synthetic scenes that a mixture may lose


class Mixture(NamedTuple):
    """Mixed weights, and the inlier ratio on synthetic scenes."""

    files: WeightFiles
    share: float  # of the new weights
    synthetic: tuple[float, float]  # before and after


def choose_mixture(
    before: WeightFiles, after: WeightFiles, folder: Path, measure: Callable[[Path, str], float]
) -> Mixture:
    """Mix fast and full weights with the largest share of the new ones that forgets little.

    Args:
        before: Weights before the adaptation.
        after: Weights of the same networks after it.
        folder: Folder of the round, for mixed weights and the choice; a choice in it is not repeated.
        measure: Returns the inlier ratio of a file of weights; its second argument names the step.

    Returns:
        The mixture; that with the smallest share if all of them forget more.
    """
    file = folder / "mixture.json"
    if not file.is_file():
        old = measure(before.fast, "synthetic scenes, before")
        for share in SHARES:
            new = measure(_mix_both(before, after, share, folder).fast, "synthetic scenes, after")
            if new >= old - MIX_LOSS:
                break
        write_step(file, [share, old, new])
    share, old, new = read_step(file)
    return Mixture(_mix_both(before, after, share, folder), share, (old, new))


def _mix_both(before: WeightFiles, after: WeightFiles, share: float, folder: Path) -> WeightFiles:
    if share == 1:
        return after
    full = None
    if before.full is not None and after.full is not None:
        full = mix(before.full, after.full, share, folder / "mixed_full")
    return WeightFiles(mix(before.fast, after.fast, share, folder / "mixed"), full)


def mix(before: Path, after: Path, share: float, folder: Path) -> Path:
    """Write the weights `(1 - share) · before + share · after` of two equal networks into a folder."""
    (_, old), (options, new) = pretrained.load(before), pretrained.load(after)
    mixed = {name: torch.lerp(old[name].float(), new[name].float(), share) for name in new}
    make_folder(folder)
    pretrained.save(folder / pretrained.RUN_WEIGHTS, options, mixed)
    return folder / pretrained.RUN_WEIGHTS
