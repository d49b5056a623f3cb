"""Write synthetic scans of rooms and sites as training scans, at their working resolutions.

Each scan is scaled so that its working resolution is that of the shipped descriptors: scans of all sensors
and sizes then train one model. `wsdesc distill` and `wsdesc train` read the folder.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch

from benchmarks.common import make_parser, run_command
from wsdesc import write_points
from wsdesc.cloud.clean import clean
from wsdesc.cloud.sampling import voxel_downsample
from wsdesc.cloud.units import INDOOR_RESOLUTION, working_resolution
from wsdesc.datasets.synthetic import SITES, room_scans, site_scans

ROOMS = "room"  # beside the names in SITES


def write_place(kind: str, seed: int, scans: int, out: Path) -> int:
    """Write the scans of one room or site to a folder of its own; return their number."""
    made = room_scans(seed, scans) if kind == ROOMS else site_scans(kind, seed, scans)
    folder = out / f"{kind}-{seed}"
    folder.mkdir(parents=True, exist_ok=True)
    for number, scan in enumerate(made):
        points = torch.from_numpy(clean(scan.points).points)
        length = working_resolution(points)
        thinned = voxel_downsample(points, length) * (INDOOR_RESOLUTION / length)
        write_points(folder / f"cloud_bin_{number}.ply", thinned.numpy().astype(np.float32))
    return len(made)


def main(arguments: argparse.Namespace) -> None:
    """Write all places in parallel."""
    context = get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, context, torch.set_num_threads, (1,)) as pool:
        places = [
            pool.submit(write_place, kind, arguments.seed + k, arguments.scans, arguments.out)
            for k in range(arguments.places)
            for kind in (*SITES, ROOMS)
        ]
        count = sum(place.result() for place in places)
    print(f"{count} scans of {len(places)} places in {arguments.out}")


if __name__ == "__main__":
    parser = make_parser("synthetic_scans", __doc__)
    parser.add_argument("out", type=Path, help="folder to write")
    parser.add_argument("--places", type=int, default=8, help="places of each kind")
    parser.add_argument("--scans", type=int, default=4, help="scans of each place")
    parser.add_argument("--seed", type=int, default=7000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    sys.exit(run_command(parser, main))
