"""Depth cameras and range scanners. Their frame has x right, y down and z forward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats
from wsdesc.datasets.synthetic.camera import Camera, Scene, measure_depth
from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan, scan_views
from wsdesc.datasets.synthetic.sensors.sensor import GlazedScene, Heading, Rng

_CAMERA_AXES = np.array(
    [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]
)  # columns, in a heading's frame


@dataclass(frozen=True)
class DepthCamera:
    """A depth camera: one image, or the fusion of a short walk."""

    name: str
    camera: Camera
    fused: bool
    height: tuple[float, float]
    tilt: float = 0.2
    aimed: bool = True

    @property
    def reach(self) -> tuple[float, float]:
        """Shortest and longest measured range, in metres."""
        return self.camera.near, self.camera.far

    @property
    def probe(self) -> Floats:
        """A few unit rays (P, 3) that cover the field of view."""
        return _pyramid(self.camera.width / 2 / self.camera.focal, self.camera.height / 2 / self.camera.focal)

    def scan(self, scene: GlazedScene, at: Floats, heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""
        if self.fused:
            return replace(self._walk(scene, at, heading, rng), sensor=self.name)
        T_world_camera = heading.pose(at, _CAMERA_AXES)
        still = np.zeros((1, 2))
        image = measure_depth(scene, self.camera, T_world_camera[None], still, rng)[0]
        points = (self.camera.rays(np.eye(4)[None], still)[0] * image[..., None])[image > 0]
        return SyntheticScan(points.astype(np.float32), T_world_camera, self.name, np.zeros(3))

    def _walk(self, scene: Scene, at: Floats, heading: Heading, rng: Rng) -> SyntheticScan:
        frames = int(rng.integers(8, 15))
        s = np.linspace(0, 1, frames)[:, None]
        forward = heading.matrix[:, 0]
        side = np.array([-np.sin(heading.yaw), np.cos(heading.yaw), 0.0])
        reach = 0.6 * self.camera.far
        turn, step = rng.normal(0, 0.35 * reach), rng.normal(0, 0.25)
        eye = at + s * (step * side + rng.normal(0, 0.04, 3))
        gaze = at + reach * forward + s * (turn * side + rng.normal(0, 0.15 * reach, 3))
        views = np.concatenate([eye, gaze, np.full((frames, 1), heading.roll)], axis=1)
        views += rng.normal(0, 0.003, views.shape)
        return scan_views(scene, self.camera, views, rng.uniform(0.3, 2.0), rng, 0.02)


@dataclass(frozen=True)
class RangeScanner:
    """A scanner of objects: parallel rays on a grid, or structured light from one viewpoint with shadows."""

    name: str
    parallel: bool
    field: float  # width of the field at the object, as a share of the distance
    columns: int
    noise: float  # as a share of the distance
    baseline: float  # from the camera to the projector, as a share of the distance; 0: no shadows
    height: tuple[float, float] = (0.0, 0.0)
    tilt: float = 0.05
    aimed: bool = True
    reach: tuple[float, float] = (0.0, np.inf)

    @property
    def probe(self) -> Floats:
        """A few unit rays (P, 3) that cover the field of view."""
        return _pyramid(self.field / 2, self.field / 2)

    def scan(self, scene: GlazedScene, at: Floats, heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,); the object is expected at the distance of the world's origin."""
        T_world_scan = heading.pose(at, _CAMERA_AXES)
        R_world_camera = T_world_scan[:3, :3]
        distance = float(np.linalg.norm(at))
        steps = np.arange(self.columns) - (self.columns - 1) / 2
        x, y = np.meshgrid(steps + rng.uniform(-0.5, 0.5), steps + rng.uniform(-0.5, 0.5), indexing="xy")
        grid = np.stack([x, y, np.zeros_like(x)], axis=-1) * (self.field * distance / self.columns)
        ahead = np.array([0.0, 0.0, 1.0])
        local = np.broadcast_to(ahead, grid.shape) if self.parallel else grid / distance + ahead
        starts = grid if self.parallel else np.zeros_like(grid)
        world = [np.einsum("ij,rcj->rci", R_world_camera, v).astype(np.float32) for v in (starts, local)]
        origins = world[0] + at.astype(np.float32)
        seen = cast(scene.tree, origins, world[1])
        lost = (seen.triangle < 0) | (seen.slant < rng.uniform(0.1, 0.3)) | (seen.depth > 2.5 * distance)
        depth = np.where(lost, 0, seen.depth)
        surface = origins + depth[..., None] * world[1]
        if self.baseline:
            projector = (at + self.baseline * distance * R_world_camera[:, 0]).astype(np.float32)
            lost |= _shadowed(scene.tree, projector, surface)
        depth = depth + self.noise * rng.normal(size=depth.shape) * depth**2 / distance
        points = (starts + local * depth[..., None])[~lost]
        viewpoint = None if self.parallel else np.zeros(3)
        return SyntheticScan(points.astype(np.float32), T_world_scan, self.name, viewpoint)


def _shadowed(tree: Tree, light: NDArray[np.float32], surface: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find surface points (…, 3) that a light does not reach."""
    return cast(tree, np.broadcast_to(light, surface.shape), surface - light).depth < 0.995


def _pyramid(across: float, up: float) -> Floats:
    """Return unit rays (P, 3) along x, out to the tangents `across` and `up`."""
    y, z = np.meshgrid(np.linspace(-across, across, 24), np.linspace(-up, up, 20))
    rays = np.stack([np.ones_like(y), y, z], axis=-1).reshape(-1, 3)
    return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True))


def depth_camera(rng: Rng) -> DepthCamera:
    """Draw a depth camera that takes one image."""
    camera = Camera.draw(rng, 288, 216)
    if rng.random() < 0.3:  # time of flight with a long range
        camera = replace(camera, far=rng.uniform(5, 9), structured_light=False, noise=0.4 * camera.noise)
    return DepthCamera("depth_camera", camera, fused=False, height=(0.9, 1.8))


def fused_camera(rng: Rng) -> DepthCamera:
    """Draw a hand-held depth camera whose images are fused."""
    return DepthCamera("fused_camera", Camera.draw(rng), fused=True, height=(0.9, 1.8))


def structured_light(rng: Rng) -> RangeScanner:
    """Draw a scanner with a projector beside its camera."""
    return RangeScanner(
        "structured_light", False, 0.75, 340, 10 ** rng.uniform(-4, -2.8), baseline=rng.uniform(0.1, 0.35)
    )


def orthographic(rng: Rng) -> RangeScanner:
    """Draw a scanner with parallel rays, with or without the shadows of a projector."""
    return RangeScanner(
        "orthographic", True, 0.75, 420, 10 ** rng.uniform(-4, -3), baseline=0.3 * (rng.random() < 0.5)
    )
