"""Find ModelNet40 shapes in synthetic rooms, and report recall and precision by size ratio.

    python -m benchmarks.find DATA --shapes test --scenes 60
    python -m benchmarks.find DATA --shapes train --scenes 200 -o searches.jsonl    evidence for `find_fit`
    python -m benchmarks.find --read a.jsonl b.jsonl          finished searches, by the present confidence

DATA is the folder of ModelNet40's HDF5 files, which hold points and no meshes: squares around the points are
the surface of a shape. The object that is searched is that surface, sampled as `wsdesc.find` samples meshes,
or the points of the file (`--objects points`). Each scene contains one shape, two other shapes beside it, and
the furniture of a room. At least 45 % of the shape's surface is visible: one image of a closed shape shows
about half. Every second group of scenes joins three depth images and has no viewpoint. Two shapes are
searched in each scene: the one that is there, and one of another class that is not. With `--shapes train`,
every third shape is a synthetic assembly instead, and objects are surfaces and points in turn.

A pose is right if ADD-S, the mean distance of the object's points to the nearest points of the object in the
true pose, is at most 5 % of the diameter: a pose that maps the object onto itself is right. Recall is the
share of present shapes with a right instance (confidence of at least 0.9). Precision is the share of right
ones among all returned instances, those of absent shapes included.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.spatial import cKDTree

from benchmarks.common import make_parser, percent, print_rows, run_command
from wsdesc.cloud.clean import Cleaned, clean_cloud
from wsdesc.cloud.cloud import Cloud
from wsdesc.cloud.mesh import sample_surface
from wsdesc.cloud.units import INDOOR_RESOLUTION
from wsdesc.core.errors import WSDescError
from wsdesc.core.geometry import inverse, transform
from wsdesc.datasets.modelnet40 import Shapes, read_split
from wsdesc.datasets.synthetic.object_scenes import ObjectScene, diameter, object_scene, patches
from wsdesc.datasets.synthetic.shapes import Triangles
from wsdesc.datasets.synthetic.sites.objects import objects
from wsdesc.evaluation.provenance import machine
from wsdesc.finding.candidates import find_candidates, overlapping_poses
from wsdesc.finding.evidence import Evidence, confidences
from wsdesc.finding.options import FindOptions
from wsdesc.finding.prepare import choose_resolution, prepare_object, prepare_scene
from wsdesc.finding.prepare import diameter as search_diameter
from wsdesc.finding.result import SUCCESS
from wsdesc.finding.view import View

RATIOS = (5, 10, 20, 50)  # length of the room over the diameter of the object
MAX_ADDS = 0.05  # diameters: error of a right pose
_TRIES = 8  # rooms per scene
_SAMPLED = 20_000  # points of a surface

ObjectForm = Literal["surface", "points", "both"]


class Query(NamedTuple):
    """An object, scaled as in the scene, and the scene that contains it or not."""

    scene_number: int
    ratio: int
    views: int
    form: ObjectForm  # of the object
    object_points: np.ndarray  # (N, 3)
    scene: ObjectScene
    present: bool


class Pose(NamedTuple):
    """A candidate of a search."""

    error: float  # ADD-S in diameters; infinite if the object is not there
    probability: float
    evidence: dict[str, float | None]
    number: int
    covers: list[int]  # numbers of the candidates of the same place


class Search(NamedTuple):
    """Result of one query."""

    scene: int
    ratio: int
    views: int
    form: ObjectForm
    present: bool
    visible: float  # share of the present object's surface
    seconds: float
    poses: list[Pose]  # all candidates, most probable first

    @property
    def instances(self) -> list[Pose]:
        """Instances: of the candidates of one place, the most probable one."""
        kept: list[Pose] = []
        for pose in self.poses:
            if pose.probability >= SUCCESS and not {other.number for other in kept} & set(pose.covers):
                kept.append(pose)
        return kept

    @property
    def recalled(self) -> bool:
        """Whether an instance is right."""
        return any(pose.error <= MAX_ADDS for pose in self.instances)


def main(arguments: argparse.Namespace) -> bool | None:
    if arguments.read:
        searches = [search for path in arguments.read for search in read(path)]
    elif arguments.data is None:
        raise WSDescError("give the folder of ModelNet40's HDF5 files, or --read")
    else:
        searches = list(_searches(arguments))
    print_table(searches)
    print(f"\n{len(searches)} searches. {machine()}")
    return None


def _searches(arguments: argparse.Namespace) -> Iterator[Search]:
    """Search, and append each result to the output file."""
    shapes = read_split(arguments.data, arguments.shapes)
    mixed = arguments.shapes == "train"
    form: ObjectForm = arguments.objects or ("both" if mixed else "surface")
    for query in queries(shapes, arguments.first, arguments.scenes, form, mixed):
        search = answer(query)
        if arguments.output is not None:
            with arguments.output.open("a") as file:
                file.write(json.dumps(search._replace(poses=[p._asdict() for p in search.poses])._asdict()))
                file.write("\n")
        if arguments.verbose:
            errors = [round(pose.error, 3) for pose in search.poses]
            best = round(search.poses[0].probability, 3) if search.poses else None
            print(*search[:6], best, errors[:1], min(errors, default=None), f"{search.seconds:.0f} s",
                  file=sys.stderr, flush=True)  # fmt: skip
        yield search


def read(path: Path) -> list[Search]:
    """Read searches that `-o` wrote, and compute the probabilities of their poses anew."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
    searches = []
    for row in rows:
        poses = [Pose(**pose) for pose in row["poses"]]
        probabilities = confidences([Evidence(**pose.evidence) for pose in poses])
        order = np.argsort(-probabilities, kind="stable")
        poses = [poses[k]._replace(probability=float(probabilities[k])) for k in order]
        searches.append(Search(**{**row, "poses": poses}))
    return searches


