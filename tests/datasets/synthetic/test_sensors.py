"""Virtual sensors: ranges, errors, fields of view and viewpoints."""

from dataclasses import replace

import numpy as np
import pytest

from wsdesc.datasets.synthetic.raycast import Tree, cast
from wsdesc.datasets.synthetic.sensors import SENSORS, Heading, draw_sensor
from wsdesc.datasets.synthetic.sensors.laser import Laser
from wsdesc.datasets.synthetic.shapes import box, place
from wsdesc.datasets.synthetic.sites.facade import upright
from wsdesc.datasets.synthetic.sites.site import Surfaces
from wsdesc.datasets.synthetic.survey import site_scans

LASERS = [name for name in SENSORS if name.startswith("lidar") or name in ("terrestrial", "solid_state")]


def laser(name: str, **changes: object) -> Laser:
    device = draw_sensor(name, np.random.default_rng(0))
    assert isinstance(device, Laser)
    return replace(device, **changes)  # type: ignore[arg-type]


def wall(distance: float) -> Surfaces:
    return Surfaces.over([place(box(0.1, 400, 400), (distance + 0.05, 0, -200))], [])


@pytest.mark.parametrize("name", LASERS)
def test_lasers_measure_a_wall_and_not_the_sky(name: str) -> None:
    device = laser(name, reach=(0.5, 60.0))
    scan = device.scan(wall(10.0), np.zeros(3), Heading(0.0), np.random.default_rng(1))
    assert scan.sensor == name
    assert scan.viewpoint is not None
    assert len(scan.points) > 1_000
    cosine = scan.points[:, 0] / np.linalg.norm(scan.points, axis=1)
    error = (scan.points[:, 0] - 10.0) / cosine
    assert np.abs(np.median(error)) < 0.02
    assert error.std() < 0.06
    assert np.linalg.norm(scan.points, axis=1).max() < 60.5


def test_noise_grows_with_the_range() -> None:
    device = laser("lidar64", noise=0.005, growth=0.001, bias=0.0)
    spread = []
    for distance in (5.0, 40.0):
        scan = device.scan(wall(distance), np.zeros(3), Heading(0.0), np.random.default_rng(2))
        ahead = scan.points[np.abs(scan.points[:, 1]) < 0.1 * distance]
        spread.append(ahead[:, 0].std())
    assert spread[1] > 3 * spread[0]


def test_lines_of_spinning_lasers() -> None:
    for lines in (16, 32, 64, 128):
        rays = laser(f"lidar{lines}").pattern(np.random.default_rng(0))
        assert rays.shape[0] == lines
        elevation = np.degrees(np.arcsin(rays[..., 2]))
        assert np.ptp(elevation, axis=1).max() < 0.01
        assert -53 < elevation.min() < elevation.max() < 53


def test_the_scan_is_in_the_frame_of_the_sensor() -> None:
    heading, at = Heading(2.0, 0.1, -0.05), np.array([1.0, 2.0, 0.5])
    scan = laser("terrestrial").scan(wall(8.0), at, heading, np.random.default_rng(3))
    world = scan.points @ scan.T_world_scan[:3, :3].T + scan.T_world_scan[:3, 3]
    assert np.abs(world[:, 0] - 8.0).max() < 0.1
    assert np.array_equal(scan.T_world_scan[:3, 3], at)


def test_most_rays_pass_through_glass() -> None:
    scene = Surfaces.over(
        [place(box(0.1, 60, 60), (8.05, 0, -30))],
        [place(upright(-30, 30, -30, 30), (4, 0, 0), yaw=np.pi / 2)],
    )
    scan = laser("lidar32", reach=(0.5, 50.0)).scan(
        scene, np.zeros(3), Heading(0.0), np.random.default_rng(4)
    )
    on_pane = (np.abs(scan.points[:, 0] - 4) < 0.2).mean()
    assert 0 < on_pane < 0.15
    assert (np.abs(scan.points[:, 0] - 8) < 0.3).mean() > 0.8


@pytest.mark.parametrize(
    ("kind", "sensor"), [("hall", "terrestrial"), ("courtyard", "lidar64"), ("tabletop", "depth_camera")]
)
def test_few_points_lie_behind_others_as_seen_from_the_viewpoint(kind: str, sensor: str) -> None:
    scan = site_scans(kind, 4, 1, sensor)[0]
    assert hidden(scan.points) < 0.5 * hidden(scan.points + np.array([1.2, -0.9, 0.3], np.float32))


def hidden(points: np.ndarray) -> float:
    """Share of points that lie behind another one, in cells of 0.5°."""
    ranges = np.linalg.norm(points, axis=1)
    azimuth = np.degrees(np.arctan2(points[:, 1], points[:, 0]))
    elevation = np.degrees(np.arcsin(points[:, 2] / ranges))
    _, cell = np.unique(np.floor(np.stack([azimuth, elevation], 1) / 0.5), axis=0, return_inverse=True)
    nearest = np.full(cell.max() + 1, np.inf)
    np.minimum.at(nearest, cell.ravel(), ranges)
    return float((ranges > 1.1 * nearest[cell.ravel()]).mean())


@pytest.mark.parametrize("name", ["structured_light", "orthographic"])
def test_range_scanners_see_an_object(name: str) -> None:
    scene = Surfaces.over([place(box(0.3, 0.3, 0.3), (0, 0, -0.15))], [])
    device = draw_sensor(name, np.random.default_rng(0))
    scan = device.scan(scene, np.array([-1.0, 0.0, 0.0]), Heading(0.0), np.random.default_rng(1))
    assert (scan.viewpoint is None) == (name == "orthographic")
    assert len(scan.points) > 1_000
    assert np.abs(scan.points[:, 2] - 0.85).max() < 0.05
    width = np.ptp(scan.points[:, 0])
    assert 0.27 < width < 0.31


def test_joined_trees_equal_one_tree() -> None:
    rng = np.random.default_rng(5)
    first, second = (rng.uniform(-1, 1, (n, 1, 3)) + rng.normal(0, 0.2, (n, 3, 3)) for n in (200, 2))
    rays = rng.normal(size=(500, 3)).astype(np.float32)
    origins = rng.uniform(-2, 2, (500, 3)).astype(np.float32)
    joined, whole = Tree.over(first).joined(Tree.over(second)), Tree.over(np.concatenate([first, second]))
    a, b = cast(joined, origins, rays), cast(whole, origins, rays)
    assert np.array_equal(a.depth, b.depth)
    hit = a.triangle >= 0
    assert np.array_equal(joined.source[a.triangle[hit]], whole.source[b.triangle[hit]])
