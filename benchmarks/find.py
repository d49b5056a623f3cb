"""Find ModelNet40 shapes in synthetic rooms, and report recall and precision by size ratio.

    python -m benchmarks.find DATA --shapes test --scenes 60
    python -m benchmarks.find DATA --shapes train --scenes 200 -o poses.npz     evidence for `find_fit`

DATA is the folder of ModelNet40's HDF5 files. Each scene contains one shape, two other shapes beside it, and
the furniture of a room. At least 35 % of the shape's points are visible. Every second group of scenes joins
three depth images and has no viewpoint. Two shapes are searched in each scene: the one that is there, and one
of another class that is not. With `--shapes train`, every third shape is a synthetic assembly instead.

A pose is right if ADD-S, the mean distance of the object's points to the nearest points of the object in the
true pose, is at most 5 % of the diameter: a pose that maps the object onto itself is right. Recall is the
share of present shapes with a right instance (confidence of at least 0.9). Precision is the share of right
ones among all returned instances, those of absent shapes included.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.common import make_parser, percent, print_rows, run_command
from wsdesc.cloud.clean import Cleaned, clean_cloud
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.mesh import sample_surface
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.modelnet40 import Shapes, read_split
from wsdesc.datasets.synthetic.object_scenes import ObjectScene, diameter, object_scene, patches
from wsdesc.datasets.synthetic.shapes import Triangles
from wsdesc.datasets.synthetic.sites.objects import objects
from wsdesc.evaluation.provenance import machine
from wsdesc.finding.candidates import Candidate, distinct, find_candidates
from wsdesc.finding.evidence import Evidence
from wsdesc.finding.options import FindOptions
from wsdesc.finding.prepare import choose_resolution, prepare_object, prepare_scene
from wsdesc.finding.prepare import diameter as search_diameter
from wsdesc.finding.result import SUCCESS
from wsdesc.finding.verify import View

RATIOS = (5, 10, 20, 50)  # length of the room over the diameter of the object
MAX_ADDS = 0.05  # diameters: error of a right pose
_TRIES = 8  # rooms per scene
_SAMPLED = 3000  # points of a synthetic assembly


class Query(NamedTuple):
    """An object, scaled as in the scene, and the scene that contains it or not."""

    scene_number: int
    ratio: int
    views: int
    object_points: np.ndarray  # (N, 3)
    scene: ObjectScene
    present: bool


class Answer(NamedTuple):
    """Candidates of one query."""

    query: Query
    candidates: list[Candidate]  # all of them, most probable first
    errors: np.ndarray  # (K,) ADD-S in diameters; infinite if the object is not there
    kept: list[int]  # indices of the candidates of different places
    seconds: float


def main(arguments: argparse.Namespace) -> bool | None:
    shapes = read_split(arguments.data, arguments.shapes)
    answers = []
    for query in queries(shapes, arguments.first, arguments.scenes, arguments.shapes == "train"):
        answers.append(answer(query))
        if arguments.output is not None:
            save(arguments.output, answers)
        if arguments.verbose:
            best = answers[-1].errors[answers[-1].kept[:1]]
            called = [c.probability for c in answers[-1].candidates][:1]
            print(query.scene_number, query.ratio, query.views, query.present, best, called,
                  f"{answers[-1].seconds:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
    print_table(answers)
    print(f"\n{len(answers)} searches of {arguments.shapes} shapes. {machine()}")
    return None


def queries(shapes: Shapes, first: int, count: int, mixed: bool) -> Iterator[Query]:
    """Build scenes and yield two queries for each; `mixed` replaces every third shape by an assembly."""
    assert shapes.labels is not None
    for number in range(first, first + count):
        rng = np.random.default_rng([number, 0xF1])
        chosen = rng.permutation(len(shapes.points))
        ratio, views = RATIOS[number % len(RATIOS)], 3 if number // len(RATIOS) % 2 else 1
        there = _assembly(rng) if mixed and number % 3 == 2 else _shape(shapes, chosen[0], rng)
        beside = [_shape(shapes, index, rng)[0] for index in chosen[1:3]]
        for attempt in range(_TRIES):
            scene = object_scene(*there, ratio, 1000 * number + attempt, views=views, others=beside)
            if scene is not None:
                break
        else:
            continue
        yield Query(number, ratio, views, _scaled(there[1], scene.size), scene, True)
        classes = shapes.labels[chosen[:3]]
        other = next(index for index in chosen[3:] if shapes.labels[index] not in classes)
        yield Query(number, ratio, views, _scaled(shapes.points[other], scene.size), scene, False)


def _shape(shapes: Shapes, index: int, rng: np.random.Generator) -> tuple[Triangles, np.ndarray]:
    points = shapes.points[index].astype(np.float64)
    return patches(points, rng), points


def _assembly(rng: np.random.Generator) -> tuple[Triangles, np.ndarray]:
    triangles = np.concatenate(objects(rng).items)
    faces = np.arange(3 * len(triangles)).reshape(-1, 3)
    return triangles, sample_surface(triangles.reshape(-1, 3), faces, _SAMPLED, int(rng.integers(1 << 30)))


def _scaled(points: np.ndarray, size: float) -> np.ndarray:
    return np.asarray(points * (size / diameter(points)))


def answer(query: Query) -> Answer:
    """Search the object of a query as `wsdesc.find` does, and keep all candidates with their errors."""
    o, start = FindOptions(), time.perf_counter()
    thing = clean_cloud(Cloud(query.object_points), "none")
    scene = clean_cloud(
        Cloud(query.scene.points.astype(np.float64)), (0.0, 0.0, 0.0) if query.views == 1 else "none"
    )
    resolution = choose_resolution(search_diameter(thing.points), scene.points)
    unit = resolution / INDOOR_RESOLUTION
    p = prepare_object(thing, resolution)
    q = prepare_scene(scene, resolution, p.diameter)
    at = scene.local_viewpoint
    view = View(q.points, at / unit) if at is not None else None
    candidates = find_candidates(p, q, view, hypotheses=o.hypotheses, refined=o.refined)
    seconds = time.perf_counter() - start
    errors = np.full(len(candidates), np.inf)
    if query.present and candidates:
        poses = np.stack([c.refined.T_target_source for c in candidates])
        errors = _errors(poses, query.scene.poses, thing, scene, unit, p.points) / p.diameter
    places = distinct(p, candidates)
    kept = [k for k, candidate in enumerate(candidates) if candidate in places]
    return Answer(query, candidates, errors, kept, seconds)


def _errors(
    poses: np.ndarray, truths: np.ndarray, thing: Cleaned, scene: Cleaned, unit: float, points: np.ndarray
) -> np.ndarray:
    """Compute ADD-S (K,) of poses, the smallest over the true poses, in metres of the model."""
    best = np.full(len(poses), np.inf)
    for truth in truths:
        T = inverse(scene.T_scan_local) @ truth @ thing.T_scan_local
        T[:3, 3] /= unit
        tree = cKDTree(transform(points, T))
        best = np.minimum(best, [tree.query(transform(points, pose))[0].mean() for pose in poses])
    return best


def save(path: Path, answers: list[Answer]) -> None:
    """Write the evidence of all candidates, one row each."""
    rows = [
        (a.query.scene_number, a.query.ratio, a.query.views, a.query.present, error, k in a.kept, *c.evidence)
        for a in answers
        for k, (c, error) in enumerate(zip(a.candidates, a.errors, strict=True))
    ]
    names = ("scene", "ratio", "views", "present", "error", "kept", *Evidence._fields)
    columns = np.array([[np.nan if x is None else x for x in row] for row in rows], float).T
    np.savez(path, **dict(zip(names, columns, strict=True)))


def print_table(answers: list[Answer]) -> None:
    """Print recall and precision by ratio."""
    header = ("room : object", "shapes", "recall", "recall, viewpoint", "instances", "precision", "seconds")
    rows = []
    for ratio in (*RATIOS, None):
        part = [a for a in answers if ratio in (None, a.query.ratio)]
        present = [a for a in part if a.query.present]
        one_view = [a for a in present if a.query.views == 1]
        called = [a.errors[k] for a in part for k in a.kept if a.candidates[k].probability >= SUCCESS]
        rows.append(
            (
                "all" if ratio is None else f"{ratio} : 1",
                str(len(present)),
                _share([_recalled(a) for a in present]),
                _share([_recalled(a) for a in one_view]),
                str(len(called)),
                _share([error <= MAX_ADDS for error in called]),
                f"{np.median([a.seconds for a in part]):.1f}" if part else "-",
            )
        )
    print_rows([list(row) for row in (header, *rows)])


def _share(values: Sequence[bool]) -> str:
    return percent(float(np.mean(values))) if values else "-"


def _recalled(a: Answer) -> bool:
    return any(a.errors[k] <= MAX_ADDS and a.candidates[k].probability >= SUCCESS for k in a.kept)


if __name__ == "__main__":
    parser = make_parser("find", __doc__)
    parser.add_argument("data", type=Path, help="folder of ModelNet40's HDF5 files")
    parser.add_argument("--shapes", choices=("train", "test"), default="test", help="split")
    parser.add_argument("--scenes", type=int, default=60, help="number of scenes")
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("-o", "--output", type=Path, help="file (.npz) for the evidence of all candidates")
    parser.add_argument("--verbose", action="store_true", help="print each search on stderr")
    sys.exit(run_command(parser, main))