def queries(shapes: Shapes, first: int, count: int, form: ObjectForm, mixed: bool) -> Iterator[Query]:
    """Build scenes and yield two queries for each; `mixed` replaces every third shape by an assembly."""
    assert shapes.labels is not None
    for number in range(first, first + count):
        rng = np.random.default_rng([number, 0xF1])
        chosen = rng.permutation(len(shapes.points))
        ratio, views = RATIOS[number % len(RATIOS)], 3 if number // len(RATIOS) % 2 else 1
        own: ObjectForm = ("surface", "points")[number // 8 % 2] if form == "both" else form
        present = _assembly(rng) if mixed and number % 3 == 2 else _shape(shapes, chosen[0], rng, own)
        beside = [_shape(shapes, index, rng, own) for index in chosen[1:3]]
        for attempt in range(_TRIES):
            others = [surface for surface, _ in beside]
            scene = object_scene(*present, ratio, 1000 * number + attempt, views=views, others=others)
            if scene is not None:
                break
        else:
            continue
        yield Query(
            number, ratio, views, own, _scaled(present[1], scene.size / diameter(present[1])), scene, True
        )
        classes = shapes.labels[chosen[:3]]
        index = next(index for index in chosen[3:] if shapes.labels[index] not in classes)
        absent = _shape(shapes, index, rng, own)[1]
        yield Query(number, ratio, views, own, _scaled(absent, scene.size / diameter(absent)), scene, False)


def _shape(
    shapes: Shapes, index: int, rng: np.random.Generator, form: ObjectForm
) -> tuple[Triangles, np.ndarray]:
    """Make the surface of a shape, and the points by which it is given."""
    points = shapes.points[index].astype(np.float64)
    surface = patches(points, rng)
    return surface, _sampled(surface, rng) if form == "surface" else points


def _assembly(rng: np.random.Generator) -> tuple[Triangles, np.ndarray]:
    triangles = np.concatenate(objects(rng).items)
    return triangles, _sampled(triangles, rng)


def _sampled(triangles: Triangles, rng: np.random.Generator) -> np.ndarray:
    faces = np.arange(3 * len(triangles)).reshape(-1, 3)
    return sample_surface(triangles.reshape(-1, 3), faces, _SAMPLED, int(rng.integers(1 << 30)))


def _scaled(points: np.ndarray, factor: float) -> np.ndarray:
    return np.asarray(points * factor)


def answer(query: Query) -> Search:
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
    poses = np.reshape([c.refined.T_target_source for c in candidates], (-1, 4, 4))
    if query.present and candidates:
        errors = _errors(poses, query.scene.poses, thing, scene, unit, p.points) / p.diameter
    covers = overlapping_poses(p, poses) if candidates else np.empty((0, 0), bool)
    rows = [
        Pose(float(error), c.probability, c.evidence._asdict(), k, np.flatnonzero(covers[k]).tolist())
        for k, (c, error) in enumerate(zip(candidates, errors, strict=True))
    ]
    visible = float(query.scene.visible[0])
    return Search(*query[:4], query.present, visible, seconds, rows)


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


def print_table(searches: list[Search]) -> None:
    """Print recall and precision by ratio, by viewpoint, by visible share, and by form of the object."""
    header = ("scenes", "shapes", "recall", "right candidate", "instances", "precision", "seconds")
    parts = {f"{ratio} : 1": [s for s in searches if s.ratio == ratio] for ratio in RATIOS}
    parts["viewpoint"] = [s for s in searches if s.views == 1]
    parts["no viewpoint"] = [s for s in searches if s.views > 1]
    parts["visible >= 0.5"] = [s for s in searches if s.visible >= 0.5]
    for form in ("surface", "points"):
        parts[f"objects: {form}"] = [s for s in searches if s.form == form]
    rows = []
    for name, part in {**parts, "all": searches}.items():
        if part:
            present = [s for s in part if s.present]
            instances = [pose for s in part for pose in s.instances]
            among = [min((pose.error for pose in s.poses), default=np.inf) <= MAX_ADDS for s in present]
            rows.append(
                (
                    name,
                    str(len(present)),
                    _share([s.recalled for s in present]),
                    _share(among),
                    str(len(instances)),
                    _share([pose.error <= MAX_ADDS for pose in instances]),
                    f"{np.median([s.seconds for s in part]):.1f}",
                )
            )
    print_rows([list(row) for row in (header, *rows)])


def _share(values: Sequence[bool]) -> str:
    return percent(float(np.mean(values))) if values else "-"


if __name__ == "__main__":
    parser = make_parser("find", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of ModelNet40's HDF5 files")
    parser.add_argument("--shapes", choices=("train", "test"), default="test", help="split")
    parser.add_argument("--scenes", type=int, default=60, help="number of scenes")
    parser.add_argument("--first", type=int, default=0, help="number of the first scene")
    parser.add_argument("-o", "--output", type=Path, help="file (.jsonl) to which searches are appended")
    parser.add_argument("--objects", choices=("surface", "points", "both"), help="form of the objects")
    parser.add_argument("--read", type=Path, nargs="+", help="files of finished searches")
    parser.add_argument("--verbose", action="store_true", help="print each search on stderr")
    sys.exit(run_command(parser, main))
