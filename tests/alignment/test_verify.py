"""Verification of poses, and which motions a geometry leaves open."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from wsdesc.alignment.observability import Degeneracy, degeneracy, information
from wsdesc.alignment.surface import Surface
from wsdesc.alignment.verify import Agreement, agreement, plausibility
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse
from wsdesc.datasets.synthetic.floor import Floor, floor_scans

STEP = 0.04  # resolution of the clouds here
REACH = 2 * STEP
SHARES = [name for name in Agreement._fields if not name.startswith(("rmse", "misfit"))]


def motion(seed: int) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = Rotation.random(random_state=seed).as_matrix()
    T[:3, 3] = np.random.default_rng(seed).uniform(-3, 3, 3)
    return T


def moved(points: np.ndarray, T: np.ndarray) -> np.ndarray:
    return points @ T[:3, :3].T + T[:3, 3]


def rectangle(g: np.random.Generator, axis: int, at: float, low: tuple, high: tuple) -> np.ndarray:
    """Points of a rectangle across an axis; its other coordinates lie in low … high."""
    sides = np.subtract(high, low)
    points = g.uniform(low, high, (int(1600 * sides.prod()), 2))
    return np.insert(points, axis, at, axis=1)


def shape(name: str, g: np.random.Generator) -> np.ndarray:
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
        case _:  # a room: floor, two walls, a cupboard and a table before them
            cupboard = [rectangle(g, 0, 0.4, (0.2, 0), (1, 1.2)), rectangle(g, 1, 0.2, (0.4, 0), (1, 1.2))]
            table = [
                rectangle(g, 2, 0.6, (-0.8, -0.7), (0.0, 0.0)),
                rectangle(g, 1, -0.7, (-0.8, 0), (0, 0.6)),
            ]
            return np.concatenate([floor, wall, other_wall, *cupboard, *table])


def scan(name: str, seed: int, noise: float = 0.25) -> np.ndarray:
    """A scan of a shape, its noise in units of the resolution, at the resolution."""
    g = np.random.default_rng([seed, 7])
    points = shape(name, g)
    points = points + g.normal(0, noise * STEP, points.shape)
    return voxel_downsample(torch.from_numpy(points), STEP).numpy()


@pytest.fixture(scope="module")
def room() -> tuple[Surface, Surface, np.ndarray]:
    """Two scans of one room that share most of it, and T_target_source."""
    T = motion(5)
    source, target = scan("room", 0), scan("room", 1)
    source, target = source[source[:, 0] < 0.7], target[target[:, 1] > -0.6]
    return Surface.of(moved(source, inverse(T))), Surface.of(target), T


def test_the_true_pose_is_agreed_with(room: tuple) -> None:
    a = agreement(*room, REACH)
    # What was cut off the other scan has no partner; all else has.
    source, target, T = room
    assert a.overlap_source == pytest.approx((moved(source.points, T)[:, 1] > -0.6).mean(), abs=0.05)
    assert a.overlap_target == pytest.approx((target.points[:, 0] < 0.7).mean(), abs=0.05)
    assert min(a.normals, a.clear, a.uncrossed) > 0.9
    assert a.rmse_plane < 0.5 * STEP
    assert a.rmse_plane < a.rmse_point < REACH
    assert all(0 <= getattr(a, name) <= 1 for name in SHARES)


@pytest.mark.parametrize(
    "wrong",
    [(0.4, 0, 0, 0), (0, 0.5, 0, 0), (0.3, -0.3, 0, 0), (0, 0, 0, 90), (0, 0, 0, 180)],
    ids=["slid along x", "slid along y", "slid", "turned by 90°", "turned by 180°"],
)
def test_poses_that_slide_planes_are_told_from_the_true_one(room: tuple, wrong: tuple) -> None:
    source, target, T = room
    T_wrong = np.eye(4)
    T_wrong[:3, :3] = Rotation.from_euler("z", wrong[3], degrees=True).as_matrix()
    T_wrong[:3, 3] = wrong[:3]
    right, false = agreement(*room, REACH), agreement(source, target, T_wrong @ T, REACH)
    assert false.overlap_source > 0.2  # the floor still lies on the floor
    assert false.clear < right.clear - 0.1
    assert false.relief < 0.75 * right.relief
    assert false.informative_source < right.informative_source - 0.1


def test_surfaces_that_cross_are_seen() -> None:
    plane = Surface.of(scan("plane", 0))
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("x", 80, degrees=True).as_matrix()
    crossing = agreement(plane, Surface.of(scan("plane", 1)), T, REACH)
    assert crossing.uncrossed < 0.1
    assert crossing.normals < 0.1


def test_hovering_counts_and_borders_do_not() -> None:
    plane, other = Surface.of(scan("plane", 0, 0)), Surface.of(scan("plane", 1, 0))
    beside, above = np.eye(4), np.eye(4)
    beside[0, 3], above[2, 3] = 1.0, 2.5 * REACH
    assert agreement(plane, other, beside, REACH).clear > 0.99
    assert agreement(plane, other, above, REACH).clear == 0


def test_a_floor_alone_informs_little() -> None:
    corner, floor = Surface.of(scan("corner", 0)), Surface.of(scan("plane", 1))
    mostly_floor = Surface.of(np.r_[floor.points, scan("two planes", 2)[::3] + np.array([0, 0, 0.3])])
    a = agreement(mostly_floor, floor, np.eye(4), REACH)
    assert a.informative_source < a.overlap_source - 0.1
    a = agreement(corner, floor, np.eye(4), REACH)  # three sides of one size: each has a third of the say
    assert a.informative_source == pytest.approx(a.overlap_source, abs=0.08)


def test_swapping_swaps(room: tuple) -> None:
    source, target, T = room
    there, back = agreement(*room, REACH), agreement(target, source, inverse(T), REACH)
    swapped = {"overlap_source": "overlap_target", "informative_source": "informative_target"}
    swapped |= {b: a for a, b in swapped.items()}
    for name in Agreement._fields:
        assert getattr(back, swapped.get(name, name)) == pytest.approx(getattr(there, name), abs=1e-3), name
    assert there.overlap_source != there.overlap_target  # else this would prove nothing


@pytest.mark.parametrize("which", ["source", "target"])
def test_moving_a_cloud_changes_nothing(room: tuple, which: str) -> None:
    source, target, T = room
    M = motion(11)
    if which == "source":
        there = (Surface.of(moved(source.points, M)), target, T @ inverse(M))
    else:
        there = (source, Surface.of(moved(target.points, M)), M @ T)
    np.testing.assert_allclose(agreement(*there, REACH), agreement(*room, REACH), atol=2e-3)
    before, after = information(*room, REACH), information(*there, REACH)
    np.testing.assert_allclose(np.linalg.eigvalsh(after.matrix), np.linalg.eigvalsh(before.matrix), atol=2e-3)
    centre = moved(before.centre, M) if which == "target" else before.centre
    np.testing.assert_allclose(after.centre, centre, atol=0.01)


def test_units_do_not_matter(room: tuple) -> None:
    source, target, T = room
    scaled = T.copy()
    scaled[:3, 3] *= 1024
    a = agreement(Surface.of(1024 * source.points), Surface.of(1024 * target.points), scaled, 1024 * REACH)
    b = agreement(*room, REACH)
    np.testing.assert_allclose(a[:-3], b[:-3], atol=1e-3)
    np.testing.assert_allclose(a[-3:], np.multiply(1024, b[-3:]), rtol=1e-2)


def test_same_result_twice(room: tuple) -> None:
    assert agreement(*room, REACH) == agreement(*room, REACH)


def test_a_cloud_agrees_with_itself() -> None:
    cloud = Surface.of(scan("room", 0))
    a = agreement(cloud, cloud, np.eye(4), REACH)
    np.testing.assert_allclose([getattr(a, name) for name in SHARES], 1, atol=1e-12)
    np.testing.assert_allclose([a.rmse_plane, a.rmse_point], 0, atol=1e-12)


def test_apart_nothing_agrees() -> None:
    cloud, T = Surface.of(scan("room", 0)), np.eye(4)
    T[0, 3] = 50
    a = agreement(cloud, cloud, T, REACH)
    assert not any(getattr(a, name) for name in SHARES)
    assert a.rmse_plane == a.rmse_point == np.inf
    assert degeneracy(information(cloud, cloud, T, REACH), REACH).kind == "empty"


@pytest.mark.parametrize("points", [np.eye(3)[:1], np.eye(3)[:2], np.eye(3), np.ones((50, 3))])
def test_clouds_that_are_hardly_any(points: np.ndarray) -> None:
    few, many = Surface.of(points), Surface.of(scan("room", 0))
    for pair in ((few, few), (few, many), (many, few)):
        a = agreement(*pair, np.eye(4), REACH)
        assert all(0 <= getattr(a, name) <= 1 for name in SHARES)
        open_ = degeneracy(information(*pair, np.eye(4), REACH), REACH)
        assert (open_.kind, open_.conditioning) == ("empty", 0.0)
    assert agreement(few, few, np.eye(4), REACH).overlap_source == 1


def test_refuses_lengths_that_are_none(room: tuple) -> None:
    for reach in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="reach"):
            agreement(*room, reach)
        with pytest.raises(InputError, match="reach"):
            information(*room, reach)


def found(name: str, noise: float, seed: int) -> tuple[Degeneracy, np.ndarray]:
    """What is said about two scans of a shape, and the pose they were given."""
    T = motion(seed)
    source = moved(scan(name, 2 * seed, noise), inverse(T))
    known = information(Surface.of(source), Surface.of(scan(name, 2 * seed + 1, noise)), T, REACH)
    return degeneracy(known, REACH), T


@pytest.mark.parametrize("noise", [0, 0.5])
@pytest.mark.parametrize(
    ("name", "kind", "motions"),
    [
        ("plane", "plane", 3),
        ("parallel planes", "parallel planes", 3),
        ("two planes", "corridor", 1),
        ("corridor", "corridor", 1),
        ("cylinder", "cylinder", 2),
        ("half a cylinder", "cylinder", 2),
        ("sphere", "sphere", 3),
        ("half a sphere", "sphere", 3),
        ("cone", "revolution", 1),
        ("corner", None, 0),
        ("room", None, 0),
    ],
)
def test_names_what_is_open(name: str, kind: str | None, motions: int, noise: float) -> None:
    for seed in (1, 2) if noise and kind else (3,):
        result, _ = found(name, noise, seed)
        assert result.kind == kind
        assert result.motions.shape == (motions, 6)
        assert (result.warning is None) == (kind is None)
        assert 0 <= result.conditioning <= 1
        assert result.conditioning > 0.05 if kind is None else result.conditioning < 0.01


def test_the_open_motion_is_the_right_one() -> None:
    result, _ = found("corridor", 0.25, 3)
    np.testing.assert_allclose(np.abs(result.motions[0]), (1, 0, 0, 0, 0, 0), atol=0.05)  # target's frame
    result, _ = found("plane", 0.25, 3)
    np.testing.assert_allclose(result.motions[:, [2, 3, 4]], 0, atol=0.05)


def test_a_small_shared_part_of_rooms_is_judged_alone() -> None:
    """Two rooms' worth of points, of which only the floor overlaps."""
    source, target = scan("room", 0), scan("room", 1)
    source = source[(source[:, 2] < 0.1) | (source[:, 1] > 0.9)]
    x, y, z = target.T
    target = target[(z < 0.1) & (x > 0.1) & (x < 0.85) & (y < 0.1) | (z > 1.5)]
    target[:, 0] -= 3 * (target[:, 2] > 1)  # its walls are elsewhere
    known = information(Surface.of(source), Surface.of(target), np.eye(4), REACH)
    assert degeneracy(known, REACH).kind == "plane"


