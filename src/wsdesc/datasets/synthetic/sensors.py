"""Virtual sensors: spinning, terrestrial and solid-state laser scanners, depth cameras, range scanners.

Laser scanners have x forward and z up, cameras x right, y down and z forward. The noise grows with the range,
grazing and dark surfaces lose returns, panes let most rays through, and the sky returns nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import cell_keys
from wsdesc.datasets.synthetic.camera import Camera, Scene, measure_depth
from wsdesc.datasets.synthetic.raycast import Hits, Tree, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan, scan_views
from wsdesc.datasets.synthetic.shapes import rotation

MAX_POINTS = 120_000
_LASER_CAMERA = np.array(
    [[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]
)  # camera axes in a laser's frame
_DARK = 0.3  # share of the returns that a dark item loses
_PANE = 0.12  # largest share of the returns of a pane
_PROBES = 500  # rays to probe a field of view with
_STEP = 0.15  # metres between two neighbouring returns that make an edge


class GlazedScene(Scene, Protocol):
    """A scene with panes."""

    @property
    def glass(self) -> NDArray[np.bool_]:
        """Whether each item (M,) is glass."""


class Sensor(Protocol):
    """One device with its fixed properties."""

    @property
    def name(self) -> str:
        """One of `SENSORS`."""

    @property
    def height(self) -> tuple[float, float]:
        """Range of heights above the ground, in metres."""

    @property
    def tilt(self) -> float:
        """Standard deviation of pitch and roll, in radians."""

    @property
    def reach(self) -> tuple[float, float]:
        """Shortest and longest measured range, in metres."""

    @property
    def aimed(self) -> bool:
        """Whether the sensor looks in one direction only."""

    @property
    def probe(self) -> NDArray[np.float64]:
        """A few unit rays (P, 3) that cover the field of view; x is forward, z is up."""

    def scan(self, scene: GlazedScene, at: NDArray[np.float64], heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""


Rng = np.random.Generator


@dataclass(frozen=True)
class Heading:
    """Orientation of a sensor that looks along x, in radians; positive pitch looks down."""

    yaw: float
    pitch: float = 0.0
    roll: float = 0.0

    @property
    def matrix(self) -> NDArray[np.float64]:
        """The rotation R_world_sensor (3, 3)."""
        return rotation(self.yaw, self.pitch, self.roll)


@dataclass(frozen=True)
class Laser:
    """A laser scanner with one viewpoint, the origin of its frame."""

    name: str
    pattern: Callable[[Rng], NDArray[np.float64]]  # draws unit rays (L, C, 3); neighbours in C follow in time
    height: tuple[float, float]
    tilt: float
    aimed: bool
    reach: tuple[float, float]
    noise: float  # standard deviation of the range, in metres
    growth: float  # of the standard deviation, per metre of range
    bias: float  # standard deviation of the offset of each line, in metres
    dropout: float  # share of the returns lost at random
    grazing: float  # cosine of incidence below which nothing returns at the longest range
    thinning: float = 0.0  # keep one point per voxel of this size, in metres; 0: keep all

    @cached_property
    def probe(self) -> NDArray[np.float64]:
        """A few unit rays (P, 3) that cover the field of view."""
        rays = self.pattern(np.random.default_rng(0))
        counts = (24, 48) if len(rays) > 1 else (1, _PROBES)
        rows, columns = (np.linspace(0, rays.shape[k] - 1, counts[k]).astype(int) for k in (0, 1))
        return np.asarray(rays[np.ix_(rows, columns)].reshape(-1, 3))

    def scan(self, scene: GlazedScene, at: NDArray[np.float64], heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""
        local = self.pattern(rng)
        rays = np.einsum("ij,lcj->lci", heading.matrix, local).astype(np.float32)
        seen = _through_glass(scene, at.astype(np.float32), rays, rng)
        depth = _mix_edges(seen.depth, rng)
        reached = np.where(np.isfinite(depth), depth, 0)
        near, far = self.reach
        lost = (depth < near) | (depth > far) | ~np.isfinite(depth)
        # Far surfaces must face the sensor more than near ones to return enough light.
        lost |= seen.slant < self.grazing * (0.2 + 0.8 * reached / far) * rng.uniform(0.5, 1.5, depth.shape)
        dark = np.isfinite(scene.dropout_level[scene.item_of[seen.triangle]])
        lost |= rng.random(depth.shape) < np.where(dark, _DARK, self.dropout)
        sigma = self.noise + self.growth * reached
        offset = rng.normal(0, self.bias, (len(local), 1)) if self.bias else 0.0
        measured = reached + offset + sigma * rng.normal(size=depth.shape)
        points = (local * measured[..., None])[~lost].astype(np.float32)
        T_world_scan = np.eye(4)
        T_world_scan[:3, :3], T_world_scan[:3, 3] = heading.matrix, at
        return SyntheticScan(_thin(points, self.thinning), T_world_scan, self.name, np.zeros(3))


@dataclass(frozen=True)
class DepthCamera:
    """A depth camera: one image, or the fusion of a short walk."""

    name: str
    camera: Camera
    fused: bool
    height: tuple[float, float]
    tilt: float = 0.12
    aimed: bool = True

    @property
    def reach(self) -> tuple[float, float]:
        """Shortest and longest measured range, in metres."""
        return self.camera.near, self.camera.far

    @property
    def probe(self) -> NDArray[np.float64]:
        """A few unit rays (P, 3) that cover the field of view."""
        return _pyramid(self.camera.width / 2 / self.camera.focal, self.camera.height / 2 / self.camera.focal)

    def scan(self, scene: GlazedScene, at: NDArray[np.float64], heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""
        if self.fused:
            return replace(self._walk(scene, at, heading, rng), sensor=self.name)
        T_world_camera = np.eye(4)
        T_world_camera[:3, :3] = np.einsum("ij,jk->ik", heading.matrix, _LASER_CAMERA)
        T_world_camera[:3, 3] = at
        still = np.zeros((1, 2))
        image = measure_depth(scene, self.camera, T_world_camera[None], still, rng)[0]
        points = (self.camera.rays(np.eye(4)[None], still)[0] * image[..., None])[image > 0]
        return SyntheticScan(points.astype(np.float32), T_world_camera, self.name, np.zeros(3))

    def _walk(self, scene: Scene, at: NDArray[np.float64], heading: Heading, rng: Rng) -> SyntheticScan:
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
    def probe(self) -> NDArray[np.float64]:
        """A few unit rays (P, 3) that cover the field of view."""
        return _pyramid(self.field / 2, self.field / 2)

    def scan(self, scene: GlazedScene, at: NDArray[np.float64], heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,); the object is expected at the distance of the world's origin."""
        R_world_camera = np.einsum("ij,jk->ik", heading.matrix, _LASER_CAMERA)
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
        T_world_scan = np.eye(4)
        T_world_scan[:3, :3], T_world_scan[:3, 3] = R_world_camera, at
        viewpoint = None if self.parallel else np.zeros(3)
        return SyntheticScan(points.astype(np.float32), T_world_scan, self.name, viewpoint)


