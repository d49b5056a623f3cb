"""Constants, protocol and choice of the backend that all surfaces share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats, check_rigid

SAMPLE_SIZE = 3000  # points of the sample; a share of them is then accurate to about 1 %
COARSE_SIZE = 800  # points of the sample that rank hypotheses and bring poses near
REFERENCE_SIZE = 400  # points that measure how frequent a direction of normals is
SAMPLE_NEIGHBOURS = 4  # nearest points of the sample that tell whether a measurement there is isolated
SHARPNESS = 16  # power of the cosine between normals of one direction: weight 1/2 at 17°
MIN_FREQUENCY = 0.02  # rarer directions are noise and get no larger weight

HASH_FACTOR = 0x9E3779B97F4A7C15

SAMPLE_STEPS = 8  # the cells of `sample_order` are 2⁻⁸ … 2⁻⁷ of the scan's size: few hold two points

Backend = Literal["cpu", "cuda"]
ResultT = TypeVar("ResultT")


class Surface(Protocol):
    """A scan at the working resolution, prepared for comparisons; `make_surface` makes it.

    The arrays are NumPy arrays in the backend "cpu" and tensors in the backend "cuda".
    """

    @property
    def backend(self) -> Backend:
        """Which implementation compares this surface with others."""

    @property
    def points(self) -> Any:
        """(N, 3) float64."""

    @property
    def normals(self) -> Any:
        """(N, 3) unit vectors of arbitrary sign; zero where the neighbours form no surface."""

    @property
    def curvature(self) -> Any:
        """(N,) from 0 on a plane to 1 where neighbours spread equally in all directions."""

    @property
    def neighbours(self) -> Any:
        """(N, 4) indices of the nearest other points; fewer in tiny scans."""

    @property
    def sample(self) -> Any:
        """(S,) ascending indices of the points that are searched in the other surface."""

    @property
    def sample_neighbours(self) -> Any:
        """(S, 4) positions in the sample of the nearest other points of the sample; fewer in tiny scans."""

    @property
    def coarse(self) -> Any:
        """(C,) ascending positions in the sample: a smaller sample, for a first look at a pose."""

    @property
    def direction_weights(self) -> Any:
        """(S,) weights of the sample, sum 1, that give each direction of normals the same influence."""

    def scaled(self, factor: float) -> Self:
        """Return the surface with points that are multiplied by a factor; normals and the sample stay."""


def cell_size(size: float) -> float:
    """Return the side of the cells of `sample_order` for a scan of a size; a power of 2 seldom changes."""
    return math.ldexp(1.0, math.frexp(size)[1] - SAMPLE_STEPS) if size > 0 else 1.0


def sample_order(points: Floats) -> NDArray[np.intp]:
    """Order points (N, 3) at random, by a hash of their positions: the first ones are a sample.

    Noise moves few points to another place in this order, and so do points that are added or left out.
    """
    step = cell_size(float(np.sqrt(points.var(axis=0).sum())))
    # Surfaces often pass through the origin: half a step keeps them off the borders of cells.
    cells = np.floor(points / step + 0.5).astype(np.int64).view(np.uint64)
    keys = np.zeros(len(points), np.uint64)
    for axis in range(3):
        keys = (keys ^ cells[:, axis]) * np.uint64(HASH_FACTOR)
        keys ^= keys >> np.uint64(32)
    return np.argsort(keys, kind="stable")


def choose_samples(points: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Choose the sample of points (N, 3), the positions of the coarse one in it, and reference points."""
    order = sample_order(points)
    sample = np.sort(order[:SAMPLE_SIZE])
    return sample, np.searchsorted(sample, np.sort(order[:COARSE_SIZE])), order[:REFERENCE_SIZE]


def for_backend(
    source: Surface, target: Surface, *, cpu: Callable[..., ResultT], cuda: Callable[..., ResultT]
) -> Callable[..., ResultT]:
    """Return the implementation that fits both surfaces.

    Raises:
        InputError: One surface is on a GPU and the other is not.
    """
    if source.backend != target.backend:
        raise InputError(
            f"the source's surface is of the backend {source.backend!r}, the target's of {target.backend!r}: "
            "move both scans to one device, the GPU or the CPU"
        )
    return cuda if source.backend == "cuda" else cpu


def check_poses(poses: ArrayLike) -> Floats:
    """Return rigid poses (H, 4, 4) as float64.

    Raises:
        InputError: The shape is wrong or a matrix is not rigid.
    """
    checked = check_rigid(poses, "poses", batch=True)
    if checked.ndim != 3:
        raise InputError(f"poses must have the shape (H, 4, 4), not {checked.shape}")
    return checked
