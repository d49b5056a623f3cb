"""Scans of planes, cylinders, corners and a small room for tests of alignment."""

from __future__ import annotations

import numpy as np
import torch

from wsdesc.cloud.sampling import voxel_downsample

RESOLUTION = 0.04  # of the scans


def rectangle(g: np.random.Generator, axis: int, at: float, low: tuple, high: tuple) -> np.ndarray:
    """Sample a rectangle across an axis; its other coordinates are in low … high."""
    sides = np.subtract(high, low)
    points = g.uniform(low, high, (int(1600 * sides.prod()), 2))
    return np.insert(points, axis, at, axis=1)


def shape(name: str, g: np.random.Generator) -> np.ndarray:
    """Sample the points of a shape."""
    turn, height = g.uniform(0, 2 * np.pi, 5000), g.uniform(-1, 1, 5000)
    floor = rectangle(g, 2, 0, (-1, -1), (1, 1))
    wall, other_wall = rectangle(g, 1, 1, (-1, 0), (1, 2)), rectangle(g, 0, 1, (-1, 0), (1, 2))
    match name:
        case "plane":
            return floor
        case "parallel planes":
            return np.r_[floor, floor + np.array([0, 0, 1])]
        case "two planes":
            return np.r_[floor, wall]
        case "corridor":
            ground = rectangle(g, 2, 0, (-2, -0.5), (2, 0.5))
            walls = [rectangle(g, 1, y, (-2, 0), (2, 1.2)) for y in (-0.5, 0.5)]
            return np.concatenate([ground, *walls])
        case "corner":
            return np.r_[floor, wall, other_wall]
        case "cylinder":
            return np.c_[0.5 * np.cos(turn), 0.5 * np.sin(turn), height]
        case "half a cylinder":
            return np.c_[0.5 * np.cos(turn / 2), 0.5 * np.sin(turn / 2), height]
        case "sphere" | "half a sphere":
            v = g.normal(size=(5000, 3))
            v *= 0.6 / np.linalg.norm(v, axis=1, keepdims=True)
            return v if name == "sphere" else v[v[:, 2] > 0]
        case "cone":
            size = np.sqrt(g.uniform(0.05, 1, 5000))
            return np.c_[size * np.cos(turn), size * np.sin(turn), 1.2 * size]
        case _:  # a room: floor, two walls, a cupboard and a table
            cupboard = [rectangle(g, 0, 0.4, (0.2, 0), (1, 1.2)), rectangle(g, 1, 0.2, (0.4, 0), (1, 1.2))]
            table = [
                rectangle(g, 2, 0.6, (-0.8, -0.7), (0.0, 0.0)),
                rectangle(g, 1, -0.7, (-0.8, 0), (0, 0.6)),
            ]
            return np.concatenate([floor, wall, other_wall, *cupboard, *table])


def scan(name: str, seed: int, noise: float = 0.25) -> np.ndarray:
    """Scan a shape with noise in units of the resolution, downsampled to the resolution."""
    g = np.random.default_rng([seed, 7])
    points = shape(name, g)
    points = points + g.normal(0, noise * RESOLUTION, points.shape)
    return voxel_downsample(torch.from_numpy(points), RESOLUTION).numpy()
