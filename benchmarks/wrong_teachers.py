"""Measure how many wrong poses the checks of `wsdesc.adapt` keep from teaching, and how many right ones.

    python -m benchmarks.wrong_teachers SCANS… [--shares 0.02 0.05 0.1 0.2] [--seeds 5]

SCANS are folders of overlapping scans. Each is reconstructed once. A share of the pairs then gets a wrong
pose: turned by 90°, 180° or 270° and shifted, so that the scans overlap as much as possible. No pose file is
read: the poses of the reconstruction count as right.
Prints, for each folder and share: the injected wrong poses, those that remain, and the right poses that are
left out, as sums of all seeds.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import make_parser, percent, print_machine, print_rows, run_command
from wsdesc import reconstruct
from wsdesc.adaptation.scans import TaughtScan, load_scans
from wsdesc.adaptation.teachers import find_teachers
from wsdesc.reconstruction.result import Reconstruction


class Counts(NamedTuple):
    """Pairs of scans that teach, or would without a check."""

    injected: int
    remaining: int  # of the injected ones
    right: int  # pairs with a right pose
    lost: int  # of the right ones

    def row(self, folder: str, share: float) -> list[str]:
        """Return a row of the table."""
        taught = self.right - self.lost + self.remaining
        return [
            folder,
            f"{100 * share:.0f} %",
            f"{self.remaining} of {self.injected}",
            f"{self.lost} of {self.right}",
            f"{percent(self.remaining / taught)} %" if taught else "–",
        ]


def count(scans: list[TaughtScan], reconstruction: Reconstruction, share: float, seeds: int) -> Counts:
    """Inject wrong poses with several seeds, and count what the check leaves out."""
    injected = remaining = right = lost = 0
    for seed in range(seeds):
        trusted, kept = (
            find_teachers(scans, reconstruction, wrong=share, check=check, seed=seed).pairs
            for check in (False, True)
        )
        wrong = sum(pair.wrong for pair in trusted)
        still_wrong = sum(pair.wrong for pair in kept)
        injected, remaining = injected + wrong, remaining + still_wrong
        right += len(trusted) - wrong
        lost += (len(trusted) - wrong) - (len(kept) - still_wrong)
    return Counts(injected, remaining, right, lost)


def main(arguments: argparse.Namespace) -> None:
    header = ["scans", "share", "wrong poses that remain", "right poses left out", "wrong among the taught"]
    rows = [header]
    for folder in arguments.scans:
        reconstruction = reconstruct(folder, device=arguments.device, jobs=arguments.jobs)
        scans = load_scans(reconstruction.paths, reconstruction.resolution)
        for share in arguments.shares:
            rows.append(count(scans, reconstruction, share, arguments.seeds).row(folder.name, share))
            print(*rows[-1], sep=", ", file=sys.stderr, flush=True)
    print_machine()
    print_rows(rows)


def parser() -> argparse.ArgumentParser:
    parser = make_parser("wrong_teachers", __doc__)
    parser.add_argument("scans", type=Path, nargs="+", help="folders of scans")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.02, 0.05, 0.1, 0.2], help="of wrong poses"
    )
    parser.add_argument("--seeds", type=int, default=5, help="draws of wrong poses (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default: %(default)s)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(run_command(parser(), main))
