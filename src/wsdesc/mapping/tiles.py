"""Tiles: cubes of the map, whose points are merged in voxels of the working resolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wsdesc.cloud.merge import VoxelMerge
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import Floats

TILE = 128  # working resolutions along the side of a tile
_MAX_CELL = 2**31 - 1  # tiles from the origin, limit of int32

Cell = tuple[int, int, int]


class TileGroup(NamedTuple):
    """Rows of an array that are in one tile."""

    cell: Cell
    rows: NDArray[np.int64]
    corner: Floats  # (3,) of the tile, in map coordinates


class TileGrid:
    """A growing set of tiles around an origin.

    Attributes:
        origin: (3,) corner of the tile (0, 0, 0), in map coordinates.
        resolution: Side of a voxel, in the map's unit.
        side: Side of a tile.
    """

    def __init__(self, origin: Floats, resolution: float) -> None:
        self.origin = origin
        self.resolution = resolution
        self.side = TILE * resolution
        self._voxels: dict[Cell, VoxelMerge] = {}

    def corner(self, cell: Cell) -> Floats:
        """Return the corner (3,) of a tile, in map coordinates."""
        return np.asarray(self.origin + self.side * np.array(cell))

    def groups(self, points: Floats) -> Iterator[TileGroup]:
        """Group points (N, 3), in map coordinates, by their tile."""
        cells = np.floor((points - self.origin) / self.side)
        if np.abs(cells).max(initial=0) > _MAX_CELL:
            raise InputError(
                f"points lie more than {_MAX_CELL:g} tiles apart: remove outliers, or check the resolution"
            )
        distinct, group = np.unique(cells.astype(np.int64), axis=0, return_inverse=True)
        order = np.argsort(group.ravel(), kind="stable")
        for cell, rows in zip(
            distinct.tolist(),
            np.split(order, np.cumsum(np.bincount(group.ravel()))[:-1]),
            strict=True,
        ):
            yield TileGroup(tuple(cell), rows, self.corner(tuple(cell)))

    def add(self, points: Floats) -> None:
        """Merge points (N, 3), in map coordinates, into the voxels of their tiles."""
        for cell, rows, corner in self.groups(points):
            voxels = self._voxels.setdefault(cell, VoxelMerge(self.resolution))
            voxels.add(points[rows] - corner)

    def arrays(self) -> dict[str, NDArray]:
        """Return the cells, the starts and the points of all tiles; see `store.ARRAYS`."""
        cells = sorted(self._voxels)
        points = [self._voxels[cell].points.astype(np.float32) for cell in cells]
        starts = np.cumsum([0, *map(len, points)])
        return {
            "cells": np.array(cells, np.int32).reshape(-1, 3),
            "point_starts": starts.astype(np.int64),
            "points": np.concatenate(points) if points else np.empty((0, 3), np.float32),
        }
