"""The working resolution depends on the scene, not on its unit, the point density or outliers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from wsdesc.cloud.files import read_points
from wsdesc.cloud.units import (
    Scale,
    cpu,
    different_units,
    extent,
    measure,
    reference,
    spacing,
    working_resolution,
)
from wsdesc.core.errors import InputError
from wsdesc.datasets.synthetic import RoomPair

RNG = np.random.default_rng(0)


def grid(step: float, *counts: int) -> np.ndarray:
    axes = [np.arange(n) * step for n in counts] + [np.zeros(1)] * (3 - len(counts))
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)


def box(count: int, sides: tuple[float, float, float], seed: int = 0) -> np.ndarray:
    """Return points evenly distributed over the six walls of a box."""
    rng = np.random.default_rng(seed)
    a, b, c = sides
    areas = np.array([b * c, a * c, a * b])
    axis = rng.choice(3, count, p=areas / areas.sum())
    points = rng.random((count, 3))
    points[np.arange(count), axis] = rng.integers(0, 2, count)
    return points * sides


def denser(points: np.ndarray, times: int, jitter: float) -> np.ndarray:
    return np.repeat(points, times, axis=0) + RNG.normal(0, jitter, (times * len(points), 3))


def thinner(points: np.ndarray, share: float) -> np.ndarray:
    return points[RNG.random(len(points)) < share]


def close(a: float, b: float, share: float) -> bool:
    return abs(np.log(a / b)) < np.log1p(share)


# Spacing


def test_spacing_of_a_grid():
    assert spacing(grid(0.02, 60, 50)) == pytest.approx(0.02)
    assert spacing(grid(0.02, 20, 20, 20)) == pytest.approx(0.02)
    assert spacing([[0, 0, 0], [3, 4, 0]]) == 5


def test_spacing_is_the_median_distance():
    points = RNG.random((1000, 3)) * (1, 1, 0)
    distance = np.linalg.norm(points[:, None] - points[None], axis=-1)
    np.fill_diagonal(distance, np.inf)
    assert spacing(points, sample=1000) == pytest.approx(np.median(distance.min(1)))
    assert close(spacing(points, sample=400), float(np.median(distance.min(1))), 0.15)
    assert spacing(points, sample=400) == spacing(points, sample=400)
    assert spacing(points, sample=400) != spacing(points, sample=400, seed=1)


def test_repeated_points_count_once():
    points = grid(0.5, 40, 40)
    zeros = np.zeros((5000, 3))  # many cameras write zeros for pixels without depth
    for repeated in (
        np.repeat(points, 7, axis=0),
        np.r_[points, zeros],
        np.r_[points, points[:9].repeat(300, 0)],
    ):
        assert spacing(repeated) == pytest.approx(0.5)
        assert close(extent(repeated), extent(points), 0.05)


def test_spacing_of_large_clouds_is_measured_in_random_cells(monkeypatch):
    points = box(300_000, (5, 4, 2.5))
    exact = spacing(points)
    monkeypatch.setattr(cpu, "_LARGE", 20_000)
    searched = []
    original = cpu.first_occurrences
    monkeypatch.setattr(cpu, "first_occurrences", lambda p: (searched.append(len(p)), original(p))[1])
    assert close(spacing(points), exact, 0.08)
    assert 10_000 < searched[-1] < 40_000
    assert close(spacing(np.r_[points, [[1e9, 0, 0]]]), exact, 0.08)
    assert spacing(np.repeat(grid(1.0, 30, 30), 30, axis=0)) == 1  # too few cells: all points are used


def test_scale_of_a_million_points():
    assert close(measure(box(1_500_000, (5, 4, 2.5))).resolution, 0.04, 0.3)


# Extent


def test_extent_does_not_depend_on_density_or_outliers():
    points = box(20_000, (4, 3, 2))
    expected = extent(points)
    many = box(400_000, (4, 3, 2))
    distance = np.linalg.norm(many - (0.5, 0.5, 1), axis=1)  # from a scanner in a corner
    near = many[0.2 / distance**3 > RNG.random(len(many)) * 2]
    outliers = RNG.uniform(-200, 200, (100, 3))
    assert close(extent(denser(points, 10, 0.005)), expected, 0.05)
    assert close(extent(thinner(points, 0.1)), expected, 0.1)
    assert np.median(np.linalg.norm(near - (0.5, 0.5, 1), axis=1)) < 0.4 * np.median(distance)
    assert close(extent(near), expected, 0.3)
    assert close(extent(np.r_[points, outliers]), expected, 0.05)
    assert close(extent(np.r_[points, [[1e12, 0, 0]], [[1e12, 0, 0]], [[1e12, 1e-3, 0]]]), expected, 0.05)


def test_extent_does_not_depend_on_the_pose():
    points = box(20_000, (4, 3, 2))
    expected = extent(points)
    for seed in range(5):
        R = Rotation.random(random_state=seed).as_matrix()
        assert close(extent(points @ R.T + (5e5, 5e6, 300)), expected, 0.05)


def test_flat_and_thin_clouds_have_an_extent():
    plane, line = grid(0.01, 200, 200), grid(0.01, 2000)
    assert 0.3 < extent(plane) < 2
    assert 1 < extent(line) < 20
    for cloud in (plane, line):
        assert working_resolution(cloud) >= 0.005


# Resolution


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1.0, 39.37, 1e3, 1e9])
def test_the_unit_of_the_file_does_not_matter(scale):
    points = box(20_000, (3, 2.5, 1.5))
    assert working_resolution(points * scale) == pytest.approx(scale * working_resolution(points), rel=0.02)
    assert measure(points * scale).unit == pytest.approx(working_resolution(points * scale) / 0.025)


def test_density_has_little_influence():
    points = box(20_000, (3, 2.5, 1.5))
    expected = working_resolution(points)
    assert spacing(denser(points, 10, 0.01)) < spacing(points) / 1.5
    for cloud in (
        denser(points, 10, 0.01),
        denser(points, 3, 0.01),
        thinner(points, 0.25),
        thinner(points, 0.05),
    ):
        assert close(working_resolution(cloud), expected, 0.6)


def test_never_much_finer_than_the_points():
    few = box(60, (3, 2.5, 1.5))
    assert working_resolution(few) == pytest.approx(spacing(few) / 2, rel=0.005)  # three digits


def test_several_clouds_have_one_resolution():
    large, small = box(20_000, (3, 2.5, 1.5)), box(2_000, (1, 0.8, 0.5), seed=1)
    assert working_resolution(large, small) == working_resolution(small, large)
    assert working_resolution(large, small) >= working_resolution(large)
    one_of_many = working_resolution(*[large] * 5, small * 1e6)
    assert one_of_many == working_resolution(large)
    assert working_resolution(large) == working_resolution(torch.from_numpy(large))


def test_geographic_coordinates_and_nan():
    points = box(20_000, (3, 2.5, 1.5))
    expected = working_resolution(points)
    assert working_resolution(points + np.array([5e5, 5e6, 300])) == pytest.approx(expected, rel=0.02)
    with_nan = np.r_[points, np.full((500, 3), np.nan), [[np.inf, 0, 0]]]
    assert working_resolution(with_nan) == expected


def test_clouds_without_a_scale():
    with pytest.raises(InputError, match="no clouds"):
        measure()
    with pytest.raises(InputError, match="points are equal"):
        measure(np.ones((10, 3)))
    with pytest.raises(InputError, match="none of the points is finite"):
        spacing(np.full((4, 3), np.nan))
    with pytest.raises(InputError, match="no points"):
        extent(np.zeros((0, 3)))
    with pytest.raises(InputError, match="shape"):
        working_resolution(np.zeros((4, 2)))


@settings(deadline=None, max_examples=60)
@given(st.integers(2, 40), st.integers(0, 2**31), st.sampled_from(["any", "integers", "line", "clusters"]))
def test_any_two_different_points_give_a_resolution(count, seed, kind):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(count, 3)) * 10.0 ** rng.uniform(-6, 6)
    if kind == "integers":
        points = rng.integers(0, 3, (count, 3)).astype(float)
    elif kind == "line":
        points[:, 1:] = 0
    elif kind == "clusters":
        points[: count // 2] += 1e6
    points[0] = points.max() + 1
    scale = measure(points)
    assert np.isfinite(scale.resolution)
    assert scale.resolution > 0
    assert scale.spacing > 0
    assert str(scale)


# Text


def test_scale_as_text():
    assert str(Scale(12.8, 1840.0, 25.6)) == (
        "unit of length: millimetres (spacing 12.8, extent 1 840): working resolution 25.6, 1 unit = 1 020"
    )
    assert str(Scale(0.084, 12.5, 0.168)) == (
        "unit of length: unknown (spacing 0.084, extent 12.5): working resolution 0.168, 1 unit = 6.72"
    )


@pytest.mark.parametrize(
    ("spacing", "extent", "name"),
    [
        (0.0128, 1.8, "metres"),
        (1.28, 180, "centimetres"),
        (12.8, 1800, "millimetres"),
        (0.001, 1.8, "metres"),
        (0.5, 0.1, "unknown"),  # an object
        (0.08, 12.5, "unknown"),  # a building
        (1e-5, 1.8, "unknown"),  # the size of a room, but points 10 µm apart
        (0.5, 1.8, "unknown"),
        (1e5, 1e7, "unknown"),
    ],
)
def test_only_plausible_scales_of_a_room_have_a_unit_name(spacing, extent, name):
    assert Scale(spacing, extent, 2 * spacing).name == name


# Real scans


@pytest.fixture
def real(data_folder) -> Callable[[str], np.ndarray]:
    def read(name: str) -> np.ndarray:
        if not (data_folder / name).is_file():
            pytest.skip(f"the data folder has no {name}")
        return read_points(data_folder / name)

    return read


@pytest.mark.parametrize(
    ("scene", "expected", "share"),
    [
        ("indoor/train/tum_fr1_rpy", 0.025, 0.2),
        ("indoor/train/hololens_000", 0.025, 0.2),
        ("indoor/test/kitchen", 0.025, 0.2),
        ("objects/bunny", 0.001, 0.2),
        ("tls/building", 0.1, 1.0),  # twice its spacing is 0.17: far walls are sparse, even in 5 cm voxels
    ],
)
def test_real_scans(real, scene, expected, share):
    clouds = [real(f"{scene}/cloud_bin_{k}.ply") for k in range(4)]
    assert close(working_resolution(*clouds[:2]), expected, share)
    assert close(working_resolution(*clouds), expected, share)


def test_real_scans_in_other_units_and_densities(real):
    clouds = [real(f"indoor/train/hololens_000/cloud_bin_{k}.ply") for k in (0, 1)]
    millimetres = measure(*(1000 * cloud for cloud in clouds))
    assert millimetres.name == "millimetres"
    assert close(millimetres.resolution, 25, 0.2)
    assert close(working_resolution(*(denser(cloud, 10, 0.008) for cloud in clouds)), 0.025, 0.5)
    assert close(working_resolution(*(thinner(cloud, 0.25) for cloud in clouds)), 0.025, 0.6)
    outliers = RNG.uniform(-100, 100, (30, 3))
    assert close(working_resolution(*(np.r_[cloud, outliers] for cloud in clouds)), 0.025, 0.2)


# Plain NumPy, plain torch and GPU


def plain_extent(points: np.ndarray) -> float:
    """The extent, computed with the slow functions of NumPy."""
    points = points - np.median(points, axis=0)
    surface = points
    for _ in range(2):
        middle = np.median(surface, axis=0)
        radius = np.quantile(np.linalg.norm(surface - middle, axis=1), 0.8, method="higher")
        near = points[np.linalg.norm(points - middle, axis=1) <= 4 * radius]
        cells = np.floor(near / (radius / 16)).astype(np.int64)
        _, first, count = np.unique(cells, axis=0, return_index=True, return_counts=True)
        surface = near[first[count > 1]] if (count > 1).sum() >= 8 else near
    centred = surface - surface.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    low, high = np.quantile(centred @ axes, (0.05, 0.95), axis=0)
    sides = high - low
    return float(np.maximum(sides, sides.max() / 20).prod() ** (1 / 3))


@pytest.mark.parametrize("count", [8, 9, 300, 5001])
def test_extent_equals_plain_numpy(count: int) -> None:
    for points in (box(count, (3, 2.5, 1.5)), RNG.normal(size=(count, 3))):
        assert extent(points) == pytest.approx(plain_extent(points), rel=1e-12)


def test_plain_torch_equals_cpu(room: RoomPair, desk: torch.Tensor) -> None:
    for points in (torch.as_tensor(room.source).float(), desk):
        sample = np.random.default_rng(0).choice(len(points), 2000, replace=False, shuffle=False)
        assert reference.spacing(points, sample) == pytest.approx(spacing(points.numpy()), rel=1e-9)


def test_plain_torch_with_equal_points() -> None:
    with pytest.raises(InputError, match="points are equal"):
        reference.spacing(torch.ones(50, 3), np.arange(50))


@pytest.mark.gpu
def test_gpu_equals_cpu(room: RoomPair) -> None:
    clouds = [torch.as_tensor(points).float() for points in (room.source, room.target)]
    expected, result = measure(*clouds), measure(*(cloud.cuda() for cloud in clouds))
    assert result.spacing == pytest.approx(expected.spacing, rel=1e-5)
    assert result.extent == pytest.approx(expected.extent, rel=1e-6)
    assert result.resolution == pytest.approx(expected.resolution, rel=1e-5)


def test_resolution_has_three_digits():
    """Noise of float32 coordinates does not change it."""
    points = box(20_000, (3, 2.5, 1.5))
    expected = working_resolution(points)
    assert expected == float(f"{expected:.3g}")
    assert working_resolution(points.astype(np.float32)) == expected
    assert working_resolution(1000 * points) == pytest.approx(1000 * expected)


@pytest.mark.parametrize(
    ("source", "target", "hint"),
    [
        (2000, 2.2, "(0.001 if the source is in millimetres and the target in metres; "),
        (2, 1900, "(1000 if the source is in metres and the target in millimetres; "),
        (230, 2.0, "(0.01 if the source is in centimetres and the target in metres; "),
        (2, 80, "(39.37 if the source is in metres and the target in inches; "),
        (1, 300, '("estimate" finds it)'),
        (1e9, 0, '("estimate" finds it)'),
    ],
)
def test_probable_units_are_named(source: float, target: float, hint: str) -> None:
    assert hint in different_units(source, target)
    assert different_units(1.0, 20.0) is None
