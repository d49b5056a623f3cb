"""The interface of peers (descriptors and pose estimators), and functions that implementations share.

Learned peers compute on the device of the points, the others on the CPU. Their settings are in metres; `unit`
is the length of one metre in the scan's unit. Peers that orient normals towards a viewpoint use the origin of
the scan's coordinates. A depth camera stands there, also after a rotation of the scan.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import MissingExtraError, WSDescError
from wsdesc.core.geometry import Floats, check_length, is_rigid

_FAR = 1000.0  # metres from the origin: no viewpoint is so far away, and float32 loses digits


class DescriptorPeer(Protocol):
    """A descriptor: similar surfaces have similar vectors."""

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """Compute descriptors (K, C) float32 of keypoints (K, 3) in points (N, 3), without downsampling."""
        ...


class PosePeer(Protocol):
    """A method that estimates the pose of one scan in another."""

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """Estimate T_target_source (4, 4) float64 of source (N, 3) and target (M, 3); None if it fails.

        The scans are downsampled to the working resolution, 0.025 m. Random choices depend on `seed`.
        """
        ...


class PeerUnavailableError(WSDescError):
    """The package of a peer is not installed or cannot be loaded; the message has the install command."""


def load_package(name: str, what: str, system: str = "") -> Any:
    """Import the optional package of a peer.

    Args:
        name: Module to import.
        what: Name of the package in error messages.
        system: Debian packages that the package needs.

    Raises:
        PeerUnavailableError: The package or one of its libraries is missing.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # a dependency of the package is missing
            raise PeerUnavailableError(f"{what} cannot be loaded: {_one_line(error)}") from error
        libraries = f"; its system libraries: apt-get install {system}" if system else ""
        raise PeerUnavailableError(f"{MissingExtraError(what, 'peers')}{libraries}") from error
    except (ImportError, OSError) as error:
        remedy = f". Install its system libraries: apt-get install {system}" if system else ""
        raise PeerUnavailableError(f"{what} cannot be loaded: {_one_line(error)}{remedy}") from error


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def downsample_to_metres(points: Tensor, name: str, unit: float) -> Floats:
    """Convert points (N, 3) to metres and downsample them to 0.025 m: (M, 3)."""
    check_length(unit, "the unit")
    check_points(points, name)
    metres = points.detach().cpu().double() / unit
    return voxel_downsample(metres, INDOOR_RESOLUTION).numpy()


def to_metres(points: Tensor, keypoints: Tensor, unit: float) -> tuple[Tensor, Tensor]:
    """Check points (N, 3) and keypoints (K, 3); convert both to float32 metres on the device of the points.

    The origin, where the viewpoint of a scan is, stays unless the scan is far away from it.
    """
    check_length(unit, "the unit")
    check_points(points)
    check_points(keypoints, "keypoints")
    metres = points.detach().double() / unit
    origin = torch.from_numpy(far_origin(metres.cpu().numpy())).to(metres)
    keys = keypoints.detach().to(metres) / unit
    return (metres - origin).float().contiguous(), (keys - origin).float().contiguous()


def far_origin(points: Floats) -> Floats:
    """Choose an origin (3,) to subtract from points (N, 3) in metres.

    It is zero, so that the viewpoint stays at the origin. If the scan is so far away that float32 loses
    digits, it is the mean of the points.
    """
    return points.mean(0) if np.abs(points).max() > _FAR else np.zeros(3)


def to_scan_frames(
    T_local: Floats, source_origin: Floats, target_origin: Floats, unit: float
) -> Tensor | None:
    """Convert a pose in metres between shifted scans to the scans' own frames and unit.

    Args:
        T_local: Pose (4, 4) of the source in the target, in metres, each without its origin.
        source_origin: Origin (3,) that was subtracted from the source, in metres.
        target_origin: Origin (3,) that was subtracted from the target, in metres.
        unit: Length of one metre in the scans' unit.

    Returns:
        T_target_source (4, 4) float64, or None if `T_local` is not rigid.
    """
    if not is_rigid(T_local):
        return None
    R = T_local[:3, :3]
    T_target_source = torch.eye(4, dtype=torch.float64)
    T_target_source[:3, :3] = torch.from_numpy(R.copy())
    T_target_source[:3, 3] = torch.from_numpy(unit * (T_local[:3, 3] + target_origin - R @ source_origin))
    return T_target_source
