"""How far the numbers can be trusted: the corridor in float32 against float64, and on a GPU against the CPU.

    python -m benchmarks.precision A.ply B.ply [C.ply D.ply …] [--keypoints 600] [--device cuda]

Scans come in pairs, source and target, as ply or npy. Both are thinned and their keypoints chosen once; from
there on everything is done twice: frames, voxels, network, matching, and the motion that most matches agree
on, which is not refined, since that would hide differences. In float64 voxels follow the definition term
by term. With `--device cuda` the GPU's kernels are compared too, in float32, and with the network in bf16
as `register` uses it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import or_explain, print_machine, watched
from benchmarks.exact_voxels import exact_voxels
from wsdesc import WSDesc, read_points
from wsdesc.cloud.units import measure
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.descriptor.description import Description, cleaned_points, prepare_scan
from wsdesc.evaluation import rotation_error_deg
from wsdesc.matching import mutual_matches
from wsdesc.registration.candidates import propose

# What is promised, of float32 against float64 and of CUDA against the CPU.
DEGREES, MILLIMETRES = 0.05, 1.0
CUDA_DEGREES, CUDA_MILLIMETRES = 0.5, 10.0


class Way(NamedTuple):
    """One way through the corridor."""

    name: str
    model: WSDesc
    dtype: torch.dtype
    degrees: float  # that its pose may differ from that of the first way
    millimetres: float


class Walked(NamedTuple):
    """What came of it, for both scans where there are two."""

    axes: Tensor  # (2K, 3, 3)
    voxels: Tensor  # (2K, h, h, h)
    descriptors: Tensor  # (2K, C)
    pairs: set[tuple[int, int]]
    T_target_source: Tensor  # (4, 4) float64


@torch.inference_mode()
def walk(way: Way, scans: tuple[Description, Description], keypoints: int) -> Walked:
    """From thinned scans with chosen keypoints to the motion that most matches agree on."""
    device = next(way.model.parameters()).device
    axes, voxels, described = [], [], []
    for scan in scans:
        points = scan.points.to(device, way.dtype)
        scene = way.model.prepare(points, points[scan.order[:keypoints].to(device)])
        exact = way.dtype == torch.float64
        voxels.append(exact_voxels(way.model, scene) if exact else way.model.voxels(scene))
        descriptors = way.model.describe(voxels[-1])
        axes.append(scene.frames)
        known = replace(scan, points=points.cpu(), descriptors=descriptors.cpu(), frames=scene.frames.cpu())
        described.append(known)
    hypotheses, _ = propose(*described)
    if not hypotheses:
        raise InputError("no motion was found between these scans: nothing can be compared")
    both = mutual_matches(described[0].descriptors, described[1].descriptors).tolist()
    parts = (torch.cat(part).cpu().double() for part in (axes, voxels))
    together = torch.cat([d.descriptors for d in described]).double()
    return Walked(*parts, together, set(map(tuple, both)), hypotheses[0].T_target_source)


def ways(o: argparse.Namespace) -> list[Way]:
    """The first is what the others are compared with."""

    def load(device: str = "cpu") -> WSDesc:
        return WSDesc.from_pretrained(o.model, device)

    plain = Way("float32, CPU", load(), torch.float32, DEGREES, MILLIMETRES)
    exact = Way("float64, CPU", load().double(), torch.float64, DEGREES, MILLIMETRES)
    if not o.device.startswith("cuda"):
        return [exact, plain]
    limits = (CUDA_DEGREES, CUDA_MILLIMETRES)
    single = Way("float32, CUDA", load(o.device), torch.float32, DEGREES, MILLIMETRES)
    half = load(o.device).accelerate("bf16", compile=False)
    return [exact, plain, single, Way("bf16, CUDA", half, torch.float32, *limits)]


def prepare(files: tuple[Path, Path], o: argparse.Namespace) -> tuple[Description, Description]:
    """Both scans in float64, thinned to their common resolution, and their keypoints."""
    clouds = []
    for file in files:
        points = read_points(file, nonfinite="drop")
        cleaned = cleaned_points(points)
        clouds.append(replace(cleaned, points=points[cleaned.index] - cleaned.offset))
    resolution = measure(*(cloud.points for cloud in clouds)).resolution
    p, q = (prepare_scan(cloud, resolution, o.model, 0, o.keypoints) for cloud in clouds)
    return p, q


def compare(a: Walked, b: Walked, middle: Tensor) -> dict[str, float]:
    """Differences, the pose's at `middle` (3,) of the source, in metres of the model."""
    turned = rotation_error_deg(_as_motions(a.axes), _as_motions(b.axes))
    moved = (a.T_target_source - b.T_target_source) @ torch.cat([middle, middle.new_ones(1)])
    apart = (a.descriptors - b.descriptors).norm(dim=1)
    return {
        "frames turned > 1°, %": 100 * float((turned > 1).double().mean()),
        "voxels, 99 %": float((a.voxels - b.voxels).abs().flatten()[::7].quantile(0.99)),
        "descriptors, median": float(apart.median()),
        "descriptors, 99 %": float(apart.quantile(0.99)),
        "matches alike, %": 100 * len(a.pairs & b.pairs) / max(1, len(a.pairs | b.pairs)),
        "pose, °": float(rotation_error_deg(a.T_target_source, b.T_target_source)),
        "pose, mm": 1000 * float(moved[:3].norm()),
    }


def _as_motions(R: Tensor) -> Tensor:
    T = torch.eye(4, dtype=R.dtype).repeat(len(R), 1, 1)
    T[:, :3, :3] = R
    return T


def main(o: argparse.Namespace) -> None:
    if len(o.scans) % 2:
        raise InputError("scans come in pairs, source and target; there is an odd number of them")
    choose_device(o.device)
    reference, *others = ways(o)
    found: dict[str, list[dict[str, float]]] = {way.name: [] for way in others}
    for files in watched(list(zip(o.scans[::2], o.scans[1::2], strict=True)), "pairs"):
        scans = prepare(files, o)
        middle = scans[0].points.double().mean(0)
        exact = walk(reference, scans, o.keypoints)
        for way in others:
            found[way.name].append(compare(exact, walk(way, scans, o.keypoints), middle))
    print_machine()
    print(f"against {reference.name}; {len(o.scans) // 2} pairs, {o.keypoints} keypoints, {o.model}")
    good = True
    for way in others:
        good &= show(way, found[way.name])
    if not good:
        sys.exit(1)


def show(way: Way, rows: list[dict[str, float]]) -> bool:
    """Print what was found of one way, and whether it keeps its promise."""
    print(f"{way.name}: median and largest over the pairs")
    for name in rows[0]:
        values = [row[name] for row in rows]
        worst = min(values) if name.startswith("matches") else max(values)
        print(f"  {name:<24}{np.median(values):12.3g}{worst:12.3g}")
    kept = [r["pose, °"] <= way.degrees and r["pose, mm"] <= way.millimetres for r in rows]
    print(f"  within {way.degrees}° and {way.millimetres} mm: {sum(kept)} of {len(kept)}")
    return all(kept)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage=argparse.SUPPRESS
    )
    parser.add_argument("scans", type=Path, nargs="+", help="source, target, source, target, …")
    parser.add_argument("--keypoints", type=int, default=600)
    parser.add_argument("--model", default="indoor-fast")
    parser.add_argument("--device", default="cpu", help="cpu: float32 against float64; cuda: and the GPU")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(or_explain(lambda: main(parse())))
