"""Laser scanners: spinning, terrestrial and solid-state. Their frame has x forward and z up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wsdesc.core.geometry import Floats, cell_keys
from wsdesc.datasets.synthetic.raycast import Hits, cast
from wsdesc.datasets.synthetic.scanning import SyntheticScan
from wsdesc.datasets.synthetic.sensors.sensor import GlazedScene, Heading, Rng

MAX_POINTS = 120_000
_DARK = 0.3  # share of the returns that a dark item loses
_PANE = 0.12  # largest share of the returns of a pane
_PROBES = 500  # rays to probe a field of view with
_STEP = 0.15  # metres between two neighbouring returns that make an edge


@dataclass(frozen=True)
class Laser:
    """A laser scanner with one viewpoint, the origin of its frame."""

    name: str
    pattern: Callable[[Rng], Floats]  # draws unit rays (L, C, 3); neighbours in C follow in time
    height: tuple[float, float]
    tilt: float
    aimed: bool
    reach: tuple[float, float]
    noise: float  # standard deviation of the range, in metres
    growth: float  # growth of the standard deviation, per metre of range
    bias: float  # standard deviation of the offset of each line, in metres
    dropout: float  # share of the returns lost at random
    grazing: float  # cosine of incidence below which nothing returns at the longest range
    thinning: float = 0.0  # keep one point per voxel of this size, in metres; 0: keep all

    @cached_property
    def probe(self) -> Floats:
        """A few unit rays (P, 3) that cover the field of view."""
        rays = self.pattern(np.random.default_rng(0))
        counts = (24, 48) if len(rays) > 1 else (1, _PROBES)
        rows, columns = (np.linspace(0, rays.shape[k] - 1, counts[k]).astype(int) for k in (0, 1))
        return np.asarray(rays[np.ix_(rows, columns)].reshape(-1, 3))

    def scan(self, scene: GlazedScene, at: Floats, heading: Heading, rng: Rng) -> SyntheticScan:
        """Scan from a position (3,)."""
        local = self.pattern(rng)
        rays = np.einsum("ij,lcj->lci", heading.matrix, local).astype(np.float32)
        seen = _through_glass(scene, at.astype(np.float32), rays, rng)
        depth = _mix_edges(seen, rng)
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
        return SyntheticScan(_thin(points, self.thinning), heading.pose(at), self.name, np.zeros(3))


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


def _mix_edges(hits: Hits, rng: Rng) -> NDArray[np.float32]:
    """Give a few returns at edges a range between the two surfaces that one laser spot meets."""
    depth, beside = hits.depth, np.roll(hits.depth, -1, axis=1)
    with np.errstate(invalid="ignore"):
        step = beside - depth
    chance, share = rng.random((2, *depth.shape), dtype=np.float32)
    mixed = (np.abs(step) > _STEP) & (np.abs(step) < 10 * _STEP) & (chance < 0.08)
    mixed &= hits.triangle != np.roll(hits.triangle, -1, axis=1)
    return np.where(mixed, depth + share * np.where(mixed, step, 0), depth)


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


def _directions(azimuth: Floats, elevation: Floats) -> Floats:
    level = np.cos(elevation)
    return np.stack([level * np.cos(azimuth), level * np.sin(azimuth), np.sin(elevation)], axis=-1)


# Lowest and highest line in degrees, and azimuth steps, of devices on the market.
_SPINNING = {
    16: [(-15.0, 15.0, 1800), (-15.0, 15.0, 1440), (-16.6, 16.6, 1024)],
    32: [(-30.67, 10.67, 1800), (-25.0, 15.0, 1800), (-22.5, 22.5, 1024)],
    64: [(-24.8, 2.0, 1800), (-16.6, 16.6, 1024), (-22.5, 22.5, 1024), (-52.1, 52.1, 1024)],
    128: [(-25.0, 15.0, 900), (-22.5, 22.5, 1024), (-45.0, 45.0, 1024)],
}


def spinning(lines: int, rng: Rng) -> Laser:
    """Draw a spinning laser scanner with 16, 32, 64 or 128 lines."""
    low, high, columns = _SPINNING[lines][rng.integers(len(_SPINNING[lines]))]
    up = np.linspace(low, high, lines)
    if lines >= 32 and rng.random() < 0.3:  # lines closer together near the horizon
        middle = np.clip(0.0, low, high)
        up = middle + (up - middle) * (0.35 + 0.65 * np.abs(up - middle) / max(high - middle, middle - low))
    up = np.radians(up + rng.normal(0, 0.03, lines))

    def pattern(rng: Rng) -> Floats:
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


def terrestrial(rng: Rng) -> Laser:
    """Draw a laser scanner on a tripod: dense, without the cone below."""
    columns, rows = int(rng.integers(800, 1101)), int(rng.integers(300, 401))
    lowest = np.radians(rng.uniform(-65, -50))  # the tripod hides what is below

    def pattern(rng: Rng) -> Floats:
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


def solid_state(rng: Rng) -> Laser:
    """Draw a laser scanner with a limited field of view and a pattern that does not repeat."""
    wide, high = np.radians([(70.4, 77.2), (70.0, 70.0), (38.4, 38.4), (81.7, 25.1)][rng.integers(4)])
    count = int(rng.integers(40_000, 100_001))
    ratio = rng.uniform(1.6, 1.9)

    def pattern(rng: Rng) -> Floats:
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
