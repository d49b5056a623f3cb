"""The demonstration: two scans of a synthetic room, one put somewhere else, brought together again.

Everything is made from a seed and the true pose is known, so that the result can be told right from wrong.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc.align import ransac
from wsdesc.cloud.atomic import atomic_write
from wsdesc.cloud.files import write_points
from wsdesc.cloud.sampling import farthest_points
from wsdesc.datasets.synthetic import RoomPair, room_pair
from wsdesc.describe import pretrained
from wsdesc.describe.extractor import WSDesc
from wsdesc.errors import FileFormatError
from wsdesc.evaluate.metrics import rotation_error_deg, translation_error
from wsdesc.match import mutual

Pose = NDArray[np.float64]  # (4, 4)
Advance = Callable[[int], None]  # so many keypoints more are done
Watch = Callable[[str, int], AbstractContextManager[Advance]]  # name of a step, and its keypoints if any

WEIGHTS = ("indoor-fast", "indoor")  # the first of these that comes with the package
UNTRAINED = {"width": 0.25, "support_start": 1.0}  # a narrow network: 1 ms a keypoint instead of 10
TRUE_MATCH = 0.1  # a match is right if it is within this of the true place, metres
REFINEMENT = 0.1  # and the refinement looks for partners as far as this
ALLOWED = (5.0, 0.10)  # degrees and metres up to which the result counts as right
FILES = ("before_after.png", "source.ply", "target.ply", "aligned.ply", "T_target_source.txt")


@dataclass
class Report:
    """What happened, in numbers; errors are against the known pose."""

    descriptor: str
    points: tuple[int, int]  # source, target
    overlap: float  # share of the source that the target has too
    moved: tuple[float, float]  # how far the source was from its true pose: degrees, metres
    keypoints: tuple[int, int]
    matches: int
    right_matches: int  # within TRUE_MATCH under the known pose
    inliers: int  # matches that agree with the motion found
    samples: int  # drawn by RANSAC
    coarse_error: tuple[float, float]  # after RANSAC: degrees, metres
    error: tuple[float, float]  # after refinement
    seconds: dict[str, float] = field(default_factory=dict)  # by step

    @property
    def right(self) -> bool:
        return self.error[0] < ALLOWED[0] and self.error[1] < ALLOWED[1]


def run(
    out: Path, seed: int = 0, watch: Watch = lambda name, total: nullcontext(lambda done: None)
) -> Report:
    """Make two scans, register them, write what came out into the folder `out`.

    `watch` is entered around each step, which tells it about keypoints done; progress bars hang there.
    """
    _make_folder(out)
    seconds: dict[str, float] = {}

    @contextmanager
    def step(name: str, total: int = 0) -> Iterator[Advance]:
        start = time.perf_counter()
        with watch(name, total) as advance:
            yield advance
        seconds[name] = time.perf_counter() - start

    with step("scan a synthetic room"):
        pair = displaced(room_pair(seed), seed)
        source, target = torch.from_numpy(pair.source), torch.from_numpy(pair.target)
        T_true = pair.T_target_source

    model, descriptor, count = choose_descriptor(seed)
    with step("choose keypoints"):
        source_keys, target_keys = (
            cloud[farthest_points(cloud, count, torch.Generator().manual_seed(seed))]
            for cloud in (source, target)
        )
    with step("describe the source", len(source_keys)) as advance:
        source_features = describe(model, source, source_keys, advance)
    with step("describe the target", len(target_keys)) as advance:
        target_features = describe(model, target, target_keys, advance)

    with step("match"):
        matches = mutual(source_features, target_features)  # (M, 2)
        p, q = source_keys[matches[:, 0]], target_keys[matches[:, 1]]
        off = np.linalg.norm(move(p.numpy(), T_true) - q.numpy(), axis=1)  # (M,)
    with step("RANSAC"):
        found = ransac(p, q, seed=seed)
        T_coarse = found.T_target_source.numpy()
    with step("refine"):
        T_target_source = refine(pair.source, pair.target, T_coarse)

    error = pose_error(T_target_source, T_true)
    with step("draw and write"):
        write(out, pair, T_target_source, f"after: off by {error[0]:.2f}° and {100 * error[1]:.1f} cm")
    return Report(
        descriptor=descriptor,
        points=(len(source), len(target)),
        overlap=pair.overlap,
        moved=pose_error(np.eye(4), T_true),
        keypoints=(len(source_keys), len(target_keys)),
        matches=len(matches),
        right_matches=int((off < TRUE_MATCH).sum()),
        inliers=int(found.inliers.sum()),
        samples=found.iterations,
        coarse_error=pose_error(T_coarse, T_true),
        error=error,
        seconds=seconds,
    )


def displaced(pair: RoomPair, seed: int) -> RoomPair:
    """The same pair with its source turned and moved at random, so that there is something to do."""
    rng = np.random.default_rng([seed, 0xDE])
    T_moved_source = np.eye(4)
    T_moved_source[:3, :3] = Rotation.random(random_state=rng).as_matrix()
    T_moved_source[:3, 3] = rng.uniform(-1.5, 1.5, 3)
    source = move(pair.source, T_moved_source).astype(np.float32)
    return RoomPair(source, pair.target, pair.T_target_source @ np.linalg.inv(T_moved_source), pair.overlap)


def choose_descriptor(seed: int) -> tuple[WSDesc, str, int]:
    """The descriptor, what to call it, and how many keypoints a cloud it has the time for."""
    for name in WEIGHTS:
        if name in pretrained.available():
            model = WSDesc.from_pretrained(name)
            return model, f"trained, weights “{name}”", 1000 if model.options.width <= 0.5 else 400
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = WSDesc(**UNTRAINED).eval()
    return model, f"untrained, width {UNTRAINED['width']}: no weights come with this version", 1000


@torch.inference_mode()
def describe(model: WSDesc, points: Tensor, keypoints: Tensor, advance: Advance) -> Tensor:
    """Descriptors (K, C), some keypoints at a time for the sake of the progress bar."""
    parts = []
    for some in keypoints.split(128):
        parts.append(model(points, some))
        advance(len(some))
    return torch.cat(parts)


def refine(source: NDArray, target: NDArray, T_target_source: Pose) -> Pose:
    """The pose moved to where the surfaces themselves meet best; one thread, so that runs repeat."""
    import small_gicp

    result = small_gicp.align(
        target.astype(np.float64),
        source.astype(np.float64),
        T_target_source,
        downsampling_resolution=0.05,
        max_correspondence_distance=REFINEMENT,
        max_iterations=40,
    )
    return np.asarray(result.T_target_source)


def write(out: Path, pair: RoomPair, T_target_source: Pose, title: str) -> None:
    from wsdesc.view.pictures import before_after

    picture, source, target, aligned, pose = (out / name for name in FILES)
    before_after(pair.source, pair.target, T_target_source, picture, title)
    write_points(source, pair.source)
    write_points(target, pair.target)
    write_points(aligned, move(pair.source, T_target_source).astype(np.float32))
    with atomic_write(pose) as temporary:
        np.savetxt(temporary, T_target_source, fmt="%.9f")


def move(points: NDArray, T: Pose) -> NDArray[np.float64]:
    """Points (N, 3) under the motion T."""
    return np.asarray(points @ T[:3, :3].T + T[:3, 3])


def pose_error(T: Pose, T_true: Pose) -> tuple[float, float]:
    """Angle in degrees and distance in metres between two poses."""
    return float(rotation_error_deg(T, T_true)), float(translation_error(T, T_true))


def _make_folder(out: Path) -> None:
    """Find out before the work whether its result can be kept."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise FileFormatError(f"{out}: cannot be used as a folder: {error.strerror or error}") from error
