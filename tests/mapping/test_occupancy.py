"""Occupancy of a map's surface, beside the distances that a tree finds."""

import numpy as np
from scipy.spatial import cKDTree

from wsdesc.mapping.occupancy import Occupancy

CELL = 1 / 32


def test_points_near_the_surface_are_found_and_others_are_not():
    rng = np.random.default_rng(0)
    surface = np.column_stack([rng.uniform(-1, 2, (20_000, 2)), np.full(20_000, 0.4)])
    tiles, tile = np.unique(np.floor(surface), axis=0, return_inverse=True)
    occupancy = Occupancy(
        tiles.astype(np.int32), lambda row: (surface - np.floor(surface))[tile.ravel() == row]
    )
    points = rng.uniform(-1.5, 2.5, (5000, 3))
    distance, _ = cKDTree(surface).query(points)
    at_surface = occupancy.at(points)
    inner = (np.abs(points % 1 - 0.5) < 0.5 - CELL).all(axis=1)  # a tile does not know its neighbours
    assert at_surface[inner & (distance < CELL)].all()
    assert not at_surface[distance > 2 * 3**0.5 * CELL].any()
    assert 0 < at_surface.sum() < len(points)


def test_points_outside_of_all_tiles_are_not_at_the_surface():
    occupancy = Occupancy(np.zeros((1, 3), np.int32), lambda row: np.full((1, 3), 0.5))
    assert occupancy.at(np.array([[0.5, 0.5, 0.5], [1.5, 0.5, 0.5], [-3.0, 0.5, 0.5]])).tolist() == [
        True,
        False,
        False,
    ]
