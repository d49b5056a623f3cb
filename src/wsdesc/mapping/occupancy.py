"""Occupancy: whether points are at the surface of a map, looked up in grids of its tiles."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

from wsdesc.core.geometry import Floats

_CELLS = 32  # along the side of a tile: 4 working resolutions each
_MAX_TILES = 4096  # grids in memory, 32 KiB each


class Occupancy:
    """Cells with points of the map, and the cells next to them. A tile's grid is made when it is first used.

    Args:
        tiles: (T, 3) cells of the tiles.
        tile_points: Returns the points (N, 3) of a tile, 0 … 1 from its corner.
    """

    def __init__(self, tiles: NDArray[np.int32], tile_points: Callable[[int], Floats]) -> None:
        self._row_of = {tuple(tile): row for row, tile in enumerate(tiles.tolist())}
        self._tile_points = tile_points
        self._grids: dict[int, NDArray[np.bool_]] = {}

    def at(self, points: Floats) -> NDArray[np.bool_]:
        """Return whether points (N, 3), in tiles from the map's origin, are at its surface."""
        tiles = np.floor(points)
        cells = np.minimum((_CELLS * (points - tiles)).astype(np.int64), _CELLS - 1)
        distinct, group = np.unique(tiles.astype(np.int64), axis=0, return_inverse=True)
        occupied = np.zeros(len(points), bool)
        for k, tile in enumerate(distinct.tolist()):
            row = self._row_of.get(tuple(tile))
            if row is not None:
                inside = np.flatnonzero(group.ravel() == k)
                occupied[inside] = self._grid(row)[tuple(cells[inside].T)]
        return occupied

    def _grid(self, row: int) -> NDArray[np.bool_]:
        grid = self._grids.get(row)
        if grid is None:
            if len(self._grids) >= _MAX_TILES:
                self._grids.clear()
            occupied = np.zeros((_CELLS, _CELLS, _CELLS), bool)
            cells = np.clip((_CELLS * self._tile_points(row)).astype(np.int64), 0, _CELLS - 1)
            occupied[tuple(cells.T)] = True
            grid = self._grids[row] = binary_dilation(occupied, np.ones((3, 3, 3), bool))
        return grid
