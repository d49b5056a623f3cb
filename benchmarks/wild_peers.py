"""Register single pairs from other projects by descriptors of peers and of WSDesc, each with RANSAC.

    python -m benchmarks.wild_peers shared/data/wild --weights shared/data/peers --peer spinnet

Two pairs have a known pose. For the others the reference is the pose of `wsdesc.register` if it calls it a
success; then the table shows whether a descriptor alone finds the same pose, not whether it is right. The
scans stay in their own frames, so that peers may use the viewpoint. Prints for each pair and method: rotation
and translation error, the share of matches that agree with the reference, and seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from wsdesc import read_points, register
from wsdesc.alignment import ransac
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, measure
from wsdesc.core.devices import choose_device
from wsdesc.core.errors import InputError
from wsdesc.core.folders import make_folder
from wsdesc.core.geometry import Floats
from wsdesc.evaluation import inlier_ratio, r2_success, rotation_error_deg, translation_error
from wsdesc.evaluation.methods import Method, load_methods
from wsdesc.evaluation.provenance import this_run
from wsdesc.matching import mutual_matches

PAIRS = {  # source, target
    "car": ("car/car_cloud401.csv", "car/car_cloud400.csv"),
    "spinning_lidar": ("spinning_lidar/251371071.pcd", "spinning_lidar/251370668.pcd"),
    "hippo": ("hippo/hippo1.obj", "hippo/hippo2.obj"),
    "kinect": ("kinect/capture0001.pcd", "kinect/capture0002.pcd"),
    "ndt_room": ("ndt_room/room_scan2.pcd", "ndt_room/room_scan1.pcd"),
    "livox_campus": ("livox_campus/source.pcd", "livox_campus/target.pcd"),
    "webots": ("webots/webots1.xyz", "webots/webots2.xyz"),
}


class Reference(NamedTuple):
    """A pose to compare with."""

    T_target_source: Floats | None
    kind: str  # known, register, or none


def read_known_pose(folder: Path, name: str) -> Floats | None:
    """Read the known pose T_target_source (4, 4) of a pair; None if there is none."""
    if name == "spinning_lidar":
        return np.loadtxt(folder / name / "relative.txt").reshape(4, 4)
    if name == "car":
        lines = (folder / name / "carCloudList.csv").read_text(encoding="utf-8").splitlines()
        row = next(line for line in lines if "car_cloud401" in line)
        return np.array([float(word) for word in row.split(",")[-16:]]).reshape(4, 4)
    return None


def read_reference(folder: Path, name: str, p: Floats, q: Floats, device: str) -> Reference:
    """Read the known pose of a pair, else take that of `wsdesc.register` if it is a success."""
    T_known = read_known_pose(folder, name)
    if T_known is not None:
        return Reference(T_known, "known")
    result = register(p, q, device=device)
    return Reference(result.T_target_source, "register") if result.success else Reference(None, "none")


def run_pair(method: Method, p: Floats, q: Floats, T_true: Floats, keypoints: int) -> dict[str, float | bool]:
    """Register one pair by a descriptor and RANSAC."""
    unit = measure(torch.from_numpy(p), torch.from_numpy(q)).unit
    full = [torch.from_numpy(cloud) for cloud in (p, q)]
    sampled = [voxel_downsample(cloud, INDOOR_RESOLUTION * unit) for cloud in full]
    generator = torch.Generator().manual_seed(0)
    keys = [c[torch.randperm(len(c), generator=generator)[:keypoints]].float() for c in sampled]
    clouds = [cloud.float() for cloud in (full if method.full_cloud else sampled)]
    start = time.perf_counter()
    descriptors = [
        method.describe(c, k, unit, side).cpu()
        for c, k, side in zip(clouds, keys, ("source", "target"), strict=True)
    ]
    matches = mutual_matches(*descriptors)
    source, target = keys[0][matches[:, 0]], keys[1][matches[:, 1]]
    result = ransac(source, target, threshold=0.05 * unit)
    seconds = time.perf_counter() - start
    T = result.T_target_source.numpy() if result.success else np.eye(4)
    return {
        "unit": unit,
        "matches": len(matches),
        "inlier_ratio": inlier_ratio(*keys, matches, torch.from_numpy(T_true), 0.1 * unit),
        "rotation_error": float(rotation_error_deg(T, T_true)),
        "translation_error": float(translation_error(T, T_true)) / unit,
        "r2": bool(result.success and r2_success(torch.from_numpy(T), torch.from_numpy(T_true), unit)),
        "seconds": seconds,
    }


def main(arguments: argparse.Namespace) -> None:
    """Print one row for each pair and method."""
    device = choose_device(arguments.device)
    methods = load_methods(arguments.model, arguments.peer, device, peer_weights=arguments.weights)
    if any(method.describer is None for method in methods):
        raise InputError("--peer: only descriptors are compared")
    rows = [["pair", "reference", "method", "IR %", "R °", "t units", "same pose", "s"]]
    records = []
    for name, files in PAIRS.items():
        p, q = (read_points(arguments.data / file, nonfinite="drop") for file in files)
        reference = read_reference(arguments.data, name, p, q, device)
        if reference.T_target_source is None:
            rows.append([name, reference.kind, *["–"] * 6])
            continue
        for method in methods:
            record = run_pair(method, p, q, reference.T_target_source, arguments.keypoints)
            records.append({"pair": name, "reference": reference.kind, "method": method.name} | record)
            rows.append([
                name, reference.kind, method.name, f"{100 * record['inlier_ratio']:.1f}",
                f"{record['rotation_error']:.2f}", f"{record['translation_error']:.2f}",
                "yes" if record["r2"] else "no", f"{record['seconds']:.2f}",
            ])  # fmt: skip
    print_machine()
    print_rows(rows)
    if arguments.out:
        peers = " ".join(f"--peer {name}" for name in arguments.peer)
        run = this_run(f"python -m benchmarks.wild_peers wild/ {peers} --keypoints {arguments.keypoints}")
        text = json.dumps({"run": asdict(run), "records": records}, indent=1)
        make_folder(arguments.out)
        (arguments.out / "wild.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = make_parser("wild_peers", __doc__)
    parser.add_argument("data", type=Path, help="folder of the pairs, wild/")
    parser.add_argument("--weights", type=Path, help="folder of the peers' weights")
    parser.add_argument("--peer", action="append", default=[], help="descriptor peer; repeatable")
    parser.add_argument("--model", action="append", default=["indoor-fast"], help="own weights; repeatable")
    parser.add_argument("--keypoints", type=int, default=1000, help="per scan (default: %(default)s)")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("--out", type=Path, help="folder for wild.json")
    sys.exit(run_command(parser, main))