def _through_glass(scene: GlazedScene, at: NDArray[np.float32], rays: NDArray[np.float32], rng: Rng) -> Hits:
    """Cast rays from one position. Panes return a few rays, most of them at right angles."""
    hits = cast(scene.tree, np.broadcast_to(at, rays.shape), rays)
    pane = (hits.triangle >= 0) & scene.glass[scene.item_of[hits.triangle]]
    pane &= rng.random(pane.shape) > _PANE * hits.slant**4
    start = hits.depth[pane] + np.float32(0.01)
    behind = cast(scene.tree, at + start[:, None] * rays[pane], rays[pane])
    hits.depth[pane], hits.triangle[pane], hits.slant[pane] = (
        start + behind.depth,
        behind.triangle,
        behind.slant,
    )
    # A second pane returns nothing.
    pane[pane] = (behind.triangle >= 0) & scene.glass[scene.item_of[behind.triangle]]
    hits.depth[pane] = np.inf
    return hits


def _mix_edges(depth: NDArray[np.float32], rng: Rng) -> NDArray[np.float32]:
    """Give a few returns at edges a range between the two surfaces that one laser spot meets."""
    beside = np.roll(depth, -1, axis=1)
    with np.errstate(invalid="ignore"):
        step = beside - depth
    chance, share = rng.random((2, *depth.shape), dtype=np.float32)
    mixed = (np.abs(step) > _STEP) & (np.abs(step) < 10 * _STEP) & (chance < 0.08)
    return np.where(mixed, depth + share * np.where(mixed, step, 0), depth)


