"""A training small enough for tests, and scans with poses beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wsdesc import write_points
from wsdesc.learning.options import TrainOptions
from wsdesc.learning.sources import drop_sparse

DESCRIPTOR = {"width": 0.0625, "support_start": 1.2, "resolution": 8}


def tiny(**changes: Any) -> TrainOptions:
    return TrainOptions.read({"descriptor": DESCRIPTOR, "keypoints": 40, **changes})


def tiny_clouds(room: Any) -> list[Tensor]:
    """Two overlapping clouds of a room, a quarter of their points."""
    return [drop_sparse(torch.as_tensor(c), 0.3, 0.45)[::4] for c in (room.source, room.target)]


def write_scene(folder: Path, scans: Any, scale: float = 1.0) -> Path:
    """Write scans in the layout of 3DMatch's training set, with their poses beside them."""
    folder.mkdir()
    for k, scan in enumerate(scans):
        write_points(folder / f"cloud_bin_{k}.ply", scan.points * scale)
        T = scan.T_world_scan.copy()
        T[:3, 3] *= scale
        pose = "\n".join(" ".join(f"{x:.6f}" for x in row) for row in T)
        (folder / f"cloud_bin_{k}.info.txt").write_text(f"scene\t seq-01\t {k}\n{pose}\n")
    return folder
