"""Record poses and confidences as hashes, and compare them with an earlier record.

A change that should not alter results is checked by two runs on the same machine:

    python -m benchmarks.unchanged data/ --write before.json
    python -m benchmarks.unchanged data/ --compare before.json

Everything runs with default options on the CPU: all pairs of kitchen, bunny and building, the pair of
`wsdesc demo`, and a reconstruction of the bunny. Hashes of other processors or library versions differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np

import wsdesc
from benchmarks.common import make_parser, run_command

PAIR_SETS = {  # name: folder of the scans, folder of gt.log
    "kitchen": ("indoor/test/kitchen", "indoor/test/kitchen-evaluation"),
    "kitchen-lo": ("indoor/test/kitchen", "indoor/test/kitchen-evaluation-lo"),
    "bunny": ("objects/bunny", "objects/bunny-evaluation"),
    "building": ("tls/building", "tls/building-evaluation"),
}
RECONSTRUCTED = "objects/bunny"

Record = dict[str, dict[str, list[str]]]  # set: result: [hash of the pose, confidence]


def main(arguments: argparse.Namespace) -> bool:
    """Record the sets; return whether they equal those of an earlier record, if one is given."""
    record: Record = {}
    for name in arguments.only or [*PAIR_SETS, "demo", "reconstruction"]:
        record[name] = run(name, arguments.data)
        print(f"{name}: {len(record[name])} results", file=sys.stderr, flush=True)
        if arguments.write:
            text = json.dumps({"machine": platform.platform(), "results": record}, indent=1)
            arguments.write.write_text(text + "\n", encoding="utf-8")
    if arguments.compare is None:
        return True
    before = json.loads(arguments.compare.read_text(encoding="utf-8"))["results"]
    return compare(before, record) == 0


def parser() -> argparse.ArgumentParser:
    parser = make_parser("unchanged", __doc__)
    parser.add_argument("data", type=Path, help="folder with indoor/, objects/ and tls/")
    parser.add_argument("--write", type=Path, help="file for the record")
    parser.add_argument("--compare", type=Path, help="record of an earlier run")
    sets = [*PAIR_SETS, "demo", "reconstruction"]
    parser.add_argument("--only", nargs="+", choices=sets, help="sets (default: all)")
    return parser


def run(name: str, data: Path) -> dict[str, list[str]]:
    if name == "demo":
        from wsdesc.datasets.synthetic import room_pair
        from wsdesc.view.demo import displace

        pair = displace(room_pair(0), 0)
        result = wsdesc.register(pair.source, pair.target, device="cpu")
        return {"seed 0": [fingerprint(result.T_target_source), repr(result.confidence)]}
    if name == "reconstruction":
        return reconstruct(sorted((data / RECONSTRUCTED).glob("*.ply")))
    scans, truth = (data / folder for folder in PAIR_SETS[name])
    results = {}
    for i, j in pairs_of(truth / "gt.log"):
        ends = [scans / f"cloud_bin_{k}.ply" for k in (j, i)]
        result = wsdesc.register(*ends, device="cpu")
        results[f"{j} in {i}"] = [fingerprint(result.T_target_source), repr(result.confidence)]
    return results


def reconstruct(scans: list[Path]) -> dict[str, list[str]]:
    result = wsdesc.reconstruct(scans, device="cpu")
    poses = {name: [fingerprint(T), ""] for name, T in result.T_world_scan.items()}
    edges = {
        f"{edge.source} in {edge.target}": [fingerprint(edge.T_target_source), repr(edge.confidence)]
        for edge in result.edges
    }
    return poses | edges


def pairs_of(log: Path) -> list[tuple[int, int]]:
    """Read the indices of a gt.log: a line `i j n`, then four lines of a matrix."""
    rows = [line.split() for line in log.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [(int(row[0]), int(row[1])) for row in rows[::5]]


def fingerprint(T: Any) -> str:
    if T is None:
        return "none"
    return hashlib.sha256(np.ascontiguousarray(T, dtype="<f8").tobytes()).hexdigest()[:16]


def compare(before: Record, after: Record) -> int:
    """Print what differs; return how many results do."""
    differing = 0
    for name, results in after.items():
        old = before.get(name, {})
        changed = [key for key in sorted(old.keys() | results.keys()) if old.get(key) != results.get(key)]
        print(f"{name}: {len(results) - len(changed)} of {len(results)} identical")
        for key in changed:
            print(f"  {key}: {old.get(key)} -> {results.get(key)}")
        differing += len(changed)
    return differing


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