def test_the_misfit_is_that_of_most_walls() -> None:
    """A floor, however large, says no more than a wall."""
    g = np.random.default_rng(0)
    parts = [rectangle(g, 2, 0, (-2, -2), (2, 2)), *(rectangle(g, k, 1, (-1, 0), (1, 2)) for k in (0, 1))]
    source = Surface.of(np.concatenate(parts))
    off = [np.array([0, 0, 0.004]), np.array([0.004, 0, 0]), np.array([0, 0.004, 0])]
    target = Surface.of(np.concatenate([part + shift for part, shift in zip(parts, off, strict=True)]))
    assert agreement(source, target, np.eye(4), REACH).misfit == pytest.approx(0.004, rel=0.1)
    parts[0][:, 2] += 0.004 * (parts[0][:, 0] < 1.8)  # but for a strip of the floor
    part_off = agreement(Surface.of(np.concatenate(parts)), target, np.eye(4), REACH).misfit
    assert part_off < 0.004
    assert agreement(source, Surface.of(target.points + 9), np.eye(4), REACH).misfit == np.inf


@pytest.fixture(scope="module")
def bays() -> tuple[Agreement, Agreement]:
    """Of two scans of a floor at their right pose, and a bay further."""
    floor, (a, b) = Floor(1), floor_scans(1, 3)[:2]
    T_b_a = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
    step = np.eye(4)
    step[:3, 3] = b.T_world_scan[:3, :3].T @ [floor.pitch, 0.0, 0.0]
    source, target = (
        Surface.of(voxel_downsample(torch.from_numpy(s.points), 0.1).numpy().astype(float)) for s in (a, b)
    )
    return agreement(source, target, T_b_a, 0.2), agreement(source, target, step @ T_b_a, 0.2)


def test_details_tell_a_bay_from_the_next(bays: tuple) -> None:
    """Bays are built alike: surfaces agree nearly as well one bay further, what stands there does not."""
    right, wrong = bays
    assert wrong.normals > 0.8 * right.normals
    assert wrong.details < 0.7 * right.details
    assert plausibility(wrong) < 0.5 * plausibility(right)


def test_what_is_built_alike_is_not_equal_to_the_millimetre(bays: tuple) -> None:
    right, wrong = bays
    assert wrong.misfit > 1.2 * right.misfit
