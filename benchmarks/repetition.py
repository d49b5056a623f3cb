"""Reconstruct places with repetitive structure, and count wrong edges and placed scans.

    python -m benchmarks.repetition --work DIR [CASE…] [--viewpoints kept|lost|both] [--distinct]

A CASE is a kind and a seed: floor:31 (9 laser scans of a synthetic floor with equal bays), courtyard:62 (20
scans of courtyards that repeat by 90° or 180°), street:2 (8 scans, as in the gallery), or building:0 (13 real
laser scans; the number is the seed of the turns). Default: floors 31 to 34, five courtyards with 4-fold
repetition, the building with five turns, the street.

Scans are renamed, shuffled and rotated at random. Where viewpoints are kept, the origin of each scan still is
the position of its scanner, as in files of most scanners; where they are lost, scans are shifted, too.

Each finished case is a line of DIR/records.jsonl, and the same command continues a stopped run. Finished
models and true poses stay in DIR/CASE. Prints a row per case and a total for each kind.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import make_parser, print_machine, print_rows, run_command
from benchmarks.known_scans import (
    TRUTH,
    PlacedScan,
    count_right,
    count_wrong,
    make_site,
    rotated,
    save_truth,
    true_poses,
    write_shuffled,
)
from benchmarks.reconstruct import run
from wsdesc import read_points
from wsdesc.core.errors import InputError
from wsdesc.datasets.threedmatch import find_fragments
from wsdesc.evaluation.provenance import machine

SCANS = {"floor": 9, "courtyard": 20, "street": 8}
REPORTED = [
    *(f"floor:{seed}" for seed in (31, 32, 33, 34)),
    *(f"building:{turn}" for turn in range(5)),
    "street:2",
    *(f"courtyard:{seed}" for seed in (62, 63, 65, 66, 67)),
]
RECORDS = "records.jsonl"


def make_scans(kind: str, seed: int, data: Path) -> list[PlacedScan]:
    """Return the scans of a case, in the frames of their scanners, and their poses."""
    if kind == "building":
        scene = data / "tls" / "building"
        poses = true_poses(scene)
        return [("building", poses[k], read_points(path)) for k, path in find_fragments(scene).items()]
    if kind not in SCANS:
        raise InputError(f"unknown kind of place {kind!r}: choose one of {', '.join([*SCANS, 'building'])}")
    scans = make_site(kind, seed, SCANS[kind])
    return [(kind, s.T_world_scan, np.asarray(s.points, np.float64)) for s in scans]


def run_case(case: str, conditions: Sequence[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Reconstruct one case, in a new process for each condition; return the records."""
    kind, seed = case.split(":")
    scans = make_scans(kind, int(seed), arguments.data)
    return [run_condition(case, scans, viewpoints, arguments) for viewpoints in conditions]


def run_condition(
    case: str, scans: list[PlacedScan], viewpoints: str, arguments: argparse.Namespace
) -> dict[str, Any]:
    """Reconstruct scans with or without viewpoints, and append the record to the file."""
    seed = int(case.split(":")[1])
    folder = arguments.work / f"{case.replace(':', '-')}-{viewpoints}"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "scans").mkdir(parents=True)
    if viewpoints == "kept":
        scans = rotated(scans, seed)
    truth = write_shuffled(folder / "scans", scans, seed, moved=viewpoints == "lost")
    save_truth(folder / TRUTH, truth)
    options = ["--distinct"] if arguments.distinct else []
    done = run(folder / "scans", folder / "model", 1, *options)
    result = done.result
    accepted = [edge for edge in result.edges if edge.accepted]
    record: dict[str, Any] = {"case": case, "viewpoints": viewpoints, "scans": len(truth)}
    record |= {"placed": len(result.T_world_scan), "frames": [len(names) for names in result.components]}
    record |= {"right": count_right(truth, result.components, result.T_world_scan)}
    record |= {"pairs": len(result.edges), "accepted": len(accepted), "wrong": count_wrong(truth, accepted)}
    record |= {"seconds": done.seconds, "core_seconds": done.core_seconds, "machine": machine()}
    if not arguments.keep:
        shutil.rmtree(folder / "scans")
        shutil.rmtree(folder / "model" / "cache")
    with (arguments.work / RECORDS).open("a") as lines:
        lines.write(json.dumps(record) + "\n")
    print(json.dumps(record), flush=True)
    return record


def main(arguments: argparse.Namespace) -> None:
    print_machine()
    arguments.work.mkdir(parents=True, exist_ok=True)
    file = arguments.work / RECORDS
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    finished = {(record["case"], record["viewpoints"]) for record in records}
    conditions = ["kept", "lost"] if arguments.viewpoints == "both" else [arguments.viewpoints]
    cases = arguments.cases or REPORTED
    left = {case: [c for c in conditions if (case, c) not in finished] for case in cases}
    with ProcessPoolExecutor(arguments.processes, get_context("spawn")) as pool:
        for future in [pool.submit(run_case, *item, arguments) for item in left.items() if item[1]]:
            records += future.result()
    wanted = {(case, condition) for case in cases for condition in conditions}
    print_rows(table([record for record in records if (record["case"], record["viewpoints"]) in wanted]))


def table(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Return a row per case and a total of each kind and condition."""
    columns = ["scans", "placed", "right", "pairs", "accepted", "wrong"]
    rows = [["case", "viewpoints", *columns, "frames", "core s"]]

    def group(record: dict[str, Any]) -> tuple[str, str]:
        return record["case"].split(":")[0], record["viewpoints"]

    for (kind, viewpoints), own in groupby(sorted(records, key=group), group):
        cases = sorted(own, key=lambda record: int(record["case"].split(":")[1]))
        for record in cases:
            figures = [str(record[column]) for column in columns]
            frames = "+".join(map(str, record["frames"])) or "-"
            rows.append([record["case"], viewpoints, *figures, frames, f"{record['core_seconds']:.0f}"])
        totals = [str(sum(record[column] for record in cases)) for column in columns]
        seconds = sum(record["core_seconds"] for record in cases)
        rows.append([f"all {kind}", viewpoints, *totals, "", f"{seconds:.0f}"])
    return rows


def parser() -> argparse.ArgumentParser:
    parser = make_parser("repetition", __doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="kind:seed (default: the reported ones)")
    parser.add_argument("--viewpoints", choices=("kept", "lost", "both"), default="both")
    parser.add_argument("--processes", type=int, default=2, help="cases at a time (default: %(default)s)")
    parser.add_argument("--distinct", action="store_true", help="no checks for repetitive structure")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="has tls/building")
    parser.add_argument("--work", type=Path, required=True, help="folder of records and models")
    parser.add_argument("--keep", action="store_true", help="keep scans and descriptions, too")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
