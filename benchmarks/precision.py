"""Measure the numerical precision: float32 against float64, and the GPU against the CPU.

    python -m benchmarks.precision A.ply B.ply [C.ply D.ply …] [--keypoints 600] [--device cuda]

Files come in pairs, source and target. Both scans are downsampled and their keypoints chosen once. Everything
after that is computed twice: frames, voxels, network, matches, and the best hypothesis. It is not refined, as
that would hide differences. In float64 the voxels follow their definition term by term. `--device cuda` adds
the GPU's kernels in float32, and with the network in bf16 as `register` uses it.

Prints, for each variant, the median and largest difference to float64 over the pairs, and how many poses are
within the promised limits. The exit code is 1 if one is not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import (
    add_model_option,
    files_in_pairs,
    make_parser,
    print_machine,
    run_command,
    show_progress,
)
from benchmarks.exact_voxels import exact_voxels
from wsdesc import WSDesc, read_points
from wsdesc.cloud.local_frame import to_local
from wsdesc.cloud.units import measure
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.descriptor.description import Description
from wsdesc.descriptor.preparation import clean_scan, prepare_scan
from wsdesc.evaluation import rotation_error_deg
from wsdesc.matching import mutual_matches
from wsdesc.registration.propose import propose

# Promised limits of pose differences: float32 against float64, and bf16 on CUDA against float64.
MAX_DEGREES, MAX_MILLIMETRES = 0.05, 1.0
CUDA_DEGREES, CUDA_MILLIMETRES = 0.5, 10.0


class Variant(NamedTuple):
    """A precision and device of the pipeline."""

    name: str
    model: WSDesc
    dtype: torch.dtype
    degrees: float  # largest allowed difference of the pose
    millimetres: float


class Intermediates(NamedTuple):
    """Intermediate results of one pair; those of both scans are concatenated."""

    frames: Tensor  # (2K, 3, 3)
    voxels: Tensor  # (2K, h, h, h)
    descriptors: Tensor  # (2K, C)
    matches: set[tuple[int, int]]
    T_target_source: Tensor  # (4, 4) float64


@torch.inference_mode()
def compute(variant: Variant, scans: tuple[Description, Description], keypoints: int) -> Intermediates:
    """Run the pipeline from downsampled scans with chosen keypoints to the best hypothesis."""
    device = next(variant.model.parameters()).device
    frames, voxels, described = [], [], []
    for scan in scans:
        points = scan.points.to(device, variant.dtype)
        prepared = variant.model.prepare(points, points[scan.order[:keypoints].to(device)])
        exact = variant.dtype == torch.float64
        voxels.append(exact_voxels(variant.model, prepared) if exact else variant.model.voxels(prepared))
        descriptors = variant.model.describe(voxels[-1])
        frames.append(prepared.frames)
        described.append(
            replace(scan, points=points.cpu(), descriptors=descriptors.cpu(), frames=prepared.frames.cpu())
        )
    hypotheses = propose(*described).hypotheses
    if not hypotheses:
        raise InputError("no hypothesis was found between these scans: use scans that overlap more")
    matches = mutual_matches(described[0].descriptors, described[1].descriptors).tolist()
    arrays = (torch.cat(part).cpu().double() for part in (frames, voxels))
    both = torch.cat([d.descriptors for d in described]).double()
    return Intermediates(*arrays, both, set(map(tuple, matches)), hypotheses[0].T_target_source)


def make_variants(model: str, device: str) -> list[Variant]:
    """Return the variants; the first is the reference."""

    def load(device: str = "cpu") -> WSDesc:
        return WSDesc.from_pretrained(model, device)

    exact = Variant("float64, CPU", load().double(), torch.float64, MAX_DEGREES, MAX_MILLIMETRES)
    single = Variant("float32, CPU", load(), torch.float32, MAX_DEGREES, MAX_MILLIMETRES)
    if not device.startswith("cuda"):
        return [exact, single]
    cuda = Variant("float32, CUDA", load(device), torch.float32, MAX_DEGREES, MAX_MILLIMETRES)
    half = load(device).accelerate("bf16", compile=False)
    limits = (CUDA_DEGREES, CUDA_MILLIMETRES)
    return [exact, single, cuda, Variant("bf16, CUDA", half, torch.float32, *limits)]


def prepare(files: Sequence[Path], model: str, keypoints: int) -> tuple[Description, Description]:
    """Read two scans in float64, downsample them to their common resolution and choose keypoints."""
    clouds = []
    for file in files:
        points = read_points(file, nonfinite="drop")
        cleaned = clean_scan(points)
        exact = to_local(points[cleaned.index], cleaned.T_scan_local, np.float64)
        clouds.append(replace(cleaned, points=exact))
    resolution = measure(*(cloud.points for cloud in clouds)).resolution
    p, q = (prepare_scan(cloud, resolution, model, 0, keypoints) for cloud in clouds)
    return p, q


def compare(a: Intermediates, b: Intermediates, centre: Tensor) -> dict[str, float]:
    """Compute differences; that of the pose at `centre` (3,) of the source, in metres of the model."""
    angles = rotation_error_deg(_as_poses(a.frames), _as_poses(b.frames))
    moved = (a.T_target_source - b.T_target_source) @ torch.cat([centre, centre.new_ones(1)])
    distances = (a.descriptors - b.descriptors).norm(dim=1)
    return {
        "frames rotated > 1°, %": 100 * float((angles > 1).double().mean()),
        "voxels, 99 %": float((a.voxels - b.voxels).abs().flatten()[::7].quantile(0.99)),
        "descriptors, median": float(distances.median()),
        "descriptors, 99 %": float(distances.quantile(0.99)),
        "equal matches, %": 100 * len(a.matches & b.matches) / max(1, len(a.matches | b.matches)),
        "pose, °": float(rotation_error_deg(a.T_target_source, b.T_target_source)),
        "pose, mm": 1000 * float(moved[:3].norm()),
    }


def _as_poses(R: Tensor) -> Tensor:
    T = torch.eye(4, dtype=R.dtype).repeat(len(R), 1, 1)
    T[:, :3, :3] = R
    return T


def measure_differences(
    pairs: Sequence[Sequence[Path]], model: str, device: str, keypoints: int
) -> dict[Variant, list[dict[str, float]]]:
    """Compare all variants with the reference, for each pair."""
    reference, *variants = make_variants(model, device)
    differences: dict[Variant, list[dict[str, float]]] = {variant: [] for variant in variants}
    for files in show_progress(pairs, "pairs"):
        scans = prepare(files, model, keypoints)
        centre = scans[0].points.double().mean(0)
        exact = compute(reference, scans, keypoints)
        for variant in variants:
            differences[variant].append(compare(exact, compute(variant, scans, keypoints), centre))
    return differences


def count_within_limits(variant: Variant, rows: list[dict[str, float]]) -> int:
    """Count the pairs whose pose differs by no more than the promised limits."""
    return sum(r["pose, °"] <= variant.degrees and r["pose, mm"] <= variant.millimetres for r in rows)


def main(arguments: argparse.Namespace) -> bool:
    pairs = files_in_pairs(arguments.scans)
    choose_device(arguments.device)
    differences = measure_differences(pairs, arguments.model, arguments.device, arguments.keypoints)
    print_machine()
    print(f"against float64, CPU; {len(pairs)} pairs, {arguments.keypoints} keypoints, {arguments.model}")
    passed = True
    for variant, rows in differences.items():
        print(f"{variant.name}: median and largest difference over the pairs")
        for name in rows[0]:
            values = [row[name] for row in rows]
            worst = min(values) if name.startswith("equal") else max(values)
            print(f"  {name:<24}{np.median(values):12.3g}{worst:12.3g}")
        within = count_within_limits(variant, rows)
        print(f"  within {variant.degrees}° and {variant.millimetres} mm: {within} of {len(rows)}")
        passed &= within == len(rows)
    return passed


def parser() -> argparse.ArgumentParser:
    parser = make_parser("precision", __doc__)
    parser.add_argument("scans", type=Path, nargs="+", help="source, target, source, target, …")
    parser.add_argument("--keypoints", type=int, default=600, help="per scan (default: %(default)s)")
    add_model_option(parser)
    parser.add_argument("--device", default="cpu", help="cpu: float32 against float64; cuda: also the GPU")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
