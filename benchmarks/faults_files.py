"""Check whether files are complete, and whether two folders have the same content."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from wsdesc import read_points

# Entries that depend on time, on the start of a run, or on the run itself.
_IGNORED = {
    "pairs_per_second", "waiting", "seconds", "loss", "orthogonality", "cycle", "gradient_norm", "runs"
}  # fmt: skip
_RUNS = "runs.json"  # names every run of a benchmark: one more after a fault


def temporary(folder: Path) -> list[str]:
    """List temporary files."""
    expected = (".lock",)
    return [p.name for p in _files(folder) if p.name.startswith(".") and p.name not in expected]


def broken(folder: Path) -> list[str]:
    """List files that cannot be read completely, with the reason; an unfinished last line is allowed."""
    failures = []
    for path in _files(folder):
        if not path.name.startswith("."):
            try:
                _content(path)
            except Exception as error:  # a damaged file may raise anything
                failures.append(f"{path.name} ({type(error).__name__}: {error})")
    return failures


def differences(expected: Path, actual: Path) -> list[str]:
    """List files that exist in one folder only, or whose contents differ."""
    a, b = ({p.relative_to(f): p for p in _files(f) if p.name[0] != "."} for f in (expected, actual))
    missing = [str(name) for name in a.keys() ^ b.keys()]
    common = a.keys() & b.keys()
    return sorted(
        missing + [str(name) for name in common if not _equal(_content(a[name]), _content(b[name]))]
    )


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _content(path: Path) -> Any:
    """Read a file in a form that can be compared."""
    match path.suffix:
        case ".json":
            content = json.loads(path.read_text())
            return _comparable(content) if path.name != _RUNS else None
        case ".jsonl":
            lines = path.read_bytes().splitlines(keepends=True)
            rows = [_comparable(json.loads(line)) for line in lines if line.endswith(b"\n")]
            return sorted(rows, key=json.dumps)
        case ".csv":
            with path.open(newline="") as file:
                return [_comparable(row) for row in csv.DictReader(file)]
        case ".yaml":
            return yaml.safe_load(path.read_text())
        case ".npz":
            with np.load(path) as arrays:
                return {name: arrays[name] for name in arrays}
        case ".ply":
            return read_points(path)
        case ".safetensors":
            from safetensors.torch import load_file

            return {name: tensor.numpy() for name, tensor in load_file(path).items()}
        case ".png":
            from matplotlib.image import imread

            return imread(path)
        case ".md":
            return [line for line in path.read_text().splitlines() if line.startswith("|")]  # the tables
    return path.read_bytes()


def _comparable(value: Any) -> Any:
    """Remove entries that differ between runs."""
    if isinstance(value, dict):
        return {k: _comparable(v) for k, v in value.items() if k not in _IGNORED}
    return [_comparable(v) for v in value] if isinstance(value, list) else value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[k], b[k]) for k in a)
    if isinstance(a, np.ndarray):
        return np.array_equal(a, b)
    return bool(a == b)
