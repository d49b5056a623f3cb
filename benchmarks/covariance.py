"""Compare the covariance of poses with their errors, and fit its noise model.

    python -m benchmarks.covariance --rooms 40 --floors 8 --sites 4 --train SCENE… --scene SCENE EVALUATION…
    python -m benchmarks.covariance --rooms 40 --floors 8 --train SCENE… --fit

    e.g. --train data/indoor/train/* --scene kitchen kitchen-evaluation

Poses are refined from the true pose, off by up to 2° and 3 resolutions: no descriptors are needed. Pairs have
an overlap of at least 10 %. A pose is right if it is within 15° and 12 resolutions of the truth and the
overlap is not degenerate. The scenes of --train have poses in cloud_bin_k.info.txt; of each, at most --limit
pairs are used.

Prints for each set the number of right poses, the median error, the median standard deviations, and the share
of errors within the 68, 95 and 99 % ellipsoids. The frame of a fused scan is that of its first image, and its
surface has drifted from there: this counts as an error, which triangles of scans do not show. The column
"closing" has the median error of triangles over √3.

With --fit, fits the noise model to rooms, floors and training scans, each set with the same weight.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from benchmarks.common import (
    fragment_path,
    make_parser,
    percent,
    print_machine,
    print_rows,
    read_truth,
    run_command,
    show_progress,
)
from wsdesc import read_points
from wsdesc.alignment.covariance import (
    LinearProblem,
    NoiseModel,
    covariance_of,
    largest_deviations,
    linearise,
)
from wsdesc.alignment.information import find_degeneracy
from wsdesc.alignment.refine import OVERLAP_DISTANCE, RefinedPose, refine
from wsdesc.alignment.surface import Surface, make_surface
from wsdesc.cloud.clean import clean
from wsdesc.cloud.outliers import remove_outliers
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.geometry import Floats, inverse, motion_about, transform
from wsdesc.datasets.synthetic import SITES, overlap, room_scans, site_scans
from wsdesc.datasets.synthetic.floor import floor_scans
from wsdesc.datasets.threedmatch import find_fragments, read_pose

LEVELS = (0.68, 0.95, 0.99)
FIRST_SEED = 1000  # seeds of synthetic scans
MIN_POINTS = 1500  # of a synthetic scan
MIN_OVERLAP = 0.1
MAX_ANGLE, MAX_DISTANCE = np.radians(15), 12 * INDOOR_RESOLUTION  # of right poses
START_ANGLE, START_DISTANCE = np.radians(2), 3 * INDOOR_RESOLUTION  # of the poses that are refined
FREEDOM = 50.0  # of Student's t distribution in the fit: errors have long tails
INFLATION = 1.25  # factor after the fit, so that 95 % ellipsoids cover at least 90 % despite these tails


class Place(NamedTuple):
    """Scans of one place: their points in the unit of the files, and true poses between them."""

    name: str
    clouds: list[Floats]
    truths: list[tuple[int, int, Floats]]  # source, target, T_target_source


class RightPose(NamedTuple):
    """A refined pose that is right, in metres of the model."""

    place: str
    source: int
    target: int
    refined: RefinedPose
    problem: LinearProblem
    error: Floats  # (6,) twist about the overlap's centre from the pose to the truth

    def covariance(self, model: NoiseModel) -> Floats:
        return covariance_of(self.problem, self.refined, INDOOR_RESOLUTION, model)


def main(arguments: argparse.Namespace) -> None:
    fitted: dict[str, Iterable[Place]] = {
        "rooms": rooms(arguments.rooms),
        "floors": floors(arguments.floors),
        "train": map(read_scene, arguments.train),
    }
    reported: dict[str, Iterable[Place]] = (
        {}
        if arguments.fit
        else {
            **{f"{kind} (site)": sites(kind, arguments.sites) for kind in SITES if arguments.sites},
            **{folder.name: [read_evaluation(scene, folder)] for scene, folder in arguments.scene or []},
        }
    )
    poses = {}
    for number, (name, places) in enumerate((fitted | reported).items()):
        limit = arguments.limit if name == "train" else None
        rng = np.random.default_rng([arguments.seed, number])
        right = [pose for place in show_progress(places, name) for pose in right_poses(place, rng, limit)]
        if right:
            poses[name] = right
    model = NoiseModel()
    if arguments.fit:
        model = fit(list(poses.values()))
        print("fitted", ", ".join(f"{name} {value:.2f}" for name, value in model._asdict().items()))
    print_machine()
    head = ["", "n", "error °", "mm", "closing °", "mm", "deviation °", "mm"]
    print_rows([[*head, *(f"in {percent(level)} %" for level in LEVELS)], *rows_of(poses, model)])


def rooms(count: int) -> Iterator[Place]:
    """Make fused depth scans of rooms."""
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        scans = [scan for scan in room_scans(seed, 3) if len(scan.points) > MIN_POINTS]
        yield posed_place(f"room {seed}", [s.points for s in scans], [s.T_world_scan for s in scans])


def floors(count: int) -> Iterator[Place]:
    """Make laser scans of floors with repetitive structure."""
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        scans = floor_scans(seed, 5)
        yield posed_place(f"floor {seed}", [s.points for s in scans], [s.T_world_scan for s in scans])


def sites(kind: str, count: int) -> Iterator[Place]:
    """Make scans of synthetic sites by random sensors."""
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        scans = [scan for scan in site_scans(kind, seed, 5) if len(scan.points) > MIN_POINTS]
        yield posed_place(f"{kind} {seed}", [s.points for s in scans], [s.T_world_scan for s in scans])


def read_scene(folder: Path) -> Place:
    """Read all scans of a folder with the poses beside them."""
    files = find_fragments(folder)
    clouds = [read_points(files[k], nonfinite="drop") for k in sorted(files)]
    poses = [read_pose(files[k].with_suffix(".info.txt")) for k in sorted(files)]
    return posed_place(folder.name, clouds, poses)


def read_evaluation(scene: Path, evaluation: Path) -> Place:
    """Read the pairs of a gt.log."""
    pairs = read_truth(evaluation)
    numbers = sorted({k for pair in pairs for k in (pair.i, pair.j)})
    index = {number: k for k, number in enumerate(numbers)}
    clouds = [read_points(fragment_path(scene, number), nonfinite="drop") for number in numbers]
    return Place(scene.name, clouds, [(index[pair.j], index[pair.i], pair.T_i_j) for pair in pairs])


def posed_place(name: str, clouds: list[Floats], T_world_scan: list[Floats]) -> Place:
    """Pair all scans with known poses."""
    truths = [
        (a, b, inverse(T_world_scan[b]) @ T_world_scan[a])
        for a, b in itertools.combinations(range(len(clouds)), 2)
    ]
    return Place(name, [np.asarray(cloud, dtype=np.float64) for cloud in clouds], truths)


def right_poses(place: Place, rng: np.random.Generator, limit: int | None) -> Iterator[RightPose]:
    """Refine perturbed true poses, and yield those that are right."""
    truths = [place.truths[k] for k in rng.permutation(len(place.truths))[:limit]]
    if not truths:
        return
    cleaned = [clean(cloud) for cloud in place.clouds]
    resolution = measure(*(torch.from_numpy(cleaned[k].points) for k in truths[0][:2])).resolution
    unit = resolution / INDOOR_RESOLUTION
    surfaces = [prepare(scan.points, resolution) for scan in cleaned]
    for source, target, T_files in truths:
        T = inverse(cleaned[target].T_scan_local) @ T_files @ cleaned[source].T_scan_local
        T[:3, 3] /= unit
        p, q = surfaces[source], surfaces[target]
        ends = (p.points, q.points, T), (q.points, p.points, inverse(T))
        if min(overlap(*end, OVERLAP_DISTANCE * INDOOR_RESOLUTION) for end in ends) < MIN_OVERLAP:
            continue
        (refined,) = refine(p, q, perturb(T, p.points, rng)[None], INDOOR_RESOLUTION)
        error = twist_between(refined.T_target_source, T, refined.information.centre)
        near = np.linalg.norm(error[:3]) < MAX_DISTANCE and np.linalg.norm(error[3:]) < MAX_ANGLE
        degenerate = find_degeneracy(refined.information, OVERLAP_DISTANCE * INDOOR_RESOLUTION).kind
        if near and not degenerate:
            problem = linearise(p, q, refined, INDOOR_RESOLUTION)
            yield RightPose(place.name, source, target, refined, problem, error)


def prepare(points: Floats, resolution: float) -> Surface:
    """Make a surface as a registration does, in metres of the model."""
    kept = remove_outliers(voxel_downsample(torch.from_numpy(points), resolution), resolution)
    return make_surface(kept.float() * (INDOOR_RESOLUTION / resolution))


def perturb(T: Floats, points: Floats, rng: np.random.Generator) -> Floats:
    """Move a pose by a random rotation about the source's middle and a random shift."""
    turn, shift = (v * rng.uniform() / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
    middle = points.mean(axis=0)
    D = motion_about(middle, Rotation.from_rotvec(START_ANGLE * turn).as_matrix(), START_DISTANCE * shift)
    return np.asarray(T @ D)


def twist_between(T_from: Floats, T_to: Floats, centre: Floats) -> Floats:
    """Return the twist (v, ω) about the centre that moves a pose to another one."""
    D = T_to @ inverse(T_from)
    moved = transform(centre[None], D)[0]
    return np.concatenate([moved - centre, Rotation.from_matrix(D[:3, :3]).as_rotvec()])


def rows_of(poses: dict[str, list[RightPose]], model: NoiseModel) -> Iterator[list[str]]:
    """Summarise each set; lengths in millimetres of the model, whose resolution is 25 mm."""
    for name, group in poses.items():
        errors = np.array([pose.error for pose in group])  # (N, 6)
        covariances = [pose.covariance(model) for pose in group]
        deviations = np.array([largest_deviations(c) for c in covariances])[:, ::-1]
        squared = [e @ np.linalg.solve(c, e) for e, c in zip(errors, covariances, strict=True)]
        within = [np.mean(squared < chi2.ppf(level, 6)) for level in LEVELS]
        sizes = np.column_stack(
            [np.linalg.norm(errors[:, 3:], axis=1), np.linalg.norm(errors[:, :3], axis=1)]
        )
        figures = [*_medians(sizes), *_medians(closings(group)), *_medians(deviations)]
        yield [name, str(len(group)), *figures, *map(percent, within)]


def _medians(values: Floats) -> list[str]:
    """Format the medians of angles in radians and lengths in metres (N, 2)."""
    if not len(values):
        return ["–", "–"]
    angle, length = np.median(values, axis=0)
    return [f"{np.degrees(angle):.3f}", f"{1000 * length:.2f}"]


def closings(group: list[RightPose]) -> Floats:
    """Return errors (N, 2), radians and metres, of triangles over √3, at the overlap of their first pair."""
    edges: dict[tuple[str, int, int], Floats] = {}
    centres = {}
    for pose in group:
        T = pose.refined.T_target_source
        edges[pose.place, pose.source, pose.target] = T
        edges[pose.place, pose.target, pose.source] = inverse(T)
        centre = pose.refined.information.centre
        centres[pose.place, pose.target, pose.source] = centre
        centres[pose.place, pose.source, pose.target] = transform(centre[None], inverse(T))[0]
    errors = []
    for place in {pose.place for pose in group}:
        numbers = sorted({k for pose in group if pose.place == place for k in (pose.source, pose.target)})
        for a, b, c in itertools.combinations(numbers, 3):
            loop = [(place, *pair) for pair in ((a, b), (b, c), (c, a))]
            if all(pair in edges for pair in loop):
                T = edges[loop[2]] @ edges[loop[1]] @ edges[loop[0]]
                twist = twist_between(np.eye(4), T, centres[loop[0]])
                errors.append([np.linalg.norm(twist[3:]), np.linalg.norm(twist[:3])])
    return np.array(errors) / np.sqrt(3)


def fit(groups: list[list[RightPose]]) -> NoiseModel:
    """Maximise the likelihood of the errors, each group with the same weight."""

    def cost(logarithms: Floats) -> float:
        model = NoiseModel(*np.exp(logarithms))
        return sum(float(np.mean([surprise(pose, model) for pose in group])) for group in groups)

    start = np.log(NoiseModel())
    simplex = start + np.vstack([np.zeros(2), 0.3 * np.eye(2)])
    options = {"initial_simplex": simplex, "xatol": 0.01, "fatol": 1e-3}
    solution = minimize(cost, start, method="Nelder-Mead", options=options).x
    return NoiseModel(*map(float, INFLATION * np.exp(solution)))


def surprise(pose: RightPose, model: NoiseModel) -> float:
    """Return the negative log likelihood of an error, by Student's t distribution, up to a constant."""
    covariance = pose.covariance(model)
    squared = pose.error @ np.linalg.solve(covariance, pose.error)
    tail = (FREEDOM + 6) / 2 * np.log1p(squared / FREEDOM)
    return float(np.linalg.slogdet(covariance)[1] / 2 + tail)


if __name__ == "__main__":
    parser = make_parser("covariance", __doc__)
    parser.add_argument("--rooms", type=int, default=0, help="number of synthetic rooms")
    parser.add_argument("--floors", type=int, default=0, help="number of synthetic floors")
    parser.add_argument("--sites", type=int, default=0, help="number of synthetic sites of each kind")
    parser.add_argument("--train", type=Path, nargs="*", default=[], help="folders of scans with poses")
    parser.add_argument(
        "--scene", type=Path, nargs=2, action="append", help="a folder of scans and one of gt.log"
    )
    parser.add_argument("--limit", type=int, default=120, help="most pairs of a scene of --train")
    parser.add_argument("--fit", action="store_true", help="fit the noise model to rooms, floors and --train")
    parser.add_argument("--seed", type=int, default=0, help="seed of perturbations")
    sys.exit(run_command(parser, main))
