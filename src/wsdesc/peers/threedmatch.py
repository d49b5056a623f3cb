"""3DMatch (Zeng et al. 2017): 512 numbers per keypoint from a truncated distance field, trained with poses.

The field is sampled in 30³ cells of 1 cm around the keypoint, along the axes of the scan. A rotation of the
scan therefore changes the descriptor. A network of unpadded convolutions compresses the field.

Differences from the paper: trained for minutes on other scans, with Adam; distances are those between cells.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from pydantic import Field
from scipy.spatial import cKDTree
from torch import Tensor, nn

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import transform
from wsdesc.peers.base import to_metres
from wsdesc.peers.training.clouds import TrainingClouds
from wsdesc.peers.training.options import PeerTrainOptions
from wsdesc.peers.training.task import PeerTask
from wsdesc.peers.weights import load_network

CELL, SIDE, TRUNCATION = 0.01, 30, 5  # metres, cells, cells
_PADDED = SIDE + 2 * TRUNCATION
_CHUNK = {"cuda": 128, "cpu": 16}  # keypoints at once
_SAMPLED = 1500  # points of a scan that are matched with those of another one
_GROUP = 8  # matches of a batch from the same two scans


class TdfOptions(PeerTrainOptions):
    """Options of the training of 3DMatch's network."""

    learning_rate: float = Field(3e-4, gt=0, description="Learning rate of the first step (Adam).")
    distance: float = Field(0.03, gt=0, description="Largest distance of matched points, in metres.")
    least_matches: int = Field(100, ge=8, description="Matches of two scans below which they are left out.")
    margin: float = Field(1.0, gt=0, description="Distance up to which other descriptors are pushed away.")


def distance_fields(points: Tensor, keypoints: Tensor) -> Tensor:
    """Compute truncated distance fields (K, 30, 30, 30) of points (N, 3) around keypoints (K, 3).

    They are 1 at points and 0 from 5 cm on. The first axis is x. Distances are those between cells.
    """
    near = ((points - keypoints.mean(0)).abs() <= _reach(keypoints)).all(1)
    cells = ((points[near] - keypoints[:, None]) / CELL).floor().int() + _PADDED // 2  # (K, M, 3)
    key, point = ((cells >= 0) & (cells < _PADDED)).all(-1).nonzero(as_tuple=True)
    far = float(TRUNCATION**2)
    squared = keypoints.new_full((len(keypoints), _PADDED, _PADDED, _PADDED), far)
    squared[(key, *cells[key, point].long().unbind(1))] = 0.0
    steps = torch.arange(-TRUNCATION, TRUNCATION + 1, device=keypoints.device).to(squared).square()
    for axis in (1, 2, 3):  # the smallest sum of squares, one axis after the other
        squared = (squared.unfold(axis, len(steps), 1) + steps).amin(-1)
    return 1 - squared.clamp(max=far).sqrt() / TRUNCATION


def _reach(keypoints: Tensor) -> Tensor:
    """Return the half sides (3,) of a box about the mean of keypoints (K, 3) that holds all their fields."""
    return (keypoints - keypoints.mean(0)).abs().amax(0) + _PADDED / 2 * CELL


class TdfNetwork(nn.Module):
    """Eight convolutions of 3³ without padding, one maximum over 2³."""

    def __init__(self) -> None:
        super().__init__()
        widths = (1, 64, 64, 128, 128, 256, 256, 512, 512)
        self.layers = nn.ModuleList(nn.Conv3d(a, b, 3) for a, b in pairwise(widths))

    def forward(self, fields: Tensor) -> Tensor:
        """Describe fields (B, 30, 30, 30): (B, 512)."""
        x = fields[:, None]
        for number, layer in enumerate(self.layers):
            x = layer(x)
            if number < len(self.layers) - 1:
                x = torch.relu(x)
            if number == 1:
                x = nn.functional.max_pool3d(x, 2)  # 26 → 13
        return x.flatten(1)


