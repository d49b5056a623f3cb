"""Register single pairs of scans from other projects, and compare the successes with what is known of them.

    python -m benchmarks.wild shared/data/wild

Two pairs have a known pose. Of five pairs the rotation and the distance are known roughly, from their authors
or from a look at the scans. Of the others nothing is known, or no pose is right. Each pair is registered by
`wsdesc.register` with its defaults, in the scans' own frames. Prints one row per pair, and how many of the
successes are right, wrong and unknown. Nothing may be fitted to these pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.wild_peers import PAIRS, read_known_pose
from wsdesc import register
from wsdesc.core.geometry import Floats
from wsdesc.evaluation import rotation_error_deg, translation_error

MORE_PAIRS = {
    "kinect, second pair": ("kinect/capture0002.pcd", "kinect/capture0003.pcd"),
    "car, scaled": ("car/car_cloud400_scaled.csv", "car/car_cloud400.csv"),
    "object_in_scene": ("object_in_scene/milk.pcd", "object_in_scene/milk_cartoon_all_small_clorox.pcd"),
    "lidar_radar": ("lidar_radar/multisensor_radar.xyz", "lidar_radar/multisensor_lidar.xyz"),
}
MAX_ROTATION, MAX_TRANSLATION = 5.0, 12.0  # degrees and resolutions: errors of a right pose


class Rough(NamedTuple):
    """Rotation and distance between two scans, and by how much they may be wrong."""

    degrees: float
    distance: float  # in the unit of the scans
    tolerance: tuple[float, float]  # of both


ROUGH = {  # from the description of the data
    "hippo": Rough(43, 0, (10, np.inf)),
    "kinect": Rough(0, 0, (10, 0.3)),
    "kinect, second pair": Rough(0, 0, (10, 0.3)),
    "ndt_room": Rough(40, 2, (10, 1)),
    "livox_campus": Rough(103, 29, (10, 5)),
}
NEVER_RIGHT = ("car, scaled",)  # the scales of the scans differ


def check_pose(folder: Path, name: str, T: Floats, resolution: float) -> tuple[bool | None, str]:
    """Return whether a pose is right, None if that is unknown, and by what reference."""
    if name in NEVER_RIGHT:
        return False, "other scale"
    T_known = read_known_pose(folder, name)
    if T_known is not None:
        errors = float(rotation_error_deg(T, T_known)), float(translation_error(T, T_known)) / resolution
        return errors[0] < MAX_ROTATION and errors[1] < MAX_TRANSLATION, "known"
    if name not in ROUGH:
        return None, "none"
    rough = ROUGH[name]
    turn, shift = float(rotation_error_deg(T, np.eye(4))), float(np.linalg.norm(T[:3, 3]))
    near = abs(turn - rough.degrees) < rough.tolerance[0] and abs(shift - rough.distance) < rough.tolerance[1]
    return near, "rough"


def main(arguments: argparse.Namespace) -> None:
    """Register all pairs, and print one row for each."""
    rows = [["pair", "success", "confidence", "overlap", "R °", "t", "scale", "reference", "right", "s"]]
    counts = dict.fromkeys(("right", "wrong", "unknown"), 0)
    records = []
    for name, files in (PAIRS | MORE_PAIRS).items():
        result = register(*(arguments.data / file for file in files), device=arguments.device)
        T = result.T_target_source
        right, reference = check_pose(arguments.data, name, T, result.resolution)
        verdict = {True: "right", False: "wrong", None: "unknown"}[right]
        counts[verdict] += result.success
        degrees, distance = float(rotation_error_deg(T, np.eye(4))), float(np.linalg.norm(T[:3, 3]))
        seconds = sum(result.timings.values())
        rows.append([
            name, "yes" if result.success else "no", f"{result.confidence:.3f}",
            f"{min(result.overlap, result.overlap_target):.2f}", f"{degrees:.1f}", f"{distance:.3g}",
            f"{result.scale:.3f}", reference, verdict, f"{seconds:.1f}",
        ])  # fmt: skip
        records.append({"pair": name, "success": result.success, "confidence": result.confidence})
        records[-1] |= {"right": right, "reference": reference, "T_target_source": T.tolist()}
    print_machine()
    print_rows(rows)
    print(f"successes: {sum(counts.values())} of {len(records)}; of these {counts}")
    if arguments.out:
        arguments.out.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = make_parser("wild", __doc__)
    parser.add_argument("data", type=Path, help="folder of the pairs, wild/")
    parser.add_argument("--device", default="auto", help="cpu, cuda or auto")
    parser.add_argument("-o", "--out", type=Path, help="file for the records (JSON)")
    sys.exit(run_command(parser, main))
