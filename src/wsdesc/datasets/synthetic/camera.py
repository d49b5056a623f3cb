"""A virtual depth camera: depth images of a room with the errors of a hand-held RGB-D sensor.

Camera frames follow the usual convention: x right, y down, z forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter, zoom

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.raycast import Hits, Tree, cast

# Structured light measures disparity in eighths of a pixel, in an image 640 pixels wide, over this baseline.
_BASELINE = 0.075
_SENSOR_WIDTH = 640
_DISPARITY_STEP = 1 / 8


class Scene(Protocol):
    """Geometry of a room or a site, as a camera needs it."""

    @property
    def tree(self) -> Tree:
        """Bounding volume tree of all triangles."""

    @property
    def item_of(self) -> NDArray[np.int32]:
        """Item (F,) of each triangle of the tree."""

    @property
    def dropout_level(self) -> NDArray[np.float32]:
        """Level (M,) per item: pixels are lost where a unit random field exceeds it."""


@dataclass(frozen=True)
class Camera:
    """One sensor: optics, range and errors."""

    width: int
    height: int
    focal: float  # pixels
    near: float  # metres, shortest measured depth
    far: float  # metres, longest measured depth
    structured_light: bool  # with shadows and depth steps; False: time of flight
    noise: float  # factor on the standard deviation
    warp: NDArray[np.float32]  # (height, width) fixed relative error of depth per metre

    @classmethod
    def draw(cls, rng: np.random.Generator, width: int = 176, height: int = 132) -> Camera:
        """Draw a random sensor."""
        field_of_view = np.deg2rad(rng.uniform(54, 66))
        coarse = rng.normal(size=(9, 12))
        warp = zoom(coarse, (height / 9, width / 12), order=3)[:height, :width] * rng.uniform(0.0, 0.003)
        return cls(
            width=width,
            height=height,
            focal=width / 2 / np.tan(field_of_view / 2),
            near=rng.uniform(0.35, 0.55),
            far=rng.uniform(3.0, 4.5),
            structured_light=bool(rng.random() < 0.7),
            noise=rng.uniform(0.4, 2.2),
            warp=warp.astype(np.float32),
        )

    def rays(self, poses: Floats, shift: Floats) -> NDArray[np.float32]:
        """Compute rays of unit depth through all pixels: (F, H, W, 3), in the world frame.

        Args:
            poses: Camera poses T_world_camera (F, 4, 4).
            shift: Shift (F, 2) of each image, in pixels.
        """
        across, down = self.directions(poses, shift)
        return np.asarray(across[:, None] + down[:, :, None])

    def directions(self, poses: Floats, shift: Floats) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Compute the parts of the rays that depend on the column (F, W, 3) and on the row (F, H, 3)."""
        u = (np.arange(self.width) - (self.width - 1) / 2 + shift[:, :1]) / self.focal
        v = (np.arange(self.height) - (self.height - 1) / 2 + shift[:, 1:]) / self.focal
        right, down, forward = np.moveaxis(poses[:, None, :3, :3], -1, 0)
        across = forward + u[:, :, None] * right
        return across.astype(np.float32), (v[:, :, None] * down).astype(np.float32)


def render(scene: Scene, camera: Camera, poses: Floats, shift: Floats) -> Hits:
    """Render depth images (F, H, W) without errors, from poses T_world_camera (F, 4, 4)."""
    rays = camera.rays(poses, shift)
    origins = np.broadcast_to(poses[:, None, None, :3, 3].astype(np.float32), rays.shape)
    return cast(scene.tree, origins, rays)


def measure_depth(
    scene: Scene,
    camera: Camera,
    poses: Floats,
    shift: Floats,
    rng: np.random.Generator,
) -> NDArray[np.float32]:
    """Simulate depth images (F, H, W) with noise, depth steps, shadows and holes; 0 means no measurement."""
    seen = render(scene, camera, poses, shift)
    shape = seen.depth.shape
    lost = seen.triangle < 0
    depth = np.where(lost, np.float32(2 * camera.far), seen.depth)

    def uniform() -> NDArray[np.float32]:
        return rng.random(shape, dtype=np.float32)

    # Pixels at depth edges are often lost, and a few mix both sides.
    beside, step = _across_edge(depth)
    edge, chance = step > 0.03 + 0.03 * depth, uniform()
    lost |= edge & (chance < 0.4)
    mixed = edge & (chance > 0.95) & (beside < camera.far)
    depth[mixed] += ((beside - depth) * uniform())[mixed]

    # Grazing rays return no light, and dark or shiny items have holes.
    lost |= seen.slant < 0.06 + 0.22 * uniform()
    white = rng.standard_normal(shape, dtype=np.float32)
    lost |= 9 * uniform_filter(white, (0, 9, 9)) > scene.dropout_level[scene.item_of[seen.triangle]]

    # Matching windows correlate the errors of neighbouring pixels; the two weights keep the variance at 1.
    white = rng.standard_normal(shape, dtype=np.float32)
    sigma = np.float32(camera.noise) * (0.0012 + 0.0019 * (depth - 0.4) ** 2)
    depth += sigma * (0.3 * white + 2.6 * uniform_filter(white, (0, 3, 3)))
    depth += camera.warp * depth**2

    if camera.structured_light:
        lost |= _shadow(camera, np.where(lost, np.inf, depth))
        scale = np.float32(camera.focal * _SENSOR_WIDTH / camera.width * _BASELINE / _DISPARITY_STEP)
        depth = scale / np.maximum(np.round(scale / np.maximum(depth, 0.05)), 1)

    lost |= (depth < camera.near) | (depth > camera.far)
    depth[lost] = 0
    return depth


def _across_edge(depth: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Find, for each pixel, the depth of the neighbour that differs most, and the difference."""
    beside, step = depth.copy(), np.zeros_like(depth)
    _, height, width = depth.shape
    framed = np.pad(depth, ((0, 0), (1, 1), (1, 1)), mode="edge")
    for down, right in ((0, 1), (2, 1), (1, 0), (1, 2)):
        neighbour = framed[:, down : down + height, right : right + width]
        jump = np.abs(neighbour - depth)
        beside = np.where(jump > step, neighbour, beside)
        step = np.maximum(step, jump)
    return beside, step


def _shadow(camera: Camera, depth: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find the pixels where a nearer surface blocks the light of the projector beside the camera."""
    beam = np.arange(camera.width, dtype=np.float32) + np.float32(camera.focal * _BASELINE) / depth
    return beam < np.maximum.accumulate(beam, axis=2) - 1
