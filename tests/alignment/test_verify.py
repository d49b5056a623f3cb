"""Verification: scores of right and wrong poses, symmetry, units, and hardly any points."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from poses import random_pose
from shapes import RESOLUTION, rectangle, scan
from wsdesc.alignment.information import Information, compute_information, find_degeneracy
from wsdesc.alignment.surface import CpuSurface, Surface
from wsdesc.alignment.verify import PoseScore, score_candidate, verify
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.core.errors import InputError
from wsdesc.core.geometry import inverse, make_pose, transform
from wsdesc.datasets.synthetic.floor import Floor, floor_scans

DISTANCE = 2 * RESOLUTION
SHARES = [name for name in PoseScore._fields if not name.startswith(("rmse", "misfit"))]


def score(source: Surface, target: Surface, T: np.ndarray, distance: float) -> PoseScore:
    """Verify one pose (4, 4)."""
    (result,) = verify(source, target, T[None], distance)
    return result


def information(source: Surface, target: Surface, T: np.ndarray, distance: float) -> Information:
    """Compute the information of one pose (4, 4)."""
    (result,) = compute_information(source, target, T[None], distance)
    return result


@pytest.fixture(scope="module")
def room() -> tuple[CpuSurface, CpuSurface, np.ndarray]:
    """Two scans that share most of one room, and T_target_source."""
    T = random_pose(5)
    source, target = scan("room", 0), scan("room", 1)
    source, target = source[source[:, 0] < 0.7], target[target[:, 1] > -0.6]
    return CpuSurface.of(transform(source, inverse(T))), CpuSurface.of(target), T


def test_true_pose_scores_high(room: tuple) -> None:
    a = score(*room, DISTANCE)
    # Points that were cut off the other scan have no partner; all others have.
    source, target, T = room
    assert a.overlap_source == pytest.approx((transform(source.points, T)[:, 1] > -0.6).mean(), abs=0.05)
    assert a.overlap_target == pytest.approx((target.points[:, 0] < 0.7).mean(), abs=0.05)
    assert min(a.aligned_normals, a.not_hovering, a.uncrossed) > 0.9
    assert a.rmse_plane < 0.5 * RESOLUTION
    assert a.rmse_plane < a.rmse_point < DISTANCE
    assert all(0 <= getattr(a, name) <= 1 for name in SHARES)


@pytest.mark.parametrize(
    "wrong",
    [(0.4, 0, 0, 0), (0, 0.5, 0, 0), (0.3, -0.3, 0, 0), (0, 0, 0, 90), (0, 0, 0, 180)],
    ids=["slid along x", "slid along y", "slid", "rotated by 90°", "rotated by 180°"],
)
def test_wrong_poses_that_slide_along_planes_score_lower(room: tuple, wrong: tuple) -> None:
    source, target, T = room
    T_wrong = make_pose(Rotation.from_euler("z", wrong[3], degrees=True).as_matrix(), wrong[:3])
    right, false = score(*room, DISTANCE), score(source, target, T_wrong @ T, DISTANCE)
    assert false.overlap_source > 0.2  # the floor still lies on the floor
    assert false.not_hovering < right.not_hovering - 0.1
    assert false.curvature_similarity < 0.75 * right.curvature_similarity
    assert false.weighted_overlap_source < right.weighted_overlap_source - 0.1


def test_crossing_surfaces_lower_uncrossed() -> None:
    plane = CpuSurface.of(scan("plane", 0))
    T = np.eye(4)
    T[:3, :3] = Rotation.from_euler("x", 80, degrees=True).as_matrix()
    crossing = score(plane, CpuSurface.of(scan("plane", 1)), T, DISTANCE)
    assert crossing.uncrossed < 0.1
    assert crossing.aligned_normals < 0.1


def test_only_points_in_front_of_a_surface_hover() -> None:
    plane, other = CpuSurface.of(scan("plane", 0, 0)), CpuSurface.of(scan("plane", 1, 0))
    beside, above = np.eye(4), np.eye(4)
    beside[0, 3], above[2, 3] = 1.0, 2.5 * DISTANCE
    assert score(plane, other, beside, DISTANCE).not_hovering > 0.99
    assert score(plane, other, above, DISTANCE).not_hovering == 0


def test_a_floor_alone_has_little_weighted_overlap() -> None:
    corner, floor = CpuSurface.of(scan("corner", 0)), CpuSurface.of(scan("plane", 1))
    mostly_floor = CpuSurface.of(np.r_[floor.points, scan("two planes", 2)[::3] + np.array([0, 0, 0.3])])
    a = score(mostly_floor, floor, np.eye(4), DISTANCE)
    assert a.weighted_overlap_source < a.overlap_source - 0.1
    a = score(corner, floor, np.eye(4), DISTANCE)  # three sides of one size have a third of the weight each
    assert a.weighted_overlap_source == pytest.approx(a.overlap_source, abs=0.08)


def test_swapping_the_scans_swaps_the_score(room: tuple) -> None:
    source, target, T = room
    forward, backward = score(*room, DISTANCE), score(target, source, inverse(T), DISTANCE)
    swapped = {"overlap_source": "overlap_target", "weighted_overlap_source": "weighted_overlap_target"}
    swapped |= {b: a for a, b in swapped.items()}
    for name in PoseScore._fields:
        swapped_value = getattr(backward, swapped.get(name, name))
        assert swapped_value == pytest.approx(getattr(forward, name), abs=1e-3), name
    assert forward.overlap_source != forward.overlap_target  # else the test would prove nothing


@pytest.mark.parametrize("which", ["source", "target"])
def test_moving_a_scan_keeps_the_score(room: tuple, which: str) -> None:
    source, target, T = room
    M = random_pose(11)
    surface = source if which == "source" else target
    moved_surface = replace(
        CpuSurface.of(transform(surface.points, M)),
        sample=surface.sample,
        direction_weights=surface.direction_weights,
    )
    moved = (moved_surface, target, T @ inverse(M)) if which == "source" else (source, moved_surface, M @ T)
    np.testing.assert_allclose(score(*moved, DISTANCE), score(*room, DISTANCE), atol=2e-3)
    before, after = information(*room, DISTANCE), information(*moved, DISTANCE)
    np.testing.assert_allclose(np.linalg.eigvalsh(after.matrix), np.linalg.eigvalsh(before.matrix), atol=2e-3)
    centre = transform(before.centre[None], M)[0] if which == "target" else before.centre
    np.testing.assert_allclose(after.centre, centre, atol=0.01)


def test_units_scale_the_lengths_only(room: tuple) -> None:
    source, target, T = room
    scaled = T.copy()
    scaled[:3, 3] *= 1024
    a = score(
        CpuSurface.of(1024 * source.points), CpuSurface.of(1024 * target.points), scaled, 1024 * DISTANCE
    )
    b = score(*room, DISTANCE)
    np.testing.assert_allclose(a[:-3], b[:-3], atol=1e-3)
    np.testing.assert_allclose(a[-3:], np.multiply(1024, b[-3:]), rtol=1e-2)


def test_two_runs_give_the_same_bits(room: tuple) -> None:
    assert score(*room, DISTANCE) == score(*room, DISTANCE)


def test_a_scan_on_itself_has_full_score() -> None:
    cloud = CpuSurface.of(scan("room", 0))
    a = score(cloud, cloud, np.eye(4), DISTANCE)
    np.testing.assert_allclose([getattr(a, name) for name in SHARES], 1, atol=1e-12)
    np.testing.assert_allclose([a.rmse_plane, a.rmse_point], 0, atol=1e-12)


def test_scans_apart_have_no_overlap() -> None:
    cloud, T = CpuSurface.of(scan("room", 0)), np.eye(4)
    T[0, 3] = 50
    a = score(cloud, cloud, T, DISTANCE)
    assert not any(getattr(a, name) for name in SHARES)
    assert a.rmse_plane == a.rmse_point == np.inf
    assert find_degeneracy(information(cloud, cloud, T, DISTANCE), DISTANCE).kind == "empty"


@pytest.mark.parametrize("points", [np.eye(3)[:1], np.eye(3)[:2], np.eye(3), np.ones((50, 3))])
def test_scans_of_few_points(points: np.ndarray) -> None:
    few, many = CpuSurface.of(points), CpuSurface.of(scan("room", 0))
    for pair in ((few, few), (few, many), (many, few)):
        a = score(*pair, np.eye(4), DISTANCE)
        assert all(0 <= getattr(a, name) <= 1 for name in SHARES)
        result = find_degeneracy(information(*pair, np.eye(4), DISTANCE), DISTANCE)
        assert (result.kind, result.conditioning) == ("empty", 0.0)
    assert score(few, few, np.eye(4), DISTANCE).overlap_source == 1


def test_invalid_distances_are_rejected(room: tuple) -> None:
    for distance in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InputError, match="distance"):
            score(*room, distance)
        with pytest.raises(InputError, match="distance"):
            information(*room, distance)


def test_misfit_weights_walls_like_a_larger_floor() -> None:
    """A large floor has no more weight than a wall."""
    g = np.random.default_rng(0)
    parts = [rectangle(g, 2, 0, (-2, -2), (2, 2)), *(rectangle(g, k, 1, (-1, 0), (1, 2)) for k in (0, 1))]
    source = CpuSurface.of(np.concatenate(parts))
    off = [np.array([0, 0, 0.004]), np.array([0.004, 0, 0]), np.array([0, 0.004, 0])]
    target = CpuSurface.of(np.concatenate([part + shift for part, shift in zip(parts, off, strict=True)]))
    assert score(source, target, np.eye(4), DISTANCE).misfit == pytest.approx(0.004, rel=0.1)
    parts[0][:, 2] += 0.004 * (parts[0][:, 0] < 1.8)  # except a strip of the floor
    part_off = score(CpuSurface.of(np.concatenate(parts)), target, np.eye(4), DISTANCE).misfit
    assert part_off < 0.004
    assert score(source, CpuSurface.of(target.points + 9), np.eye(4), DISTANCE).misfit == np.inf


@pytest.fixture(scope="module")
def bays() -> tuple[PoseScore, PoseScore]:
    """Scores of two scans of a floor with equal bays: at the right pose, and one bay off."""
    floor, (a, b) = Floor(1), floor_scans(1, 3)[:2]
    T_b_a = np.linalg.inv(b.T_world_scan) @ a.T_world_scan
    step = np.eye(4)
    step[:3, 3] = b.T_world_scan[:3, :3].T @ [floor.pitch, 0.0, 0.0]
    source, target = (
        CpuSurface.of(voxel_downsample(torch.from_numpy(s.points), 0.1).numpy().astype(float)) for s in (a, b)
    )
    return score(source, target, T_b_a, 0.2), score(source, target, step @ T_b_a, 0.2)


@pytest.mark.slow
def test_details_distinguish_equal_bays(bays: tuple) -> None:
    """Surfaces fit nearly as well one bay off; the objects in the bays do not."""
    right, wrong = bays
    assert wrong.aligned_normals > 0.8 * right.aligned_normals
    assert wrong.detail_similarity < 0.7 * right.detail_similarity
    assert score_candidate(wrong) < 0.5 * score_candidate(right)


@pytest.mark.slow
def test_equal_bays_differ_by_millimetres(bays: tuple) -> None:
    right, wrong = bays
    assert wrong.misfit > 1.2 * right.misfit
