"""What a peer is: a descriptor or a pose estimator of other people, called the way ours is.

Peers compute on the CPU. Lengths in their settings are metres; the `unit` says how long a metre is in the
cloud's own measure, as everywhere. Those that orient normals by a viewpoint take the origin of the cloud's
coordinates for it, which is where the camera of a depth scan stands, also after the scan was turned.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wsdesc.cloud.neighbours import check_points
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import InputError, WSDescError

_FAR = 1000.0  # units from the origin: no viewpoint lies so far away, and float32 begins to lose digits

Floats = NDArray[np.float64]


class DescriptorPeer(Protocol):
    """Descriptors of keypoints; the nearer two of them, the more alike the places."""

    def __call__(self, points: Tensor, keypoints: Tensor, unit: float = 1.0) -> Tensor:
        """points (N, 3), keypoints (K, 3) → (K, C) float32 on the CPU. Downsampling is the caller's."""
        ...


class PosePeer(Protocol):
    """A motion from two clouds."""

    def __call__(self, source: Tensor, target: Tensor, unit: float = 1.0, *, seed: int = 0) -> Tensor | None:
        """source (N, 3), target (M, 3) → T_target_source (4, 4) float64, None where none was found.

        Clouds are downsampled to the working resolution of 0.025 units here. The `seed` is for those that
        draw at random.
        """
        ...


class PeerUnavailableError(WSDescError):
    """A peer that cannot run here; the message has the line to type."""


def load_package(name: str, what: str, system: str = "") -> Any:
    """Import an optional package; where it or a system library is missing, say what to type."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:  # it is there, but something it needs is not
            raise PeerUnavailableError(f"{what} cannot be loaded: {_one_line(error)}") from error
        raise PeerUnavailableError(
            f'{what} is not installed. Type: pip install "wsdesc[peers]"'
            + (f", and for its system libraries: apt-get install {system}" if system else "")
        ) from error
    except (ImportError, OSError) as error:
        remedy = f". Type: apt-get install {system}" if system else ""
        raise PeerUnavailableError(f"{what} cannot be loaded: {_one_line(error)}{remedy}") from error


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def check_unit(unit: float) -> None:
    """Refuse what is no length."""
    if not (unit > 0 and math.isfinite(unit)):
        raise InputError(f"a unit must be a positive length, not {unit}")


def at_working_resolution(points: Tensor, name: str, unit: float) -> Floats:
    """The cloud (N, 3) in metres, a point in each cell of 0.025: (M, 3)."""
    check_unit(unit)
    check_points(points, name)
    metres = points.detach().cpu().double() / unit
    return voxel_downsample(metres, INDOOR_RESOLUTION).numpy()


def far_origin(points: Floats) -> Floats:
    """What to subtract from a cloud (N, 3) first: nothing, so that the viewpoint stays the origin, unless
    the cloud is so far away that its digits are at stake; then its mean."""
    return points.mean(0) if np.abs(points).max() > _FAR else np.zeros(3)


def in_the_clouds_frames(
    T_local: Floats, source_origin: Floats, target_origin: Floats, unit: float
) -> Tensor | None:
    """T_target_source (4, 4) from that between the clouds in metres about origins; None if it is none."""
    R = T_local[:3, :3]
    if not np.isfinite(T_local).all() or not np.allclose(R @ R.T, np.eye(3), atol=1e-3):
        return None
    T_target_source = torch.eye(4, dtype=torch.float64)
    T_target_source[:3, :3] = torch.from_numpy(R.copy())
    T_target_source[:3, 3] = torch.from_numpy(unit * (T_local[:3, 3] + target_origin - R @ source_origin))
    return T_target_source
