"""Pieces: parts of a map that are described one at a time, a scan or a tile of a large cloud.

A finished piece is a file, so that a stopped build continues with the next one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.cloud.clean import clean
from wsdesc.cloud.convert import as_cloud
from wsdesc.cloud.sampling import farthest_points
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.atomic import atomic_write
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, transform
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.model import WSDesc
from wsdesc.descriptor.preparation import prepare_scan
from wsdesc.mapping.inputs import MapScan

_ARRAYS = ("origin", "points", "keypoints", "frames", "descriptors")


@dataclass(frozen=True, eq=False)
class Piece:
    """Points and described keypoints of one part of a map, in the axes and the unit of the map.

    Attributes:
        origin: (3,) float64, position that points and keypoints are relative to, in map coordinates.
        points: (N, 3) float32 at the working resolution; empty for a tile (in the map already).
        keypoints: (K, 3) float32.
        frames: (K, 4) int8, quaternions (x, y, z, w) times 127.
        descriptors: (K, C) int8, unit vectors times 127.
    """

    origin: Floats
    points: NDArray[np.float32]
    keypoints: NDArray[np.float32]
    frames: NDArray[np.int8]
    descriptors: NDArray[np.int8]

    def save(self, path: Path) -> None:
        """Write the piece into an .npz file, atomically."""
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{name: getattr(self, name) for name in _ARRAYS})

    @classmethod
    def load(cls, path: Path) -> Piece:
        """Read a piece that `save` wrote."""
        with np.load(path, allow_pickle=False) as file:
            return cls(*(file[name] for name in _ARRAYS))


@dataclass(frozen=True, eq=False)
class Describer:
    """Describe the pieces of a map, all with the same weights, resolution and seed."""

    network: WSDesc
    model: str
    resolution: float
    points_per_keypoint: float
    seed: int
    device: str

    @property
    def unit(self) -> float:
        """Length of one metre of the model, in the map's unit."""
        return self.resolution / INDOOR_RESOLUTION

    def describe_scan(self, scan: MapScan) -> Piece:
        """Describe a scan as seen from its position.

        Raises:
            WSDescError: The scan cannot be read, or has too few points.
        """
        try:
            cleaned = clean(as_cloud(scan.scan).points)
            prepared = prepare_scan(cleaned, self.resolution, self.model, self.seed, 1, self.device)
        except InputError as error:
            raise InputError(f"{scan.source.file}: {error}") from error
        prepared = prepared.with_keypoints(self._keypoint_count(len(prepared.points)), self.seed)
        T_map_local = cleaned.T_scan_local
        if scan.T_map_scan is not None:
            T_map_local = scan.T_map_scan @ T_map_local
        return self._piece(prepared, T_map_local, prepared.points)

    def describe_tile(self, points: NDArray[np.float32], inside: NDArray[np.bool_], corner: Floats) -> Piece:
        """Describe a tile of a large cloud.

        Args:
            points: (N, 3) of the tile and of a margin around it, relative to its corner.
            inside: (N,) whether a point is in the tile: only these become keypoints.
            corner: (3,) corner of the tile, in map coordinates.
        """
        T_map_local = np.eye(4)
        T_map_local[:3, 3] = corner
        local = torch.from_numpy(points).to(self.device) / self.unit
        own = torch.from_numpy(np.flatnonzero(inside)).to(self.device)
        generator = torch.Generator().manual_seed(self.seed)
        order = own[farthest_points(local[own], self._keypoint_count(len(own)), generator)]
        empty = local.new_empty(0, 0), local.new_empty(0, 3, 3)
        prepared = Description(local, order, *empty, self.resolution, T_map_local, self.model)
        return self._piece(prepared, T_map_local, local[:0])

    def _keypoint_count(self, points: int) -> int:
        return math.ceil(points / self.points_per_keypoint)

    def _piece(self, prepared: Description, T_map_local: Floats, points: Tensor) -> Piece:
        """Describe the chosen keypoints, and turn everything into the axes of the map."""
        described = prepared.extend(self.network, len(prepared.order))
        turned = np.eye(4)
        turned[:3, :3] = T_map_local[:3, :3]
        frames = turned[:3, :3] @ described.frames.double().cpu().numpy()
        return Piece(
            T_map_local[:3, 3].copy(),
            _turned(points, turned, self.unit),
            _turned(described.keypoints, turned, self.unit),
            pack_frames(frames),
            pack_descriptors(described.descriptors),
        )


def _turned(points: Tensor, T: Floats, unit: float) -> NDArray[np.float32]:
    return transform(unit * points.double().cpu().numpy(), T).astype(np.float32)


def pack_frames(frames: Floats) -> NDArray[np.int8]:
    """Store frames (K, 3, 3) as quaternions (K, 4), to about half a degree."""
    if len(frames) == 0:
        return np.empty((0, 4), np.int8)
    return np.asarray(np.round(127 * Rotation.from_matrix(frames).as_quat()), np.int8)


def unpack_frames(packed: NDArray[np.int8]) -> Floats:
    """Return the frames (K, 3, 3) of stored quaternions."""
    quaternions = packed.astype(np.float64)
    quaternions[~quaternions.any(axis=1)] = (0, 0, 0, 1)  # only in a damaged file
    return np.asarray(Rotation.from_quat(quaternions).as_matrix())


def pack_descriptors(descriptors: Tensor) -> NDArray[np.int8]:
    """Store unit vectors (K, C) as bytes."""
    return np.asarray((127 * descriptors).round().clamp(-127, 127).to(torch.int8).cpu().numpy())