class ThreeDMatch:
    """A descriptor peer, on the device of the points."""

    SOURCE: ClassVar[str] = "oracle, with poses; train it: wsdesc train --peer 3dmatch SCANS"
    FILES: ClassVar[tuple[str, ...]] = ("3dmatch.safetensors",)

    def __init__(self, weights: Path) -> None:
        self.network = load_network(TdfNetwork(), weights, self.FILES[0], self.SOURCE)

    @torch.no_grad()
    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, 512) float32 of `keypoints` (K, 3) in `points` (N, 3)."""
        points, keypoints = to_metres(points, keypoints, unit)
        network = self.network.to(points.device)
        chunks = keypoints.split(_CHUNK[points.device.type])
        return torch.cat([network(distance_fields(points, chunk)) for chunk in chunks])


class PosedMatches(NamedTuple):
    """Points of two scans that coincide under the true poses."""

    p: int  # number of a scan
    q: int
    points_p: Tensor  # (M, 3) in the frame of scan p
    points_q: Tensor  # (M, 3) in the frame of scan q


def match_scans(clouds: TrainingClouds, distance: float, least: int) -> list[PosedMatches]:
    """Match points of all pairs of scans of the same sequence by their true poses.

    Raises:
        InputError: No two scans have `least` matches.
    """
    rng = np.random.default_rng(0)
    world = [transform(c.double().numpy(), T) for c, T in zip(clouds.clouds, clouds.poses, strict=True)]
    trees = [cKDTree(points) for points in world]
    result = []
    for p, points in enumerate(world):
        sample = rng.permutation(len(points))[:_SAMPLED]
        for q in range(len(world)):
            if q == p or clouds.sequences[q] != clouds.sequences[p]:
                continue
            near, index = trees[q].query(points[sample], distance_upper_bound=distance)
            kept = np.isfinite(near)
            if kept.sum() >= least:
                p_points, q_points = clouds.clouds[p][sample[kept]], clouds.clouds[q][index[kept]]
                result.append(PosedMatches(p, q, p_points, q_points))
    if not result:
        raise InputError(f"no two scans have {least} matches under their poses: this peer needs overlaps")
    return result


class ThreeDMatchTask(PeerTask):
    """The training of 3DMatch's network on matches and other pairs of keypoints, half of each."""

    options_type = TdfOptions
    options: TdfOptions
    source = "scans with their poses"
    needs_poses = True

    def __init__(self, options: TdfOptions, clouds: TrainingClouds, device: torch.device) -> None:
        super().__init__(options, clouds, device)
        matches = match_scans(clouds, options.distance, options.least_matches)
        self.matches = [
            m._replace(points_p=m.points_p.to(device), points_q=m.points_q.to(device)) for m in matches
        ]
        self.clouds = [cloud.to(device) for cloud in clouds.clouds]
        self.network = TdfNetwork().to(device)

    def batch(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draw the fields (B, 30, 30, 30) of matched keypoints, groups of them from the same two scans."""
        groups = -(-self.options.batch // _GROUP)
        draw = torch.rand(groups, 1 + _GROUP, generator=generator, device=self.device)
        fields: tuple[list[Tensor], list[Tensor]] = ([], [])
        for which, *rows in (draw.double().cpu()).tolist():
            match = self.matches[int(which * len(self.matches))]
            index = [int(row * len(match.points_p)) for row in rows]
            fields[0].append(distance_fields(self.clouds[match.p], match.points_p[index]))
            fields[1].append(distance_fields(self.clouds[match.q], match.points_q[index]))
        return torch.cat(fields[0]), torch.cat(fields[1])

    def loss(self, batch: tuple[Tensor, Tensor], generator: torch.Generator) -> Tensor:
        """Compute the contrastive loss: matches attract, keypoints of other places repel up to a margin."""
        descriptors: Tensor = self.network(torch.cat(batch)).float()
        p, q = descriptors.chunk(2)
        other = q.roll(_GROUP, 0)  # of other scans
        same, apart = (p - q).square().sum(1), (p - other).square().sum(1)
        repelled = (self.options.margin - (apart + 1e-12).sqrt()).clamp(min=0).square()
        return (same + repelled).mean()
