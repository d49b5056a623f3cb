"""Register LiDAR scans of courtyards with 4-fold repetition that overlap little, with and without viewpoints.

    python -m benchmarks.courtyards --sites 120 -o courtyards.jsonl
    python -m benchmarks.courtyards --show courtyards.jsonl

Each synthetic courtyard is scanned from several positions by one spinning LiDAR with 16 to 128 lines. The
pairs with a true overlap of 0.1 to 0.3 are registered in the rounds of `wsdesc.register`: with given
viewpoints, with the viewpoints that were detected, and without any. A pose is right if it is off by less
than 5° and 12 resolutions. Writes one line per pair and case, and prints a table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser, percent, print_machine, print_rows, run_command
from benchmarks.judge import ROUNDS, first_keypoints
from wsdesc.core.geometry import inverse

SENSORS = ("lidar16", "lidar32", "lidar64", "lidar128")
OVERLAPS = (0.1, 0.3)
FOLD = 4
SCANS = 6  # per site
MAX_ROTATION, MAX_TRANSLATION = 5.0, 0.3  # degrees and metres of the model


def register_site(seed: int, device: str) -> list[dict[str, Any]]:
    """Register the pairs of one courtyard that overlap little; none if its repetition is not 4-fold."""
    from wsdesc.alignment.surface import make_surface
    from wsdesc.cloud.units import working_resolution
    from wsdesc.datasets.synthetic import overlap, site_scans
    from wsdesc.datasets.synthetic.sites import build_site
    from wsdesc.descriptor.description import cleaned_points, describe

    if build_site("courtyard", seed).fold != FOLD:
        return []
    scans = site_scans("courtyard", seed, SCANS, SENSORS[seed % len(SENSORS)], OVERLAPS)
    resolution = working_resolution(*(scan.points for scan in scans))
    described = [
        describe(
            scan.points,
            keypoints=ROUNDS[-1][0],
            resolution=resolution,
            viewpoint=(0, 0, 0),
            device=device,
        ).to(device)
        for scan in scans
    ]
    detected = [cleaned_points(scan.points).viewpoint is not None for scan in scans]
    surfaces = [make_surface(d.points) for d in described]
    records = []
    for a, b in itertools.combinations(range(len(scans)), 2):
        p, q = described[a], described[b]
        T = inverse(q.T_scan_local) @ inverse(scans[b].T_world_scan) @ scans[a].T_world_scan @ p.T_scan_local
        T[:3, 3] /= p.unit
        points = [d.points.cpu().numpy() for d in (p, q)]
        shared = min(overlap(*points, T), overlap(*points[::-1], inverse(T)))
        if not OVERLAPS[0] <= shared < OVERLAPS[1]:
            continue
        of_pair = {"seed": seed, "sensor": scans[a].sensor, "source": a, "target": b, "overlap": shared}
        known = {"given": (True, True), "detected": (detected[a], detected[b]), "none": (False, False)}
        results: dict[tuple[bool, bool], dict[str, Any]] = {}
        for viewpoints, used in known.items():
            if used not in results:
                pair = [
                    d if use else replace(d, range_image=None) for d, use in zip((p, q), used, strict=True)
                ]
                results[used] = _register(pair, (surfaces[a], surfaces[b]), T)
            records.append(of_pair | {"viewpoints": viewpoints, "number": sum(used)} | results[used])
    return records


def _register(pair: list[Any], surfaces: tuple[Any, Any], T_true: np.ndarray) -> dict[str, Any]:
    """Register a described pair, with more and more keypoints until a round is a success."""
    from wsdesc.evaluation.metrics import rotation_error_deg, translation_error
    from wsdesc.registration.candidates import find_candidates
    from wsdesc.registration.result import SUCCESS

    start = time.perf_counter()
    record: dict[str, Any] = {}
    for number, (keypoints, hypotheses, refined) in enumerate(ROUNDS):
        p, q = (first_keypoints(description, keypoints) for description in pair)
        found = find_candidates(p, q, surfaces, hypotheses=hypotheses, refined=refined).ranked
        errors = [
            (
                float(rotation_error_deg(c.refined.T_target_source, T_true)),
                float(translation_error(c.refined.T_target_source, T_true)),
            )
            for c in found
        ]
        right = [turn < MAX_ROTATION and shift < MAX_TRANSLATION for turn, shift in errors]
        confidence = found[0].confidence if found else 0.0
        record = {
            "round": number,
            "confidence": confidence,
            "right": bool(right and right[0]),
            "right_among_candidates": any(right),
            "rotation_error": errors[0][0] if errors else None,
            "translation_error": errors[0][1] if errors else None,
        }
        if confidence >= SUCCESS:
            break
    return record | {"seconds": round(time.perf_counter() - start, 3)}


def summarise(records: list[dict[str, Any]]) -> list[list[str]]:
    """Summarise the records: a row for each sensor and for all, and for each case of viewpoints."""
    from wsdesc.registration.result import SUCCESS

    rows = [
        ["sensor", "viewpoints", "known", "pairs", "R", "among candidates", "called", "precision", "recall"]
    ]
    for sensor in [*SENSORS, "all"]:
        for viewpoints in ("given", "detected", "none"):
            own = [r for r in records if sensor in (r["sensor"], "all") and r["viewpoints"] == viewpoints]
            if not own:
                continue
            called = [r for r in own if r["confidence"] >= SUCCESS]
            correct, right = sum(r["right"] for r in called), sum(r["right"] for r in own)
            rows.append(
                [
                    sensor,
                    viewpoints,
                    f"{sum(r['number'] for r in own)} of {2 * len(own)}",
                    str(len(own)),
                    percent(right / len(own)),
                    percent(sum(r["right_among_candidates"] for r in own) / len(own)),
                    str(len(called)),
                    percent(correct / len(called)) if called else "–",
                    percent(correct / right) if right else "–",
                ]
            )
    return rows


def _work(job: tuple[int, str, float]) -> list[dict[str, Any]]:
    seed, device, deadline = job
    if time.time() > deadline:
        return []
    import torch

    torch.set_num_threads(1)
    return register_site(seed, device)


def main(arguments: argparse.Namespace) -> None:
    """Register the pairs of all sites, or show the table of earlier records."""
    if arguments.show:
        lines = [line for path in arguments.show for line in path.read_text(encoding="utf-8").splitlines()]
        print_rows(summarise([json.loads(line) for line in lines]))
        return
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"
    deadline = time.time() + 60 * arguments.minutes
    jobs = [
        (seed, arguments.device, deadline)
        for seed in range(arguments.first, arguments.first + arguments.sites)
    ]
    records: list[dict[str, Any]] = []
    with (
        arguments.out.open("w", encoding="utf-8") as file,
        multiprocessing.get_context("spawn").Pool(arguments.jobs) as pool,
    ):
        for of_site in pool.imap_unordered(_work, jobs):
            file.writelines(json.dumps(record) + "\n" for record in of_site)
            file.flush()
            records += of_site
    print_machine()
    print_rows(summarise(records))


if __name__ == "__main__":
    parser = make_parser("courtyards", __doc__)
    parser.add_argument(
        "--sites", type=int, default=120, help="courtyards; those without 4-fold repetition are skipped"
    )
    parser.add_argument("--first", type=int, default=90_000, help="first seed (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: one per core)")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no new site after this time")
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("courtyards.jsonl"), help="default: %(default)s"
    )
    parser.add_argument("--show", type=Path, nargs="+", help="records of earlier runs; registers nothing")
    sys.exit(run_command(parser, main))
