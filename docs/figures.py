"""Draw docs/images/voxels.png: a keypoint of a synthetic room, its frame, its support and its voxels.

python docs/figures.py
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import wsdesc
from wsdesc.datasets.synthetic import room_pair

SUPPORT = 1.15  # metres, that of the shipped weights
OCCUPIED = 0.5  # voxels above this value are drawn
COLOURS = ("tab:red", "tab:green", "tab:blue")


def main() -> None:
    points = torch.from_numpy(np.asarray(room_pair(0).target, dtype=np.float32))
    keypoint = points[_most_curved(points)][None]  # (1, 3)
    frames = wsdesc.local_frames(points, keypoint)[0]  # (1, 3, 3)
    voxels = wsdesc.voxelize(points, keypoint, frames, torch.tensor(SUPPORT))[0].numpy()  # (16, 16, 16)
    local = ((points - keypoint) @ frames[0]).numpy()  # coordinates in the frame
    figure = plt.figure(figsize=(12, 4))
    _draw_support(figure.add_subplot(1, 3, 1, projection="3d", computed_zorder=False), local)
    _draw_voxels(figure.add_subplot(1, 3, 2, projection="3d"), voxels)
    _draw_probability(figure.add_subplot(1, 3, 3))
    figure.tight_layout()
    figure.savefig(Path(__file__).parent / "images" / "voxels.png", dpi=110)


def _most_curved(points: torch.Tensor) -> int:
    """Choose the point, of 400, whose neighbourhood fills most of its smallest direction."""
    candidates = torch.linspace(0, len(points) - 1, 400).long()
    values = []
    for index in candidates:
        offsets = points - points[index]
        near = offsets[offsets.norm(dim=1) < SUPPORT / 3]
        values.append(torch.linalg.eigvalsh(near.T @ near / len(near))[0])
    return int(candidates[torch.stack(values).argmax()])


def _draw_support(axes: plt.Axes, local: np.ndarray) -> None:
    near = local[np.abs(local).max(axis=1) < 0.75 * SUPPORT]
    inside = np.abs(near).max(axis=1) < SUPPORT / 2
    for part, colour in ((near[~inside], "lightgrey"), (near[inside], "steelblue")):
        axes.scatter(*part.T, s=0.4, color=colour)
    corners = np.array(list(product((-0.5, 0.5), repeat=3))) * SUPPORT
    for a, b in product(range(8), repeat=2):
        if a < b and np.isclose(np.abs(corners[a] - corners[b]).sum(), SUPPORT):
            axes.plot(*corners[[a, b]].T, color="black", linewidth=0.8)
    for direction, colour in zip(np.eye(3), COLOURS, strict=True):
        axes.plot(
            *np.stack([np.zeros(3), 0.35 * SUPPORT * direction]).T, color=colour, linewidth=4, zorder=10
        )
    _finish(axes, "frame (x red, y green, z blue) and support")


def _draw_voxels(axes: plt.Axes, voxels: np.ndarray) -> None:
    axes.voxels(voxels > OCCUPIED, facecolors="steelblue", edgecolor="white", linewidth=0.2)
    _finish(axes, f"voxels with v > {OCCUPIED}")


def _finish(axes: plt.Axes, title: str) -> None:
    axes.set_title(title)
    axes.set_axis_off()
    axes.set_box_aspect((1, 1, 1), zoom=1.4)


def _draw_probability(axes: plt.Axes) -> None:
    d = np.linspace(-0.1, 0.1, 401)
    axes.plot(100 * d, 1 / (1 + np.exp(np.sign(d) * d * d / 1e-3)))
    axes.set(
        xlabel="signed distance d to the voxel's sphere, cm",
        ylabel="P(p)",
        title="soft membership of a point",
    )
    axes.grid(alpha=0.3)


if __name__ == "__main__":
    main()