def _shadowed(tree: Tree, light: NDArray[np.float32], surface: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Find surface points (…, 3) that a light does not reach."""
    return cast(tree, np.broadcast_to(light, surface.shape), surface - light).depth < 0.995


def _thin(points: NDArray[np.float32], size: float) -> NDArray[np.float32]:
    """Keep the first point of each voxel; the voxels grow until at most `MAX_POINTS` points are left."""
    size = size or (0.01 if len(points) > MAX_POINTS else 0.0)
    while size and len(points):
        cell = np.floor(points / np.float32(size)).astype(np.int64)
        _, first = np.unique(cell_keys(cell - cell.min(axis=0)), return_index=True)
        if len(first) <= MAX_POINTS:
            return points[np.sort(first)]
        size *= 1.3
    return points


def _pyramid(across: float, up: float) -> NDArray[np.float64]:
    """Return unit rays (P, 3) along x, out to the tangents `across` and `up`."""
    y, z = np.meshgrid(np.linspace(-across, across, 24), np.linspace(-up, up, 20))
    rays = np.stack([np.ones_like(y), y, z], axis=-1).reshape(-1, 3)
    return np.asarray(rays / np.linalg.norm(rays, axis=1, keepdims=True))


def _directions(azimuth: NDArray[np.float64], elevation: NDArray[np.float64]) -> NDArray[np.float64]:
    level = np.cos(elevation)
    return np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)


# Lowest and highest line in degrees, and azimuth steps, of devices on the market.
_SPINNING = {
    16: [(-15.0, 15.0, 1800), (-15.0, 15.0, 1440), (-16.6, 16.6, 1024)],
    32: [(-30.67, 10.67, 1800), (-25.0, 15.0, 1800), (-22.5, 22.5, 1024)],
    64: [(-24.8, 2.0, 1800), (-16.6, 16.6, 1024), (-22.5, 22.5, 1024), (-52.1, 52.1, 1024)],
    128: [(-25.0, 15.0, 900), (-22.5, 22.5, 1024), (-45.0, 45.0, 1024)],
}


def _spinning(lines: int, rng: Rng) -> Laser:
    low, high, columns = _SPINNING[lines][rng.integers(len(_SPINNING[lines]))]
    up = np.linspace(low, high, lines)
    if lines >= 32 and rng.random() < 0.3:  # lines closer together near the horizon
        middle = np.clip(0.0, low, high)
        up = middle + (up - middle) * (0.35 + 0.65 * np.abs(up - middle) / max(high - middle, middle - low))
    up = np.radians(up + rng.normal(0, 0.03, lines))

    def pattern(rng: Rng) -> NDArray[np.float64]:
        azimuth = 2 * np.pi * (np.arange(columns) + rng.random()) / columns
        return _directions(*np.meshgrid(azimuth, up))

    vehicle = rng.random() < 0.5  # else on a backpack or a small robot
    return Laser(
        name=f"lidar{lines}",
        pattern=pattern,
        height=(1.5, 2.2) if vehicle else (0.4, 1.9),
        tilt=np.radians(1.0 if vehicle else rng.uniform(1, 6)),
        aimed=False,
        reach=(rng.uniform(0.3, 1.0), float(rng.choice([25.0, 50.0, 100.0, 120.0]))),
        noise=rng.uniform(0.006, 0.02),
        growth=rng.uniform(0.0, 0.0004),
        bias=rng.uniform(0.0, 0.008),
        dropout=rng.uniform(0.0, 0.05),
        grazing=rng.uniform(0.04, 0.15),
    )


def _terrestrial(rng: Rng) -> Laser:
    columns, rows = int(rng.integers(800, 1101)), int(rng.integers(300, 401))
    lowest = np.radians(rng.uniform(-65, -50))  # the tripod hides what is below

    def pattern(rng: Rng) -> NDArray[np.float64]:
        up = lowest + (np.pi / 2 - lowest) * (np.arange(rows) + rng.random()) / rows
        azimuth = 2 * np.pi * (np.arange(columns) + rng.random()) / columns
        # The device turns slowly and the mirror fast: neighbours in time lie above each other.
        return _directions(*np.meshgrid(azimuth, up, indexing="ij"))

    return Laser(
        name="terrestrial",
        pattern=pattern,
        height=(1.3, 1.9),
        tilt=np.radians(0.3),
        aimed=False,
        reach=(rng.uniform(0.4, 0.8), float(rng.choice([30.0, 70.0, 120.0]))),
        noise=rng.uniform(0.001, 0.004),
        growth=rng.uniform(0.0, 0.0001),
        bias=0.0,
        dropout=rng.uniform(0.0, 0.02),
        grazing=rng.uniform(0.03, 0.1),
        thinning=rng.uniform(0.01, 0.02),
    )


def _solid_state(rng: Rng) -> Laser:
    wide, high = np.radians([(70.4, 77.2), (70.0, 70.0), (38.4, 38.4), (81.7, 25.1)][rng.integers(4)])
    count = int(rng.integers(40_000, 100_001))
    ratio = rng.uniform(1.6, 1.9)

    def pattern(rng: Rng) -> NDArray[np.float64]:
        # Two rotating prisms with nearly incommensurable speeds draw a rosette that never repeats.
        t = 2 * np.pi * np.arange(count) / count * 180 + rng.uniform(0, 100)
        petals = 0.5 * (np.exp(1j * t * ratio) + np.exp(-1j * t * (1 + 0.618 / 7)))
        rays = _directions(petals.real * wide / 2, petals.imag * high / 2)
        return rays[None]

    return Laser(
        name="solid_state",
        pattern=pattern,
        height=(0.8, 2.0),
        tilt=np.radians(rng.uniform(1, 8)),
        aimed=True,
        reach=(rng.uniform(0.3, 1.0), float(rng.choice([40.0, 80.0, 200.0]))),
        noise=rng.uniform(0.008, 0.02),
        growth=rng.uniform(0.0, 0.0003),
        bias=0.0,
        dropout=rng.uniform(0.0, 0.05),
        grazing=rng.uniform(0.04, 0.15),
    )


def _depth_camera(rng: Rng) -> DepthCamera:
    camera = Camera.draw(rng, 288, 216)
    if rng.random() < 0.3:  # time of flight with a long range
        camera = replace(camera, far=rng.uniform(5, 9), structured_light=False, noise=0.4 * camera.noise)
    return DepthCamera("depth_camera", camera, fused=False, height=(0.9, 1.8))


def _fused_camera(rng: Rng) -> DepthCamera:
    return DepthCamera("fused_camera", Camera.draw(rng), fused=True, height=(0.9, 1.8))


def _structured_light(rng: Rng) -> RangeScanner:
    return RangeScanner(
        "structured_light", False, 0.75, 340, 10 ** rng.uniform(-4, -2.8), baseline=rng.uniform(0.1, 0.35)
    )


def _orthographic(rng: Rng) -> RangeScanner:
    return RangeScanner(
        "orthographic", True, 0.75, 420, 10 ** rng.uniform(-4, -3), baseline=0.3 * (rng.random() < 0.5)
    )


_MAKERS: dict[str, Callable[[Rng], Sensor]] = {
    "lidar16": lambda rng: _spinning(16, rng),
    "lidar32": lambda rng: _spinning(32, rng),
    "lidar64": lambda rng: _spinning(64, rng),
    "lidar128": lambda rng: _spinning(128, rng),
    "terrestrial": _terrestrial,
    "solid_state": _solid_state,
    "depth_camera": _depth_camera,
    "fused_camera": _fused_camera,
    "structured_light": _structured_light,
    "orthographic": _orthographic,
}
SENSORS = tuple(_MAKERS)


def draw_sensor(name: str, rng: Rng) -> Sensor:
    """Draw a device of a kind: its optics, range and errors."""
    return _MAKERS[name](rng)
