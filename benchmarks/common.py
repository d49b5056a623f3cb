"""Shared parts of the benchmark commands: arguments, data, timing, tables."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from scipy.spatial.transform import Rotation
from torch import Tensor

from wsdesc import WSDescError, read_points
from wsdesc.core.errors import InputError
from wsdesc.datasets.threedmatch import read_log
from wsdesc.evaluation.provenance import machine
from wsdesc.evaluation.scenes import PairTruth, with_information

T = TypeVar("T")


def make_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Make the argument parser of a command.

    Args:
        name: name of the module below `benchmarks`.
        description: its docstring.
    """
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--model` of a command that registers scans with one descriptor."""
    parser.add_argument("--model", default="indoor-fast", help="weights (default: %(default)s)")


def run_command(parser: argparse.ArgumentParser, main: Callable[[argparse.Namespace], bool | None]) -> int:
    """Parse the arguments, run `main`, and return the exit code.

    The code is 0 unless `main` returns False (1) or the input is invalid (2, with a line on stderr).
    """
    arguments = parser.parse_args()
    try:
        passed = main(arguments)
    except WSDescError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 1 if passed is False else 0


def read_truth(folder: Path) -> list[PairTruth]:
    """Read gt.log and, where it exists, gt.info."""
    pairs = with_information(read_log(folder / "gt.log"), folder / "gt.info")
    if not pairs:
        raise InputError(f"{folder / 'gt.log'}: names no pairs")
    return pairs


def fragment_path(scene: Path, number: int) -> Path:
    """Return the path of a scan in the layout of 3DMatch."""
    return scene / f"cloud_bin_{number}.ply"


def files_in_pairs(files: Sequence[Path]) -> list[tuple[Path, Path]]:
    """Group files: source, target, source, target, …"""
    if len(files) % 2:
        raise InputError(f"expected source and target files in pairs, got {len(files)} files")
    return list(zip(files[::2], files[1::2], strict=True))


def read_scan_or_room(path: Path | None) -> Tensor:
    """Read a scan (N, 3) and centre it; without a path, make one of a synthetic room."""
    if path is None:
        from wsdesc.datasets.synthetic import room_pair

        points = torch.as_tensor(room_pair(seed=0).source)
    else:
        points = torch.from_numpy(read_points(path))
    return (points - points.mean(0)).float()


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    """Draw a pose (4, 4) without translation."""
    pose = np.eye(4)
    pose[:3, :3] = Rotation.from_quat(rng.normal(size=4)).as_matrix()
    return pose


def random_pose(rng: np.random.Generator, shift: float) -> np.ndarray:
    """Draw a pose (4, 4) with a translation of up to `shift` per axis."""
    pose = random_rotation(rng)
    pose[:3, 3] = rng.uniform(-shift, shift, 3)
    return pose


def print_machine() -> None:
    """Print processor, GPU and versions."""
    print(machine())


def print_table(rows: list[tuple[str, str]]) -> None:
    """Print two aligned columns."""
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"  {name:<{width}}  {value}")


def print_rows(rows: list[list[str]]) -> None:
    """Print aligned columns; all but the first are aligned to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        rest = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
        print("  ".join([cells[0].ljust(widths[0]), *rest]))


def percent(share: float) -> str:
    """Format a share 0 … 1."""
    return f"{100 * share:.1f}"


def show_progress(items: Iterable[T], name: str, total: int | None = None) -> Iterator[T]:
    """Yield items and draw a progress bar on stderr, only on a terminal.

    Args:
        items: the items.
        name: description of the bar.
        total: number of items, needed if they come from an iterator.
    """
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    items, total = (list(items), None) if total is None else (items, total)
    hidden = not console.is_terminal
    yield from track(items, name, total, console=console, transient=True, disable=hidden)
